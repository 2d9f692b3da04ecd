"""Carries out what the stop ladder orders, and what a person answers, on the agent of one turn.

Whatever an act does runs as a task of its own and answers with a stimulus, so that nothing it
waits for (a frozen agent, a full pipe) can hold the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
from anyio.abc import TaskGroup

from turncell import stimuli as st
from turncell.family import PATIENCE
from turncell.ladder import Act, StopState
from turncell.link import Link
from turncell.turn import Turn

__all__ = ["Acts"]


class Acts:
    """Those of one turn. `put` takes what they answer; `starting` is the start of its agent."""

    def __init__(
        self, turn: Turn, put: Callable[[st.Stimulus], None], starting: anyio.CancelScope
    ) -> None:
        self._turn = turn
        self._put = put
        self._starting = starting
        self._looked = False  # what earlier turns left is known
        self._link: Link
        self._tasks: TaskGroup

    def carry_out(self, act: Act, link: Link, tasks: TaskGroup) -> None:
        """Begin an act on the turn's link, as one of its tasks; returns at once."""
        self._link, self._tasks = link, tasks
        _ACTS[act](self)

    def answer(self, stimulus: st.Stimulus, link: Link) -> None:
        """Hand on what a person said to a question."""
        if isinstance(stimulus, st.Answered) and link.connection is not None:
            link.connection.answer(stimulus.question_id, stimulus.answer)

    def _refuse(self) -> None:
        if self._link.connection is not None:
            self._link.connection.refuse(self._turn.turn_id)
        # Not again when the agent was told to end: it takes some of that along.
        if not self._looked or self._turn.ladder.state is StopState.ASK:
            self._looked = True
            self._tasks.start_soon(self._link.family.look_around)

    def _interrupt(self) -> None:
        self._tasks.start_soon(self._ask_to_stop, self._link)

    async def _ask_to_stop(self, link: Link) -> None:
        connection = link.connection
        await link.family.looked(0.1)
        try:
            if connection is None:
                raise OSError("there is no agent to ask")
            ack = await connection.interrupt()
        except OSError:
            self._put(st.NotAcked())
        else:
            self._put(st.Acked(withdrawn=self._turn.turn_id in ack.withdrawn))

    def _sigint(self) -> None:
        self._link.family.interrupt()

    def _terminate(self) -> None:
        self._starting.cancel()
        self._tasks.start_soon(self._close_agent, self._link)

    async def _close_agent(self, link: Link) -> None:
        if link.ended:
            self._put(st.Gone("there is no agent process"))
        else:
            await link.hang_up()

    def _sweep(self) -> None:
        settle = self._turn.ladder.policy.settle
        self._tasks.start_soon(self._clear, self._link, settle, PATIENCE, True)

    def _kill(self, patience: float = 0.0) -> None:
        self._starting.cancel()
        self._tasks.start_soon(self._clear, self._link, self._turn.ladder.policy.kill, patience)

    async def _clear(
        self, link: Link, seconds: float, patience: float, tools_only: bool = False
    ) -> None:
        clear = link.family.clear  # in time: after the rung's end, survivors go untold
        verdict = await clear(0.8 * seconds, tools_only=tools_only, patience=patience)
        self._put(st.Cleared(verdict.survivors, verdict.spared, verdict.taken))


_ACTS: dict[Act, Callable[[Acts], None]] = {
    Act.REFUSE: Acts._refuse,
    Act.INTERRUPT: Acts._interrupt,
    Act.SWEEP: Acts._sweep,
    Act.SIGINT: Acts._sigint,
    Act.TERMINATE: Acts._terminate,
    Act.KILL: Acts._kill,
    Act.REAP: partial(Acts._kill, patience=PATIENCE),
}
