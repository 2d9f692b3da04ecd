"""The picture of a turn, which is all that a view gets: the `Snapshot`.

It is whole each time; drawing the same picture twice must change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from turncell import events as ev
from turncell.outcome import StopReceipt, ToolCall
from turncell.questions import Question

__all__ = ["ASKED", "Segment", "Snapshot", "StopView", "Todo", "join_text"]


#: The text of a tool's segment while a person is asked about it.
ASKED = "asked"


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of the turn, in order: kind is text, thinking, tool, question, todos (the
    agent's own list, which has one place) or notice.

    `key` is stable for the life of the turn; `settled` means it will not grow; `began` is
    when a tool began (monotonic seconds);
    `tool` is set for a tool, `question` for a question, `level` (info, warning, error)
    for a notice.
    """

    kind: str
    key: str
    text: str = ""
    settled: bool = False
    tool: ToolCall | None = None
    question: Question | None = None
    level: str = "info"
    began: float = 0.0


_BOXES = {"completed": "[x]", "in_progress": "[>]"}


@dataclass(frozen=True, slots=True)
class Todo:
    """One entry of the agent's own list: `status` is pending, in_progress or completed."""

    text: str
    status: str = "pending"

    def __str__(self) -> str:
        return f"{_BOXES.get(self.status, '[ ]')} {self.text}"


@dataclass(frozen=True, slots=True)
class StopView:
    """A stop under way: its rung and when (monotonic seconds) that rung and the
    whole stop are over at the latest."""

    rung: str
    rung_ends: float
    stop_ends: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole picture of a turn at `now` (monotonic seconds).

    `phase` is queued, starting, running, waiting, stopping or ended; `hooks` are those of the
    user that run, each with when it began. The fields from `outcome` on are set when it is ended.
    """

    turn_id: str
    session: str
    phase: str
    now: float
    began: float
    segments: tuple[Segment, ...] = ()
    session_id: str = ""
    model: str | None = None
    heard_at: float | None = None
    retry: ev.ApiRetry | None = None
    queued_behind: int = 0
    stop: StopView | None = None
    cost_usd: float | None = None
    usage: dict[str, int] | None = None
    todos: tuple[Todo, ...] = ()
    hooks: tuple[tuple[str, float], ...] = ()
    outcome: str | None = None
    reason: str | None = None
    error: str | None = None
    receipt: StopReceipt | None = None
    duration: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the turn began (its whole length once it is over)."""
        return self.duration if self.duration is not None else max(0.0, self.now - self.began)

    @property
    def silent_for(self) -> float:
        """Seconds since the agent last said anything, 0 outside a running turn."""
        if self.phase != "running" or self.heard_at is None:
            return 0.0
        return max(0.0, self.now - self.heard_at)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions that wait for a person, the oldest first."""
        asked = (s.question for s in self.segments if s.question is not None)
        return tuple(question for question in asked if question.answer is None)

    @property
    def text(self) -> str:
        """All assistant text, partial text included."""
        return join_text(self.segments)


def join_text(segments: tuple[Segment, ...] | list[Segment]) -> str:
    """All assistant text; a blank line stands where tools or thinking came between."""
    return "\n\n".join(s.text for s in segments if s.kind == "text" and s.text)
