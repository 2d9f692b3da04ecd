"""Keeps one turn on disk while it runs: its journal, and its session's entry.

Lives on the runtime loop; the files are written in a worker thread, and each time it is
waited for only so long: a full or hung disk costs the journal, not the turn and not its stop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

import anyio

from turncell.archive.archive import Archive
from turncell.archive.claims import host, started
from turncell.archive.files import moment
from turncell.archive.journal import Journal
from turncell.archive.register import RUNNING
from turncell.events import Event, SessionOpened, ToolOutput
from turncell.outcome import Outcome, TurnResult
from turncell.painter import off_loop

__all__ = ["Keeper"]

#: Seconds that the beginning and the end of a turn wait for the disk, and a picture.
BOUND = 2.0
BRIEF = 0.3
#: Seconds between two looks for what no picture caused to be written.
LAP = 0.5
_MOST_TITLE = 80


class Stage(Enum):
    """How far a turn is, as the disk sees it."""

    WAITING = 0  # in line
    JOURNALED = 1  # it has begun, on a session that may be another's
    ENTERED = 2  # its session is ours, and the register says so
    ENDED = 3  # nothing more happens in it
    CLOSED = 4  # and all of it is written


class Opened(Enum):
    """Whether the agent took the prompt up, and the entry says so."""

    NO = 0
    HEARD = 1
    ENTERED = 2


class Keeper:
    """One turn's. `facts` are fields of the session's entry: name, notebook, cwd, ...;
    `offer` finds a line for the beginning of a conversation; `say` shows the user a line."""

    def __init__(
        self,
        archive: Archive,
        turn_id: str,
        prompt: str,
        facts: dict[str, Any],
        at: float,
        offer: Callable[[], str | None] | None = None,
    ) -> None:
        self._archive = archive
        self._turn_id = turn_id
        self._prompt = prompt
        self._facts = facts
        self._at = at
        self._offer = offer
        self.say: Callable[[str, str], None] = _nobody
        self._stage = Stage.WAITING
        self._session_id = ""
        self._journal: Journal | None = None
        self._stirred = anyio.Event()
        self._opened = Opened.NO
        self._counted = False  # this turn, in the entry
        self._troubled = False  # and the user was told
        # A worker that was not waited for may still be at it when the next one comes.
        self._writing = threading.Lock()
        self._hung = False  # the last one took too long

    def open(self, session_id: str) -> None:
        """The turn's place in the line came, and this is its session."""
        self._stage = Stage.JOURNALED
        self._session_id = session_id
        head: dict[str, Any] = {
            "turn_id": self._turn_id,
            "session_id": session_id,
            "session": self._facts["name"],
            "notebook": self._facts["notebook"],
            "began": moment(),
            "at": self._at,
            "host": host(),
            "pid": os.getpid(),
            "started": started(os.getpid()),
            "prompt": self._prompt,
        }
        path = self._archive.journals.path(session_id, self._turn_id)
        self._journal = Journal(path, head)

    async def enter(self) -> None:
        """Write down that the session is used: only now, for it may have been another's."""
        if self._stage is not Stage.JOURNALED:
            return  # the turn is over already
        self._stage = Stage.ENTERED
        offers: list[str | None] = []

        def work() -> None:
            self._archive.catch_up()
            offers.append(self._offer() if self._offer is not None else None)
            if self._stage is Stage.ENTERED:
                self._enter(left=RUNNING)

        await self._bounded(work, BOUND)
        for line in filter(None, offers):
            self.say(line, "info")

    def add(self, event: Event) -> None:
        """Something happened in the turn."""
        if isinstance(event, ToolOutput):
            return  # one a second, and the result has all of it
        if self._journal is not None and self._stage.value < Stage.ENDED.value:
            self._journal.add(event)
            self._stirred.set()
            if isinstance(event, SessionOpened) and self._opened is Opened.NO:
                self._opened = Opened.HEARD

    async def flush(self) -> None:
        """Have on disk what was added: called before it is shown. While the disk does not
        answer, nothing waits for it a second time."""
        behind = self._writing.locked() or (self._journal is not None and self._journal.behind)
        if behind and not (self._hung and self._writing.locked()):
            await self._bounded(self._write, BRIEF)

    async def run(self) -> None:
        """Write what is not shown, because the view is stuck or is none."""
        while True:
            await self._stirred.wait()
            self._stirred = anyio.Event()
            await self.flush()
            await anyio.sleep(LAP)

    async def end(self, result: TurnResult, opened: bool) -> None:
        """The turn is over, or could not be stopped and goes on; `opened` says whether the
        agent has written its session down."""
        ours = self._stage is Stage.ENTERED
        goes_on = result.outcome is Outcome.UNSTOPPED
        if not goes_on:
            self._stage = Stage.ENDED

        def work() -> None:
            if self._journal is not None and not goes_on:
                self._journal.close(result)
                self._stage = Stage.CLOSED
                if self._journal.trouble is not None:
                    self._archive.owe(self._journal)
            if ours and result.session_id != self._session_id:
                self._move(result.session_id)
            if ours:
                self._enter(left=str(result.outcome), opened=opened)

        await self._bounded(work, BOUND)

    def _write(self) -> None:
        if self._journal is None or self._stage is Stage.CLOSED:
            return
        self._journal.write()
        if self._opened is Opened.HEARD and self._stage is Stage.ENTERED:
            self._opened = Opened.ENTERED
            self._enter(left=RUNNING, opened=True)

    def _move(self, session_id: str) -> None:
        """The agent gave the conversation another id."""
        self._facts["parent"], self._session_id = self._session_id, session_id
        if self._journal is not None:
            self._journal.move(self._archive.journals.path(session_id, self._turn_id))

    def _enter(self, **changes: Any) -> None:
        fields = {**self._facts, **changes, "last_used": moment()}
        if not self._counted:
            entry = self._archive.register.get(self._session_id)
            fields["turns"] = entry.turns + 1 if entry is not None else 1
            if entry is None or not entry.first_prompt:
                fields["first_prompt"] = " ".join(self._prompt.split())[:_MOST_TITLE]
        self._archive.register.update(self._session_id, **fields)
        self._counted = True

    async def _bounded(self, work: Callable[[], None], seconds: float) -> None:
        with anyio.move_on_after(seconds) as scope:
            while self._writing.locked():
                await anyio.sleep(0.01)
            try:
                await off_loop(self._at_work, work)
            except OSError as error:
                self._trouble(error.strerror or str(error))
            if self._journal is not None and self._journal.trouble is not None:
                self._trouble(self._journal.trouble)
        self._hung = scope.cancelled_caught
        if scope.cancelled_caught and seconds >= BOUND:
            self._trouble(f"the disk does not answer in {seconds:.0f} s")

    def _at_work(self, work: Callable[[], None]) -> None:
        with self._writing:
            work()

    def _trouble(self, why: str) -> None:
        """Say once that the disk did not take it."""
        if not self._troubled:
            self._troubled = True
            self.say(
                f"The journal cannot be written ({why}): what this turn says is kept here and in "
                f"its result, but would not survive the kernel. Look at {self._archive.directory}.",
                "warning",
            )


def _nobody(text: str, level: str) -> None:
    """Nobody is there to be told yet."""
