"""One model server, one home and one set of sessions for all tests of the real agent."""

from __future__ import annotations

import gc
import itertools
import json
import os
import secrets
import time
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from turncell import Session, Turn, TurnResult
from turncell import events as ev
from turncell.modelserver import ModelServer, Request, Scenario, Script, ToolUse
from turncell.session import book

#: Seconds that only a hang takes; a busy machine starts an agent in 6 s.
GENEROUS = 45.0
#: Seconds of the rungs for an agent that does not heed them.
SHORT = {"ack": 0.5, "grace": 0.5, "sigint": 1.0, "terminate": 0.5, "kill": 2.0}
_MARK = "TURNCELL_TEST_AGENTS"


def bash(command: str, **how: object) -> ToolUse:
    """A call of the agent's shell."""
    return ToolUse("Bash", {"command": command, **how})


class Agents:
    """The real agent and the model it talks to."""

    def __init__(self, server: ModelServer, home: Path, mark: str) -> None:
        self.server = server
        self.home = home
        self.cwd = home / "work"
        self.cwd.mkdir()
        self._mark = mark
        self._count = itertools.count()

    def play(self, *scenarios: Scenario) -> None:
        """What the model says from now on; it echoes any other prompt."""
        self.server.script = Script(*scenarios)

    def session(self, name: str, **options: Any) -> Session:
        """A session that may use its tools."""
        defaults = {
            "permission_mode": "bypassPermissions",
            "sources": (),
            "cwd": str(self.cwd),
            "system": "test",
        }
        return Session(name, **{**defaults, **options})

    def calls(self, prompt: str) -> list[Request]:
        """The model calls of one prompt."""
        return [r for r in self.server.requests if r.path == "/v1/messages" and r.prompt == prompt]

    def wait_for(self, prompt: str, true: Callable[[Request], bool] = lambda r: True) -> Request:
        """The first model call of a prompt for which this is true."""
        return self.server.wait_for(lambda r: r.prompt == prompt and true(r), GENEROUS)

    def history(self, prompt: str) -> str:
        """All that the model was told before and with this prompt, as text."""
        return json.dumps(self.calls(prompt)[0].history)

    def goes_on(self, session: Session, before: TurnResult) -> str:
        """The next turn is exact and in the same conversation; what the model is told with it."""
        prompt = f"number {next(self._count)}"
        result = session.start(prompt).result(GENEROUS)
        assert (result.text, result.session_id) == (f"echo: {prompt}", before.session_id)
        assert {event.turn_id for event in result.events} == {result.turn_id}
        assert sum(isinstance(event, ev.AgentFinished) for event in result.events) == 1
        return self.history(prompt)

    def processes(self) -> list[psutil.Process]:
        """Everything alive that an agent of these tests is, or started."""
        return [p for p in psutil.process_iter() if _carries(p, self._mark)]

    def commands(self, part: str) -> list[psutil.Process]:
        """Those of them that have this in their command line."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                if part in " ".join(process.cmdline()):
                    found.append(process)
        return found


def _carries(process: psutil.Process, mark: str) -> bool:
    with suppress(psutil.Error):
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and process.pid != os.getpid() and process.environ().get(_MARK) == mark
    return False


@contextmanager
def running_agents(home: Path) -> Iterator[Agents]:
    mark = secrets.token_hex(8)
    patch = pytest.MonkeyPatch()
    with ModelServer(Script(), home=home) as server:
        for name in [n for n in os.environ if n.startswith("TURNCELL_")]:
            if name != "TURNCELL_STATE":
                patch.delenv(name)
        # With a home of its own: the shells of its tools would run the user's start files, wait
        # for their locks, and leave them behind when they are killed.
        variables = {**server.env(), "HOME": str(home), _MARK: mark, "CLAUDE_CODE_MAX_RETRIES": "1"}
        for name, value in variables.items():
            patch.setenv(name, value)
        agents = Agents(server, home, mark)
        try:
            yield agents
        finally:
            book().close()
            patch.undo()
            gc.collect()
            left = [o for o in gc.get_objects() if isinstance(o, BaseSubprocessTransport)]
            assert [transport for transport in left if not transport._closed] == []
            wait_until(lambda: agents.processes() == [])


def wait_until(true: Callable[[], Any], seconds: float = GENEROUS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process is dead; whether the system has buried it is no matter here."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def text_of(turn: Turn) -> str:
    """What a turn showed so far."""
    return "".join(e.text for e in turn._events if isinstance(e, ev.TextDelta))


def heard(turn: Turn, kind: type[ev.Event], where: Callable[[Any], bool] = lambda e: True) -> Any:
    """Wait for an event of a turn."""
    wait_until(lambda: any(isinstance(e, kind) and where(e) for e in turn._events))
    return next(e for e in turn._events if isinstance(e, kind) and where(e))


def said(turn: Turn, text: str) -> Turn:
    """Wait until a turn has shown this text."""
    wait_until(lambda: text in text_of(turn))
    return turn


def stopped(turn: Turn, **how: Any) -> TurnResult:
    """Stop it and wait."""
    turn.stop(**how)
    return turn.result(GENEROUS, raise_error=False)
