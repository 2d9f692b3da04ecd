"""How a turn ended: `Outcome`, `Reason`, `StopReceipt`, `TurnResult`."""

from __future__ import annotations

import dataclasses
import importlib
import json
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from turncell.events import Event

if TYPE_CHECKING:
    from turncell.timeline import Timeline

__all__ = [
    "RECORD_TYPE",
    "Outcome",
    "Reason",
    "Rung",
    "StopReceipt",
    "Survivor",
    "ToolCall",
    "TurnResult",
]

#: Mime type of the record a finished turn leaves in the notebook.
RECORD_TYPE = "application/vnd.turncell.turn+json"


class _Word(str, Enum):
    def __str__(self) -> str:
        return str(self.value)


class Outcome(_Word):
    """How a turn ended."""

    COMPLETED = "completed"  # the agent finished what it was asked
    INTERRUPTED = "interrupted"  # it ended by itself after it was asked to stop
    KILLED = "killed"  # it had to be forced
    FAILED = "failed"  # an error that no stop caused
    LOST = "lost"  # its process died under it, or could not be heard any more
    UNSTOPPED = "unstopped"  # `interrupt` gave up: it still runs


class Reason(_Word):
    """Why a turn ended early."""

    USER = "user"
    KERNEL_INTERRUPT = "kernel_interrupt"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    MAX_TURNS = "max_turns"
    SHUTDOWN = "shutdown"
    API = "api"


class Rung(_Word):
    """One step of the stop ladder."""

    INTERRUPT = "interrupt"
    SIGINT = "sigint"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Survivor:
    """A process that could not be ended."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"{self.pid} {self.command}"


@dataclass(frozen=True, slots=True)
class StopReceipt:
    """The record of one stop. Times are seconds after `requested_at`.

    `requested_at` is seconds of the monotonic clock; a time is None when the
    thing did not happen. `rung` is the hardest step that was needed: `interrupt`
    also when the prompt was withdrawn before the agent had it. `spared` names processes that
    earlier turns left running on purpose, `taken` those of them that ended with the agent
    or in the meantime.
    """

    reason: Reason
    rung: Rung
    requested_at: float
    ack_after: float | None = None
    ended_after: float | None = None
    reaped_after: float | None = None
    survivors: list[Survivor] = field(default_factory=list)
    connection: str = "closed"
    resumable: bool = True
    text_chars: int = 0
    spared: list[Survivor] = field(default_factory=list)
    taken: list[Survivor] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the receipt as a JSON object."""
        data = dataclasses.asdict(self)
        return {**data, "reason": str(self.reason), "rung": str(self.rung)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StopReceipt:
        """Rebuild a receipt from `to_json`. Raises KeyError or ValueError when it is none."""
        lists = ("survivors", "spared", "taken")
        processes = {name: [Survivor(**each) for each in data[name]] for name in lists}
        words = {"reason": Reason(data["reason"]), "rung": Rung(data["rung"])}
        return cls(**{**data, **processes, **words})

    def __str__(self) -> str:
        over = next((t for t in (self.reaped_after, self.ended_after) if t is not None), None)
        if over is None and not self.survivors:
            return "no end seen: it may still be running"
        parts = [f"stopped by {self.rung}" + (f" in {over:.2f} s" if over is not None else "")]
        parts.append("agent kept warm" if self.connection == "warm" else "agent closed")
        if self.survivors:
            parts.append("STILL RUNNING: " + ", ".join(map(str, self.survivors)))
        elif self.reaped_after is None:
            parts.append("not verified: something may be left")
        else:
            parts.append("nothing left running")
        if self.spared:
            parts.append("spared: " + ", ".join(map(str, self.spared)))
        if self.taken:
            parts.append("of earlier turns, ended too: " + ", ".join(map(str, self.taken)))
        return " · ".join(parts)


# The names that tools give their main input, what says most about a call first.
_MAIN_INPUTS = (
    "command", "file_path", "notebook_path", "pattern", "url", "query", "description", "subject",
    "skill",
)  # fmt: skip


def main_input(given: dict[str, Any]) -> str:
    """What says most about a call: its main input, else all of it as JSON."""
    main = next((given[n] for n in _MAIN_INPUTS if isinstance(given.get(n), str)), None)
    if main is None:
        return json.dumps(given, ensure_ascii=False, default=str) if given else ""
    return str(main)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of a turn. `seconds` and `status` are None while it runs.

    `output` holds at most 100 kB; a longer one is cut and says so. `change` is what it changed
    in a file, lines with a sign each.
    """

    tool_id: str
    name: str
    input: dict[str, Any] = field(default_factory=dict)
    status: str | None = None
    seconds: float | None = None
    output: str = ""
    change: str = ""
    parent: str | None = None


@dataclass(frozen=True)
class TurnResult:
    """Everything one turn left. `str()` is its text.

    `cost_usd` (USD) and `usage` (tokens) are of this turn alone and None where
    unknown; `duration` is seconds from the cell's start to its end; `receipt`
    is None when nobody asked for a stop; `told` is what the model was told with the prompt
    because the turn before did not end by itself, None where nothing was.
    """

    text: str
    outcome: Outcome
    reason: Reason | None
    session_id: str
    turn_id: str
    session: str = "main"
    cost_usd: float | None = None
    usage: dict[str, int] | None = None
    duration: float = 0.0
    model_turns: int | None = None
    model: str | None = None
    tools: tuple[ToolCall, ...] = ()
    receipt: StopReceipt | None = None
    error: str | None = None
    told: str | None = None
    events: tuple[Event, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """Return the record that is saved with the notebook (events left out)."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del data["events"]
        data.update(
            outcome=str(self.outcome),
            reason=self.reason and str(self.reason),
            tools=[dataclasses.asdict(tool) for tool in self.tools],
            receipt=self.receipt and self.receipt.to_json(),
        )
        return {"version": 1, **data}

    @classmethod
    def from_json(
        cls,
        data: dict[str, Any],
        tools: tuple[ToolCall, ...] = (),
        events: tuple[Event, ...] = (),
    ) -> TurnResult:
        """Rebuild a result from `to_json`, with the tools and events that are given.

        Raises KeyError or ValueError when it is none.
        """
        known = {f.name for f in dataclasses.fields(cls)} - {"tools", "events"}
        values = {name: value for name, value in data.items() if name in known}
        values["outcome"] = Outcome(data["outcome"])
        values["reason"] = data.get("reason") and Reason(data["reason"])
        values["receipt"] = data.get("receipt") and StopReceipt.from_json(data["receipt"])
        return cls(**{"text": "", "reason": None, **values}, tools=tools, events=events)

    def timeline(self) -> Timeline:
        """Who worked when, as a picture with a twin in words."""
        drawn: Timeline = importlib.import_module("turncell.timeline").of_result(self)
        return drawn

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        # Loaded by name on first use: a result is plain data, its renderer lives
        # five floors up and needs a Markdown library.
        saved = importlib.import_module("turncell.views.saved")
        bundle: dict[str, Any] = saved.result_bundle(self)
        return bundle
