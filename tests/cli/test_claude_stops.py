"""Stops of the real agent: in every state, what is left of them, and how it goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from agents import GENEROUS, Agents, bash, gone, heard, said, stopped, text_of, wait_until

from turncell import Outcome, Reason, Session, Turn, procs
from turncell import events as ev
from turncell.modelserver import (
    Cut,
    HttpError,
    Pause,
    Reply,
    Scenario,
    Silence,
    Stall,
    Thinking,
    ToolUse,
    Words,
)
from turncell.outcome import Rung
from turncell.session import book

pytestmark = [pytest.mark.cli, pytest.mark.timeout(120)]

#: The smallest server of the agent's own: it says who it is, and then lives.
SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}},
                  "serverInfo": {"name": "clock", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": []}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""

MARKER = "[Request interrupted by user"


SCRIPT = (
    Scenario("text", when="text", replies=[Reply(Words(400, pace=0.05))]),
    Scenario("flood", when="flood", replies=[Reply(Words(60_000, pace=0.0002))]),
    Scenario("thinking", when="thinking", replies=[Reply(Thinking("hm " * 400, pace=0.05))]),
    Scenario("half a tool", when="half a tool", replies=[
        Reply("I write. ", ToolUse("Bash", {"command": "x" * 2000}, chunk=4, pace=0.05)),
    ]),
    Scenario("a tool", when="a tool", replies=[
        Reply("I wait. ", bash("tail -f /dev/null")), Reply("Done."),
    ]),
    Scenario("a deaf tool", when="a deaf tool", replies=[
        Reply("I wait. ", bash("trap '' INT TERM HUP; while :; do sleep 0.11; done")),
        Reply("Done."),
    ]),
    Scenario("daemon", when="a daemon", replies=[
        Reply("I wait. ", bash("setsid tail -f /dev/null & setsid -f tail -F /dev/null; "
                               "tail -f /dev/zero >/dev/null")),
        Reply("Done."),
    ]),
    Scenario("background", when="in the background", replies=[
        Reply("I begin. ", ToolUse("Bash", {"command": "tail -f /etc/hostname",
                                            "run_in_background": True})),
        Reply("It runs."),
    ]),
    Scenario("begin", when="begin and go on", replies=[
        Reply("I begin. ", ToolUse("Bash", {"command": "tail -f /etc/hostname",
                                            "run_in_background": True})),
        Reply(Words(400, pace=0.05)),
    ]),
    Scenario("clean", when="a clean child", replies=[
        Reply("I look. ", bash("env -i PATH=$PATH sh -c \"trap '' TERM INT HUP; "
                               "while :; do sleep 0.13; done\"")),
        Reply("Done."),
    ]),
    Scenario("summary", when="summary", replies=[Reply(Words(400, pace=0.05))]),
    Scenario("left", when="leave work", replies=[
        Reply("I begin. ", bash("setsid -f tail -f /dev/null")), Reply("It runs."),
    ]),
    Scenario("silent", when="silent", replies=[Reply(Words(5), Stall())]),
    Scenario("never", when="no answer", replies=[Reply(Silence())]),
    Scenario("busy", when="busy", replies=[Reply(HttpError(529, "busy", retry_after=30))]),
    Scenario("cut", when="cut", replies=[Reply(Words(5), Pause(0.3), Cut())]),
    Scenario("quick", when="quick", replies=[Reply("All of it.")]),
    Scenario("slow start", when="early", replies=[Reply(Pause(0.5), Words(40, pace=0.05))]),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _script(agents: Agents) -> None:
    agents.play(*SCRIPT)


def pid_of(session: Session) -> int:
    connection = session._conversation.link.connection
    assert connection is not None and connection.pid is not None
    return connection.pid


_count = iter(range(10_000))


# In every state.


@dataclass(frozen=True)
class State:
    """When to stop, what must be left of the text, and what the model must hear of it."""

    reached: Callable[[Agents, Turn, str], object]
    told: tuple[str, ...] = (MARKER,)
    text: str = ""
    tool: bool = False


def tool_runs(command: str) -> Callable[[Agents, Turn, str], object]:
    def reached(agents: Agents, turn: Turn, prompt: str) -> None:
        heard(turn, ev.ToolStarted)
        wait_until(lambda: agents.commands(command))

    return reached


STATES = {
    "text": State(lambda agents, turn, _: said(turn, "w9 "), text="w0 w1 w2 ",
                  told=("w0 w1 w2 w3 ", MARKER)),
    "thinking": State(lambda agents, turn, _: heard(turn, ev.ThinkingDelta)),
    "half a tool": State(lambda agents, turn, prompt: agents.wait_for(
        prompt, lambda request: request.deltas > 20), text="I write. ", told=("I write. ", MARKER)),
    "a tool": State(tool_runs("tail -f /dev/null"), text="I wait. ", tool=True,
                    told=("I wait. ", "doesn't want to proceed", MARKER)),
    "a deaf tool": State(tool_runs("sleep 0.11"), text="I wait. ", tool=True,
                         told=("I wait. ", MARKER)),
    "silent": State(lambda agents, turn, _: said(turn, "w4"), text="w0 w1 w2 w3 w4 ",
                    told=("w0 w1 w2 w3 w4 ", MARKER)),
    "no answer": State(lambda agents, turn, prompt: agents.wait_for(prompt)),
    "busy": State(lambda agents, turn, _: heard(turn, ev.ApiRetry)),
    "cut": State(lambda agents, turn, _: heard(turn, ev.ApiRetry), text="w0 w1 w2 w3 w4 "),
    "flood": State(lambda agents, turn, _: said(turn, "w900 "), text="w0 w1 w2 ",
                   told=("w0 w1 w2 ", MARKER)),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_a_stop_in(agents: Agents, warm: Session, name: str) -> None:
    state, pid, prompt = STATES[name], pid_of(warm), f"{name} {next(_count)}"
    turn = warm.start(prompt)
    state.reached(agents, turn, prompt)
    result = stopped(turn)
    receipt = result.receipt
    assert receipt is not None
    assert (result.outcome, result.reason) == (Outcome.INTERRUPTED, Reason.USER)
    assert (receipt.rung, receipt.connection, receipt.survivors) == (Rung.INTERRUPT, "warm", [])
    # An ack stands in line behind what the agent said before it.
    assert receipt.reaped_after is not None and receipt.resumable
    assert receipt.reaped_after < (5.0 if name == "flood" else 3.0)
    assert result.error is None and receipt.text_chars == len(result.text)
    assert result.text.startswith(state.text)
    assert result.text == text_of(turn)  # what was shown is what is kept
    assert [t.status for t in result.tools] == ["cancelled"] * state.tool
    assert len(agents.processes()) == 1, agents.processes()
    told = agents.goes_on(warm, result)
    for part in state.told:
        assert part in told
    assert pid_of(warm) == pid


def test_the_request_is_given_up_by_the_agent(agents: Agents, warm: Session) -> None:
    prompt = f"text {next(_count)}"
    turn = said(warm.start(prompt), "w5 ")
    stopped(turn)
    seen = agents.wait_for(prompt, lambda request: request.outcome is not None)
    assert seen.outcome == "client_disconnected"


def test_twice_in_a_row(agents: Agents, warm: Session) -> None:
    for _ in range(2):
        result = stopped(said(warm.start(f"text {next(_count)}"), "w2 "))
        assert result.outcome is Outcome.INTERRUPTED
    agents.goes_on(warm, result)


@pytest.mark.timeout(600)
def test_rapid_stops_and_prompts(
    agents: Agents, warm: Session, pytestconfig: pytest.Config
) -> None:
    rounds = 200 if pytestconfig.getoption("--stops") == "all" else 15
    dice = random.Random(rounds)
    for number in range(rounds):
        turn = warm.start(f"text, round {number}")
        turn.wait(dice.choice([0.0, 0.002, 0.01, 0.03, 0.06, 0.1]))
        turn.stop()
        answer = warm.start(f"answer {number}")  # in line, before the stop is over
        result = turn.result(GENEROUS, raise_error=False)
        assert (result.outcome, result.reason) == (Outcome.INTERRUPTED, Reason.USER)
        assert result.receipt is not None and result.receipt.connection == "warm"
        after = answer.result(GENEROUS)
        assert (after.text, after.receipt) == (f"echo: answer {number}", None)
        assert {event.turn_id for event in after.events} == {after.turn_id}
    assert f"answer {rounds - 2}" in agents.history(f"answer {rounds - 1}")


def test_a_hail_of_presses_is_one_polite_stop(agents: Agents, warm: Session) -> None:
    turn = said(warm.start(f"text {next(_count)}"), "w2 ")
    for _ in range(50):
        turn.stop()
    result = turn.result(GENEROUS, raise_error=False)
    assert result.receipt is not None and result.receipt.connection == "warm"
    agents.goes_on(warm, result)


def test_a_stop_that_comes_after_the_end_changes_nothing(agents: Agents, warm: Session) -> None:
    turn = warm.start("quick")
    result = turn.result(GENEROUS)
    turn.stop()
    warm.stop()
    assert turn.result() is result and result.receipt is None
    agents.goes_on(warm, result)


@pytest.mark.parametrize("lap", range(6))
def test_a_stop_as_the_agent_finishes(agents: Agents, warm: Session, lap: int) -> None:
    turn = warm.start(f"quick {next(_count)}")
    if lap % 2:
        said(turn, "it.")
    else:
        wait_until(lambda: any(isinstance(e, ev.TextDelta) for e in turn._events))
    result = stopped(turn)
    assert result.outcome in (Outcome.COMPLETED, Outcome.INTERRUPTED)
    if result.outcome is Outcome.COMPLETED:
        assert result.text == "All of it."
    agents.goes_on(warm, result)


# Early.


@pytest.mark.parametrize("milliseconds", [0, 0, 0, 5, 5, 20, 20, 50])
def test_an_early_stop_of_a_warm_agent(agents: Agents, warm: Session, milliseconds: int) -> None:
    pid, prompt = pid_of(warm), f"early {next(_count)}"
    turn = warm.start(prompt)
    time.sleep(milliseconds / 1000)  # the very thing that is tested
    result = stopped(turn)
    assert result.outcome is Outcome.INTERRUPTED and result.receipt is not None
    assert (result.receipt.rung, result.receipt.connection) == (Rung.INTERRUPT, "warm")
    assert result.receipt.ended_after is not None and result.receipt.ended_after < 2.0
    agents.goes_on(warm, result)
    assert pid_of(warm) == pid
    assert all(request.outcome != "completed" for request in agents.calls(prompt))


@pytest.mark.parametrize("milliseconds", [0, 5, 20, 50])
def test_an_early_stop_of_an_agent_that_starts(agents: Agents, milliseconds: int) -> None:
    session = agents.session(f"cold-{milliseconds}")
    prompt = f"early {next(_count)}"
    turn = session.start(prompt)
    time.sleep(milliseconds / 1000)
    before = time.monotonic()
    result = stopped(turn)
    assert time.monotonic() - before < 4.0
    assert result.outcome is Outcome.INTERRUPTED and result.text == ""
    assert result.receipt is not None and result.receipt.survivors == []
    assert agents.calls(prompt) == []
    agents.goes_on(session, result)
    session.close()


def test_a_stop_of_a_first_turn_before_the_model_was_asked(agents: Agents) -> None:
    """From the moment the prompt is handed over the stop is a polite one."""
    session = agents.session("first")
    turn = session.start(f"early {next(_count)}")
    wait_until(lambda: session._conversation.link.connection is not None)
    result = stopped(turn)
    assert result.outcome is Outcome.INTERRUPTED
    agents.goes_on(session, result)
    session.close()


# By force.

QUICK = {"ack": 0.3, "grace": 0.3, "sigint": 0.3, "terminate": 0.3, "kill": 2.0}


def test_a_frozen_agent_is_killed_and_resumed(agents: Agents) -> None:
    session = agents.session("frozen", **QUICK)
    turn = said(session.start(f"text {next(_count)}"), "w9 ")
    pid = pid_of(session)
    os.kill(pid, signal.SIGSTOP)
    shown = text_of(turn)
    before = time.monotonic()
    result = stopped(turn)
    assert time.monotonic() - before < 4.0
    assert result.receipt is not None
    assert (result.outcome, result.receipt.rung) == (Outcome.KILLED, Rung.KILL)
    assert (result.receipt.connection, result.receipt.survivors) == ("closed", [])
    assert result.text.startswith(shown) and gone(pid)
    agents.goes_on(session, result)
    session.close()


def test_a_frozen_agent_with_a_tool_leaves_no_orphan(agents: Agents) -> None:
    session = agents.session("frozen-tool", **QUICK)
    turn = session.start("a tool, please")
    tool_runs("tail -f")(agents, turn, "")
    agent = pid_of(session)
    others = {p.pid for p in agents.processes()} - {agent}
    os.kill(agent, signal.SIGSTOP)
    result = stopped(turn)
    assert (result.outcome, result.text) == (Outcome.KILLED, "I wait. ")
    assert [t.status for t in result.tools] == ["cancelled"]
    assert agents.commands("tail -f") == [] and others
    told = agents.goes_on(session, result)
    assert "I wait. " in told
    session.close()


def test_a_full_pipe_does_not_hold_a_stop_up(agents: Agents) -> None:
    session = agents.session("full", **QUICK)
    before = session.start("hello").result(GENEROUS)
    os.kill(pid_of(session), signal.SIGSTOP)
    turn = session.start("x" * 5_000_000)
    connection: Any = session._conversation.link.connection
    wait_until(lambda: connection._rules.turn_id == turn.turn_id)  # it is on its way
    began = time.monotonic()
    result = stopped(turn)
    assert time.monotonic() - began < 4.0
    assert result.receipt is not None
    assert (result.outcome, result.receipt.rung) == (Outcome.KILLED, Rung.KILL)
    assert result.receipt.survivors == []
    agents.goes_on(session, before)
    session.close()


def test_what_cannot_be_killed_is_named(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    session = agents.session("immortal", **QUICK)
    turn = said(session.start(f"text {next(_count)}"), "w5 ")
    process = psutil.Process(pid_of(session))
    process.suspend()
    with monkeypatch.context() as patch:
        patch.setattr(procs, "_send", lambda proc, number: None)
        result = stopped(turn)
    assert result.receipt is not None
    assert [s.pid for s in result.receipt.survivors] == [process.pid]
    assert str(process.pid) in str(result.receipt) and "STILL RUNNING" in str(result.receipt)
    process.kill()
    agents.goes_on(session, result)
    session.close()


@pytest.mark.parametrize(
    ("options", "rung", "outcome"),
    [
        ({"strategy": "kill"}, Rung.TERMINATE, Outcome.KILLED),
        ({"now": True}, Rung.KILL, Outcome.KILLED),
    ],
    ids=["strategy kill", "now"],
)
def test_by_force_from_the_start(
    agents: Agents, options: dict[str, object], rung: Rung, outcome: Outcome
) -> None:
    now = options.pop("now", False)
    session = agents.session(f"force-{rung}", **options)
    turn = said(session.start(f"text {next(_count)}"), "w5 ")
    result = stopped(turn, now=now)
    assert result.receipt is not None
    assert (result.outcome, result.receipt.rung) == (outcome, rung)
    assert result.text.startswith("w0 w1 w2 w3 w4 w5 ")
    agents.goes_on(session, result)
    session.close()


def test_the_rung_of_sigint_keeps_the_text_in_the_conversation(agents: Agents) -> None:
    session = agents.session("sigint", ack=0.0, grace=0.0, sigint=5.0)
    turn = said(session.start(f"text {next(_count)}"), "w5 ")
    os.kill(pid_of(session), signal.SIGSTOP)  # so that the request cannot be first
    turn.stop()
    heard(turn, ev.StopProgress, lambda e: e.rung == "sigint")
    os.kill(pid_of(session), signal.SIGCONT)
    result = turn.result(GENEROUS, raise_error=False)
    assert result.receipt is not None
    assert (result.outcome, result.receipt.rung) == (Outcome.INTERRUPTED, Rung.SIGINT)
    assert result.receipt.connection == "closed"
    assert "w0 w1 w2 w3 " in agents.goes_on(session, result)
    session.close()


def test_an_unstopped_turn_and_stop_now(agents: Agents) -> None:
    session = agents.session("unstopped", strategy="interrupt", ack=0.3, grace=0.3)
    turn = said(session.start(f"text {next(_count)}"), "w5 ")
    pid = pid_of(session)
    os.kill(pid, signal.SIGSTOP)
    result = stopped(turn)
    assert result.outcome is Outcome.UNSTOPPED and not gone(pid)
    turn.stop(now=True)
    wait_until(lambda: not turn.running)
    assert gone(pid)
    wait_until(lambda: not session._conversation.busy)
    agents.goes_on(session, result)
    session.close()


# What a tool started.


def test_children_in_sessions_of_their_own_are_ended(agents: Agents, warm: Session) -> None:
    turn = warm.start("a daemon, please")
    for command in ("tail -f /dev/null", "tail -F /dev/null", "tail -f /dev/zero"):
        tool_runs(command)(agents, turn, "")
    result = stopped(turn)
    assert result.receipt is not None
    assert (result.receipt.connection, result.receipt.survivors) == ("warm", [])
    assert agents.commands("tail") == []
    agents.goes_on(warm, result)


def test_work_that_an_earlier_turn_left_running_is_named_and_spared(agents: Agents) -> None:
    session = agents.session("leaves")
    session.start("leave work").result(GENEROUS)
    (left,) = agents.commands("tail -f /dev/null")
    wait_until(lambda: not session._conversation.busy)
    result = stopped(said(session.start(f"text {next(_count)}"), "w2 "))
    assert result.receipt is not None and result.receipt.survivors == []
    assert [s.pid for s in result.receipt.spared] == [left.pid]
    result = stopped(said(session.start(f"text {next(_count)}"), "w2 "), now=True)
    assert result.receipt is not None
    assert [s.pid for s in result.receipt.spared] == [left.pid]
    assert left.is_running()
    left.kill()
    agents.goes_on(session, result)
    session.close()


def test_background_shells_that_go_with_the_agent_are_named(agents: Agents) -> None:
    session = agents.session("background")
    session.start("a shell in the background").result(GENEROUS)
    (left,) = (p for p in agents.commands("tail -f /etc/hostname") if p.name() == "tail")
    forced = said(session.start(f"text {next(_count)}", strategy="kill"), "w2 ")
    result = stopped(forced)
    assert result.receipt is not None and result.receipt.rung is Rung.TERMINATE
    assert left.pid in [s.pid for s in result.receipt.taken]
    assert result.receipt.spared == [] and gone(left.pid)
    agents.goes_on(session, result)
    session.close()


def test_a_stopped_turn_leaves_no_work_that_wakes_the_agent(agents: Agents) -> None:
    session = agents.session("background")
    for _ in range(3):
        prompt = f"begin and go on {next(_count)}"
        turn = said(session.start(prompt), "w5 ")
        wait_until(lambda: agents.commands("tail -f /etc/hostname"))
        result = stopped(turn)
        assert result.outcome is Outcome.INTERRUPTED
        assert agents.commands("tail -f /etc/hostname") == []
        calls = len(agents.server.requests)
        agents.goes_on(session, result)
        agents.goes_on(session, result)
        assert len([r for r in agents.server.requests[calls:] if r.path == "/v1/messages"]) == 2
    session.close()


def test_a_child_of_a_tool_that_threw_the_token_away_is_ended(agents: Agents) -> None:
    session = agents.session("clean")
    turn = said(session.start("a clean child"), "I look. ")
    wait_until(lambda: _looping("sleep 0.13"))
    result = stopped(turn)
    assert result.receipt is not None and result.receipt.connection == "warm"
    assert not _looping("sleep 0.13")
    agents.goes_on(session, result)
    session.close()


def _looping(words: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if f"do {words}; done" in " ".join(process.cmdline()):
                found.append(process)
    return found


def test_a_stopped_command_of_the_agents_own_is_no_success(agents: Agents) -> None:
    session = agents.session("commands", expand=True)
    for number in range(2):
        session.start(f"say {number}").result(GENEROUS)
    turn = session.start("/compact")
    agents.server.wait_for(lambda r: "summary" in json.dumps(r.history[-1:]), GENEROUS)
    result = stopped(turn)
    assert result.receipt is not None
    assert result.outcome is Outcome.INTERRUPTED, result
    session.close()


def test_closing_a_session_forgets_that_its_agent_worked_on_its_own(agents: Agents) -> None:
    session = agents.session("own")
    session.start("hello").result(GENEROUS)
    link = session._conversation.link
    link._own_turn = True
    session.start("hello").result(GENEROUS)
    assert not link.own_work
    link._own_turn = True
    session.close()
    assert not link.own_work


def test_a_guard_that_is_killed_in_mid_turn_is_replaced(agents: Agents, warm: Session) -> None:
    turn = said(warm.start(f"text {next(_count)}"), "w2 ")
    before = book().guard.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: book().guard.pid not in (None, before))
    assert stopped(turn).outcome is Outcome.INTERRUPTED


def test_a_guard_that_died_is_there_again_with_the_next_prompt(
    agents: Agents, warm: Session
) -> None:
    before = book().guard.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: gone(before))
    warm.start(f"number {next(_count)}").result(GENEROUS)
    after = book().guard.pid
    assert after is not None and after != before and not gone(after)


# The end of the kernel.


def test_everything_ends_within_two_seconds(agents: Agents) -> None:
    talking, working, frozen = (agents.session(f"end-{n}") for n in range(3))
    turns = [
        said(talking.start(f"text {next(_count)}"), "w2 "),
        working.start("a deaf tool, please"),
        said(frozen.start(f"text {next(_count)}"), "w2 "),
    ]
    tool_runs("sleep 0.11")(agents, turns[1], "")
    os.kill(pid_of(frozen), signal.SIGSTOP)
    before = time.monotonic()
    book().close()
    assert time.monotonic() - before < 3.5  # 2 s, and a busy machine
    assert agents.processes() == []
    for turn in turns:
        result = turn.result(0.1, raise_error=False)
        assert result.reason is Reason.SHUTDOWN and result.receipt is not None
        assert result.receipt.survivors == []
    agents.goes_on(talking, turns[0].result(0, raise_error=False))


def test_a_polite_stop_leaves_the_agents_own_servers_alone(agents: Agents, tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    run = {"command": sys.executable, "args": [str(server)]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"clock": run}}))
    (tmp_path / ".claude").mkdir()
    settings = {"enableAllProjectMcpServers": True}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings))
    session = agents.session("servers", cwd=str(tmp_path), sources=("project",))
    turn = session.start("a deaf tool, please")
    tool_runs("sleep 0.11")(agents, turn, "")
    wait_until(lambda: agents.commands("server.py"))
    (before,) = agents.commands("server.py")
    result = stopped(turn)
    assert result.receipt is not None and result.receipt.connection == "warm"
    assert agents.commands("sleep 0.11") == []
    assert before.is_running() and [p.pid for p in agents.commands("server.py")] == [before.pid]
    agents.goes_on(session, result)
    session.close()
    assert not before.is_running()
