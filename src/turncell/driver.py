"""Runs one turn: feeds the machine, carries out its orders, keeps the picture.

The only interpreter. The loop waits for the first of: something in the inbox (an
event, a stop, an order's answer) or the machine's deadline; hands it to
`Turn.handle` and does what comes back. It decides nothing.

Whatever an order does runs as a task of its own and answers with a stimulus, so
that nothing it waits for (a frozen agent, a full pipe) can hold the loop. When
the turn is over, the tasks that still wait are cancelled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from turncell import events as ev
from turncell import stimuli as st
from turncell.backends.base import Hangup, Prompt
from turncell.errors import TurncellError
from turncell.family import PATIENCE
from turncell.inbox import Inbox
from turncell.ladder import Act, StopState
from turncell.link import Link
from turncell.outcome import Outcome, TurnResult
from turncell.painter import Drawable, Painter
from turncell.record import Record
from turncell.settings import Settings
from turncell.turn import Order, Turn, TurnState

__all__ = ["TurnRun"]


class TurnRun:
    """One turn on its way. Lives on the runtime loop; `put` and `hear` are its inbox.

    `on_event` gets every event of the turn, `on_over` the result, once, when those
    who wait may go on; both are called on the loop and must not block.
    """

    def __init__(
        self,
        turn: Turn,
        prompt: Prompt,
        link: Link,
        settings: Settings,
        view: Drawable,
        *,
        session: str,
        on_event: Callable[[ev.Event], None],
        on_over: Callable[[TurnResult], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.turn = turn
        self.link = link
        self.record = Record(turn, link, settings, session, clock)
        self._prompt = prompt
        self._settings = settings
        self._on_event = on_event
        self._on_over = on_over
        self._clock = clock
        self._inbox = Inbox()
        self._painter = Painter(view, self.record.look)
        self._starting = anyio.CancelScope()
        self._released: Outcome | None = None
        self._looked = False  # what earlier turns left is known
        self._tasks: TaskGroup

    # The inbox.

    def put(self, stimulus: st.Stimulus) -> None:
        """Something happened. On the loop's thread only."""
        self._inbox.put(stimulus)

    def begin(self, link: Link) -> None:
        """Its place in the line came, and this is the agent it has."""
        self.link = self.record.link = link
        self.put(st.Begin())

    def hear(self, event: ev.Event | Hangup) -> None:
        """What the link delivers."""
        self._inbox.hear(event)

    # The loop.

    async def run(self) -> None:
        """Run the turn from its place in the line to its end; never raises."""
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 - our own fault ends as an outcome, not as a hang
            logging.getLogger("turncell").exception("a turn failed inside turncell")
            self.turn.fail(f"turncell itself failed: {_cause(error)!r}. Please report this.")
            if self.link.receive == self.hear:
                self.link.receive = None
            await self.link.close()
            await self._painter.draw_last()
        finally:
            # Also when the loop ends under it: nobody may be left waiting.
            if self.turn.outcome is None:
                self.turn.fail("turncell was closed before the turn was over")
            self._over()

    async def _run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._painter.run)
            while self.turn.state is not TurnState.ENDED:
                await self._inbox.wait(self._seconds_left())
                for stimulus in self._inbox.take():
                    self._step(stimulus)
                if self._seconds_left() == 0.0:
                    self._step(st.Tick())
                self._painter.touch(self._phase())
            if self.link.receive == self.hear:
                self.link.receive = None
            await self._let_go()
            # The next turn of the session waits for this, the cell does not.
            if self.turn.closed_connection:
                await self.link.drop()
            elif self.record.used_tools:
                await self.link.family.note_left_running()
            self._tasks.cancel_scope.cancel()

    def _seconds_left(self) -> float | None:
        deadline = self.turn.deadline
        return None if deadline is None else max(0.0, deadline - self._clock())

    def _step(self, stimulus: st.Stimulus) -> None:
        dropped = len(self.turn.dropped)
        orders = self.turn.handle(stimulus, self._clock())
        if len(self.turn.dropped) > dropped:
            kind = type(self.turn.dropped[-1]).__name__
            logging.getLogger("turncell").debug("late, repeated or another turn's: %s", kind)
        elif isinstance(stimulus, st.Heard):
            self._keep(stimulus.event)
        for order in orders:
            _ORDERS[order](self)
        moved = self.record.stop_moved()
        if moved is not None:
            self._keep(moved)

    def _keep(self, event: ev.Event) -> None:
        self.record.keep(event)
        self._on_event(event)

    # The orders. Each is done by a task that answers with a stimulus.

    def _start(self) -> None:
        self.link.receive = self.hear
        if self.link.warm(self._settings):
            self._step(st.Ready())
        else:
            self._tasks.start_soon(self._make_ready)

    async def _make_ready(self) -> None:
        with self._starting:
            try:
                note = await self.link.ready(self._settings)
            except TurncellError as error:
                self.put(st.StartFailed(str(error)))
                return
            if note is not None:
                self._keep(ev.Notice(at=self._clock(), text=note, level="warning"))
            self.put(st.Ready())

    def _send(self) -> None:
        self._tasks.start_soon(self._hand_over)

    async def _hand_over(self) -> None:
        connection = self.link.connection
        try:
            if connection is not None:
                await connection.send(self._prompt)
        except OSError as error:
            self.put(st.Gone(str(error)))
        except TurncellError as error:
            self.put(st.StartFailed(str(error)))

    def _refuse(self) -> None:
        if self.link.connection is not None:
            self.link.connection.refuse(self.turn.turn_id)
        # Not again when the agent was told to end: it takes some of that along.
        if not self._looked or self.turn.ladder.state is StopState.ASK:
            self._looked = True
            self._tasks.start_soon(self.link.family.look_around)

    def _interrupt(self) -> None:
        self._tasks.start_soon(self._ask_to_stop)

    async def _ask_to_stop(self) -> None:
        connection = self.link.connection
        await self.link.family.looked(0.1)
        try:
            if connection is None:
                raise OSError("there is no agent to ask")
            ack = await connection.interrupt()
        except OSError:
            self.put(st.NotAcked())
        else:
            self.put(st.Acked(withdrawn=self.turn.turn_id in ack.withdrawn))

    def _sigint(self) -> None:
        self.link.family.interrupt()

    def _terminate(self) -> None:
        self._starting.cancel()
        self._tasks.start_soon(self._close_agent)

    async def _close_agent(self) -> None:
        if self.link.ended:
            self.put(st.Gone("there is no agent process"))
        else:
            await self.link.hang_up()

    def _sweep(self) -> None:
        self._tasks.start_soon(self._clear, self.turn.ladder.policy.settle, PATIENCE, True)

    def _kill(self, patience: float = 0.0) -> None:
        self._starting.cancel()
        self._tasks.start_soon(self._clear, self.turn.ladder.policy.kill, patience)

    async def _clear(self, seconds: float, patience: float, tools_only: bool = False) -> None:
        clear = self.link.family.clear  # in time: after the rung's end, survivors go untold
        verdict = await clear(0.8 * seconds, tools_only=tools_only, patience=patience)
        self.put(st.Cleared(verdict.survivors, verdict.spared, verdict.taken))

    def _release(self) -> None:
        if self.turn.state is not TurnState.ENDED:  # unstopped: it runs on without its cell
            self._tasks.start_soon(self._let_go)

    async def _let_go(self) -> None:
        """Show the last picture, then let those who wait go on."""
        await self._painter.finish()
        self._over()

    def _over(self) -> None:
        if self._released is self.turn.outcome:
            return
        # Twice for an unstopped turn: when its cell was let go, and when it did end.
        self._released = self.turn.outcome
        self._keep(self.record.end())
        self._on_over(self.record.result())

    def _phase(self) -> str:
        return f"{self.turn.phase} {self.turn.ladder.state.value}"


def _cause(error: BaseException) -> BaseException:
    """What went wrong, out of the groups that task groups put it in."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return _cause(next(iter(inner))) if len(inner) == 1 else error


_ORDERS: dict[Act | Order, Callable[[TurnRun], Any]] = {
    Order.START: TurnRun._start,
    Order.SEND: TurnRun._send,
    Order.RELEASE: TurnRun._release,
    Act.REFUSE: TurnRun._refuse,
    Act.INTERRUPT: TurnRun._interrupt,
    Act.SWEEP: TurnRun._sweep,
    Act.SIGINT: TurnRun._sigint,
    Act.TERMINATE: TurnRun._terminate,
    Act.KILL: TurnRun._kill,
    Act.REAP: partial(TurnRun._kill, patience=PATIENCE),
}
