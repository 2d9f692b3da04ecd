"""Permissions and hooks that were reported to go wrong elsewhere: see docs/faults.md."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path

import pytest
from agents import GENEROUS, Agents, bash, heard, stopped, wait_until

from turncell import Outcome, Session, Turn, TurnFailed
from turncell import events as ev
from turncell.backends.claude_launch import find_cli
from turncell.modelserver import Reply, Scenario, ToolUse
from turncell.questions import Verdict

pytestmark = [pytest.mark.cli, pytest.mark.timeout(120)]

SUB = {"description": "look", "prompt": "sub work", "subagent_type": "general-purpose"}


def delegating(name: str, *, background: bool) -> Scenario:
    """A turn with a sub-agent, and then with tools of its own, one and two at once."""
    sub = ToolUse("Agent", {**SUB, "run_in_background": background})
    return Scenario(f"main {name}", when=f"delegate {name}", replies=[
        Reply("I ask. ", sub), Reply(bash("touch one")),
        Reply(bash("touch two"), bash("touch three")), Reply("All made."),
    ])  # fmt: skip


SCRIPT = (
    Scenario("touch", when="make a", replies=[Reply("I make it. ", bash("touch a")), Reply("Ok.")]),
    delegating("and wait", background=False),
    delegating("and go on", background=True),
    Scenario("sub", when="sub work", replies=[Reply(bash("touch sub")), Reply("Sub is made.")]),
    Scenario("slow", when="hooked tool", replies=[Reply("Now. ", bash("touch hooked")),
                                                  Reply("Done.")]),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _place(agents: Agents) -> None:
    agents.play(*SCRIPT)
    for name in ("a", "sub", "one", "two", "three", "hooked"):
        (agents.cwd / name).unlink(missing_ok=True)


def questions(turn: Turn) -> list[ev.QuestionAsked]:
    return [event for event in turn._events if isinstance(event, ev.QuestionAsked)]


def answered(turn: Turn, verdict: Verdict = Verdict.ONCE) -> list[ev.QuestionAsked]:
    """Answer every question of a turn as it comes; all of them, once the turn is over."""
    done: set[str] = set()

    def over() -> bool:
        for question in questions(turn):
            if question.question_id not in done:
                done.add(question.question_id)
                turn.answer(question.question_id, verdict)
        return turn.done()

    wait_until(over)
    return questions(turn)


def asked(question: ev.QuestionAsked) -> str:
    return str(question.input["command"])


# PERM-G1: the question comes, and its answer counts.


def test_perm_g1_a_question_comes_and_the_tool_runs_after_its_answer(agents: Agents) -> None:
    session = agents.session("asks", permission_mode="default")
    made = agents.cwd / "a"
    for number in range(3):  # the agent's input stays open after a result, and in a resume
        turn = session.start(f"make a, {number}", ask=True)
        question = heard(turn, ev.QuestionAsked)
        assert (question.tool, asked(question)) == ("Bash", "touch a")
        assert not made.exists() and not turn.done()
        turn.answer(question.question_id, Verdict.ONCE)
        result = turn.result(GENEROUS)
        assert made.exists() and [tool.status for tool in result.tools] == ["done"]
        assert len(questions(turn)) == 1
        made.unlink()
        if number == 1:
            session.close()
    turn = session.start("make a, or not", ask=True)
    assert [asked(q) for q in answered(turn, Verdict.DENY)] == ["touch a"]
    assert not made.exists()
    assert [tool.status for tool in turn.result(GENEROUS).tools] == ["denied"]
    session.close()


# PERM-G2: questions after a sub-agent.


@pytest.mark.parametrize("how", ["and wait", "and go on"])
def test_perm_g2_questions_still_come_after_a_sub_agent(agents: Agents, how: str) -> None:
    session = agents.session(f"delegates-{len(how)}", permission_mode="default")
    turn = session.start(f"delegate {how}", ask=True)
    commands = [asked(question) for question in answered(turn)]
    result = turn.result(GENEROUS)
    # One that works in the background may ask when the turn is over.
    own = ["touch one", "touch two", "touch three"] + ["touch sub"] * (how == "and wait")
    assert set(own) <= set(commands) <= {*own, "touch sub"}
    assert all((agents.cwd / command.split()[1]).exists() for command in own)
    assert result.text.endswith("All made.")
    assert "Stream closed" not in str(result.tools)
    if how == "and wait":
        assert {tool.status for tool in result.tools} == {"done"}
        agents.goes_on(session, result)
    session.close()


# PERM-G3: root, and a mode that asks nothing.


@pytest.fixture
def open_cli(tmp_path: Path) -> tuple[str, Path]:
    """The `cli=` of the real agent that writes down what it is started with, and where."""
    seen, script = tmp_path / "seen", tmp_path / "agent"
    real = shlex.quote(find_cli(None))
    script.write_text(f'#!/bin/sh\n(env; echo "ARGS $*") >> {seen}\nexec {real} "$@"\n')
    script.chmod(0o755)
    return str(script), seen


def test_perm_g3_root_that_asks_nothing_is_told_what_to_do(
    agents: Agents, open_cli: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IS_SANDBOX")
    cli, seen = open_cli
    session = agents.session("rooted", cli=cli)
    turn = session.start("hello")
    if os.geteuid() != 0:  # everybody else is let in
        assert turn.result(GENEROUS).text == "echo: hello"
        return
    with pytest.raises(TurnFailed) as failed:
        turn.result(GENEROUS)
    said = str(failed.value)
    assert failed.value.result.outcome is Outcome.FAILED
    for word in ("root", "bypassPermissions", "acceptEdits", "--tools", "another user"):
        assert word in said
    assert agents.calls("hello") == []
    # Nothing that was not there before lets it run all the same.
    started = seen.read_text()
    names = {line.partition("=")[0] for line in started.splitlines() if "=" in line}
    new = names - set(os.environ) - {"PWD", "OLDPWD", "SHLVL", "_"}
    assert "SANDBOX" not in started and "BUBBLEWRAP" not in started
    assert {n for n in new if not n.startswith(("TURNCELL_", "CLAUDE_", "ARGS"))} == set()
    # With another mode the same session works.
    result = session.start("hello again", permission_mode="acceptEdits").result(GENEROUS)
    assert result.text == "echo: hello again"
    session.close()
    monkeypatch.setenv("IS_SANDBOX", "1")  # it is the user's to say
    assert session.start("hello at last").result(GENEROUS).text == "echo: hello at last"
    session.close()


# PERM-G4: the user's own hooks.


def hook(event: str) -> str:
    """A hook that takes half a minute while there is a file with the name of its event."""
    return f"[ ! -e {event} ] || sleep 31"


def in_hook(agents: Agents, turn: Turn, event: str) -> None:
    """Wait until a hook of this event runs in a turn."""
    heard(turn, ev.HookReported, lambda e: e.name.startswith(event) and e.status == "running")
    wait_until(lambda: agents.commands("sleep 31"))


@pytest.fixture(scope="module")
def hooked(agents: Agents) -> tuple[Session, Path]:
    """A session in a project with hooks, and the folder."""
    folder = agents.home / "project"
    (folder / ".claude").mkdir(parents=True)
    events = ("Stop", "PreToolUse", "PostToolUse", "UserPromptSubmit")
    hooks = {e: [{"hooks": [{"type": "command", "command": hook(e)}]}] for e in events}
    (folder / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))
    return agents.session("hooked", cwd=str(folder), sources=("project",)), folder


@pytest.mark.parametrize(("event", "prompt"), [
    ("Stop", "hello"), ("PreToolUse", "hooked tool"), ("PostToolUse", "hooked tool"),
    ("UserPromptSubmit", "hello"),
])  # fmt: skip
def test_perm_g4_a_stop_does_not_wait_for_a_hook(
    agents: Agents, hooked: tuple[Session, Path], event: str, prompt: str
) -> None:
    session, folder = hooked
    (folder / event).touch()
    turn = session.start(prompt)
    in_hook(agents, turn, event)
    began = time.monotonic()
    result = stopped(turn)
    assert time.monotonic() - began < 4.0  # the first bound is 5 s, the hook has 31
    assert (result.outcome, result.receipt.rung) == (Outcome.INTERRUPTED, "interrupt")
    assert result.receipt.survivors == [] and agents.commands("sleep 31") == []
    assert (folder / "hooked").exists() is (event == "PostToolUse")
    (folder / "hooked").unlink(missing_ok=True)
    (folder / event).unlink()
    agents.goes_on(session, result)
