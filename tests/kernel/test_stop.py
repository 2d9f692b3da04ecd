"""Stopping a turn that holds its cell: by its button, by a kernel interrupt, by time."""

from __future__ import annotations

import json
import re
import signal

import pytest
from driver import VIEW, Cell
from places import AgentKernel

from turncell.modelserver import HttpError, Reply, Scenario, Script, Silence, ToolUse

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

LABEL = re.compile(r"Stopping (\d+) s \(Force\)")
#: What is left of a receipt and a result when a stop went well.
FACTS = "[str(r.outcome), str(r.reason), str(r.receipt.rung), r.receipt.connection]"
POLITE = ["interrupted", "user", "interrupt", "warm"]


def streaming(kernel: AgentKernel, options: str = "", prompt: str = "count") -> tuple[Cell, str]:
    """A turn in mid stream, and its Stop button."""
    cell = kernel.start(f"%%agent -o r {options}\n{prompt}")
    kernel.wait_for(lambda: "w3 " in cell.text or cell.done, 30, "the stream")
    assert not cell.done, cell.error or cell.text
    button = kernel.button("Stop")
    assert button is not None
    return cell, button


def freeze(kernel: AgentKernel) -> None:
    """Make the agent deaf to anything but SIGKILL."""
    for agent in kernel.agents:
        agent.send_signal(signal.SIGSTOP)


def label(kernel: AgentKernel, button: str) -> str:
    return str(kernel.widgets.get(button, {}).get("description"))


def goes_on(kernel: AgentKernel, *history: str) -> None:
    """The next cell works and continues the conversation."""
    cell = kernel.run("%%agent -o next\nand on")
    assert cell.status == "ok", cell.error
    assert kernel.value("[next.text, next.session_id == r.session_id]") == ["echo: and on", True]
    sent = json.dumps(kernel.server.requests[-1].history)
    for words in history:
        assert words in sent


