"""What can happen to a turn, as frozen values: the input of `Turn.handle`."""

from __future__ import annotations

from dataclasses import dataclass

from turncell import events as ev
from turncell.outcome import Reason, Survivor
from turncell.questions import Answer
from turncell.settings import StopPolicy

__all__ = [
    "Acked", "Answered", "Begin", "Cleared", "Gone", "Heard", "Hurry", "NotAcked",
    "Ready", "StartFailed", "Stimulus", "StopAsked", "Tick",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stimulus:
    """Something that happened to a turn."""


@dataclass(frozen=True, slots=True)
class Begin(Stimulus):
    """Its place in the line came."""


@dataclass(frozen=True, slots=True)
class Ready(Stimulus):
    """The agent is connected and can take the prompt."""


@dataclass(frozen=True, slots=True)
class StartFailed(Stimulus):
    """The agent could not be made ready, or would not take the prompt."""

    error: str


@dataclass(frozen=True, slots=True)
class Heard(Stimulus):
    """An event came from the agent."""

    event: ev.Event


@dataclass(frozen=True, slots=True)
class StopAsked(Stimulus):
    """Somebody wants the turn to stop; `force` skips to the last rung."""

    reason: Reason
    force: bool = False


@dataclass(frozen=True, slots=True)
class Hurry(Stimulus):
    """The kernel leaves: stop under this short policy."""

    policy: StopPolicy


@dataclass(frozen=True, slots=True)
class Acked(Stimulus):
    """The agent answered an interrupt; `withdrawn` when it never began this turn."""

    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class NotAcked(Stimulus):
    """An interrupt could not be delivered."""


@dataclass(frozen=True, slots=True)
class Gone(Stimulus):
    """The agent's process has ended; `detail` is for a person."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Cleared(Stimulus):
    """The processes were swept and looked at."""

    survivors: tuple[Survivor, ...] = ()
    spared: tuple[Survivor, ...] = ()
    taken: tuple[Survivor, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered(Stimulus):
    """A person answered a question. It waits in line with the stops: none may overtake it."""

    question_id: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Tick(Stimulus):
    """Time went on."""
