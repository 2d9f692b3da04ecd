"""Streams, loops and pipes that were reported to go wrong elsewhere: see docs/faults.md."""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from agents import GENEROUS, SHORT, Agents, heard, said, stopped, wait_until

from turncell import Outcome, Session, Turn, TurnResult
from turncell import events as ev
from turncell.backends.claude_process import ClaudeProcess
from turncell.modelserver import Pause, Reply, Scenario, ToolUse, Words

pytestmark = [pytest.mark.cli, pytest.mark.timeout(120)]

LOOK = ToolUse("Bash", {"command": "pwd"})
SNOW = "".join(f"grün☃{i} " for i in range(12))
LINES = "0123456789 line\n" * 80_000
SCRIPT = (
    Scenario("count", when="count", replies=[Reply(Words(400, pace=0.05))]),
    Scenario("snow", when="snow", replies=[Reply(Words(12, pace=0.01, word="grün☃{i} "))]),
    Scenario("ECHO", when="echo once", replies=[Reply("ECHO")]),
    Scenario("same", when="twice the same", replies=[
        Reply("The same. ", LOOK), Reply("The same. ", LOOK), Reply("Done."),
    ]),
    Scenario("look", when="look once", replies=[Reply("I look. ", LOOK), Reply("Seen.")]),
    Scenario("block", when="block", replies=[
        Reply("I wait. ", ToolUse("Bash", {"command": "tail -f /dev/null"})), Reply("Done."),
    ]),
    Scenario("late", when="late tool", replies=[
        Reply("I think. ", Pause(3.0), ToolUse("Bash", {"command": "touch late"})), Reply("Ok."),
    ]),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _script(agents: Agents) -> None:
    write = ToolUse("Write", {"file_path": str(agents.cwd / "big.txt"), "content": LINES})
    agents.play(*SCRIPT, Scenario("write", when="write it", replies=[Reply(write), Reply("Done.")]))


@pytest.fixture(scope="module")
def rogue(agents: Agents, rogue_cli: str) -> Session:
    session = agents.session("rogue", cli=rogue_cli, **SHORT)
    session.start("hello").result(GENEROUS)
    return session


_count = iter(range(10_000))


def run(session: Session, prompt: str, **options: object) -> TurnResult:
    return session.start(prompt, **options).result(GENEROUS, raise_error=False)


def ends(turn: Turn) -> list[str]:
    return [event.outcome for event in turn._events if isinstance(event, ev.TurnEnded)]


def pid_of(session: Session) -> int:
    connection = session._conversation.link.connection
    assert connection is not None and connection.pid is not None
    return connection.pid


# Messages and the bounds of a turn.


@pytest.mark.parametrize("stop", [False, True], ids=["by itself", "stopped"])
@pytest.mark.parametrize("name", ["terminal-twice", "terminal-again"])
def test_msg_g2_a_second_end_of_a_turn_ends_nothing(
    agents: Agents, rogue: Session, name: str, stop: bool
) -> None:
    turn = rogue.start(f"{'count' if stop else 'snow'} [rogue {name}]")
    result = stopped(said(turn, "w5 ")) if stop else turn.result(GENEROUS)
    agents.goes_on(rogue, result)
    agents.goes_on(rogue, result)
    assert ends(turn) == ["interrupted" if stop else "completed"]
    assert turn.result(0, raise_error=False) is result


def test_msg_g3_a_text_is_shown_once_and_the_same_text_twice(agents: Agents) -> None:
    session = agents.session("plain")
    assert run(session, "echo once").text == "ECHO"
    assert run(session, "twice the same").text == "The same. \n\nThe same. \n\nDone."
    session.close()


@pytest.mark.parametrize("name", ["half-then-closes", "half-then-mute"])
def test_msg_g4_a_stream_that_closes_is_the_end_and_no_success(
    agents: Agents, rogue: Session, name: str
) -> None:
    pid = pid_of(rogue)
    began = time.monotonic()
    turn = rogue.start(f"snow [rogue {name}]")
    result = turn.result(GENEROUS, raise_error=False)
    assert time.monotonic() - began < 10.0
    assert (result.outcome, ends(turn)) == (Outcome.LOST, ["lost"])
    assert result.text == "".join(f"grün☃{i} " for i in range(5))
    assert result.error
    agents.goes_on(rogue, result)
    assert pid_of(rogue) != pid


def hook_project(folder: Path, event: str, command: str) -> None:
    """Make it a project whose settings run this at this event."""
    hooks = {event: [{"hooks": [{"type": "command", "command": command}]}]}
    (folder / ".claude").mkdir()
    (folder / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))


@pytest.mark.parametrize("answer", [
    "echo 'not on Sundays' >&2; exit 2",
    """echo '{"decision":"block","reason":"not on Sundays"}'""",
    """echo '{"continue":false,"stopReason":"not on Sundays"}'""",
], ids=["exit code", "block", "halt"])  # fmt: skip
def test_msg_g5_a_prompt_that_a_hook_blocks_is_no_success(
    agents: Agents, tmp_path: Path, answer: str
) -> None:
    hook_project(tmp_path, "UserPromptSubmit", f"grep -q forbidden || exit 0; {answer}")
    session = agents.session("blocked", cwd=str(tmp_path), sources=("project",))
    result = run(session, "forbidden")
    assert (result.outcome, result.text) == (Outcome.FAILED, "")
    assert "not on Sundays" in (result.error or "") and "--settings" in (result.error or "")
    assert agents.calls("forbidden") == []
    agents.goes_on(session, result)
    session.close()


