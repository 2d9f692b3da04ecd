"""One session's line to its agent: a durable id and, at times, a warm connection.

The link knows how to get an agent that has the conversation (warm, resumed or
fresh), where its events go, and how to be rid of it within a bound.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress

import anyio

from turncell import events as ev
from turncell.backends.base import NOBODY, Backend, Connection, Hangup, Launch
from turncell.config import launch_key
from turncell.family import Family
from turncell.painter import off_loop
from turncell.settings import Settings

__all__ = ["Link"]

#: Seconds an agent gets to leave politely before it is killed.
POLITE = 1.5

#: Loads the backend: importing an SDK can take seconds, so it may not be on the loop.
LoadBackend = Callable[[], Backend]


class Link:
    """The agent of one session. Lives on the runtime loop."""

    def __init__(self, load: LoadBackend, session_id: str | None = None) -> None:
        self._load = load
        self.session_id = session_id or str(uuid.uuid4())
        self.opened = session_id is not None
        self.typed_id = session_id is not None
        self.reached = False  # an agent once had this conversation open
        self.connection: Connection | None = None
        self.receive: Callable[[ev.Event | Hangup], None] | None = None
        self.family = Family(lambda: self.connection.pid if self.connection else None)
        self.own_work = False  # the agent works on its own account, between prompts
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

    async def ready(self, settings: Settings) -> str | None:
        """Make an agent ready that has this conversation; raises SettingError.

        Returns a line for the user when the conversation could not be found.
        """
        async with self._opening:
            return await self._ready(settings)

    async def _ready(self, settings: Settings) -> str | None:
        if self.warm(settings):
            return None
        await self._close(POLITE)
        backend = await off_loop(self._load)
        token = self.family.found(backend.processes)
        gone = self._gone = anyio.Event()

        def deliver(event: ev.Event | Hangup) -> None:
            if self._gone is gone:  # else it comes from an agent that was let go
                self._deliver(event)

        exact = self.typed_id and not self.reached
        launch = Launch(settings, self.session_id, self.opened, exact, token)
        self.connection = await backend.connect(launch, deliver)
        self._key = launch_key(settings)
        self.reached = True
        if self.connection.history_missing:
            self.opened = False
            return (
                f"No conversation was found under {self.session_id[:8]}, so a new one was "
                "started: the agent does not remember what was said before."
            )
        return None

    def _deliver(self, event: ev.Event | Hangup) -> None:
        if isinstance(event, Hangup):
            self.own_work = False
            if self._gone is not None:
                self._gone.set()
        elif isinstance(event, ev.SessionOpened):
            self.opened = True
        if isinstance(event, ev.Event) and event.turn_id == NOBODY:
            begun = isinstance(event, (ev.SessionOpened, ev.TextDelta, ev.ToolStarted))
            self.own_work = begun or self.own_work
        if isinstance(event, ev.AgentFinished):  # of whatever turn: it may have been joined
            self.own_work = False
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
        self.own_work = False
        return True

    async def hang_up(self) -> None:
        """Close the agent's input, and SIGTERM."""
        if self.connection is not None:
            self.connection.hang_up()
            await self.family.terminate()

    async def drop(self) -> None:
        """Forget a connection whose process is gone."""
        connection, self.connection, self.own_work = self.connection, None, False
        self._key = None
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
            return
        connection.hang_up()
        if not await self._left_within(seconds):
            await self.hang_up()
            await self._left_within(seconds / 2)
        with anyio.move_on_after(2 * seconds):
            await self.family.clear(seconds, spare_earlier=spare_earlier)
        await self.drop()

    async def _left_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            if self._gone is not None:
                await self._gone.wait()
            return True
        return False
