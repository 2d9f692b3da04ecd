"""One session's line to its agent: a durable id and, at times, a warm connection.

It knows how to get an agent that has the conversation, and how to be rid of it within a bound.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio

from turncell import events as ev
from turncell import notices
from turncell.backends.base import NOBODY, Backend, Connection, Damage, Hangup, Kept, Launch
from turncell.config import launch_key
from turncell.errors import SessionBusy, SettingError
from turncell.family import Family
from turncell.lease import Lease
from turncell.painter import off_loop
from turncell.settings import Settings

__all__ = ["Link"]

#: Seconds an agent gets to leave politely before it is killed.
POLITE = 1.5
#: Seconds that a look at the agent's own files may take: a turn does not wait for them longer.
BRIEF = 2.0

#: Loads the backend: importing an SDK can take seconds, so it may not be on the loop.
LoadBackend = Callable[[], Backend]


class Link:
    """The agent of one session. Lives on the runtime loop."""

    def __init__(
        self, load: LoadBackend, session_id: str | None = None, lease: Lease | None = None
    ) -> None:
        self._load = load
        self._lease = lease or Lease(None)
        self.session_id = session_id or str(uuid.uuid4())
        self.opened = self.typed_id = session_id is not None
        self.reached = False  # an agent once had this conversation open
        self.connection: Connection | None = None
        self.receive: Callable[[ev.Event | Hangup], None] | None = None
        self.family = Family(lambda: self.connection.pid if self.connection else None)
        self._own_turn = False  # the agent has taken a turn that nobody asked for
        self.kept: Kept | None = None  # what there was when it was opened; None: it was warm
        self._opened_id: str | None = None  # the session ids that the agent gave in this turn
        self._ended_id: str | None = None
        # The turns that were sent: what the agent writes down of one can come after its end.
        self._ours: deque[str] = deque(maxlen=50)
        self._length = 0  # of the agent's record, when the last turn was over
        self._granted: set[str] = set()  # what was allowed "for the session"
        self._key: tuple[Settings, int] | None = None
        self._lock: anyio.Lock | None = None
        self._gone: anyio.Event | None = None  # set when the process has ended

    @property
    def _opening(self) -> anyio.Lock:
        # One opens or closes at a time: an idle agent may be closed as a prompt comes.
        # Made on the runtime's loop: a session may be named on any loop, trio's too.
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock

    def warm(self, settings: Settings) -> bool:
        """Whether the connection there is can serve this turn."""
        alive = self.connection is not None and self.connection.alive
        return alive and self._key == launch_key(settings)

    @property
    def started_with(self) -> Settings | None:
        """What the agent there is was started with, if there is one."""
        return None if self._key is None or self.ended else self._key[0]

    async def ready(self, settings: Settings, say: Callable[..., None]) -> None:
        """Make an agent ready that has this conversation; `say` warns the user.

        Raises SettingError, and SessionBusy when somebody else has the session open.
        """
        async with self._opening:
            if not self.warm(settings):  # else it was opened meanwhile
                await self._open(settings, say)

    async def _open(self, settings: Settings, say: Callable[..., None]) -> None:
        await self._close(POLITE)
        backend = await off_loop(self._load)
        await self._take(backend, settings, say)
        token = self.family.found(backend.processes)
        gone = self._gone = anyio.Event()

        def deliver(event: ev.Event | Hangup) -> None:
            if self._gone is gone:  # else it comes from an agent that was let go
                self._deliver(event)

        if self.kept is not None and self.kept.damage is Damage.TORN:
            say(notices.TORN.format(self.session_id[:8], self.session_id))
        exact = self.typed_id and not self.reached
        await self._lease.has_agent(None, token)
        launch = Launch(settings, self.session_id, self.opened, exact, token, self._granted)
        self.connection = await backend.connect(launch, deliver)
        self._key = launch_key(settings)
        self.reached = True
        await self._lease.has_agent(self.connection.pid, token)
        if self.connection.history_missing:
            self.opened = False
            say(notices.MISSING.format(self.session_id[:8], self.session_id))

    async def _take(self, backend: Backend, settings: Settings, say: Callable[..., None]) -> None:
        """Have the session for ourselves, and see what there is to resume of it."""
        ours = self.session_id
        await self._lease.take(ours, settings.in_use, say, partial(backend.users, ours))
        found, exact = await off_loop(backend.kept, ours), self.typed_id and not self.reached
        self.kept = found or Kept()
        usable = found is not None and found.damage is not Damage.UNUSABLE
        if exact:
            return  # as it is, or not at all
        if self.opened and not usable:
            say(notices.MISSING.format(ours[:8], ours))
        self.opened = usable
        if self.kept.damage is Damage.UNUSABLE:  # the agent would neither resume nor begin it
            self.session_id = str(uuid.uuid4())
            await self._lease.release()
            await self._lease.take(self.session_id, settings.in_use, say, tuple)

    async def settle_id(self) -> str | None:
        """After a turn: go on under the id that the agent gave, if it gave another and has
        the conversation under it. Returns a line for the user then."""
        ours, theirs = self.session_id, self._ended_id or self._opened_id or self.session_id
        if theirs == ours:
            return None
        backend = await off_loop(self._load)
        with anyio.move_on_after(BRIEF), suppress(OSError, SettingError):
            there = await off_loop(backend.kept, theirs)
            here = await off_loop(backend.kept, ours)
            # What an agent says of an id is worth what it has written down.
            if there is not None and (self._ended_id is not None or here is None):
                self.session_id = theirs
                await self._lease.move(theirs)
                return notices.MOVED.format(theirs, ours)
        return None

    @property
    def own_work(self) -> bool:
        """Whether the agent works on its own account, between prompts."""
        return self._own_turn or (self.connection is not None and self.connection.works_behind)

    def _deliver(self, event: ev.Event | Hangup) -> None:
        if isinstance(event, Hangup):
            self._own_turn = False
            if self._gone is not None:
                self._gone.set()
        elif isinstance(event, ev.SessionOpened):
            self.opened = True
            self._opened_id = event.session_id
        if isinstance(event, ev.Event) and event.turn_id == NOBODY:
            begun = isinstance(event, (ev.SessionOpened, ev.TextDelta, ev.ToolStarted))
            self._own_turn = begun or self._own_turn
        if isinstance(event, ev.AgentFinished):  # of whatever turn: it may have been joined
            self._own_turn = False
            self._ended_id = event.session_id
        if self.receive is not None:  # else nobody's: what an agent does between turns
            self.receive(event)

    @property
    def tried(self) -> bool:
        """Whether an agent was ever asked for."""
        return bool(self.family.token)

    @property
    def ended(self) -> bool:
        """Whether there is no agent process (any more)."""
        return self.connection is None or (self._gone is not None and self._gone.is_set())

    async def stop_own_work(self, seconds: float) -> bool:
        """Stop what the agent does on its own account: asked for `seconds`, then closed.
        Returns whether it did anything."""
        connection = self.connection
        if not self.own_work or connection is None:
            return False
        with anyio.move_on_after(seconds), suppress(OSError):
            await connection.interrupt()
            while self.own_work:
                await anyio.sleep(0.02)
        if self.own_work:
            await self.close_unused()
        return True

    async def work(self, turn_id: str) -> None:
        """The agent is about to get a prompt. Raises SessionBusy when it may not have it:
        somebody took the session over, or went on with it in a terminal since the last turn,
        which a warm agent does not know."""
        self._opened_id = self._ended_id = None
        self._ours.append(turn_id)
        await self._lease.work()
        if self.kept is not None:
            return  # it was looked for as the agent was opened
        backend = await off_loop(self._load)
        with anyio.move_on_after(BRIEF), suppress(OSError):
            await self._lease.check(await off_loop(backend.users, self.session_id))
            since = backend.prompted_since, self.session_id, self._length, frozenset(self._ours)
            if self._length and await off_loop(*since):
                raise SessionBusy(notices.WENT_ON.format(self.session_id[:8]))

    async def taken_over(self) -> str | None:
        """A line for the user when somebody took the session over."""
        taker = await self._lease.lost_to()
        return None if taker is None else notices.TAKEN.format(taker)

    async def rest(self) -> None:
        """A turn is over; the agent may stay."""
        self.kept = None
        await self._lease.rest()  # first, so that a turn that begins now comes after it
        if self.connection is not None:
            backend = await off_loop(self._load)
            with anyio.move_on_after(BRIEF), suppress(OSError):
                self._length = await off_loop(backend.length, self.session_id)

    async def hang_up(self) -> None:
        """Close the agent's input, and SIGTERM."""
        if self.connection is not None:
            self.connection.hang_up()
            await self.family.terminate()

    async def drop(self) -> None:
        """Forget a connection whose process is gone."""
        connection, self.connection, self._key, self._own_turn = self.connection, None, None, False
        await self._lease.release()
        if connection is not None:
            with anyio.move_on_after(POLITE):  # the next agent must not wait for it for ever
                await connection.aclose()

    async def close(self, seconds: float = POLITE, *, spare_earlier: bool = True) -> None:
        """Close the agent politely, then by force; within about twice `seconds`.

        The conversation stays resumable. What earlier turns left running on purpose
        goes on, unless `spare_earlier` is False.
        """
        async with self._opening:
            await self._close(seconds, spare_earlier)

    async def close_unused(self) -> None:
        """The same, unless a turn began to use it meanwhile."""
        async with self._opening:
            if self.receive is None:
                await self._close(POLITE)

    async def _close(self, seconds: float, spare_earlier: bool = True) -> None:
        connection = self.connection
        if not spare_earlier:
            await self.family.end_left_running()
        if connection is None:
            return await self._lease.release()
        connection.hang_up()
        if not await self._left_within(seconds):
            await self.hang_up()
            await self._left_within(seconds / 2)
        with anyio.move_on_after(2 * seconds):
            await self.family.clear(seconds, spare_earlier=spare_earlier)
        await self.drop()

    async def _left_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds) as waiting:
            if self._gone is not None:
                await self._gone.wait()
        return not waiting.cancelled_caught
