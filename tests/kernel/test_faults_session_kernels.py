"""Sessions between kernels that were reported to go wrong elsewhere: see docs/faults.md."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest
from driver import Cell
from places import SCRIPT, AgentKernel

from turncell.modelserver import Reply, Request, Scenario, Script, ToolUse

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

NewKernel = Callable[..., AgentKernel]
BLOCK = ToolUse("Bash", {"command": "tail -f /dev/null"})
TOOL = Scenario("tool", when="a tool", replies=[Reply("I wait. ", BLOCK), Reply("Done.")])


def streaming(kernel: AgentKernel, options: str = "") -> Cell:
    """A turn in mid stream."""
    cell = kernel.start(f"%%agent -o r {options}\ncount")
    kernel.wait_for(lambda: "w3 " in cell.text or cell.done, 30, "the stream")
    assert not cell.done, cell.error
    return cell


def answered(kernel: AgentKernel, prompt: str, options: str = "") -> Cell:
    cell = kernel.run(f"%%agent -o r {options}\n{prompt}", 60)
    assert cell.status == "ok", cell.error
    assert kernel.value("r.text") == f"echo: {prompt}"
    return cell


def calls(kernel: AgentKernel, prompt: str) -> list[Request]:
    return [request for request in kernel.server.requests if request.prompt == prompt]


def heard(kernel: AgentKernel, prompt: str) -> str:
    """All that the model was told before and with a prompt."""
    return json.dumps(calls(kernel, prompt)[0].history)


def restart(kernel: AgentKernel) -> None:
    """Kill it, as a busy one is, and start it anew."""
    kernel.manager.restart_kernel(now=True)
    kernel.client.wait_for_ready(timeout=60)
    kernel.pid = int(kernel.manager.provisioner.pid)
    assert kernel.run("%load_ext turncell").status == "ok"


def test_ses_g5_two_kernels_with_one_session(new_kernel: NewKernel) -> None:
    first = new_kernel(JPY_SESSION_NAME="first.ipynb")
    second = new_kernel(JPY_SESSION_NAME="second.ipynb")
    answered(first, "one")
    session = first.value("r.session_id")
    first.run("import turncell")
    cell = second.run(f"%%agent --resume {session}\ntwo")
    holder = f"kernel {first.pid} (first.ipynb)"
    for words in (holder, "--in-use wait", "--fork NAME", "--in-use take"):
        assert words in cell.error
    assert calls(second, "two") == []

    turn = streaming(first)
    waiting = second.start(f"%%agent -o r --resume {session} --in-use wait\nthree")
    second.wait_for(lambda: "Waiting for the session" in waiting.text, 30, "a word about it")
    assert holder in waiting.text and calls(second, "three") == []
    first.interrupt()
    assert first.wait(turn).reply["ename"] == "TurnStopped"
    assert second.wait(waiting, 30).status == "ok", waiting.error
    assert second.value("[r.text, r.session_id]") == ["echo: three", session]
    assert all(word in heard(second, "three") for word in ("echo: one", "w3 ", "stopped"))

    turn = streaming(second)
    cell = answered(first, "four", "--in-use take")
    assert "taken over" in cell.text and f"kernel {second.pid}" in cell.text
    assert second.wait(turn, 10).reply["ename"] == "TurnFailed"
    assert second.value("[str(r.outcome) in ('failed', 'lost'), 'w3 ' in r.text]") == [True, True]
    assert all(word in heard(first, "four") for word in ("echo: one", "echo: three", "w3 "))

    record = next(first.place.home.rglob(f"{session}.jsonl"))
    before = record.read_bytes()
    answered(second, "five", "--fork branch")
    assert second.value("r.session_id") != session and record.read_bytes() == before
    assert "echo: four" in heard(second, "five")
    answered(first, "six")
    first.run("turncell.Session().close()")
    # Both at once: one of them has it, and the other one is told so.
    cells = [k.start(f"%%agent --resume {session}\nseven") for k in (first, second)]
    ends = sorted([first.wait(cells[0], 60).status, second.wait(cells[1], 60).status])
    assert ends == ["error", "ok"] and len(calls(first, "seven")) == 1
    assert any("is in use" in cell.error for cell in cells)
    assert "echo: four" in heard(first, "six") and "five" not in heard(first, "six")


def test_ses_g5_a_frozen_or_dead_kernel_keeps_nobody_out(new_kernel: NewKernel) -> None:
    first, second = new_kernel(), new_kernel()
    answered(first, "one")
    session = first.value("r.session_id")
    turn = streaming(first)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        cell = second.run(f"%%agent --resume {session}\ntwo")
        assert f"kernel {first.pid}" in cell.error and calls(second, "two") == []
        answered(second, "three", f"--resume {session} --in-use take")
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert "echo: one" in heard(second, "three") and "w3 " in heard(second, "three")
    assert first.wait(turn, 15).reply["ename"] == "TurnFailed"
    cell = first.run("%%agent\nfour")
    assert f"kernel {second.pid}" in cell.error

    streaming(second)
    os.kill(second.pid, signal.SIGKILL)
    second.wait_for(lambda: not second.manager.is_alive(), 10, "its end")
    answered(first, "five")
    assert first.value("r.session_id") == session
    assert "echo: three" in heard(first, "five") and "count" in heard(first, "five")


def test_ses_g2_g4_a_killed_kernel_a_tool_and_the_same_cells_again(new_kernel: NewKernel) -> None:
    kernel = new_kernel()
    kernel.server.script = Script(TOOL, *SCRIPT.scenarios)
    answered(kernel, "one", "-s fixed")
    session = kernel.value("r.session_id")
    cell = kernel.start("%%agent -s fixed --tools Bash\na tool")
    kernel.wait_for(lambda: kernel.place.named("tail") or cell.done, 30, "the tool")
    assert not cell.done, cell.error
    os.kill(kernel.pid, signal.SIGKILL)
    restart(kernel)
    kernel.place.wait_gone(kernel.pid, seconds=10)  # agent and tool
    answered(kernel, "the name", "-s fixed")  # a conversation of its own
    assert kernel.value("r.session_id") != session
    answered(kernel, "two", f"-s fixed --resume {session}")
    messages = [m for m in calls(kernel, "two")[0].history if m["role"] != "system"]
    kinds = [{b["type"] for b in m["content"] if isinstance(b, dict)} for m in messages]
    assert "tool_result" in kinds[[i for i, kind in enumerate(kinds) if "tool_use" in kind][0] + 1]
    answered(kernel, "three", f"-s fixed --resume {session}")  # the same cell again
    assert kernel.value("r.session_id") == session
    assert all(f"echo: {word}" in heard(kernel, "three") for word in ("one", "two"))
    assert "the name" not in heard(kernel, "three")
