"""One conversation on the runtime loop: its link, and the turns that wait in line for it."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from turncell import stimuli as st
from turncell.archive.archive import Archive
from turncell.archive.notebook import here
from turncell.archive.register import Entry
from turncell.backends.base import Prompt
from turncell.config import agent_home
from turncell.driver import TurnRun
from turncell.handle import TurnHandle
from turncell.keeper import Keeper
from turncell.lease import Lease
from turncell.link import Link, LoadBackend
from turncell.memory import Memory
from turncell.outcome import Outcome, Reason, TurnResult
from turncell.painter import Drawable
from turncell.questions import Answer
from turncell.settings import Settings
from turncell.turn import Turn, TurnState

__all__ = ["Conversation", "Home", "Order"]


@dataclass(frozen=True, eq=False)
class Order:
    """What one turn was asked for."""

    prompt: str
    settings: Settings
    view: Drawable
    new: bool = False
    resume: str | None = None
    known: Entry | None = None  # what the register has of the session to resume
    asks: bool = False  # a person can answer questions
    offers: bool = False  # a conversation that begins says what could be resumed instead
    on_over: Callable[[TurnResult], None] = field(default=lambda _: None)


class Home(Protocol):
    """Where a conversation lives: what is kept of it, for which notebook, and after how many
    seconds an unused agent is closed."""

    archive: Archive
    notebook: str
    idle_limit: float

    def offer(self) -> str | None:
        """A line that offers an earlier session; may block."""


class Conversation:
    """Owns the link of one named session. Everything but `start`'s arguments, `busy`,
    `link` and the counters is touched on the loop only."""

    def __init__(
        self,
        name: str,
        load: LoadBackend,
        clock: Callable[[], float] = time.monotonic,
        home: Home | None = None,
    ) -> None:
        self.name = name
        self._home = home
        self._load = load
        self.link = self._new_link()
        self.memory = Memory(home.archive if home else None)
        self.turns = 0
        self.last_used: float | None = None
        self.left = "new"
        self._clock = clock
        self._line: deque[tuple[Order, TurnRun]] = deque()
        self._begun: TurnRun | None = None
        self._candidate: Link | None = None
        self._known: Entry | None = None  # what the register has of the candidate
        self._fresh: Link | None = None  # what `renew` wanted before another id was named
        self._retired: list[Link] = []
        self._idle: anyio.CancelScope | None = None

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return bool(self._line)

    @property
    def unstopped(self) -> bool:
        """Whether the turn that runs was given up by its stop."""
        first = next(iter(tuple(self._line)), None)
        return first is not None and first[1].turn.outcome is Outcome.UNSTOPPED

    @property
    def session_id(self) -> str:
        """The agent's session id: the one a pending `resume` will use, else the bound one."""
        return (self._candidate or self.link).session_id

    @property
    def opened(self) -> bool:
        """Whether the agent has written this conversation down."""
        return (self._candidate or self.link).opened

    def bind(self, session_id: str, entry: Entry | None = None) -> None:
        """Use another agent session from the next prompt on, if it can be resumed; `entry` is
        what the register has of it."""
        if session_id == self.link.session_id:
            self._candidate = None  # it is the one in use
            return
        self._fresh = self._candidate if self._candidate and not self._candidate.typed_id else None
        self._candidate, self._known = self._new_link(session_id), entry

    def renew(self) -> None:
        """Start afresh, under a new id, with the next prompt."""
        self._candidate, self._known = self._new_link(), None
        self.turns, self.left, self.last_used = 0, "new", None

    def _new_link(self, session_id: str | None = None) -> Link:
        home = self._home
        if home is None:
            return Link(self._load, session_id)
        lease = Lease(home.archive.claims, self.name, home.notebook, lambda: home.idle_limit)
        return Link(self._load, session_id, lease)

    def _new_keeper(self, order: Order, turn_id: str) -> Keeper | None:
        home = self._home
        if home is None:
            return None
        facts = {
            "name": self.name,
            "notebook": home.notebook,
            "cwd": order.settings.cwd or here(),
            "agent_home": agent_home(),
        }
        fresh = self._candidate is None and not (self.opened or self.turns)
        begins = order.offers and fresh and not (order.new or order.resume)
        offer = home.offer if begins else None
        return Keeper(home.archive, turn_id, order.prompt, facts, self._clock(), offer)

    async def conduct(self, order: Order, handle: TurnHandle) -> None:
        """Run one turn when its place in the line comes."""
        self._used()
        turn = Turn(handle.turn_id, order.settings.stop, order.settings.timeout)
        run = TurnRun(
            turn,
            Prompt(order.prompt, handle.turn_id, "", order.asks, order.settings.unattended),
            self.link,
            order.settings,
            order.view,
            session=self.name,
            on_event=handle.hear,
            on_over=lambda result: self._over(result, run, order, handle),
            clock=self._clock,
            memory=self.memory,
            keeper=self._new_keeper(order, handle.turn_id),
        )
        self._line.append((order, run))
        self._call_first()
        try:
            await run.run()
        finally:
            handle.leave()
            try:
                await self.link.rest()
            finally:
                self._line.remove((order, run))
            try:
                await self._close_retired(run)
            finally:
                self._call_first()

    def _used(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _call_first(self) -> None:
        for place, (_, run) in enumerate(self._line):
            run.record.queued_behind = place
        if self._line and self._line[0][1].turn.state is TurnState.NEW:
            order, run = self._line[0]
            if run is self._begun:
                return
            self._begun = run
            # Only now: what the turns before it made of the session counts.
            if order.resume is not None:
                self.bind(order.resume, order.known)
            if order.new:
                self.renew()
            run.begin(self._candidate or self.link)

    def _over(self, result: TurnResult, run: TurnRun, order: Order, handle: TurnHandle) -> None:
        if run is self._begun:
            self._adopt(run.link, order)
        self.memory.learn(order.prompt, result)
        self.turns += not handle.done()  # an unstopped turn is reported again when it ends
        self.last_used = time.time()
        self.left = str(result.outcome)
        try:
            order.on_over(result)
        finally:
            handle.finish(result)

    def _adopt(self, link: Link, order: Order) -> None:
        """A session the user named becomes ours once it was really opened; else all stays."""
        if link is not self._candidate:
            return
        if link.reached or (link.tried and not link.typed_id):
            self._retired.append(self.link)
            self.link, self._candidate = link, None
            self.turns = self._known.turns if self._known is not None else 0
        elif link.tried or order.new or order.resume is not None:
            # It failed, or the turn that wanted it was taken back: all is as it was.
            self._candidate, self._fresh = self._fresh, None

    async def _close_retired(self, run: TurnRun) -> None:
        if run is self._begun and run.link is not self.link:
            self._retired.append(run.link)  # another was named while it was in use
        while self._retired:
            await self._retired.pop().close()

    def stop(self, turn_id: str | None, reason: Reason, force: bool) -> None:
        """Stop one turn, or the one that runs; nothing where there is none."""
        for _, run in self._line:
            state = run.turn.state
            # Where none is named, one that still waits is not meant: the one before it may
            # have been, whose cleaning up goes on.
            runs = state not in (TurnState.ENDED, TurnState.NEW)
            if turn_id == run.turn.turn_id or (turn_id is None and runs):
                run.put(st.StopAsked(reason, force))
                return

    def answer(self, question_id: str, answer: Answer) -> None:
        """Hand on what a person says to a question of the turn that runs."""
        if self._begun is not None:
            self._begun.put(st.Answered(question_id, answer))

    async def leave(self, seconds: float, *, spare_earlier: bool = True) -> None:
        """Stop every turn and close the agent, in about `seconds` in all."""
        self._used()
        leaving = tuple(self._line)
        for _, run in leaving:
            run.put(st.Hurry(run.turn.ladder.policy.hurried(seconds)))
        with anyio.move_on_after(seconds):
            while any(entry in self._line for entry in leaving):
                await anyio.sleep(0.01)
        if all(entry in leaving for entry in self._line):  # else the agent is needed
            await self.link.close(seconds / 4, spare_earlier=spare_earlier)

    async def close_if_idle(self, seconds: float) -> None:
        """Close the warm agent when the session stays unused for `seconds`."""
        self._used()  # a turn that was in line before may have been waiting for this too
        with anyio.CancelScope() as self._idle:
            await anyio.sleep(seconds)
            if not self.busy:
                await self.link.close_unused()


def new_turn_id() -> str:
    """A uuid for a turn: the agent repeats it in what belongs to the turn."""
    return str(uuid.uuid4())
