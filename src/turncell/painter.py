"""Paces a view: at most 20 pictures a second, each change of phase at once, never two
at a time, and never on the loop.

A view may be slow or stuck (a terminal held with Ctrl-S, a full pipe). It draws in
a worker thread, so it delays neither the turn nor its stop; it just gets fewer
pictures. A view that fails is not called again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread

from turncell.transcript import Snapshot

__all__ = ["Drawable", "Painter", "off_loop"]

T = TypeVar("T")

#: Seconds between two pictures while text streams.
PACE = 0.05
#: Seconds between two pictures while nothing changes but the time.
HEARTBEAT = 1.0
#: How long (seconds) the last picture may take before the turn ends without it.
LAST_PICTURE = 3.0


class Drawable(Protocol):
    """What the runtime knows of a view."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw the whole picture."""


async def off_loop(work: Callable[..., T], *args: Any) -> T:
    """Run blocking work in a worker thread; abandon it when cancelled."""
    try:
        return await anyio.to_thread.run_sync(work, *args, abandon_on_cancel=True)
    except RuntimeError:
        # An interpreter that is shutting down starts no threads (Python >= 3.12).
        return work(*args)


class Painter:
    """Draws the pictures of one turn. `look` makes the present one."""

    def __init__(self, view: Drawable, look: Callable[[], Snapshot]) -> None:
        self._view = view
        self._look = look
        self._wake = anyio.Event()
        self._phase = ""
        self._changed = False
        self._last = False
        self.done = anyio.Event()

    def touch(self, phase: str) -> None:
        """Something changed; a new phase is drawn at once."""
        self._changed = True
        if phase != self._phase:
            self._phase = phase
            self._wake.set()

    async def finish(self) -> None:
        """Draw the last picture, and wait for it within a bound."""
        self._last = True
        self._wake.set()
        with anyio.move_on_after(LAST_PICTURE):
            await self.done.wait()

    async def run(self) -> None:
        """Draw until the last picture is drawn."""
        try:
            while not self._last:
                self._changed = False
                await off_loop(self._view.show, self._look())
                await self._pause()
            await off_loop(self._view.show, self._look())
        except Exception:  # noqa: BLE001 - a broken view must not stop a turn or a stop
            logging.getLogger("turncell").exception("the view failed; the turn goes on without it")
        finally:
            self.done.set()

    async def _pause(self) -> None:
        """Until the next picture is due."""
        waited = 0.0
        while not self._wake.is_set() and waited < HEARTBEAT:
            if self._changed and waited >= PACE:
                break
            with anyio.move_on_after(PACE):
                await self._wake.wait()
            waited += PACE
        self._wake = anyio.Event()
