"""Reading a request: which prompt it is about, and which model call of the turn it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What the agent adds to the user's words by itself.
_ADDED = re.compile(r"<(system-reminder|local-command-[a-z]+)\b[^>]*>.*?</\1>", re.DOTALL)

# What the agent writes in the model's name where a turn was cut off (CLI 2.1.332).
_FILLER = "No response requested."


@dataclass(frozen=True)
class Asked:
    """The prompt that a request answers, and the number of tool rounds since then, from 0.

    `remembered` is the last text of the model's own that came with the request.
    """

    prompt: str
    round: int
    remembered: str = ""


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    found = content if isinstance(content, list) else []
    return [block for block in found if isinstance(block, dict)]


def _own_text(block: Mapping[str, Any]) -> str:
    text = block.get("text") if block.get("type") == "text" else None
    return _ADDED.sub("", text).strip() if isinstance(text, str) else ""


def asked(messages: Sequence[Mapping[str, Any]]) -> Asked:
    """Find the prompt: the last text in a user message that the user wrote.

    Only the last block counts, because an agent joins what it has not had an answer to (a prompt
    that was stopped or that failed) and the new prompt into one message.
    """
    rounds = 0
    answered = False  # several results of one assistant message are one round
    for message in reversed(messages):
        if message.get("role") != "user":
            answered = answered and message.get("role") != "assistant"
            continue
        for block in reversed(_blocks(message)):
            if text := _own_text(block):
                return Asked(text, rounds, _last_answer(messages))
            if block.get("type") == "tool_result" and not answered:
                rounds += 1
                answered = True
    return Asked("", rounds)


def _last_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    for message in reversed(messages):
        if message.get("role") == "assistant":
            text = " ".join(_own_text(block) for block in _blocks(message)).strip()
            if text and text != _FILLER:
                return text
    return ""


def capped(value: Any, limit: int) -> Any:
    """A copy of a JSON value in which every string longer than `limit` characters is cut."""
    if isinstance(value, str):
        over = len(value) - limit
        return value if over <= 0 else f"{value[:limit]}... [{over} more characters]"
    if isinstance(value, dict):
        return {key: capped(item, limit) for key, item in value.items()}
    if isinstance(value, list):
        return [capped(item, limit) for item in value]
    return value
