"""`TurnHandle`, public as `turncell.Turn`: one turn, held from any thread or event loop.

The runtime tells the handle what happens (`hear`, `finish`); everything else may be
called from anywhere. Waiting on a foreign loop wakes ten times a second, because a
kernel interrupt reaches an awaited cell only when its loop wakes up.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import anyio

from turncell.errors import RuntimeGone, TurnFailed, TurnStopped
from turncell.events import Event, TurnEnded
from turncell.outcome import Outcome, Reason, TurnResult
from turncell.questions import Answer, Verdict

__all__ = ["Answerer", "Stopper", "TurnHandle"]

#: Seconds between two beats while a foreign loop waits.
_BEAT = 0.1

#: Takes the reason and whether to go straight to the last rung; returns at once.
Stopper = Callable[[Reason, bool], None]
#: Takes the id of a question and its answer; returns at once.
Answerer = Callable[[str, Answer], None]


class TurnHandle:
    """One turn under way. `await` it, iterate its events, or call `result()`."""

    def __init__(
        self,
        turn_id: str,
        session: str,
        stopper: Stopper,
        bound: float,
        answerer: Answerer = lambda _id, _answer: None,
    ) -> None:
        self.turn_id = turn_id
        self.session = session
        self.bound = bound  # the longest a stop of this turn can take, in seconds
        self._stopper, self._answerer = stopper, answerer
        self._pid = os.getpid()
        self.background = False  # a cell of its own does not wait for it
        self.joined = False
        self._over = threading.Event()
        self._left = False
        self._result: TurnResult | None = None
        self._events: list[Event] = []
        self._wakers: set[Callable[[], None]] = set()

    def __repr__(self) -> str:
        state = self._result.outcome if self._result else "running"
        return f"<Turn {self.turn_id[:8]} of session {self.session!r}: {state}>"

    def stop(self, reason: str = "user", *, now: bool = False) -> None:
        """Ask the turn to stop: any thread, any state, any number of times; returns at
        once. A repeat means "next rung now"; `now=True` goes to the last rung.

        Raises ValueError for a reason that does not exist, RuntimeGone in a forked child,
        which has no way to the turn of its parent.
        """
        wanted = Reason(reason)
        self._check_process()
        if self.running:
            self._stopper(wanted, now)

    def answer(
        self,
        question_id: str,
        verdict: str = "allow once",
        chosen: Mapping[str, str] | None = None,
    ) -> None:
        """Answer a question that the turn waits with (`QuestionAsked`): any thread; returns at
        once. `verdict` is "allow once", "allow for the session" or "deny"; `chosen` has the
        label (several: joined by ", ") for the text of each of the agent's own questions. A
        question that is settled stays as it is.

        Raises ValueError for a verdict that does not exist, RuntimeGone in a forked child.
        """
        self._check_process()
        self._answerer(question_id, Answer(Verdict(verdict), dict(chosen or {})))

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeGone(f"This turn is run by process {self._pid}: stop it there.")

    def done(self) -> bool:
        """Whether the turn is over (an unstopped one is, for those who wait)."""
        return self._over.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the turn is over, at most `timeout` seconds; True when it is."""
        # In beats: not every kernel interrupt breaks into a wait for a lock.
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        while not self._over.wait(max(0.0, min(_BEAT, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return False
        return True

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened so far, in order."""
        return tuple(self._events)

    @property
    def running(self) -> bool:
        """Whether the agent may still work on it: also after a stop gave up on it."""
        return not self._left

    def result(self, timeout: float | None = None, *, raise_error: bool = True) -> TurnResult:
        """Block until the turn is over and return what it left.

        Ctrl-C while it blocks stops the turn. Raises TurnStopped or TurnFailed like
        the magic does (not with raise_error=False), TimeoutError after `timeout` s.
        """
        while True:
            try:
                if not self.wait(timeout):
                    raise TimeoutError(f"the turn was not over after {timeout} s")
                return self._settle(raise_error)
            except KeyboardInterrupt:
                self.stop("kernel_interrupt")
                timeout = self.bound + 5.0

    async def join(self, *, raise_error: bool = True) -> TurnResult:
        """Wait on any event loop. Cancelling the wait leaves the turn alone."""
        await self._news(sys.maxsize)
        return self._settle(raise_error)

    def __await__(self) -> Generator[Any, None, TurnResult]:
        return self.join().__await__()

    def __aiter__(self) -> AsyncIterator[Event]:
        return _Events(self)

    def _settle(self, raise_error: bool) -> TurnResult:
        result = self._result
        assert result is not None, "a turn that is over has a result"
        if raise_error:
            raise_for(result)
        return result

    async def _news(self, seen: int) -> bool:
        """Wait for more events than `seen`, or for the end; whether there are more."""
        while len(self._events) <= seen and not self._over.is_set():
            with self._waking() as changed, anyio.move_on_after(_BEAT):
                if len(self._events) <= seen and not self._over.is_set():
                    await changed.wait()
        return len(self._events) > seen

    @contextmanager
    def _waking(self) -> Iterator[anyio.Event]:
        """An event of the present loop that is set when something happens in the turn."""
        changed = anyio.Event()
        waker = _from_any_thread(changed.set)
        self._wakers.add(waker)
        try:
            yield changed
        finally:
            self._wakers.discard(waker)

    # For the runtime.

    def hear(self, event: Event) -> None:
        """Something happened in this turn."""
        self._events.append(event)
        self._wake()

    def finish(self, result: TurnResult) -> None:
        """The turn is over."""
        self._result = result
        self._over.set()
        self._wake()

    def leave(self) -> None:
        """Nothing of the turn goes on any more (an unstopped one is over before that)."""
        self._left = True

    def _wake(self) -> None:
        for waker in tuple(self._wakers):
            waker()


class _Events:
    """The events of a turn from its first to its `TurnEnded`. No generator: one that is
    left early would have to be closed on the loop it was begun on."""

    def __init__(self, turn: TurnHandle) -> None:
        self._turn = turn
        self._seen = 0
        self._ended = False

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._ended or not await self._turn._news(self._seen):
            raise StopAsyncIteration
        event = self._turn._events[self._seen]
        self._seen += 1
        self._ended = isinstance(event, TurnEnded)
        return event


def raise_for(result: TurnResult) -> None:
    """Raise TurnStopped or TurnFailed unless the turn simply completed."""
    if result.receipt is not None or result.outcome is Outcome.UNSTOPPED:
        raise TurnStopped(_stopped_line(result), result)
    if result.outcome is not Outcome.COMPLETED:
        raise TurnFailed(_failed_line(result), result)


def _stopped_line(result: TurnResult) -> str:
    if result.outcome is Outcome.UNSTOPPED:
        return "the agent did not stop and still runs. End it with %agent stop --now."
    if result.receipt is not None and result.receipt.survivors:
        pids = ", ".join(str(s.pid) for s in result.receipt.survivors)
        return f"stopped, but these processes could not be ended: {pids}. End them yourself."
    if result.outcome is Outcome.COMPLETED:
        return "the stop came as the agent finished: the answer is whole. Go on in the next cell."
    if not result.text and result.receipt is not None and not result.receipt.resumable:
        return "stopped before the conversation began; run the cell again to begin it."
    kept = "the partial text is kept" if result.text else "stopped before it said anything"
    return f"{kept}; the next cell resumes the conversation."


def _failed_line(result: TurnResult) -> str:
    what = result.error or f"the turn ended {result.outcome}"
    if result.outcome is Outcome.LOST:
        return f"{what}. The next cell reconnects to the same conversation."
    return what


def _from_any_thread(call: Callable[[], object]) -> Callable[[], None]:
    """A twin of `call` that runs it on the present event loop, asyncio or trio."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio  # only trio is left, and it is imported when it runs

        token = trio.lowlevel.current_trio_token()

        def wake_trio() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(call)

        return wake_trio

    def wake_asyncio() -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(call)

    return wake_asyncio
