"""The one runtime thread, its loop, and the only door between threads.

The thread starts with the first turn and ends with `close`. The agent processes
are started on it, and on Linux they are told to die with it: it must outlive them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from turncell.errors import RuntimeGone

__all__ = ["Portal"]

#: Seconds between two looks whether the loop is still there.
_BEAT = 0.1


class Portal:
    """Runs things on the runtime loop. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: ExitStack | None = None
        self._portal: BlockingPortal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None

    @property
    def running(self) -> bool:
        """Whether the runtime thread lives."""
        return self._portal is not None

    def start(self) -> BlockingPortal:
        """The portal, started on first use."""
        with self._lock:
            if self._portal is None:
                stack = ExitStack()
                portal = stack.enter_context(
                    start_blocking_portal("asyncio", name="turncell-runtime")
                )
                self._loop, self._thread = portal.call(_here)
                self._open, self._portal = stack, portal
            return self._portal

    def spawn(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Future[Any]:
        """Start a coroutine function on the loop; returns at once, however busy the loop is.

        What it raises is logged. Raises RuntimeGone when the loop is closed meanwhile.
        """
        self.start()
        loop, coroutine = self._loop, work(*args)
        try:
            if loop is None:
                raise RuntimeError("closed in this moment")
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError as error:
            coroutine.close()
            raise RuntimeGone("turncell was closed while a turn began. Run it again.") from error
        future.add_done_callback(_log_failure)
        return future

    def soon(self, call: Callable[..., Any], *args: Any) -> None:
        """Call something on the loop as soon as it is free; at once on the loop itself.

        Returns at once, however busy the loop is; nothing where it does not run.
        """
        loop = self._loop
        if loop is None:
            return
        if self._thread == threading.get_ident():
            call(*args)
        else:
            # As a task, like `spawn`: a stop may not overtake the turn that it is for.
            task = _as_task(call, *args)
            try:
                asyncio.run_coroutine_threadsafe(task, loop).add_done_callback(_log_failure)
            except RuntimeError:  # it was closed in this moment
                task.close()

    def finish(self, *works: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> None:
        """Run coroutine functions on the loop, all at once, and wait for them.

        Nothing where the loop does not run, or is closed meanwhile. One that fails is
        logged and leaves the others alone. Raises RuntimeGone after `seconds`.
        """
        if self._thread == threading.get_ident():
            raise RuntimeGone("turncell's own thread cannot wait for itself")
        loop, futures = self._loop, []
        if loop is None:
            return
        for work in works:
            coroutine = work()
            try:
                futures.append(asyncio.run_coroutine_threadsafe(coroutine, loop))
            except RuntimeError:  # it was closed in this moment
                coroutine.close()
        late = set(futures)
        deadline = time.monotonic() + seconds
        # In beats: another thread can close the loop, which then finishes nothing any more.
        while late and self._loop is loop and time.monotonic() < deadline:
            done, late = wait(late, _BEAT)
            for future in done:
                _log_failure(future)
        if late and self._loop is loop:
            raise RuntimeGone(
                f"The runtime did not answer in {seconds:.0f} s. Restart the kernel; the "
                "conversation stays resumable."
            )

    def close(self) -> None:
        """End the thread. What still runs on the loop is cancelled."""
        with self._lock:
            stack, portal, self._open, self._portal = self._open, self._portal, None, None
            self._loop = self._thread = None
        if stack is not None and portal is not None:
            portal.start_task_soon(portal.stop, True)
            stack.close()


async def _as_task(call: Callable[..., Any], *args: Any) -> None:
    call(*args)


def _log_failure(future: Future[Any]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logging.getLogger("turncell").error("the runtime failed", exc_info=error)


async def _here() -> tuple[asyncio.AbstractEventLoop, int]:
    return asyncio.get_running_loop(), threading.get_ident()
