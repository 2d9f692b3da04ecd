"""Text that is safe to show: no escape sequences, no control or bidi override characters.

Only what is displayed passes through here; `result.text` stays as the agent wrote it.
"""

from __future__ import annotations

import re
from typing import IO

__all__ = ["Cleaner", "clean", "writable"]

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_RETURNS = re.compile(r"\r\n?")
_SURROGATES = re.compile("[\ud800-\udfff]")
# The end of a piece whose meaning the next piece decides.
_UNDECIDED = re.compile(
    r"(?:\r|[\ud800-\udbff]|\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]{0,2000}\x1b?|[ -/]*)?)\Z"
)
_ANY = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """Return `text` without escapes and control characters (tab and newline stay).

    Lone surrogates, which no message can carry, become U+FFFD.
    """
    if not _ANY.search(text):
        return text
    if _SURROGATES.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROLS.sub("", _ESCAPES.sub("", _RETURNS.sub("\n", text)))


def writable(words: str, stream: IO[str]) -> str:
    """Return `words` with "?" for what the stream's encoding lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return words.encode(encoding, "replace").decode(encoding, "replace")


class Cleaner:
    """Cleans a text that comes in pieces, in time linear in its length."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str, *, last: bool = False) -> str:
        """Return what is certain so far; `last` lets nothing wait."""
        text = self._held + piece
        undecided = None if last else _UNDECIDED.search(text, max(0, len(text) - 2010))
        cut = undecided.start() if undecided else len(text)
        self._held = text[cut:]
        return clean(text[:cut])
