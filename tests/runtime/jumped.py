"""The real driver, link and conversation with scripted agents on a clock that jumps.

Time stands still while anything works, worker threads included, and jumps to the next
deadline when everybody waits: every duration is exact, and 16 s take none.
"""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.to_thread
import trio
import trio.testing

from turncell import events as ev
from turncell.backends.scripted import ScriptedBackend, ScriptedConnection
from turncell.backends.scripted_steps import Play
from turncell.conversation import Conversation, Order, new_turn_id
from turncell.handle import TurnHandle
from turncell.outcome import Reason, TurnResult
from turncell.picture import Snapshot
from turncell.settings import Settings

#: More virtual seconds than anything may take.
LONG = 1000.0


class Hold:
    """The clock stands still until it is released."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.held = True
        room.holds += 1
        room.set_pace()

    def release(self) -> None:
        if self.held:
            self.held = False
            self.room.holds -= 1
            self.room.set_pace()


_HOLD: ContextVar[Hold] = ContextVar("hold")


def step_aside() -> Room:
    """Called by a worker that does not come back by itself: time goes on without it."""
    hold = _HOLD.get()
    trio.from_thread.run_sync(hold.release)
    return hold.room


class Pictures:
    """A view that keeps what it was shown."""

    def __init__(self) -> None:
        self.seen: list[Snapshot] = []

    def show(self, snapshot: Snapshot) -> None:
        self.seen.append(snapshot)


class StuckView(Pictures):
    """A view that never comes back from picture number `after` (a terminal with Ctrl-S)."""

    def __init__(self, after: int = 1) -> None:
        super().__init__()
        self.after = after
        self.let_go = threading.Event()

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        if len(self.seen) >= self.after:
            step_aside().stuck.append(self)
            self.let_go.wait(30)


class BrokenView(Pictures):
    """A view that raises."""

    def __init__(self, error: Exception, after: int = 1) -> None:
        super().__init__()
        self.error = error
        self.after = after
        self.threads: list[str] = []

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        self.threads.append(threading.current_thread().name)
        if len(self.seen) >= self.after:
            raise self.error


class Cell:
    """One prompt on its way, as a notebook cell sees it."""

    def __init__(self, room: Room, prompt: str, view: Any, order: dict[str, Any]) -> None:
        self.room = room
        self.turn_id = new_turn_id()
        self.view = view or Pictures()
        self.order = Order(prompt, **order, view=self.view, on_over=self._ended)
        self.handle = TurnHandle(self.turn_id, "main", self._stop, self.order.settings.stop.total)
        self.began = anyio.current_time()
        self.over_after: float | None = None  # virtual seconds after `began`
        self.gone_after: float | None = None  # when the next turn may begin
        self._over = anyio.Event()
        self._gone = anyio.Event()
        self._result: TurnResult | None = None

    def _stop(self, reason: Reason, force: bool) -> None:
        self.room.conversation.stop(self.turn_id, reason, force)

    def stop(self, reason: str = "user", *, now: bool = False) -> float:
        """Press Stop; the moment it was pressed."""
        self.handle.stop(reason, now=now)
        return anyio.current_time()

    def _ended(self, result: TurnResult) -> None:
        self.over_after = anyio.current_time() - self.began
        self._result = result
        self._over.set()

    async def run(self) -> None:
        with anyio.CancelScope() as scope:
            self.room.scopes.append(scope)
            await self.room.conversation.conduct(self.order, self.handle)
        self.gone_after = anyio.current_time() - self.began
        self._gone.set()

    async def over(self, within: float = LONG) -> TurnResult:
        """The result, which must be there within so many virtual seconds."""
        with anyio.fail_after(within):
            await self._over.wait()
        assert self._result is not None
        return self._result

    async def gone(self, within: float = LONG) -> TurnResult:
        """As `over`, and the conversation is free for the next turn."""
        with anyio.fail_after(within):
            await self._gone.wait()
        return await self.over()

    @property
    def stop_took(self) -> float:
        """Virtual seconds from the request to the end of the cell."""
        assert self._result is not None and self._result.receipt is not None
        assert self.over_after is not None
        return self.began + self.over_after - self._result.receipt.requested_at

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(e.text for e in self.handle._events if isinstance(e, ev.TextDelta))

    async def said(self, text: str) -> None:
        """Wait until the agent has said it."""
        with anyio.fail_after(LONG):
            while text not in self.text:
                await anyio.sleep(0.01)


class Room:
    """One conversation, its backend, and the clock."""

    def __init__(self, nursery: trio.Nursery, clock: trio.testing.MockClock) -> None:
        self.nursery = nursery
        self.clock = clock
        self.holds = 0
        self.stuck: list[StuckView] = []
        self.scopes: list[anyio.CancelScope] = []
        self.backend = ScriptedBackend()
        self.load: Callable[[], Any] = lambda: self.backend
        self.conversation = Conversation("main", lambda: self.load(), anyio.current_time)

    def set_pace(self) -> None:
        """Let the clock jump, or not."""
        self.clock.autojump_threshold = math.inf if self.holds else 0

    def plays(self, *plays: Play, start: float = 0.0, refuses: str | None = None) -> None:
        """What the agents do from now on."""
        self.backend.plays, self.backend.start, self.backend.refuses = plays, start, refuses

    def send(
        self,
        prompt: str,
        *,
        view: Any = None,
        new: bool = False,
        resume: str | None = None,
        **options: Any,
    ) -> Cell:
        """Put a prompt in line."""
        settings = Settings().merged("test", options)
        cell = Cell(self, prompt, view, {"settings": settings, "new": new, "resume": resume})
        self.nursery.start_soon(cell.run)
        return cell

    async def line_up(self, prompt: str, **options: Any) -> Cell:
        """The same, and it has its place in line (the loop starts tasks in any order)."""
        cell = self.send(prompt, **options)
        while cell.turn_id not in [run.turn.turn_id for _, run in self.conversation._line]:
            await anyio.sleep(0)
        return cell

    async def leave(self, seconds: float = 2.0) -> float:
        """The kernel ends; returns the virtual seconds it took."""
        began = anyio.current_time()
        await self.conversation.leave(seconds)
        return anyio.current_time() - began

    def cut_off(self) -> None:
        """The loop ends under everything that still runs on it."""
        for scope in self.scopes:
            scope.cancel()

    @property
    def agent(self) -> ScriptedConnection:
        """The agent that was started last."""
        return self.backend.connections[-1]

    @property
    def remembered(self) -> list[tuple[str, str]]:
        """What the session wrote down: prompts, and the text said for each."""
        return self.backend.memory[self.conversation.session_id]


@contextmanager
def _holding_for_threads(room: Room) -> Iterator[None]:
    run_sync = anyio.to_thread.run_sync

    async def held(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        hold = Hold(room)
        _HOLD.set(hold)
        try:
            return await run_sync(work, *args, **options)
        finally:
            hold.release()

    anyio.to_thread.run_sync = held  # type: ignore[assignment]
    try:
        yield
    finally:
        anyio.to_thread.run_sync = run_sync


def jumped(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run `test(room, ...)` on a clock that jumps."""

    async def main(arguments: dict[str, Any], clock: trio.testing.MockClock) -> None:
        async with trio.open_nursery() as nursery:
            room = Room(nursery, clock)
            with _holding_for_threads(room):
                await nursery.start(room.backend.run)
                try:
                    with trio.fail_after(100 * LONG):
                        await test(room, **arguments)
                finally:
                    for view in room.stuck:
                        view.let_go.set()
                nursery.cancel_scope.cancel()

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        clock.jump(1_000_000)  # a monotonic clock does not begin with the test
        trio.run(main, arguments, clock, clock=clock, strict_exception_groups=True)

    signature = inspect.signature(test)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:]
    )
    return run
