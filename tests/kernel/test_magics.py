"""`%%agent` in a real kernel with the real agent: what a turn shows, keeps and leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from driver import VIEW, Cell
from places import AgentKernel

from turncell.modelserver import Pause, Reply, Scenario, Script, Thinking, ToolUse, Words
from turncell.outcome import RECORD_TYPE

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

FORMS = {"text/plain", "text/markdown", "text/html", RECORD_TYPE}


def data_of(cell: Cell) -> list[dict[str, Any]]:
    return [out["data"] for out in cell.outputs if "data" in out]


def status_of(kernel: AgentKernel) -> str:
    """What stands beside the Stop button, and every line of status there was."""
    return " ".join(str(s.get("value")) for s in kernel.widgets.values() if "value" in s)


def streams(kernel: AgentKernel, cell: Cell, word: str = "w3 ") -> Cell:
    """Wait until the text has come this far."""
    kernel.wait_for(lambda: word in cell.text or cell.done, 30, f"the word {word}")
    assert not cell.done, cell.error or cell.text
    return cell


def test_a_turn_streams_into_its_cell(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = Script(Scenario("forty", replies=[Reply(Words(40, pace=0.03))]))
    cell = streams(kernel, kernel.start("%%agent -o r\ncount"))
    early = cell.text
    assert "w39" not in early
    assert kernel.button("Stop")
    assert kernel.wait(cell).status == "ok"
    whole = "".join(f"w{i} " for i in range(40))
    assert kernel.value("[r.text, str(r), str(r.outcome), r.reason, r.receipt]") == [
        whole, whole, "completed", None, None,
    ]  # fmt: skip
    assert cell.text.startswith(whole.strip())


def test_what_is_left_is_one_static_output(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = kernel.run("%%agent\n**hello**")
    (data,) = data_of(cell)
    assert set(data) == FORMS
    assert len(cell.outputs) == 1
    assert "<strong>hello</strong>" in data["text/html"]
    assert "echo: **hello**" in data["text/markdown"]
    assert "echo: **hello**" in data["text/plain"]
    assert data[RECORD_TYPE]["outcome"] == "completed"
    assert VIEW not in json.dumps(cell.outputs)
    assert kernel.widgets == {}  # button, status, layouts and styles: all closed


def test_the_result_says_everything(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    reply = Reply("Four words of text.", input_tokens=70, output_tokens=4)
    kernel.server.script = Script(Scenario("short", replies=[reply]))
    kernel.run("%%agent -o r -s costs -m claude-sonnet-4-5\nask")
    assert kernel.value("[r.usage['input_tokens'], r.usage['output_tokens']]") == [70, 4]
    first = kernel.value("r.cost_usd")
    assert first > 0
    assert 0 < kernel.value("r.duration") < 30
    assert kernel.value("[r.model, r.session, r.error]") == ["claude-sonnet-4-5", "costs", None]
    assert kernel.value("len(r.session_id)") == len(kernel.value("r.turn_id")) == 36
    kernel.run("%%agent -o r -s costs\nask")
    again = kernel.value("r.cost_usd")  # of this turn alone, though another agent resumed it
    assert 0 < again < 10 * first
    names = set(kernel.value("[type(event).__name__ for event in r.events]"))
    assert {"SessionOpened", "TextDelta", "UsageReported", "TurnEnded"} <= names


def test_the_first_turn_says_starting(new_kernel: Callable[..., AgentKernel]) -> None:
    kernel = new_kernel()
    cell = kernel.start("%%agent\nhi")
    kernel.wait_for(lambda: kernel.button("Stop"), 10, "the button")
    assert "starting" in status_of(kernel)
    assert not cell.done
    assert kernel.wait(cell, 60).status == "ok"


def test_a_warm_agent_serves_the_next_turn(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -o a\none")
    agents = kernel.agents
    kernel.run("%%agent -o b\ntwo")
    assert kernel.agents == agents
    assert kernel.value("a.session_id == b.session_id and a.turn_id != b.turn_id")


def test_an_option_reopens_the_agent_on_the_same_session(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -o a\nthe first marker")
    kernel.run("%%agent -o b --system Briefly.\nthe second marker")
    kernel.run("%%agent -o c\nthe third marker")
    assert kernel.value("len({r.session_id for r in (a, b, c)})") == 1
    sent = json.dumps(kernel.server.requests[-1].history)
    assert "echo: the first marker" in sent
    assert "echo: the second marker" in sent
    assert len(kernel.agents) == 1


@pytest.mark.xfail(reason="a resumed agent takes up the model its session used last")
def test_a_model_holds_for_its_cell_alone(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    for model in ("", "-m claude-haiku-4-5", ""):
        kernel.run(f"%%agent {model}\nhi")
    first, second, third = (r.model for r in kernel.server.requests if r.scenario)
    assert second == "claude-haiku-4-5"
    assert first == third != second


def test_the_prompt_is_sent_verbatim(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("x, secret = 1, 'do not expand'")
    prompt = "/help {x} $secret {secret!r} @setup.py\n  indented  \n\ttab ünïcödé 🙂\n# %%agent"
    kernel.run(f"%%agent\n{prompt}")
    assert kernel.server.requests[-1].prompt == prompt


@pytest.mark.parametrize("option", ["-s other", "--session=other"])
def test_a_named_session_is_a_conversation_of_its_own(
    agent_kernel: AgentKernel, option: str
) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -o a\nspoken in main")
    kernel.run(f"%%agent -o b {option}\nspoken in other")
    assert kernel.value("[a.session, b.session]") == ["main", "other"]
    assert kernel.value("a.session_id != b.session_id")
    assert "spoken in main" not in json.dumps(kernel.server.requests[-1].history)


def test_new_starts_afresh_and_resume_goes_back(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -s again -o a\nthe old topic")
    kernel.run("%%agent -s again -o b --new\nthe new topic")
    assert kernel.value("a.session_id != b.session_id")
    assert "the old topic" not in json.dumps(kernel.server.requests[-1].history)
    kernel.run(f"%%agent -s again -o c --resume {kernel.value('a.session_id')}\nand on")
    assert kernel.value("a.session_id == c.session_id")
    assert "the old topic" in json.dumps(kernel.server.requests[-1].history)


def test_a_tool_runs_and_is_told(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    use = ToolUse("Bash", {"command": "echo $((6 * 7)) > made; cat made", "description": "x"})
    kernel.server.script = Script(
        Scenario("tool", replies=[Reply(Thinking("hm"), "I look. ", use), Reply("Done.")])
    )
    cell = kernel.run("%%agent --tools Bash -o r\ngo")
    assert (kernel.place.cwd / "made").read_text() == "42\n"
    assert kernel.value("[(t.name, t.status, t.output) for t in r.tools]") == [
        ["Bash", "done", "42"]
    ]
    assert kernel.value("r.text").split() == ["I", "look.", "Done."]
    assert "Bash echo $((6 * 7)) > made; cat made · done" in cell.text


def test_a_tool_that_nobody_can_be_asked_about_is_denied(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    use = ToolUse("Bash", {"command": "touch forbidden", "description": "x"})
    kernel.server.script = Script(Scenario("tool", replies=[Reply(use), Reply("So be it.")]))
    cell = kernel.run("%%agent -o r\ngo", allow_stdin=False)
    assert not (kernel.place.cwd / "forbidden").exists()
    assert kernel.value("[t.status for t in r.tools]") == ["denied"]
    assert "--tools Bash or --unattended allow" in cell.text  # a mode for edits would not help
    assert kernel.value("str(r.outcome)") == "completed"


def test_quiet_shows_only_the_end(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = Script(Scenario("ten", replies=[Reply(Words(10, pace=0.02))]))
    before = kernel.traffic["update_display_data"]
    cell = kernel.run("%%agent -q\ncount")
    assert kernel.traffic["update_display_data"] == before
    assert "w9" in cell.text
    assert set(data_of(cell)[-1]) == FORMS


def test_the_seconds_go_on_while_the_agent_is_silent(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = Script(Scenario("slow", replies=[Reply(Pause(4), "At last.")]))
    cell = kernel.start("%%agent\nwait")
    for second in (1, 2, 3):
        kernel.wait_for(lambda s=second: f"running {s} s" in status_of(kernel), 10, "a sign")
    assert not cell.done
    assert kernel.wait(cell).status == "ok"


# Where nobody can answer: nbclient, papermill, and the like.


def test_without_stdin_a_turn_is_one_display(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    before = kernel.traffic.copy()
    cell = kernel.run("%%agent\nhi", allow_stdin=False)
    (data,) = data_of(cell)
    assert set(data) == FORMS
    assert "echo: hi" in data["text/plain"]
    sent = kernel.traffic - before
    assert sent["display_data"] == 1
    assert not {"update_display_data", "clear_output", "comm_open"} & set(sent)


def test_without_stdin_a_timeout_is_told(agent_kernel: AgentKernel) -> None:
    cell = agent_kernel.run("%%agent --timeout 1 -o r\ncount", allow_stdin=False)
    (data,) = data_of(cell)
    assert cell.error.startswith("TurnStopped: ")
    assert "stopped by its time limit" in data["text/plain"]
    assert "w3 " in data["text/plain"]
    assert agent_kernel.value("[str(r.outcome), str(r.reason)]") == ["interrupted", "timeout"]


# Help and settings.


@pytest.mark.parametrize("asked", ["%%agent?", "%agent?"])
def test_help_in_the_pager(agent_kernel: AgentKernel, asked: str) -> None:
    (page,) = agent_kernel.run(asked).reply["payload"]
    text = page["data"]["text/plain"]
    wanted = ("--session", "--timeout") if asked.startswith("%%") else ("sessions", "doctor")
    for word in wanted:
        assert word in text


def test_help_runs_nothing(agent_kernel: AgentKernel) -> None:
    cell = agent_kernel.run("%%agent --help\nanything")
    assert "--permission-mode MODE" in cell.text
    assert "--no-raise-error" in cell.text
    assert agent_kernel.server.requests == []


def test_config_sets_what_a_cell_does_not(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%config AgentMagics.timeout = 0.5")
    try:
        cell = kernel.run("%%agent -o r --no-raise-error\ncount")
        assert cell.status == "ok"
        assert kernel.value("str(r.reason)") == "timeout"
        kernel.server.script = Script(Scenario("ten", replies=[Reply(Words(20, pace=0.05))]))
        assert kernel.run("%%agent -o r --timeout 20\ncount").status == "ok"  # the cell wins
        table = kernel.run("%agent config").text
        assert "timeout          0.5" in table
        assert "%config AgentMagics" in table
    finally:
        kernel.run("%config AgentMagics.timeout = None")
    assert "ack_timeout" in kernel.run("%config AgentMagics").text


def test_the_environment_sets_what_the_server_wants(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%env TURNCELL_MODEL=claude-haiku-4-5")
    try:
        kernel.run("%%agent\nhi")
        assert kernel.server.requests[-1].model == "claude-haiku-4-5"
        assert "TURNCELL_MODEL" in kernel.run("%agent config").text
        kernel.run("%config AgentMagics.model = 'claude-opus-4-5'")  # wins over the environment
        kernel.run("%%agent\nhi")
        assert kernel.server.requests[-1].model == "claude-opus-4-5"
    finally:
        kernel.run("%config AgentMagics.model = ''\nimport os; del os.environ['TURNCELL_MODEL']")