@pytest.mark.parametrize(("event", "outcome", "text"), [
    ("PostToolUse", Outcome.FAILED, "I look. "),
    ("Stop", Outcome.COMPLETED, "I look. \n\nSeen."),
])  # fmt: skip
def test_msg_g5_a_turn_that_a_hook_ends_is_whole_or_no_success(
    agents: Agents, tmp_path: Path, event: str, outcome: Outcome, text: str
) -> None:
    hook_project(tmp_path, event, """echo '{"continue":false,"stopReason":"enough"}'""")
    session = agents.session(f"ended-{event}", cwd=str(tmp_path), sources=("project",))
    result = run(session, "look once")
    assert (result.outcome, result.text) == (outcome, text)
    assert "Seen" not in (result.error or "") and bool(result.error) is (outcome is Outcome.FAILED)
    session.close()


def test_msg_g6_a_prompt_after_a_killed_tool_is_one_model_call(agents: Agents) -> None:
    session = agents.session("cut")
    turn = session.start("block")
    heard(turn, ev.ToolStarted)
    wait_until(lambda: agents.commands("tail -f"))
    os.kill(pid_of(session), signal.SIGKILL)
    cut = turn.result(GENEROUS, raise_error=False)
    assert cut.outcome is Outcome.LOST
    assert session.start("after the cut").result(GENEROUS).text == "echo: after the cut"
    assert len(agents.calls("after the cut")) == 1
    session.close()


# Loops and tasks.


class BrokenView:
    """Draws so many pictures, then fails."""

    def __init__(self, pictures: int) -> None:
        self.left = pictures

    def show(self, _: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise ValueError("no paper")


def test_loop_g1_nothing_is_left_by_stops_at_any_moment(
    agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(4)
    one, two = agents.session("loop-one"), agents.session("loop-two")
    with caplog.at_level(logging.DEBUG):
        for lap in range(6):
            view = BrokenView(dice.randrange(4)) if lap % 2 else None
            turns = [s.start("count", view=view) for s in (one, two)]
            for turn in turns:
                said(turn, f"w{dice.randrange(15)} ")
                turn.stop(now=lap == 4)
            for turn in turns:
                assert turn.result(GENEROUS, raise_error=False).outcome is not Outcome.FAILED
            gc.collect()
        one.close()
        two.close()
        gc.collect()
    for words in ("cancel scope", "never retrieved", "never awaited", "was destroyed"):
        assert words not in caplog.text


def test_loop_g4_a_view_that_fails_leaves_the_next_turn_whole(agents: Agents) -> None:
    session = agents.session("viewed")
    for pictures in (0, 1, 3):
        result = run(session, "snow", view=BrokenView(pictures))
        assert (result.outcome, result.text) == (Outcome.COMPLETED, SNOW)
        pid = pid_of(session)
        agents.goes_on(session, result)
        assert pid_of(session) == pid
    session.close()


# Pipes, sizes, encodings.


def test_io_g1_a_tool_call_of_more_than_a_megabyte_is_read(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call, the hook's question and the result are a line of that size each."""
    sizes: list[int] = []
    parse = ClaudeProcess._parse

    def measured(process: ClaudeProcess, line: bytes) -> Any:
        sizes.append(len(line))
        return parse(process, line)

    monkeypatch.setattr(ClaudeProcess, "_parse", measured)
    session = agents.session("big", cwd=str(agents.cwd))
    result = run(session, "write it down")
    assert [(tool.name, tool.status) for tool in result.tools] == [("Write", "done")]
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "Done.")
    assert len([size for size in sizes if size > 1_200_000]) >= 4
    assert (agents.cwd / "big.txt").read_text() == LINES
    agents.goes_on(session, result)
    session.close()


def test_io_g2_a_character_cut_in_two_is_joined_and_bad_bytes_are_skipped(
    agents: Agents, rogue: Session
) -> None:
    result = run(rogue, "snow [rogue junk]")
    assert (result.outcome, result.text) == (Outcome.COMPLETED, SNOW)
    assert "".join(e.text for e in result.events if isinstance(e, ev.TextDelta)) == SNOW
    agents.goes_on(rogue, result)


def test_io_g3_a_flood_on_stderr_blocks_nothing_and_its_end_is_kept(
    agents: Agents, rogue: Session
) -> None:
    began = time.monotonic()
    turn = said(rogue.start("count [rogue junk]"), "w5 ")
    assert time.monotonic() - began < 10.0
    result = stopped(turn)
    assert result.receipt is not None and result.receipt.connection == "warm"
    connection: Any = rogue._conversation.link.connection
    assert connection.process.last_words.endswith("noise on and on")
    agents.goes_on(rogue, result)


def test_io_g4_plain_words_on_stdout_are_noted_and_skipped(
    agents: Agents, rogue: Session, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "turncell"):
        result = run(rogue, "snow [rogue junk]")
    assert (result.outcome, result.text) == (Outcome.COMPLETED, SNOW)
    notes = [r.getMessage() for r in caplog.records if r.name == "turncell"]
    assert any("Attempting login..." in note for note in notes)
    assert {r.levelno for r in caplog.records if r.name == "turncell"} == {logging.DEBUG}
    agents.goes_on(rogue, result)


def test_io_g5_a_tool_late_in_the_turn_is_still_answered(agents: Agents) -> None:
    """Its permission and its hook are answered over the agent's stdin."""
    session = agents.session("late", permission_mode="default")
    result = run(session, "late tool")
    assert [(tool.name, tool.status) for tool in result.tools] == [("Bash", "denied")]
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "I think. \n\nOk.")
    agents.goes_on(session, result)
    session.close()
