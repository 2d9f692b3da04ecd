"""`--bg` and the line for one session: where output lands, joining, stopping."""

from __future__ import annotations

import json
import signal

import pytest
from driver import VIEW, Cell
from places import AgentKernel

from turncell.modelserver import Reply, Scenario, Script, Words

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

SHORT = Script(
    Scenario("count", when="count", replies=[Reply(Words(40, pace=0.05))]),
    Scenario("other", when="beta", replies=[Reply(Words(20, pace=0.05, word="b{i} "))]),
    Scenario("rest", replies=[Reply("done")]),
)


def background(kernel: AgentKernel, options: str = "", prompt: str = "count") -> Cell:
    """A `--bg` turn in mid stream."""
    cell = kernel.run(f"%%agent --bg -o r {options}\n{prompt}")
    assert cell.status == "ok", cell.error
    kernel.wait_for(lambda: "3 " in cell.text, 30, "the stream")
    return cell


def ended(kernel: AgentKernel, cell: Cell, *, still_running: bool = False) -> None:
    """Wait until a background turn is over, in its cell and in the kernel."""
    kernel.wait_for(lambda: "background turn over" in cell.text, 20, "the end")
    if not still_running:
        kernel.wait_for(lambda: "running: nothing" in kernel.run("%agent").text, 10, "the end")


