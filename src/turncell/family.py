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
        self._tools: set[Proc] = set()
        self._processes: Processes | None = None
        self._looked: anyio.Event | None = None

    def found(self, processes: Processes) -> str:
        """An agent is about to start: the token that it and all below it will carry."""
        self._processes, self._tree, self._tools = processes, set(), set()
        self.token = new_token()
        return self.token

    async def note_left_running(self) -> None:
        """Remember what a finished turn left running on purpose: later stops spare it."""
        processes, pid = self._processes, self._agent()
        if processes is None:
            return

        def work() -> set[Proc]:
            return processes.alive(self.left_running | self._of_tools(processes, pid))

        self.left_running = await off_loop(work)

    async def look_around(self) -> None:
        """Before a stop: what of earlier turns ended by itself, and what the tools run now.
        Once the agent ends them its own way, what has no token is lost from sight."""
        processes, pid, looked = self._processes, self._agent(), anyio.Event()
        self._looked = looked
        if processes is None:
            return looked.set()

        def work() -> tuple[set[Proc], set[Proc]]:
            return processes.alive(self.left_running), processes.tools_below(pid)

        try:
            self.left_running, self._tools = await off_loop(work)
        finally:
            looked.set()

    async def looked(self, seconds: float) -> None:
        """Wait until it has looked around, at most so long."""
        if self._looked is not None:
            with anyio.move_on_after(seconds):
                await self._looked.wait()

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
        await self.looked(0.2 * seconds)
        spare = self.left_running if spare_earlier else set()

        def work() -> Verdict:
            if tools_only:
                known = self._tools | self._of_tools(processes, pid)
            else:
                known = self._tree = self._tree | self._tools | processes.tree(pid)
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
            there = len(processes.alive(left))
            processes.clear("", processes.below(left), patience=PATIENCE)
            return there

        self.left_running = set()
        return await off_loop(work)

    def _of_tools(self, processes: Processes, pid: int | None) -> set[Proc]:
        """What the agent's tools started: it is marked, or it left the agent's tree.
        (The agent's MCP servers carry our token too, but never leave the tree.)"""
        escaped = processes.marked(self.token) - processes.tree(pid)
        return processes.below(processes.marked(self.token, tools_only=True) | escaped)
