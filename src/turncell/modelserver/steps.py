"""What a scripted reply is made of: one small frozen value per step.

Content steps (`Text`, `Words`, `Echo`, `Thinking`, `ToolUse`) write into the answer; the others
(`Pause`, `Ping`, `Stall`, `Silence`, `Cut`, `HttpError`) are how well or badly the server behaves
on the way. All durations are seconds. A wrong value raises `ScriptError` at once, naming its key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

_WORD = re.compile(r"\S+\s*|\s+")


class ScriptError(ValueError):
    """A script that cannot be played; the message names the key, and for YAML file and scenario."""


def require(ok: bool, key: str, wanted: str, value: object) -> None:
    """Raise `ScriptError` about `key` unless `ok`."""
    if not ok:
        raise ScriptError(f"{key}: must be {wanted}, not {value!r}")


def is_seconds(value: object) -> bool:
    """Whether `value` is a finite number of seconds, 0 or more."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]


def is_count(value: object, least: int = 0) -> bool:
    """Whether `value` is a whole number of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def cut_up(text: str, chunk: int | None) -> Iterable[str]:
    """`text` in pieces: word by word when `chunk` is None, else `chunk` characters each."""
    if chunk is None:
        return _WORD.findall(text)
    return (text[i : i + chunk] for i in range(0, len(text), chunk))


def _check_flow(chunk: object, pace: object) -> None:
    require(chunk is None or is_count(chunk, 1), "chunk", "a whole number, 1 or more", chunk)
    require(is_seconds(pace), "pace", "seconds, 0 or more", pace)


@dataclass(frozen=True)
class Text:
    """Text, one delta per word (or per `chunk` characters), `pace` seconds after each delta."""

    text: str
    chunk: int | None = None
    pace: float = 0.0

    def __post_init__(self) -> None:
        """Refuse wrong values with `ScriptError`."""
        require(isinstance(self.text, str), "text", "a string", self.text)
        _check_flow(self.chunk, self.pace)

    def pieces(self) -> Iterable[str]:
        """The deltas."""
        return cut_up(self.text, self.chunk)


@dataclass(frozen=True)
class Words:
    """`n` deltas of text made from `word`, where `{i}` is the number of the delta, from 0."""

    n: int
    pace: float = 0.0
    word: str = "w{i} "

    def __post_init__(self) -> None:
        """Refuse wrong values with `ScriptError`."""
        require(is_count(self.n), "words", "a whole number, 0 or more", self.n)
        require(isinstance(self.word, str), "word", "a string", self.word)
        _check_flow(None, self.pace)

    def pieces(self) -> Iterable[str]:
        """The deltas, made one by one: a flood costs no memory."""
        head, mark, tail = self.word.partition("{i}")
        if not mark:
            return (self.word for _ in range(self.n))
        return (f"{head}{i}{tail}" for i in range(self.n))


@dataclass(frozen=True)
class Echo:
    """The text `echo: ` and the prompt, streamed as `Text` is."""

    chunk: int | None = None
    pace: float = 0.0

    def __post_init__(self) -> None:
        """Refuse wrong values with `ScriptError`."""
        _check_flow(self.chunk, self.pace)


@dataclass(frozen=True)
class Recall:
    """The last words of the answer before, as the request brought them: proof of a resume."""

    chunk: int | None = None
    pace: float = 0.0

    def __post_init__(self) -> None:
        """Refuse wrong values with `ScriptError`."""
        _check_flow(self.chunk, self.pace)


@dataclass(frozen=True)
class Thinking:
    """A thinking block, streamed as `Text` is; its signature is sent when the block ends."""

    text: str
    chunk: int | None = None
    pace: float = 0.0
    signature: str = "c2NyaXB0ZWQgdGhvdWdodA=="

    def __post_init__(self) -> None:
        """Refuse wrong values with `ScriptError`."""
        require(isinstance(self.text, str), "thinking", "a string", self.text)
        require(isinstance(self.signature, str), "signature", "a string", self.signature)
        _check_flow(self.chunk, self.pace)

    def pieces(self) -> Iterable[str]:
        """The deltas."""
        return cut_up(self.text, self.chunk)


@dataclass(frozen=True)
class ToolUse:
    """A tool call; its input is one piece of JSON, or pieces of `chunk` characters."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    chunk: int | None = None
    pace: float = 0.0

    def __post_init__(self) -> None:
        """Refuse wrong values with `ScriptError`."""
        named = isinstance(self.name, str) and bool(self.name)
        require(named, "tool_use", "the name of a tool", self.name)
        require(isinstance(self.input, Mapping), "input", "a mapping", self.input)
        _check_flow(self.chunk, self.pace)
        try:
            json.dumps(dict(self.input))
        except (TypeError, ValueError) as error:
            raise ScriptError(f"input: must be JSON ({error})") from None

    def pieces(self) -> Iterable[str]:
        """The input as JSON, in pieces."""
        whole = json.dumps(dict(self.input))
        return [whole] if self.chunk is None else cut_up(whole, self.chunk)


@dataclass(frozen=True)
class Pause:
    """Nothing for `seconds`, then on; as the first step it delays the response headers."""

    seconds: float

    def __post_init__(self) -> None:
        """Refuse wrong values with `ScriptError`."""
        require(is_seconds(self.seconds), "pause", "seconds, 0 or more", self.seconds)


@dataclass(frozen=True)
class Ping:
    """A `ping` event."""


@dataclass(frozen=True)
class Stall:
    """Silence for ever with the socket open; as the first step, after the response headers."""


@dataclass(frozen=True)
class Silence:
    """As the first step: the request is read and never answered, not even with headers."""


@dataclass(frozen=True)
class Cut:
    """Close the socket without ending the response; as the first step, without any response."""


@dataclass(frozen=True)
class HttpError:
    """An error answer; with `times`, only the first so many times for the same prompt.

    After that the rest of the reply plays. `retry_after` is seconds, sent as the header of that
    name. After content has been streamed the status is spent: an `error` event is sent instead.
    """

    status: int
    message: str = "scripted error"
    times: int | None = None
    retry_after: float | None = None

    def __post_init__(self) -> None:
        """Refuse wrong values with `ScriptError`."""
        is_error = is_count(self.status, 400) and self.status < 600
        require(is_error, "http_error", "a status from 400 to 599", self.status)
        require(isinstance(self.message, str), "message", "a string", self.message)
        limited = self.times is None or is_count(self.times, 1)
        require(limited, "times", "a whole number, 1 or more", self.times)
        waited = self.retry_after is None or is_seconds(self.retry_after)
        require(waited, "retry_after", "seconds, 0 or more", self.retry_after)


Step: TypeAlias = (
    Text
    | Words
    | Echo
    | Recall
    | Thinking
    | ToolUse
    | Pause
    | Ping
    | Stall
    | Silence
    | Cut
    | HttpError
)
