"""Stops and closings that were reported to go wrong elsewhere: see docs/faults.md."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agents import GENEROUS, SHORT, Agents, bash, gone, heard, said, stopped, wait_until

from turncell import Outcome, Session, Turn
from turncell import events as ev
from turncell.backends.claude_tools import ToolRules
from turncell.modelserver import Reply, Scenario, Words
from turncell.outcome import Rung
from turncell.session import book

pytestmark = [pytest.mark.cli, pytest.mark.timeout(120)]

COUNT = Words(400, pace=0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


PORT = free_port()
SERVE = f"sh -c '({sys.executable} -m http.server {PORT} --bind 127.0.0.1 &) ; wait'"
SCRIPT = (
    Scenario("count", when="count", replies=[Reply(COUNT)]),
    Scenario("deaf shell", when="deaf shell", replies=[
        Reply("I wait. ", bash("""sh -c 'trap "" TERM INT; tail -f /dev/null'""")), Reply("Done."),
    ]),
    Scenario("tool", when="a tool", replies=[
        Reply("I wait. ", bash("tail -f /dev/null")), Reply("Done."),
    ]),
    Scenario("mark", when="mark", replies=[Reply(bash("touch marker")), Reply("Done.")]),
    Scenario("serve", when="serve", replies=[
        Reply("I serve. ", bash(SERVE, run_in_background=True)), Reply(COUNT),
    ]),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _script(agents: Agents) -> None:
    agents.play(*SCRIPT)


_count = iter(range(10_000))


def connection_of(session: Session) -> Any:
    return session._conversation.link.connection


@pytest.mark.parametrize("moment", ["asked", "being sent", "just sent"])
def test_int_g2_stop_in_the_same_tick_as_the_prompt(
    agents: Agents, warm: Session, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    send = connection_of(warm).send

    async def send_and_stop(prompt: Any) -> None:
        if moment == "being sent":
            book().turns[-1].stop()
        await send(prompt)
        if moment == "just sent":
            book().turns[-1].stop()

    for _ in range(7):
        with monkeypatch.context() as patch:
            patch.setattr(connection_of(warm), "send", send_and_stop)
            turn = warm.start(f"count {next(_count)}")
            if moment == "asked":
                turn.stop()
            result = turn.result(GENEROUS, raise_error=False)
        assert result.receipt is not None and result.error is None
        assert (result.outcome, result.receipt.connection) == (Outcome.INTERRUPTED, "warm")
        assert (result.receipt.reaped_after or 0.0) < 5.0
        ends = [event.outcome for event in turn._events if isinstance(event, ev.TurnEnded)]
        assert ends == ["interrupted"]
        agents.goes_on(warm, result)


def tool_runs(agents: Agents, turn: Turn, command: str = "tail -f /dev/null") -> list[int]:
    """Wait for a tool's processes; their pids."""
    heard(turn, ev.ToolStarted)
    wait_until(lambda: agents.commands(command))
    return [process.pid for process in agents.commands(command)]


def test_int_g4_a_shell_that_ignores_signals_is_dead_after_a_stop(
    agents: Agents, warm: Session
) -> None:
    turn = warm.start("deaf shell")
    pids = tool_runs(agents, turn)
    result = stopped(turn)
    assert all(map(gone, pids))
    assert len(agents.processes()) == 1, agents.processes()  # the warm agent
    assert result.receipt is not None and result.receipt.survivors == []
    agents.goes_on(warm, result)


def test_int_g7_a_stop_in_a_pending_hook_keeps_the_tool_from_running(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[float] = []

    async def slow(*_: Any) -> dict[str, Any]:
        entered.append(time.monotonic())
        await asyncio.sleep(1.5)
        return {}

    monkeypatch.setattr(ToolRules, "_before_tool", slow)
    session = agents.session("hooked")
    turn = session.start("mark")
    wait_until(lambda: entered)
    result = stopped(turn)
    assert result.outcome is Outcome.INTERRUPTED
    assert [tool.status for tool in result.tools] == ["cancelled"]
    agents.goes_on(session, result)
    wait_until(lambda: time.monotonic() > entered[0] + 2.5)  # the hook would long have answered
    assert not (agents.cwd / "marker").exists()
    session.close()


def test_int_g10_a_signal_comes_only_after_the_request_and_is_told(
    agents: Agents, rogue_cli: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("ROGUE_LOG", str(log))
    session = agents.session("recorded", cli=rogue_cli, **SHORT)

    def told() -> list[str]:
        """What the agent was told since the last time, repetitions left out."""
        words = log.read_text().split()
        log.write_text("")
        return [word for i, word in enumerate(words) if word != words[i - 1] or i == 0]

    for prompt in ("count", "a tool"):
        turn = session.start(prompt)
        if prompt == "count":
            said(turn, "w5 ")
        else:
            tool_runs(agents, turn)
        result = stopped(turn)
        assert told() == ["prompt", "interrupt"]
        assert result.receipt is not None and "stopped by interrupt" in str(result.receipt)
    pid = connection_of(session).pid
    result = stopped(said(session.start("count [rogue never-acks]"), "w5 "))
    assert told()[:3] == ["prompt", "interrupt", "SIGINT"]
    assert result.receipt is not None and result.receipt.rung is Rung.SIGINT
    assert "stopped by sigint" in str(result.receipt) and gone(pid)
    agents.goes_on(session, result)
    session.close()


def test_proc_g2_a_server_that_a_background_shell_left_is_ended(agents: Agents) -> None:
    session = agents.session("serving")
    turn = session.start("serve")
    wait_until(lambda: answers(PORT))
    said(turn, "w5 ")
    result = stopped(turn)
    assert agents.commands("http.server") == [] and not answers(PORT)
    assert result.receipt is not None and result.receipt.survivors == []
    agents.goes_on(session, result)
    pid = connection_of(session).pid
    session.close()
    assert gone(pid)


@pytest.mark.parametrize("busy", [True, False], ids=["in a turn", "idle"])
def test_proc_g3_closing_under_a_deaf_agent_is_bounded(
    agents: Agents, rogue_cli: str, busy: bool
) -> None:
    session = agents.session(f"deaf-{busy}", cli=rogue_cli)
    turn = session.start(f"{'count' if busy else 'hello'} [rogue deaf]")
    if busy:
        said(turn, "w5 ")
    else:
        turn.result(GENEROUS)
    pid = connection_of(session).pid
    began = time.monotonic()
    session.close()
    assert time.monotonic() - began < 6.0
    result = turn.result(1.0, raise_error=False)
    assert result.outcome is (Outcome.KILLED if busy else Outcome.COMPLETED)
    assert gone(pid) and agents.commands(rogue_cli) == []
    again = time.monotonic()
    session.close()
    assert time.monotonic() - again < 1.0
    agents.goes_on(session, result)
    session.close()
