"""Text that is safe to show: no escape sequences, no control or bidi override characters.

On the ground floor, for errors quote what an agent wrote, too.
"""

from __future__ import annotations

import re

__all__ = ["clean"]

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


def clean(text: str) -> str:
    """Return `text` without escapes and control characters (tab and newline stay).

    Lone surrogates, which no message can carry, become U+FFFD.
    """
    if not _ANY.search(text):
        return text
    if _SURROGATES.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROLS.sub("", _ESCAPES.sub("", _RETURNS.sub("\n", text)))
