"""The real agent: what a turn gives, what it costs, how it starts and fails to start."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from agents import GENEROUS, Agents, gone, heard, said, stopped, wait_until

from turncell import Outcome, Reason, Session, TurnFailed, TurnResult
from turncell import events as ev
from turncell.backends.claude_launch import find_cli
from turncell.errors import UsageError
from turncell.modelserver import (
    HttpError,
    Reply,
    Scenario,
    Stall,
    Text,
    Thinking,
    ToolUse,
    Words,
)

pytestmark = [pytest.mark.cli, pytest.mark.timeout(120)]

LOOK = ToolUse("Bash", {"command": "pwd"})
WRITE = ToolUse("Bash", {"command": "touch written"})
BLOCK = ToolUse("Bash", {"command": "tail -f /dev/null"})
SCRIPT = (
    Scenario("think", when="think", replies=[Reply(Thinking("Let me see."), "Seen.")]),
    Scenario("look", when="look", replies=[Reply("I look. ", LOOK), Reply("Seen.")]),
    Scenario("write", when="write", replies=[Reply("I write. ", WRITE), Reply("As you wish.")]),
    Scenario("block", when="block", replies=[Reply("I wait. ", BLOCK), Reply("Done.")]),
    Scenario("loop", when="loop", replies=[Reply(LOOK)]),
    Scenario("costs", when="costs", replies=[Reply("x", input_tokens=1000, output_tokens=100)]),
    Scenario("hang", when="hang", replies=[Reply(Words(3), Stall())]),
    Scenario("bad", when="E400", replies=[Reply(HttpError(400, "wrong words"))]),
    Scenario("who", when="E401", replies=[Reply(HttpError(401, "who are you"))]),
    Scenario("down", when="E500", replies=[Reply(HttpError(500, "out of order"))]),
    Scenario("late", when="half", replies=[Reply("Half ", HttpError(529, "overloaded"))]),
    Scenario("big", when="big", replies=[Reply(Text("x" * 1_500_000, chunk=100_000))]),
)


@pytest.fixture(scope="module")
def main(agents: Agents) -> Session:
    """A session that several tests share: each leaves it in order."""
    agents.play(*SCRIPT)
    return agents.session("main")


@pytest.fixture(autouse=True)
def _script(agents: Agents) -> None:
    agents.play(*SCRIPT)


def run(session: Session, prompt: str, **options: object) -> TurnResult:
    return session.start(prompt, **options).result(GENEROUS, raise_error=False)


def pid_of(session: Session) -> int:
    connection = session._conversation.link.connection
    assert connection is not None and connection.pid is not None
    return connection.pid


# What a turn gives.


def test_text(agents: Agents, main: Session) -> None:
    chosen = main.session_id
    result = run(main, "hello")
    assert (result.outcome, result.text, result.error) == (
        Outcome.COMPLETED, "echo: hello", None,
    )  # fmt: skip
    assert result.session_id == chosen == main.session_id
    assert (result.usage or {})["input_tokens"] == 100 and result.model_turns == 1
    assert {event.turn_id for event in result.events} == {result.turn_id}
    opened = next(e for e in result.events if isinstance(e, ev.SessionOpened))
    assert opened.cwd == str(agents.cwd)
    assert agents.history("hello").count("hello") == 1  # the prompt, once and verbatim


def test_the_prompt_is_verbatim(agents: Agents, main: Session) -> None:
    for prompt in ("/compact now", "@agents.py {x} $x", "!ls", "#m"):
        result = run(main, prompt)
        assert (result.outcome, result.text) == (Outcome.COMPLETED, f"echo: {prompt}")
    prompt = "  two\n\n\tlines \r\nüñ☃\u2028 "
    assert run(main, prompt).outcome is Outcome.COMPLETED
    assert json.dumps(prompt) in json.dumps(agents.server.requests[-1].history)


def test_thinking(main: Session) -> None:
    result = run(main, "think")
    thoughts = [e.text for e in result.events if isinstance(e, ev.ThinkingDelta)]
    assert ("".join(thoughts), result.text) == ("Let me see.", "Seen.")


def test_a_tool(agents: Agents, main: Session) -> None:
    result = run(main, "look")
    assert [(t.name, t.status, t.output) for t in result.tools] == [
        ("Bash", "done", str(agents.cwd))
    ]
    assert result.text == "I look. \n\nSeen."
    assert (result.model_turns, (result.usage or {})["input_tokens"]) == (2, 200)


def test_an_answer_longer_than_a_megabyte(main: Session) -> None:
    result = run(main, "big")
    assert (result.outcome, len(result.text)) == (Outcome.COMPLETED, 1_500_000)


def test_costs_are_those_of_the_turn(main: Session) -> None:
    costs = [run(main, f"costs {n}") for n in range(3)]
    assert costs[0].cost_usd is not None and costs[0].cost_usd > 0
    assert {result.cost_usd for result in costs} == {costs[0].cost_usd}
    assert {json.dumps(result.usage) for result in costs} == {json.dumps(costs[0].usage)}


def test_a_tool_that_nobody_allowed(agents: Agents) -> None:
    session = agents.session("default", permission_mode="default")
    result = run(session, "write")
    assert [(t.name, t.status) for t in result.tools] == [("Bash", "denied")]
    assert not (agents.cwd / "written").exists()
    notice = next(e for e in result.events if isinstance(e, ev.QuestionSettled))
    assert notice.answer == "denied" and "--tools Bash" in notice.note
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "I write. \n\nAs you wish.")
    result = run(session, "write", tools=("Bash",))
    assert [(t.name, t.status) for t in result.tools] == [("Bash", "done")]
    assert (agents.cwd / "written").exists()
    session.close()


# Limits and errors of the agent.


def test_a_limit_of_turns(agents: Agents) -> None:
    session = agents.session("limited", max_turns=2)
    result = run(session, "loop")
    assert (result.outcome, result.reason, result.receipt) == (
        Outcome.FAILED, Reason.MAX_TURNS, None,
    )  # fmt: skip
    assert "--max-turns" in (result.error or "")
    assert run(session, "hello").text == "echo: hello"
    session.close()


@pytest.mark.parametrize(("prompt", "says"), [
    ("E400", "wrong words"), ("E401", "who are you"), ("E500", "out of order"),
])  # fmt: skip
def test_an_error_of_the_model_is_readable_and_no_text(
    agents: Agents, main: Session, prompt: str, says: str
) -> None:
    result = run(main, prompt)
    assert (result.outcome, result.text, result.receipt) == (Outcome.FAILED, "", None)
    assert says in (result.error or "") and prompt[1:] in (result.error or "")
    assert run(main, f"after {prompt[1:]}").text == f"echo: after {prompt[1:]}"


def test_an_error_after_half_an_answer_keeps_the_half(main: Session) -> None:
    result = run(main, "half")
    assert result.outcome is Outcome.FAILED
    assert result.text.startswith("Half ") and "verloaded" not in result.text
    assert "verloaded" in (result.error or "")
    with pytest.raises(TurnFailed, match="verloaded"):
        main.start("half").result(GENEROUS)


# Processes.


def test_the_agent_lives_in_a_session_of_its_own_and_dies_with_us(main: Session) -> None:
    run(main, "hello")
    pid = pid_of(main)
    assert os.getsid(pid) != os.getsid(0)
    assert psutil.Process(pid).ppid() == os.getpid()


def test_an_agent_that_is_killed_under_a_turn(agents: Agents) -> None:
    session = agents.session("killed")
    turn = session.start("block")
    heard(turn, ev.ToolStarted)
    wait_until(lambda: agents.commands("tail -f"))
    began = time.monotonic()
    os.kill(pid_of(session), signal.SIGKILL)
    result = turn.result(GENEROUS, raise_error=False)
    assert time.monotonic() - began < 2.0
    assert (result.outcome, result.text) == (Outcome.LOST, "I wait. ")
    assert "signal 9" in (result.error or "")
    assert [t.status for t in result.tools] == ["cancelled"]
    assert agents.commands("tail -f") == []  # the tool would have lived on as an orphan
    after = run(session, "and now")
    assert (after.text, after.session_id) == ("echo: and now", result.session_id)
    assert "I wait. " in agents.history("and now")
    assert after.cost_usd is not None  # of this turn alone, whatever the killed agent carried over
    assert after.cost_usd < 0.001
    assert after.told is not None and "cut off" in after.told
    os.kill(pid_of(session), signal.SIGKILL)  # and between two turns
    wait_until(lambda: not session._conversation.link.connection.alive)
    assert run(session, "once more").text == "echo: once more"
    session.close()


def test_changed_options_reopen_the_same_session(agents: Agents) -> None:
    session = agents.session("changing")
    first = run(session, "before", model="model-a")
    pid = pid_of(session)
    second = run(session, "after", model="model-b")
    assert pid_of(session) != pid and gone(pid)
    assert second.session_id == first.session_id
    assert [agents.calls(p)[0].model for p in ("before", "after")] == ["model-a", "model-b"]
    assert "echo: before" in agents.history("after")
    pid = pid_of(session)
    third = run(session, "the same", model="model-b", timeout=30.0)
    assert pid_of(session) == pid
    hanging = said(session.start("hang", model="model-b"), "w2")
    assert stopped(hanging).receipt.connection == "warm" and pid_of(session) == pid  # type: ignore[union-attr]
    assert third.outcome is Outcome.COMPLETED
    session.close()
    assert gone(pid)


# Sessions.


def test_a_session_id_that_nobody_knows_leaves_the_session_as_it_was(
    agents: Agents, main: Session
) -> None:
    run(main, "remember me")
    before, pid, unknown = main.session_id, pid_of(main), str(uuid.uuid4())
    with pytest.raises(UsageError, match=f"no session {unknown}, nor does the agent know it"):
        Session("main", resume=unknown)
    assert main.session_id == before and pid_of(main) == pid
    assert run(main, "still there").text == "echo: still there"
    assert "remember me" in agents.history("still there")


def test_a_session_is_resumed_by_its_id(agents: Agents) -> None:
    first = agents.session("writer")
    run(first, "the word is rhubarb")
    first.close()
    second = agents.session("reader", resume=first.session_id)
    result = run(second, "which word")
    assert result.session_id == first.session_id == second.session_id
    assert "rhubarb" in agents.history("which word")
    second.close()


def test_a_transcript_that_is_gone_is_said(agents: Agents) -> None:
    session = agents.session("forgetful")
    run(session, "remember")
    session.close()
    for transcript in agents.home.rglob(f"{session.session_id}*"):
        transcript.unlink()
    result = run(session, "who am I")
    assert result.outcome is Outcome.COMPLETED
    notices = [e.text for e in result.events if isinstance(e, ev.Notice)]
    assert len(notices) == 1 and "does not remember" in notices[0]
    session.close()


def test_an_id_that_is_taken_is_resumed(agents: Agents) -> None:
    """As after a kernel restart, when the same id is chosen again."""
    first = agents.session("taken")
    run(first, "the word is turnip")
    first.close()
    link = first._conversation.link
    link.opened = False
    result = run(first, "which word now")
    assert result.outcome is Outcome.COMPLETED
    assert "turnip" in agents.history("which word now")
    first.close()


def test_two_sessions_at_once(agents: Agents) -> None:
    one, two = agents.session("one"), agents.session("two")
    hanging, waiting = one.start("hang one"), two.start("hang two")
    said(hanging, "w2")
    said(waiting, "w2")
    result = stopped(hanging)
    assert result.outcome is Outcome.INTERRUPTED and not waiting.done()
    assert run(one, "one again").text == "echo: one again"
    assert "hang two" not in agents.history("one again") and not waiting.done()
    assert stopped(waiting).outcome is Outcome.INTERRUPTED
    one.close()
    two.close()


# Starts that fail.


IS_ONE = 'if [ "$1" = --version ]; then echo "2.1.999 (scripted)"; exit; fi'


def script(path: Path, *lines: str) -> str:
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)
    return str(path)


def test_a_directory_that_is_not_there(agents: Agents, tmp_path: Path) -> None:
    session = agents.session("nowhere", cwd=str(tmp_path / "none"))
    result = run(session, "hello")
    assert result.outcome is Outcome.FAILED
    assert str(tmp_path / "none") in (result.error or "") and "--cwd" in (result.error or "")
    assert run(session, "hello", cwd=str(tmp_path)).outcome is Outcome.COMPLETED
    session.close()


def test_an_agent_that_gives_up_at_once_says_why(agents: Agents, tmp_path: Path) -> None:
    cli = script(tmp_path / "cli", IS_ONE, "echo 'licence expired' >&2", "exit 1")
    session = agents.session("gives-up", cli=cli)
    began = time.monotonic()
    result = run(session, "hello")
    assert time.monotonic() - began < 10
    assert result.outcome is Outcome.FAILED and result.text == ""
    assert "licence expired" in (result.error or "") and "exit code 1" in (result.error or "")


def test_an_agent_that_cannot_be_run(agents: Agents, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    no_agent = script(tmp_path / "other", "echo hello")
    broken = script(tmp_path / "broken")
    Path(broken).write_text("no program")  # executable
    for cli in (str(plain), str(tmp_path / "none"), str(tmp_path), no_agent, broken):
        result = run(agents.session("unable", cli=cli), "hello")
        assert result.outcome is Outcome.FAILED and cli in (result.error or ""), cli


@pytest.mark.parametrize("lines", [(IS_ONE,), ()], ids=["starting", "asked for its version"])
def test_an_agent_that_never_gets_ready_can_be_stopped(
    agents: Agents, tmp_path: Path, lines: tuple[str, ...]
) -> None:
    cli = script(tmp_path / "cli", *lines, "trap '' INT TERM", "while :; do sleep 0.1; done")
    session = agents.session(f"never-ready-{len(lines)}", cli=cli)
    turn = session.start("hello", terminate=0.3)
    wait_until(lambda: agents.commands(cli))
    began = time.monotonic()
    result = stopped(turn)
    assert time.monotonic() - began < 3
    assert result.outcome is Outcome.INTERRUPTED
    assert result.receipt is not None and result.receipt.survivors == []
    assert agents.commands(cli) == []
    assert run(session, "hello", cli=None).text == "echo: hello"
    session.close()


def test_an_agent_that_chatters_on_both_pipes(agents: Agents, tmp_path: Path) -> None:
    cli = script(
        tmp_path / "cli",
        IS_ONE,
        "echo 'Attempting login...'; echo; printf '\\273\\n{broken\\n[1]\\n\"x\"\\n'",
        f"'{sys.executable}' -c \"import sys; sys.stderr.write('noise ' * 200000)\"",
        f"exec '{find_cli(None)}' \"$@\"",
    )
    session = agents.session("chatter", cli=cli)
    result = run(session, "hello")
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "echo: hello")
    session.close()
