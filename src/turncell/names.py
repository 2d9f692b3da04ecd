"""How names are written: of sessions, their ids, and lists of names (`A, B`)."""

from __future__ import annotations

import re

__all__ = ["SESSION_ID", "SESSION_NAME", "names"]

#: What a session may be called: something that is easy to type again.
SESSION_NAME = re.compile(r"[\w.-]{1,80}")
#: What an agent's session id looks like.
SESSION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def names(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list, without the spaces around them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