def test_it_returns_at_once_and_fills_its_own_cell(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = SHORT
    cell = background(kernel)
    assert "w39" not in cell.text
    busy = kernel.run("import time\nfor i in range(10): print('mine', i); time.sleep(0.05)")
    assert busy.text == "".join(f"mine {i}\n" for i in range(10))
    join = kernel.run("%agent wait")
    assert [join.status, join.outputs] == ["ok", []]
    ended(kernel, cell)
    assert "w39" in cell.text
    assert "completed" in cell.text
    assert VIEW not in json.dumps(cell.outputs)
    assert kernel.widgets == {}
    assert kernel.value("[str(r.outcome), len(r.text.split())]") == ["completed", 40]


def test_stop_by_name_and_the_join_tells(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = background(kernel)
    assert "Stopping 1 turn of main" in kernel.run("%agent stop main").text
    join = kernel.run("%agent wait main")
    assert join.reply["ename"] == "TurnStopped"
    assert len(join.reply["traceback"]) == 1
    ended(kernel, cell)
    assert "stopped by you" in cell.text
    assert "w3 " in cell.text
    assert kernel.value("[str(r.outcome), r.receipt.connection]") == ["interrupted", "warm"]


def test_its_button_works_in_an_idle_kernel(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = background(kernel)
    kernel.click(kernel.button("Stop"))
    ended(kernel, cell)
    assert kernel.value("[str(r.outcome), str(r.reason)]") == ["interrupted", "user"]


def test_its_button_works_while_another_cell_blocks(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = background(kernel)
    button = kernel.button("Stop")
    blocking = kernel.start("import time\nprint('up')\ntime.sleep(3)\nprint('awake')")
    kernel.wait_for(lambda: "up" in blocking.text, 10, "the other cell")
    kernel.click(button)
    ended(kernel, cell, still_running=True)
    seen_while_blocked = "awake" not in blocking.text
    # On ipykernel 6 nobody can hear a click while a cell that is not ours blocks the kernel.
    assert seen_while_blocked or kernel.value("__import__('ipykernel').version_info[0]") < 7
    assert kernel.wait(blocking).text == "up\nawake\n"
    assert kernel.value("str(r.outcome)") == "interrupted"


def test_a_kernel_interrupt_in_the_join_stops_it(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = background(kernel)
    join = kernel.start("print('up')\n%agent wait")
    kernel.wait_for(lambda: "up" in join.text, 10, "the join")
    kernel.listen(0.3)  # a person does not press within the first milliseconds
    kernel.interrupt()
    assert kernel.wait(join).reply["ename"] == "TurnStopped"
    ended(kernel, cell)
    assert kernel.value("str(r.reason)") == "kernel_interrupt"


def test_a_kernel_interrupt_of_another_cell_leaves_it_alone(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = SHORT
    cell = background(kernel)
    other = kernel.start("import time\nprint('up')\ntime.sleep(60)")
    kernel.wait_for(lambda: "up" in other.text, 10, "the other cell")
    kernel.interrupt()
    assert kernel.wait(other).reply["ename"] == "KeyboardInterrupt"
    ended(kernel, cell)
    assert kernel.value("str(r.outcome)") == "completed"


def test_prompts_wait_in_line(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = SHORT
    first = background(kernel, "-o a")
    second = kernel.run("%%agent --bg -o b\nbeta")
    third = kernel.run("%%agent --bg -o c\ngamma")
    queued = [status(kernel, "queued behind 1 turn"), status(kernel, "queued behind 2 turns")]
    kernel.wait_for(lambda: all(ask() for ask in queued), 5, "their place in the line")
    blocking = kernel.run("%%agent -o d\ndelta")  # waits in line as well
    assert blocking.status == "ok"
    for cell in (first, second, third):
        ended(kernel, cell)
    assert kernel.value("[x.text.split()[0] for x in (a, b, c, d)]") == ["w0", "b0", "done", "done"]
    asked = [r.prompt for r in kernel.server.requests if r.scenario]
    assert asked == ["count", "beta", "gamma", "delta"]


def status(kernel: AgentKernel, words: str):
    """Tells whether some status on screen says this now."""
    return lambda: any(words in str(state.get("value")) for state in kernel.widgets.values())


def test_stopping_one_in_line_takes_it_out(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = SHORT
    first = background(kernel, "-o a")
    second = kernel.run("%%agent --bg -o b\nbeta")
    kernel.wait_for(status(kernel, "queued behind 1 turn"), 5, "its place in the line")
    kernel.click(kernel.button("Stop"))  # the newest
    ended(kernel, second, still_running=True)
    assert "w39" not in first.text
    ended(kernel, first)
    assert kernel.value("[str(a.outcome), str(b.outcome), b.text]") == [
        "completed",
        "interrupted",
        "",
    ]
    assert [r.prompt for r in kernel.server.requests if r.scenario] == ["count"]


def test_a_stop_never_touches_another_session(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    first = background(kernel, "-s left -o a")
    kernel.server.script = SHORT
    second = background(kernel, "-s right -o b")
    kernel.run("%agent stop left")
    ended(kernel, first, still_running=True)
    ended(kernel, second)
    assert kernel.value("[str(a.outcome), str(b.outcome)]") == ["interrupted", "completed"]
    assert kernel.value("len(b.text.split())") == 40


def test_stop_all_stops_all(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cells = [background(kernel, f"-s {name} -o {name}") for name in ("left", "right")]
    assert "2 turns of" in kernel.run("%agent stop --all").text
    for cell in cells:
        ended(kernel, cell, still_running=True)
    ended(kernel, cells[0])
    assert kernel.value("[str(left.outcome), str(right.outcome)]") == ["interrupted"] * 2


def test_stop_now_goes_to_the_last_rung(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = background(kernel)
    for agent in kernel.agents:
        agent.send_signal(signal.SIGSTOP)
    kernel.run("%agent stop --now")
    ended(kernel, cell)
    assert kernel.value("[str(r.outcome), str(r.receipt.rung)]") == ["killed", "kill"]
    assert kernel.value("r.receipt.survivors") == []


def test_a_stop_said_again_means_the_same_turn(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("r = None")
    kernel.run("%%agent -s other --bg -o beside\ncount")
    kernel.run("%%agent --bg -o r\ncount")
    for _ in range(3):
        said = kernel.run("%agent stop").text
        kernel.wait_for(lambda: kernel.value("r is not None"), 10, "its end")
    assert said.startswith("That turn is over already. Still running: other. Stop one with ")
    assert "Stopping 1 turn of other" in kernel.run("%agent stop other").text
    assert kernel.run("%agent wait main").error.startswith("TurnStopped")
    assert kernel.run("%agent wait other").error.startswith("TurnStopped")
    assert kernel.value("[str(x.outcome) for x in (r, beside)]") == ["interrupted"] * 2
