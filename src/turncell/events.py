"""Everything an agent can do, as frozen values.

Events are the vocabulary of the whole house: backends make them, machines read
them, views are drawn from them, the tape writes them. They hold plain data
only, so each has one JSON form (`to_json`, `from_json`).

`turn_id` names the turn an event belongs to ("" when the agent did not say);
`at` is the moment it was read, in seconds of the monotonic clock.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "AgentFinished",
    "ApiRetry",
    "Event",
    "HookReported",
    "ModelTold",
    "Notice",
    "QuestionAsked",
    "QuestionSettled",
    "SessionOpened",
    "StopProgress",
    "TextDelta",
    "TextSettled",
    "ThinkingDelta",
    "TodosChanged",
    "ToolEnded",
    "ToolOutput",
    "ToolStarted",
    "TurnEnded",
    "UsageReported",
    "from_json",
    "to_json",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something the agent did, or something that was done to it."""

    turn_id: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened(Event):
    """The agent took the prompt and says which conversation this is."""

    session_id: str
    model: str | None = None
    cwd: str | None = None
    permission_mode: str | None = None
    agent_version: str | None = None
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """A piece of assistant text; a preview until its block is settled."""

    text: str
    block: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettled(Event):
    """A whole block of assistant text: the authority over its deltas."""

    text: str
    block: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta(Event):
    """A piece of the model's thinking."""

    text: str
    block: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(Event):
    """A tool call with its whole input. `parent` is the tool of a sub-agent's call."""

    tool_id: str
    name: str
    input: dict[str, Any] = field(default_factory=dict)
    parent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput(Event):
    """The last lines that a tool, which still runs, has printed so far."""

    tool_id: str
    tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded(Event):
    """A tool call is over: `status` is done, failed, denied or cancelled. `change` is what it
    changed in a file: lines with a sign each."""

    tool_id: str
    status: str
    output: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(Event):
    """The agent waits for a person: may it use this tool, or (`AskUserQuestion`) which of a
    few answers? `scope` says what an answer "for the session" would allow."""

    question_id: str
    tool: str
    input: dict[str, Any] = field(default_factory=dict)
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSettled(Event):
    """A question is over: `answer` is allowed, answered, denied or cancelled."""

    question_id: str
    answer: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRetry(Event):
    """The agent tries its API again: attempt of limit, after delay seconds."""

    attempt: int
    limit: int
    delay: float
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Event):
    """One line a person should see: `level` is info, warning or error."""

    text: str
    level: str = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTold(Event):
    """What the model was told beside the prompt, about the turn before."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TodosChanged(Event):
    """The agent's own list of what it has to do: each entry has a `text` and a `status`
    (pending, in_progress or completed)."""

    todos: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookReported(Event):
    """A hook of the user's own settings: `status` is running, done, failed or cancelled."""

    hook_id: str
    name: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReported(Event):
    """Cost in USD and tokens of this turn alone; None where nobody knows. Not `final`: as far
    as model calls were counted while the turn goes on."""

    cost_usd: float | None = None
    usage: dict[str, int] | None = None
    model_turns: int | None = None
    final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFinished(Event):
    """The agent's own terminal message for one turn.

    `end` is completed, aborted (it was asked to stop), max_turns, budget or
    error; `error` is the agent's own text for the last of these.
    """

    end: str
    error: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopProgress(Event):
    """A stop moved: the rung it is on and the seconds that rung has left."""

    rung: str
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded(Event):
    """The last event of every turn: how it ended and why."""

    outcome: str
    reason: str | None = None
    error: str | None = None


_KINDS: dict[str, type[Event]] = {cls.__name__: cls for cls in Event.__subclasses__()}


def to_json(event: Event) -> dict[str, Any]:
    """Return the event as a JSON object with its class name under "event"."""
    return {"event": type(event).__name__, **dataclasses.asdict(event)}


def from_json(data: dict[str, Any]) -> Event:
    """Rebuild an event from `to_json`; fields this version lacks are ignored.

    Raises ValueError when the kind is unknown or a needed field is missing.
    """
    kind = _KINDS.get(str(data.get("event")))
    if kind is None:
        raise ValueError(f"unknown event {data.get('event')!r}")
    known = {f.name for f in dataclasses.fields(kind)}
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{kind.__name__} is incomplete: {error}") from error
