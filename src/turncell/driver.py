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
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from turncell import events as ev
from turncell import stimuli as st
from turncell.acts import Acts
from turncell.backends.base import Hangup, Prompt
from turncell.errors import TurncellError
from turncell.inbox import Inbox
from turncell.keeper import Keeper
from turncell.link import Link
from turncell.memory import Memory
from turncell.outcome import Outcome, TurnResult
from turncell.painter import Drawable, Painter
from turncell.questions import Answer, Verdict
from turncell.record import Record
from turncell.settings import Settings
from turncell.turn import Order, Turn, TurnState

__all__ = ["TurnRun"]


class TurnRun:
    """One turn on its way. Lives on the runtime loop; `put` and `hear` are its inbox.

    `on_event` gets every event of the turn, `on_over` the result, once, when those
    who wait may go on; both are called on the loop and must not block. `memory` knows the
    turn before, `keeper` keeps this one on disk.
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
        memory: Memory | None = None,
        keeper: Keeper | None = None,
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
        self._memory = memory or Memory(None)
        self._keeper = keeper
        flush = keeper.flush if keeper else None
        self._painter = Painter(view, self.record.look, flush, self._deny_unseen)
        self._starting = anyio.CancelScope()
        self._released: Outcome | None = None
        self._said = 0  # lines of ours
        self._acts = Acts(turn, self.put, self._starting)
        self._tasks: TaskGroup

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
            if self._keeper is not None:
                await self._keeper.end(self.record.result(), self.link.opened)
        finally:
            # Also when the loop ends under it: nobody may be left waiting.
            if self.turn.outcome is None:
                self.turn.fail("turncell was closed before the turn was over")
            self._over()

    async def _run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._painter.run)
            if self._keeper is not None:
                self._tasks.start_soon(self._keeper.run)
            while self.turn.state is not TurnState.ENDED:
                await self._inbox.wait(self._seconds_left())
                for stimulus in self._inbox.take():
                    self._step(stimulus)
                if self._seconds_left() == 0.0:
                    self._step(st.Tick())
                self._painter.touch(f"{self.turn.phase} {self.turn.ladder.state.value}")
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
            if order is Order.ANSWER:
                self._acts.answer(stimulus, self.link)
            elif isinstance(order, Order):
                _ORDERS[order](self)
            else:
                self._acts.carry_out(order, self.link, self._tasks)
        moved = self.record.stop_moved()
        if moved is not None:
            self._keep(moved)

    def _keep(self, event: ev.Event) -> None:
        self.record.keep(event)
        if self._keeper is not None:
            self._keeper.add(event)
        self._on_event(event)

    def _say(self, text: str, level: str = "warning") -> None:
        """Have the user see a line."""
        self._said += 1
        self._keep(self._event(ev.Notice, text=text, level=level))

    def _event(self, kind: type[ev.Event], **fields: object) -> ev.Event:
        return kind(turn_id=self.turn.turn_id, at=self._clock(), **fields)

    # The orders. Each is done by a task that answers with a stimulus.

    def _start(self) -> None:
        link = self.link
        link.receive = self.hear
        if self._keeper is not None:
            self._keeper.say = self._say
            self._keeper.open(link.session_id)
        if link.warm(self._settings):
            self._brief()
            self._step(st.Ready())
        else:
            self._tasks.start_soon(self._make_ready)

    async def _make_ready(self) -> None:
        with self._starting:
            try:
                await self.link.ready(self._settings, self._say)
                await self._memory.look_up(self.link, self._say)
            except TurncellError as error:
                self.put(st.StartFailed(str(error)))
                return
            self._brief()
            self.put(st.Ready())

    def _brief(self) -> None:
        """Have the model told about the turn before, if that did not end by itself."""
        note = self._memory.note(self.link, tell=self._settings.tell)
        if note is not None:
            self._prompt = replace(self._prompt, note=note)

    def _send(self) -> None:
        self._tasks.start_soon(self._hand_over)

    async def _hand_over(self) -> None:
        try:
            await self.link.work(self.turn.turn_id)
            if self.turn.ladder.engaged:  # it was stopped before the agent had it
                self.put(st.Acked(withdrawn=True))
            elif self.link.connection is not None:
                if self._prompt.note:
                    self._keep(self._event(ev.ModelTold, text=self._prompt.note))
                await self.link.connection.send(self._prompt)
                if self._keeper is not None:  # the session is ours, and is used
                    await self._keeper.enter()
        except OSError as error:
            self.put(st.Gone(str(error)))
        except TurncellError as error:
            self.put(st.StartFailed(str(error)))

    def _deny_unseen(self) -> None:
        """The view is broken: nobody can see a question, or answer it."""
        for question in self.record.look().questions:
            self.put(st.Answered(question.question_id, Answer(Verdict.DENY)))

    def _release(self) -> None:
        if self.turn.state is not TurnState.ENDED:  # unstopped: it runs on without its cell
            self._tasks.start_soon(self._let_go)

    async def _let_go(self) -> None:
        """Show the last picture, then let those who wait go on."""
        if moved := await self.link.settle_id():
            self._say(moved)
        if self.turn.outcome in (Outcome.FAILED, Outcome.LOST):
            self.turn.error = await self.link.taken_over() or self.turn.error
        said = self._said
        async with anyio.create_task_group() as ending:
            ending.start_soon(self._painter.finish)
            if self._keeper is not None:
                ending.start_soon(self._keeper.end, self.record.result(), self.link.opened)
        if self._said != said:  # that the end could not be written down
            await self._painter.draw_last()
        self._over()

    def _over(self) -> None:
        if self._released is self.turn.outcome:
            return
        # Twice for an unstopped turn: when its cell was let go, and when it did end.
        self._released = self.turn.outcome
        self._keep(self.record.end())
        self._on_over(self.record.result())


def _cause(error: BaseException) -> BaseException:
    """What went wrong, out of the groups that task groups put it in."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return _cause(next(iter(inner))) if len(inner) == 1 else error


_ORDERS: dict[Order, Callable[[TurnRun], None]] = {
    Order.START: TurnRun._start,
    Order.SEND: TurnRun._send,
    Order.RELEASE: TurnRun._release,
}
