"""The processes of one session: its agent, what its tools run, what earlier turns left.

What earlier turns left running on purpose outlives agents: each stop spares it. Looks at
the system's processes block, so they are made in worker threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import anyio

from turncell.backends.base import Processes
from turncell.painter import off_loop
from turncell.procs import Proc, Verdict, listed, new_token

__all__ = ["PATIENCE", "Family"]

#: Seconds that processes of tools get to put their locks and files in order.
PATIENCE = 0.15


class Family:
    """Lives on the runtime loop. `agent` tells the pid of the agent, None where there is none."""

    def __init__(self, agent: Callable[[], int | None]) -> None:
        self._agent = agent
        self.token = ""
        self.left_running: set[Proc] = set()
        self._tree: set[Proc] = set()
        self._processes: Processes | None = None
        self._looked: anyio.Event | None = None

    def found(self, processes: Processes) -> str:
        """An agent is about to start: the token that it and all below it will carry."""
        self._processes, self._tree, self.token = processes, set(), new_token()
        return self.token

    async def note_left_running(self) -> None:
        """Remember what a finished turn left running on purpose: later stops spare it."""
        processes, pid = self._processes, self._agent()
        if processes is None:
            return

        def work() -> set[Proc]:
            return processes.alive(self.left_running | self._of_tools(processes, pid))

        self.left_running = await off_loop(work)

    async def forget_what_ended(self) -> None:
        """Before a stop: what ended by itself is nobody's business any more."""
        processes, looked = self._processes, anyio.Event()
        self._looked = looked
        try:
            if processes is not None and self.left_running:
                self.left_running = await off_loop(processes.alive, self.left_running)
        finally:
            looked.set()

    def interrupt(self) -> None:
        """SIGINT to the agent process alone."""
        if self._processes is not None:
            self._processes.interrupt(self._agent())

    async def terminate(self) -> None:
        """Look who is there, then SIGTERM to the agent, which takes its tools along."""
        if self._processes is not None:
            self._tree |= await off_loop(self._processes.tree, self._agent())
            self._processes.terminate(self._agent())

    async def clear(
        self,
        seconds: float,
        *,
        tools_only: bool = False,
        spare_earlier: bool = True,
        patience: float = PATIENCE,
    ) -> Verdict:
        """Kill what is left of this agent and verify; within about `seconds`.

        `tools_only` leaves the agent and its servers alone.
        """
        processes, token, pid = self._processes, self.token, self._agent()
        if processes is None:
            return Verdict()
        if self._looked is not None:
            with anyio.move_on_after(0.2 * seconds):
                await self._looked.wait()
        spare = self.left_running if spare_earlier else set()

        def work() -> Verdict:
            if tools_only:
                known = self._of_tools(processes, pid)
            else:
                known = self._tree = self._tree | processes.tree(pid)
            verdict = processes.clear(
                token, known, spare=spare, tools_only=tools_only, seconds=seconds,
                patience=patience,
            )  # fmt: skip
            # An agent that stays takes nothing along: what is gone then, went by itself.
            taken = set() if tools_only else spare - processes.alive(spare)
            return replace(verdict, taken=listed(taken))

        return await off_loop(work)

    async def end_left_running(self) -> int:
        """End what finished turns left running; returns how many there were."""
        processes, left = self._processes, self.left_running
        if processes is None or not left:
            return 0

        def work() -> int:
            there = processes.alive(left)
            below = set().union(*(processes.tree(proc.pid) for proc in there))
            processes.clear("", below, patience=PATIENCE)
            return len(there)

        self.left_running = set()
        return await off_loop(work)

    def _of_tools(self, processes: Processes, pid: int | None) -> set[Proc]:
        """What the agent's tools started: it is marked, or it left the agent's tree.
        (The agent's MCP servers carry our token too, but never leave the tree.)"""
        escaped = processes.marked(self.token) - processes.tree(pid)
        return processes.marked(self.token, tools_only=True) | escaped
