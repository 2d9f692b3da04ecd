"""Steps and replies from the plain values that YAML gives.

A step is a mapping with the key of its kind and its options beside it (`{words: 400, pace: 0.05}`),
or one bare word for the kinds without a value (`stall`). Everything wrong raises `ScriptError`,
saying where it is inside the scenario.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from turncell.modelserver.steps import (
    Cut,
    Echo,
    HttpError,
    Pause,
    Ping,
    Recall,
    ScriptError,
    Silence,
    Stall,
    Step,
    Text,
    Thinking,
    ToolUse,
    Words,
)


@dataclass(frozen=True)
class _Kind:
    """How one kind of step is written; `value` is the field that the key's own value fills."""

    make: type[Any]
    value: str | None = None

    def options(self) -> set[str]:
        return {f.name for f in fields(self.make)} - {self.value}


_KINDS = {
    "text": _Kind(Text, "text"),
    "words": _Kind(Words, "n"),
    "echo": _Kind(Echo),
    "recall": _Kind(Recall),
    "thinking": _Kind(Thinking, "text"),
    "tool_use": _Kind(ToolUse, "name"),
    "pause": _Kind(Pause, "seconds"),
    "ping": _Kind(Ping),
    "stall": _Kind(Stall),
    "silence": _Kind(Silence),
    "cut": _Kind(Cut),
    "http_error": _Kind(HttpError, "status"),
}
_REPLY_KEYS = {"steps", "input_tokens", "output_tokens", "stop_reason"}


def known_keys(node: dict[Any, Any], allowed: set[str], where: str) -> None:
    """Raise `ScriptError` at the first key of `node` that is not `allowed`."""
    for key in node:
        if key not in allowed:
            choice = ", ".join(sorted(allowed))
            raise ScriptError(f"{where}: unknown key {key!r} (known here: {choice})")


def read_step(node: object, where: str) -> Step:
    """One step; `where` is its place in the scenario, for the error."""
    if isinstance(node, str):
        node = {node: None}
    if not isinstance(node, dict):
        raise ScriptError(f"{where}: a step is a mapping or one word, not {node!r}")
    kinds = [key for key in node if key in _KINDS]
    if len(kinds) != 1:
        found = ", ".join(map(repr, node)) or "nothing"
        raise ScriptError(f"{where}: needs one of {', '.join(_KINDS)}; found {found}")
    name = kinds[0]
    kind = _KINDS[name]
    options = {key: value for key, value in node.items() if key != name}
    known_keys(options, kind.options(), f"{where} ({name})")
    if kind.value is not None:
        options[kind.value] = node[name]
    elif node[name] not in (None, True):
        raise ScriptError(f"{where}: {name}: takes no value, not {node[name]!r}")
    try:
        step: Step = kind.make(**options)
    except ScriptError as error:
        raise ScriptError(f"{where}: {error}") from None
    return step


def read_reply(node: object, where: str) -> tuple[list[Step], dict[str, Any]]:
    """The steps of one reply and its options (`input_tokens`, `output_tokens`, `stop_reason`)."""
    if isinstance(node, list):
        node = {"steps": node}
    if not isinstance(node, dict):
        raise ScriptError(f"{where}: a reply is a list of steps or a mapping, not {node!r}")
    known_keys(node, _REPLY_KEYS, where)
    steps = node.get("steps")
    if not isinstance(steps, list):
        raise ScriptError(f"{where}: steps: must be a list of steps, not {steps!r}")
    options = {key: value for key, value in node.items() if key != "steps"}
    return [read_step(step, f"{where}.steps[{i}]") for i, step in enumerate(steps)], options
