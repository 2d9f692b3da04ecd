"""Paces a view: at most 20 pictures a second, each change of phase at once, never two
at a time, and never on the loop.

A view may be slow or stuck (a terminal held with Ctrl-S, a full pipe). It draws in
a worker thread, so it delays neither the turn nor its stop; it just gets fewer
pictures. A view that fails gets only the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread

from turncell.picture import Snapshot

__all__ = ["Drawable", "Painter", "off_loop"]

T = TypeVar("T")

#: Seconds between two pictures while text streams.
PACE = 0.05
#: Seconds between two pictures while nothing changes but the time.
HEARTBEAT = 1.0
#: How long (seconds) the last picture may take before the turn ends without it.
LAST_PICTURE = 2.0


class Drawable(Protocol):
    """What the runtime knows of a view."""

    def show(self, snapshot: Snapshot) -> bool | None:
        """Draw the whole picture. True: some of it was too early and is to be drawn soon."""


async def off_loop(
    work: Callable[..., T], *args: Any, limiter: anyio.CapacityLimiter | None = None
) -> T:
    """Run blocking work in a worker thread; abandon it when cancelled."""
    began = False

    def begin() -> T:
        nonlocal began
        began = True
        return work(*args)

    try:
        return await anyio.to_thread.run_sync(begin, abandon_on_cancel=True, limiter=limiter)
    except RuntimeError:
        if began:  # it is the work that failed
            raise
        # An interpreter that is shutting down starts no threads (Python >= 3.12).
        return work(*args)


class Painter:
    """Draws the pictures of one turn. `look` makes the present one; `before` is done with
    what is in it before it is shown. `on_broken`: nobody sees pictures any more."""

    def __init__(
        self,
        view: Drawable,
        look: Callable[[], Snapshot],
        before: Callable[[], Awaitable[None]] | None = None,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._view = view
        self._look = look
        self._before, self._on_broken = before, on_broken
        self._urgent = anyio.Event()  # a picture is due now
        self._stirred = anyio.Event()  # there is something to draw at all
        self._phase = ""
        self._last = False
        self._broken = self._behind = False
        self.done = anyio.Event()
        # Of its own: stuck views must not use up the threads that stops work with.
        self._limiter = anyio.CapacityLimiter(1)

    def touch(self, phase: str) -> None:
        """Something changed; a new phase is drawn at once."""
        self._stirred.set()
        if phase != self._phase:
            self._phase = phase
            self._urgent.set()

    async def finish(self) -> None:
        """Draw the last picture, and wait for it within a bound."""
        self._last = True
        self._stirred.set()
        self._urgent.set()
        with anyio.move_on_after(LAST_PICTURE):
            await self.done.wait()

    async def run(self) -> None:
        """Draw until the last picture is drawn."""
        try:
            while not self._last:
                self._stirred = anyio.Event()
                await self._draw()
                await self._pause()
            self._broken = False  # the last picture is tried whatever happened before
            await self._draw()
        finally:
            self.done.set()

    async def draw_last(self) -> None:
        """Draw the last picture after all, when the turn failed and took `run` along."""
        self._broken = False
        with anyio.move_on_after(LAST_PICTURE):
            await self._draw()

    async def _draw(self) -> None:
        if self._broken:
            return self._on_broken()
        picture = self._look()
        if self._before is not None:
            await self._before()
        self._behind = False
        try:
            show = self._view.show
            self._behind = await off_loop(show, picture, limiter=self._limiter) is True
        except Exception:  # noqa: BLE001 - a broken view must not stop a turn or a stop
            self._broken = True
            logging.getLogger("turncell").exception("the view failed; the turn goes on without it")

    async def _pause(self) -> None:
        """Until the next picture is due. Wakes for nothing else: a silent agent costs nothing."""
        with anyio.move_on_after(PACE):
            await self._urgent.wait()
        if not (self._urgent.is_set() or self._behind):
            with anyio.move_on_after(HEARTBEAT - PACE):
                await self._stirred.wait()
        self._urgent = anyio.Event()