def test_a_click_in_mid_stream(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell, button = streaming(kernel)
    state = kernel.widgets[button]
    assert state["description"] == "Stop"
    kernel.click(button)
    kernel.wait(cell)
    assert LABEL.fullmatch(state["description"])  # the answer, the last thing the button said
    assert kernel.widgets == {}  # and then it went
    assert cell.reply["ename"] == "TurnStopped"
    (line,) = cell.reply["traceback"]
    assert line == "TurnStopped: the partial text is kept; the next cell resumes the conversation."
    assert kernel.value(FACTS) == POLITE
    assert kernel.value("r.receipt.survivors") == []
    text = kernel.value("r.text")
    assert text.startswith("w0 w1 w2 w3 ")
    assert "w399" not in text
    assert cell.text.startswith(text.strip())
    assert "stopped by you" in cell.text
    assert VIEW not in json.dumps(cell.outputs)
    goes_on(kernel, text, "[Request interrupted by user]")


def test_text_that_was_shown_is_never_lost(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    for number in range(5):
        cell, button = streaming(kernel, prompt=f"count, round {number}")
        shown = cell.text
        kernel.click(button)
        kernel.wait(cell)
        words = shown[shown.index("w0 ") :]
        assert cell.text.startswith(words.strip())
        assert kernel.value("r.text").startswith(words.strip())


def test_the_answer_is_seen_while_the_cell_still_runs(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell, button = streaming(kernel, "--ack 1 --grace 1")
    freeze(kernel)
    kernel.click(button)
    kernel.wait_for(lambda: LABEL.match(label(kernel, button)), 5, "the answer")
    bound = int(LABEL.match(label(kernel, button))[1])
    assert not cell.done
    kernel.wait_for(lambda: f"Stopping {bound - 1} s (Force)" == label(kernel, button), 5)
    assert not cell.done
    kernel.wait(cell, bound + 3)
    assert "stopped by you, by force" in cell.text
    assert kernel.value(FACTS) == ["killed", "user", "kill", "closed"]
    assert kernel.value("r.receipt.survivors") == []
    assert kernel.value("r.receipt.reaped_after") <= bound
    assert kernel.agents == []
    goes_on(kernel, "count")


def test_a_double_click_is_one_stop(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell, button = streaming(kernel)
    (agent,) = kernel.agents
    freeze(kernel)
    kernel.click(button)
    kernel.listen(0.1)
    kernel.click(button)
    kernel.listen(0.5)
    agent.send_signal(signal.SIGCONT)
    kernel.wait(cell)
    assert kernel.value(FACTS) == POLITE  # a second stop would have been a signal
    assert kernel.agents == [agent]


def test_a_third_click_kills(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell, button = streaming(kernel)
    freeze(kernel)
    for _ in range(3):
        kernel.click(button)
        kernel.listen(0.6)
    kernel.wait(cell, 5)  # long before the 16 s that the ladder would take
    assert kernel.value(FACTS) == ["killed", "user", "kill", "closed"]
    goes_on(kernel)


def test_a_click_before_the_agent_is_there(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = kernel.start("%%agent -o r -s early\ncount")
    kernel.click(kernel.wait_for(lambda: kernel.button("Stop"), 10, "the button"))
    kernel.wait(cell)
    assert cell.reply["ename"] == "TurnStopped"
    assert kernel.value("[str(r.outcome), r.text]") == ["interrupted", ""]
    assert kernel.run("%%agent -s early -o r\nnow then").status == "ok"


@pytest.mark.parametrize("step", [Silence(), HttpError(529)], ids=["never answers", "retries"])
def test_a_click_while_the_api_is_of_no_use(agent_kernel: AgentKernel, step: object) -> None:
    kernel = agent_kernel
    kernel.server.script = Script(Scenario("bad", replies=[Reply(step)]))
    cell = kernel.start("%%agent -o r\nhello")
    kernel.server.wait_for(lambda request: request.scenario == "bad", 20)
    kernel.click(kernel.wait_for(lambda: kernel.button("Stop"), 10, "the button"))
    kernel.wait(cell, 10)
    assert kernel.value(FACTS) == POLITE
    assert kernel.clean()
    goes_on(kernel)


def test_a_click_in_a_tool_ends_the_tool(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    use = ToolUse("Bash", {"command": "tail -f /dev/null", "description": "x"})
    kernel.server.script = Script(Scenario("tool", replies=[Reply("Now. ", use)]))
    cell = kernel.start("%%agent -o r --tools Bash\ngo")
    kernel.wait_for(lambda: kernel.place.named("tail"), 30, "the tool")
    kernel.click(kernel.button("Stop"))
    kernel.wait(cell, 15)
    assert kernel.place.named("tail") == []
    assert kernel.value("[t.status for t in r.tools]") == ["cancelled"]
    assert kernel.value(FACTS) == POLITE


# The kernel interrupt.


def test_a_kernel_interrupt(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell, _ = streaming(kernel)
    agents = kernel.agents
    kernel.interrupt()
    kernel.wait(cell)
    assert cell.reply["ename"] == "TurnStopped"
    assert kernel.value(FACTS) == ["interrupted", "kernel_interrupt", "interrupt", "warm"]
    assert "stopped by a kernel interrupt" in cell.text
    assert kernel.agents == agents  # the signal did not reach them
    goes_on(kernel, kernel.value("r.text"))


@pytest.mark.parametrize("gap", [0.0, 0.02, 0.1, 0.3])
def test_three_kernel_interrupts_are_a_stop(agent_kernel: AgentKernel, gap: float) -> None:
    kernel = agent_kernel
    cell, _ = streaming(kernel)
    for _ in range(3):
        kernel.interrupt()
        kernel.listen(gap)
    kernel.wait(cell)
    assert cell.reply["ename"] == "TurnStopped"
    assert kernel.value("str(r.reason)") == "kernel_interrupt"
    goes_on(kernel)


def test_three_kernel_interrupts_kill_a_frozen_agent(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell, _ = streaming(kernel)
    freeze(kernel)
    for _ in range(3):
        kernel.interrupt()
        kernel.listen(0.6)
    kernel.wait(cell, 5)
    assert kernel.value(FACTS) == ["killed", "kernel_interrupt", "kill", "closed"]
    goes_on(kernel)


# What follows a stop.


def test_a_stop_halts_run_all(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell, button = streaming(kernel)
    queued = [kernel.start("reached = 'one'"), kernel.start("%%agent\nreached = 'two'")]
    kernel.click(button)
    assert [kernel.wait(one).status for one in (cell, *queued)] == ["error", "aborted", "aborted"]
    assert kernel.value("'reached' in globals()") is False
    assert [r.prompt for r in kernel.server.requests if r.scenario] == ["count"]


def test_a_stop_that_raises_nothing_lets_run_all_go_on(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell, button = streaming(kernel, "--no-raise-error")
    queued = kernel.start("reached = str(r.outcome)")
    kernel.click(button)
    assert [kernel.wait(one).status for one in (cell, queued)] == ["ok", "ok"]
    assert kernel.value("reached") == "interrupted"


def test_the_time_limit_stops(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = kernel.run("%%agent -o r --timeout 1\ncount")
    assert cell.reply["ename"] == "TurnStopped"
    assert kernel.value(FACTS) == ["interrupted", "timeout", "interrupt", "warm"]
    goes_on(kernel, kernel.value("r.text"))


def test_a_polite_strategy_never_kills(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell, button = streaming(kernel, "--strategy interrupt --ack 1 --grace 1")
    (agent,) = kernel.agents
    freeze(kernel)
    kernel.click(button)
    kernel.wait(cell, 10)
    assert kernel.value("str(r.outcome)") == "unstopped"
    assert "still runs" in cell.error
    refused = kernel.run("%%agent\nmore")
    assert refused.error.startswith("SessionBusy: ")
    assert len(refused.outputs) == 1  # the error itself, and no dead button
    assert kernel.run("%agent stop --now").text.startswith("Stopping 1 turn of")
    kernel.wait_for(lambda: not agent.is_running(), 10, "the end of the agent")
    kernel.wait_for(lambda: kernel.run("%%agent -o r\nmore").status == "ok", 10, "another turn")
