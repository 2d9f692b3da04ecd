"""How a list of names is written in an option, a variable and `%config`: `A, B`."""

from __future__ import annotations

import re

__all__ = ["SESSION_NAME", "names"]

#: What a session may be called: something that is easy to type again.
SESSION_NAME = re.compile(r"[\w.-]{1,80}")


def names(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list, without the spaces around them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
