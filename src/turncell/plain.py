"""Text that is safe to show: no escape sequences, no control or bidi override characters.

On the ground floor, for errors quote what an agent wrote, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["clean", "revealed", "visible"]

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_RETURNS = re.compile(r"\r\n?")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ANY = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


_HIDES = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return `text` with a name, as in `\\x1b`, for each character that would not be seen."""
    return _HIDES.sub(lambda found: ascii(found[0])[1:-1], text)


def revealed(value: Any) -> Any:
    """The same data, where no character hides another: a terminal may take for a title what a
    shell runs."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(str(key)): revealed(each) for key, each in value.items()}
    return [revealed(each) for each in value] if isinstance(value, (list, tuple)) else value


def clean(text: str) -> str:
    """Return `text` without escapes and control characters (tab and newline stay).

    Lone surrogates, which no message can carry, become U+FFFD.
    """
    if not _ANY.search(text):
        return text
    if _SURROGATES.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROLS.sub("", _ESCAPES.sub("", _RETURNS.sub("\n", text)))
