"""Carries out what the stop ladder orders, on the agent of one turn.

Whatever an act does runs as a task of its own and answers with a stimulus, so that nothing it
waits for (a frozen agent, a full pipe) can hold the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from turncell import stimuli as st
from turncell.family import PATIENCE
from turncell.ladder import Act, StopState

if TYPE_CHECKING:
    from turncell.driver import TurnRun

__all__ = ["Acts"]


class Acts:
    """Those of one turn; the turn's link can change until it has begun."""

    def __init__(self, run: TurnRun) -> None:
        self._run = run
        self._looked = False  # what earlier turns left is known

    def carry_out(self, act: Act) -> None:
        """Begin an act; returns at once."""
        _ACTS[act](self)

    def _refuse(self) -> None:
        run = self._run
        if run.link.connection is not None:
            run.link.connection.refuse(run.turn.turn_id)
        # Not again when the agent was told to end: it takes some of that along.
        if not self._looked or run.turn.ladder.state is StopState.ASK:
            self._looked = True
            run.tasks.start_soon(run.link.family.look_around)

    def _interrupt(self) -> None:
        self._run.tasks.start_soon(self._ask_to_stop)

    async def _ask_to_stop(self) -> None:
        run, connection = self._run, self._run.link.connection
        await run.link.family.looked(0.1)
        try:
            if connection is None:
                raise OSError("there is no agent to ask")
            ack = await connection.interrupt()
        except OSError:
            run.put(st.NotAcked())
        else:
            run.put(st.Acked(withdrawn=run.turn.turn_id in ack.withdrawn))

    def _sigint(self) -> None:
        self._run.link.family.interrupt()

    def _terminate(self) -> None:
        self._run.starting.cancel()
        self._run.tasks.start_soon(self._close_agent)

    async def _close_agent(self) -> None:
        if self._run.link.ended:
            self._run.put(st.Gone("there is no agent process"))
        else:
            await self._run.link.hang_up()

    def _sweep(self) -> None:
        settle = self._run.turn.ladder.policy.settle
        self._run.tasks.start_soon(self._clear, settle, PATIENCE, True)

    def _kill(self, patience: float = 0.0) -> None:
        self._run.starting.cancel()
        self._run.tasks.start_soon(self._clear, self._run.turn.ladder.policy.kill, patience)

    async def _clear(self, seconds: float, patience: float, tools_only: bool = False) -> None:
        clear = self._run.link.family.clear  # in time: after the rung's end, survivors go untold
        verdict = await clear(0.8 * seconds, tools_only=tools_only, patience=patience)
        self._run.put(st.Cleared(verdict.survivors, verdict.spared, verdict.taken))


_ACTS: dict[Act, Callable[[Acts], None]] = {
    Act.REFUSE: Acts._refuse,
    Act.INTERRUPT: Acts._interrupt,
    Act.SWEEP: Acts._sweep,
    Act.SIGINT: Acts._sigint,
    Act.TERMINATE: Acts._terminate,
    Act.KILL: Acts._kill,
    Act.REAP: partial(Acts._kill, patience=PATIENCE),
}
