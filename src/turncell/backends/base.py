"""The seam between the runtime and an agent.

A `Backend` makes a `Connection`: one live agent process, warm between turns. It
reads all the time and hands every event to `deliver` at once, also during a
stop; an agent whose output nobody reads cannot even answer that it stops.

A backend of real processes has `turncell.procs` as its `processes`. It must start each
agent with `procs.TOKEN` set to the launch's token, which everything below inherits and by
which a stop finds it, and have its tools carry `procs.CHILD_MARK`: by that mark a stop that
keeps the agent warm tells a tool, which it ends, from a server of the agent's own.

All methods run on the runtime's loop. None of them may decide how long a stop
takes: the driver bounds every call, and ends the process by its pid if it must.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from turncell.events import Event
from turncell.outcome import Survivor
from turncell.procs import Proc, Verdict
from turncell.questions import Answer, Unattended
from turncell.settings import Settings

__all__ = [
    "NOBODY", "Ack", "Backend", "Connection", "Damage", "Deliver", "Hangup", "Kept", "Launch",
    "Processes", "Prompt",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the user sent. `turn_id` is the uuid by which its messages are matched; `note` is
    told to the model before it, as a text of its own ("": nothing is). `asks`: a person can
    answer questions; else they get what `unattended` says."""

    text: str
    turn_id: str
    note: str = ""
    asks: bool = False
    unattended: Unattended = Unattended.DENY


@dataclass(frozen=True, slots=True)
class Hangup:
    """The agent's process has ended; `detail` is one line for a person."""

    detail: str


@dataclass(frozen=True, slots=True)
class Ack:
    """The agent's answer to an interrupt: the prompts it dropped before it began them."""

    withdrawn: tuple[str, ...] = ()


class Damage(str, Enum):
    """What is wrong with an agent's record of a conversation."""

    NONE = "none"
    TORN = "torn"  # its end is missing; the rest can be resumed
    UNUSABLE = "unusable"  # there is one, and nothing in it can be resumed


@dataclass(frozen=True, slots=True)
class Kept:
    """What an agent has written down of a conversation: the texts of both sides (at least
    those of the last turns), and what is wrong with it. `asked` tells where the texts of a turn
    begin, under "" for a turn that it does not name; None: that is not known."""

    texts: tuple[str, ...] = ()
    damage: Damage = Damage.NONE
    asked: Mapping[str, int] | None = None

    def has(self, text: str, turn_id: str) -> bool:
        """Whether it has this text of this turn, alone or as a part of one. People say the same
        thing twice ("Go on."), so what was said before the turn does not count."""
        asked = {"": 0} if self.asked is None else self.asked
        begins = asked.get(turn_id, asked.get("", len(self.texts)))
        return any(text.strip() in known for known in self.texts[begins:])


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start an agent. `opened` says that `session_id` was written down before;
    `exact` forbids to start afresh when it cannot be found. `granted` keeps what a person
    allowed "for the session", from one agent of it to the next."""

    settings: Settings
    session_id: str
    opened: bool = False
    exact: bool = False
    token: str = field(default="", compare=False)
    granted: set[str] = field(default_factory=set, compare=False)


#: The turn id of what an agent does on its own account, between prompts: when a task
#: it left running ends, it may take a turn that nobody asked for.
NOBODY = "nobody"

#: Receives every event and, last of all, one `Hangup`. Never blocks.
Deliver = Callable[[Event | Hangup], None]


class Connection(Protocol):
    """One live agent process."""

    #: Whether it was to resume a conversation that the agent does not have (any more).
    history_missing: bool

    @property
    def pid(self) -> int | None:
        """The agent's process, None where there is none."""

    @property
    def alive(self) -> bool:
        """Whether it can take a prompt; once False it stays so."""

    @property
    def works_behind(self) -> bool:
        """Whether it works on something in the background, whatever turn that is of."""

    async def send(self, prompt: Prompt) -> None:
        """Hand a prompt over. Raises OSError or a SettingError when it cannot."""

    async def interrupt(self) -> Ack:
        """Ask the running turn to stop. Raises OSError when it cannot be asked."""

    def refuse(self, turn_id: str) -> None:
        """Deny every further tool of this turn and settle its open questions."""

    def answer(self, question_id: str, answer: Answer) -> None:
        """Settle an open question; one that is not open (any more) is left alone."""

    def hang_up(self) -> None:
        """Close the agent's input, so that it can flush and leave. Returns at once."""

    async def aclose(self) -> None:
        """Release what this side holds, after the process has ended."""


class Processes(Protocol):
    """How a forced stop finds and ends processes. For real ones this is the module
    `turncell.procs`, which says what each call does; all but the two signals may
    block and are called in a worker thread."""

    def tree(self, pid: int | None) -> set[Proc]:
        """`pid` and all its descendants."""

    def marked(self, token: str, *, tools_only: bool = False) -> set[Proc]:
        """Everything that carries the token of one launch."""

    def tools_below(self, pid: int | None) -> set[Proc]:
        """What the tools of this agent run now."""

    def below(self, procs: Iterable[Proc]) -> set[Proc]:
        """Those that still run, and all below them."""

    def alive(self, procs: Iterable[Proc]) -> set[Proc]:
        """Those that still run."""

    def clear(
        self,
        token: str,
        known: Iterable[Proc] = (),
        *,
        spare: Iterable[Proc] = (),
        tools_only: bool = False,
        seconds: float = 1.5,
        patience: float = 0.0,
    ) -> Verdict:
        """Tell it to end, kill it after `patience`, and look until nothing is left."""

    def interrupt(self, pid: int | None) -> None:
        """SIGINT to one process."""

    def terminate(self, pid: int | None) -> None:
        """SIGTERM to one process."""


class Backend(Protocol):
    """Makes connections."""

    @property
    def processes(self) -> Processes:
        """Where the processes of its connections live."""

    async def connect(self, launch: Launch, deliver: Deliver) -> Connection:
        """Start an agent that is ready for a prompt.

        Raises SettingError (the agent is missing, gave up, or was given
        something it cannot use). Cancelling it leaves no process behind.
        """

    def kept(self, session_id: str) -> Kept | None:
        """What was written down of a conversation, None where nothing was. May block.

        Raises SettingError when that cannot be read.
        """

    def length(self, session_id: str) -> int:
        """How long the record is (bytes). May block."""

    def prompted_since(self, session_id: str, length: int, ours: Collection[str]) -> bool:
        """Whether a prompt that is not `ours` was written behind that length. May block."""

    def users(self, session_id: str) -> Sequence[Survivor]:
        """The agents that have it open and were not started by turncell. May block."""

    def fork(self, session_id: str) -> str:
        """Copy a conversation as it is now, and return the id of the copy. May block.

        Raises UsageError when there is nothing to copy.
        """
