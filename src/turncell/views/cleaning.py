"""Text that is safe to show: no escape sequences, no control or bidi override characters.

Only what is displayed passes through here; `result.text` stays as the agent wrote it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import IO, Any

from turncell.plain import clean

__all__ = ["Cleaner", "boundary", "clean", "writable"]

_LONGEST = 64  # characters that a cluster is looked for in
_FIRST_EMOJI = "\u00a9"  # no character before it is one
# The end of a piece whose meaning the next piece decides.
_UNDECIDED = re.compile(
    r"(?:\r|[\ud800-\udbff]|\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]{0,2000}\x1b?|[ -/]*)?)\Z"
)


@lru_cache(maxsize=1)
def _clusters() -> tuple[Any, Any]:
    """Matches what a reader takes for one character, and what of it may still be joined."""
    import regex  # type: ignore[import-untyped]  # not at import: loading must be fast

    joins = regex.compile(r"[\p{Extended_Pictographic}\p{Regional_Indicator}\u200d\ufe0f]")
    return regex.compile(r"\X"), joins


def boundary(text: str, at: int) -> int:
    """The place nearest to `at`, before it if there is one, where no character (as a reader
    sees it) is torn apart."""
    if text[at - 1 : at + 1].isascii():
        return at
    begin = max(0, at - _LONGEST)
    ends: list[int] = [
        begin + m.end() for m in _clusters()[0].finditer(text[begin : at + _LONGEST])
    ]
    return next((end for end in reversed(ends) if end <= at), ends[0])


def _half_emoji(text: str) -> int:
    """How much of the end could be the first half of an emoji."""
    if not text or text[-1] < _FIRST_EMOJI:
        return 0
    last: str = [m[0] for m in _clusters()[0].finditer(text[-_LONGEST:])][-1]
    return len(last) if _clusters()[1].search(last) is not None else 0


def writable(words: str, stream: IO[str]) -> str:
    """Return `words` with "?" for what the stream's encoding lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return words.encode(encoding, "replace").decode(encoding, "replace")


class Cleaner:
    """Cleans a text that comes in pieces, in time linear in its length. An emoji at the end
    waits for what comes next, which may be its other half."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str, *, last: bool = False) -> str:
        """Return what is certain so far; `last` lets nothing wait."""
        text = self._held + piece
        undecided = None if last else _UNDECIDED.search(text, max(0, len(text) - 2010))
        cut = undecided.start() if undecided else len(text)
        if not last:
            cut -= _half_emoji(text[:cut][-_LONGEST:])
        self._held = text[cut:]
        return clean(text[:cut])
