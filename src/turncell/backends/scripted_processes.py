"""The make-believe processes of scripted agents: `turncell.procs` without a system."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio.from_thread

from turncell.procs import Proc, Verdict

if TYPE_CHECKING:
    from turncell.backends.scripted import ScriptedConnection
    from turncell.backends.scripted_steps import Spawn

__all__ = ["Stage"]

#: No system gives out pids this high, so one that strays into a real call hits nobody.
_FIRST_PID = 10_000_000


@dataclass(frozen=True)
class _Actor:
    connection: ScriptedConnection
    spawned: Spawn | None  # None: the agent itself

    @property
    def is_tool(self) -> bool:
        return self.spawned is not None and not self.spawned.mcp

    @property
    def in_background(self) -> bool:
        return self.spawned is not None and self.spawned.background

    @property
    def in_tree(self) -> bool:
        return self.spawned is None or not self.spawned.loose


class Stage:
    """Every process of one backend. Fulfils `backends.base.Processes`."""

    def __init__(self) -> None:
        self._pids = itertools.count(_FIRST_PID)
        self._actors: dict[Proc, _Actor] = {}
        self._loop_thread: int | None = None

    def enter(self, connection: ScriptedConnection, spawned: Spawn | None = None) -> Proc:
        """A process begins."""
        self._loop_thread = threading.get_ident()
        command = "scripted agent" if spawned is None else spawned.command
        proc = Proc(next(self._pids), 0.0, command)
        self._actors[proc] = _Actor(connection, spawned)
        return proc

    def leave(self, connection: ScriptedConnection, *, tools: bool, agent: bool = True) -> None:
        """The agent ends, or its tools are ended, or both; loose ones live on."""
        for proc, actor in list(self._actors.items()):
            if actor.connection is not connection or not actor.in_tree:
                continue
            ends = actor.is_tool and not actor.in_background
            if agent if actor.spawned is None else tools and (agent or ends):
                del self._actors[proc]

    # What `procs` does for real processes.

    def tree(self, pid: int | None) -> set[Proc]:
        """The agent of this pid and what has not left its tree."""
        found = {a.connection for p, a in self._actors.copy().items() if p.pid == pid}
        return {p for p, a in self._actors.copy().items() if a.connection in found and a.in_tree}

    def marked(self, token: str, *, tools_only: bool = False) -> set[Proc]:
        """Everything that a launch with this token started."""
        return {
            proc
            for proc, actor in self._actors.copy().items()
            if actor.connection.launch.token == token and (actor.is_tool or not tools_only)
        }

    def tools_below(self, pid: int | None) -> set[Proc]:
        """The tools of this agent that have not left its tree."""
        return {proc for proc in self.tree(pid) if self._actors[proc].is_tool}

    def below(self, procs: Iterable[Proc]) -> set[Proc]:
        """Those that still run: nobody here has children."""
        return self.alive(procs)

    def alive(self, procs: Iterable[Proc]) -> set[Proc]:
        """Those that still run."""
        return {proc for proc in procs if proc in self._actors}

    def clear(
        self,
        token: str,
        known: Iterable[Proc] = (),
        *,
        spare: Iterable[Proc] = (),
        tools_only: bool = False,
        seconds: float = 1.5,
        patience: float = 0.0,
    ) -> Verdict:
        """Kill at once; what is unkillable survives."""
        spared, known = self.alive(spare), set(known)
        for proc in (self.alive(known) | self.marked(token, tools_only=tools_only)) - spared:
            self._on_loop(self._kill, proc)
        left = (self.alive(known) | self.marked(token, tools_only=tools_only)) - spared
        return Verdict(tuple(p.survivor() for p in left), tuple(p.survivor() for p in spared))

    def interrupt(self, pid: int | None) -> None:
        """SIGINT to one agent."""
        for connection in self._agents(pid):
            connection.take_sigint()

    def terminate(self, pid: int | None) -> None:
        """SIGTERM to one agent."""
        for connection in self._agents(pid):
            connection.take_sigterm()

    def _agents(self, pid: int | None) -> list[ScriptedConnection]:
        actors = self._actors.items()
        return [a.connection for p, a in actors if p.pid == pid and a.spawned is None]

    def _kill(self, proc: Proc) -> None:
        actor = self._actors.get(proc)
        if actor is None:
            return
        if actor.spawned is None:
            actor.connection.take_sigkill()
        elif not actor.spawned.unkillable:
            del self._actors[proc]

    def _on_loop(self, call: Callable[..., Any], *args: Any) -> None:
        # `clear` is called in a worker thread; what an agent's end sets off is not.
        if threading.get_ident() == self._loop_thread:
            call(*args)
        else:
            anyio.from_thread.run_sync(call, *args)
