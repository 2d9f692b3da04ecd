"""Faults of cells and kernels that were reported elsewhere: see docs/faults.md."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driver import Cell
from places import AgentKernel, Place

from turncell.backends.claude_launch import find_cli
from turncell.modelserver import Reply, Scenario, Script, Stall, Words

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

NewKernel = Callable[..., AgentKernel]
ROGUE = str(Path(__file__).parents[1] / "cli" / "rogue.py")
#: Collects what is logged, and what nobody could raise.
WATCH = """
import asyncio, gc, logging, sys
logged = []
class Watch(logging.Handler):
    def emit(self, record):
        logged.append(self.format(record))
watch, unraisable = Watch(), sys.unraisablehook
logging.getLogger().addHandler(watch)
sys.unraisablehook = lambda hook: logged.append(f"{hook.err_msg} {hook.exc_value!r}")
def unwatch():
    for _ in range(3):
        gc.collect()
    logging.getLogger().removeHandler(watch)
    sys.unraisablehook = unraisable
    return logged
"""
#: What `nest_asyncio` and its like replace.
PARTS = """
import asyncio
loop = asyncio.get_running_loop()
def parts():
    names = ("run_until_complete", "run_forever", "_run_once", "_check_running")
    return [asyncio.run, asyncio.Task, asyncio.tasks.Task, type(loop), asyncio.get_event_loop,
            *[getattr(type(loop), name, None) for name in names], sorted(vars(loop))]
"""
NEST = """
try:
    import nest_asyncio2 as nest
except ImportError:
    import nest_asyncio as nest
nest.apply()
asyncio.run(asyncio.sleep(0))
print('nested')
"""


def streaming(kernel: AgentKernel, options: str = "-o r", prompt: str = "count") -> Cell:
    """A turn in mid stream."""
    cell = kernel.start(f"%%agent {options}\n{prompt}")
    kernel.wait_for(lambda: "w3 " in cell.text or cell.done, 30, "the stream")
    return cell


def test_int_g3_a_click_as_the_turn_ends_finds_an_end(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = Script(Scenario("ten", replies=[Reply(Words(10, pace=0.03))]))
    whole = "".join(f"w{i} " for i in range(10))
    kernel.run("%%agent\nwarm up")
    began = time.monotonic()
    kernel.run("%%agent\nhi")
    took = time.monotonic() - began
    for milliseconds in range(-50, 51, 20):
        began = time.monotonic()
        cell = kernel.start("%%agent -o r\nhi")
        button = kernel.wait_for(lambda: kernel.button("Stop"), 10, "the button")
        kernel.listen(max(0.0, began + took + milliseconds / 1000 - time.monotonic()))
        kernel.click(button)
        kernel.wait(cell)
        kernel.click(button)  # too late
        outcome = kernel.value("str(r.outcome)")
        assert "stopped by you" in cell.text if outcome == "interrupted" else "w9" in cell.text
        assert outcome == "interrupted" or kernel.value("r.text") == whole
        assert kernel.widgets == {}  # no button is left that could say it still runs
        assert kernel.run("1 + 1").text == "2"


def test_int_g8_a_kernel_interrupt_aborts_the_cells_in_line(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = Script(Scenario("stall", replies=[Reply(Words(4), Stall())]))
    cell = kernel.start("%%agent -o r\nstall")
    queued = [kernel.start("open('reached', 'w')"), kernel.start("print('reached')")]
    kernel.wait_for(lambda: "w3 " in cell.text, 30, "the stream")
    kernel.interrupt()
    assert [kernel.wait(one).status for one in (cell, *queued)] == ["error", "aborted", "aborted"]
    assert cell.reply["ename"] == "TurnStopped"
    assert len(cell.reply["traceback"]) == 1
    assert not (kernel.place.cwd / "reached").exists()
    assert kernel.value("[str(r.outcome), str(r.reason)]") == ["interrupted", "kernel_interrupt"]


@pytest.fixture
def rogue(agent_kernel: AgentKernel) -> Iterator[AgentKernel]:
    """The kernel, with an agent that misbehaves when its prompt says so (session `rogue`)."""
    variables = f"%env ROGUE_CLI={find_cli(None)}\n%config AgentMagics.cli = {ROGUE!r}"
    assert agent_kernel.run(variables).status == "ok"
    yield agent_kernel
    agent_kernel.run("%config AgentMagics.cli = ''")


def test_msg_g4_a_stream_that_falls_silent_is_said_and_can_be_stopped(rogue: AgentKernel) -> None:
    kernel = rogue
    kernel.run("from turncell.views import words; words._SILENT_AFTER = 1.0")
    options = "-s rogue -o r --ack 1 --grace 1"
    cell = kernel.start(f"%%agent {options}\ncount [rogue half-then-silent]")

    def said(words: str) -> Callable[[], bool]:
        return lambda: any(words in str(state.get("value")) for state in kernel.widgets.values())

    kernel.wait_for(said("silent for 2 s"), 30, "a word about the silence")
    assert not cell.done
    kernel.click(kernel.button("Stop"))
    kernel.wait(cell, 15)
    kernel.run("words._SILENT_AFTER = 10.0")
    assert cell.reply["ename"] == "TurnStopped"
    assert kernel.value("[r.text, r.receipt.survivors]") == ["w0 w1 w2 w3 w4 ", []]
    assert kernel.value("str(r.outcome)") == "killed"
    assert kernel.run("%%agent -s rogue -o next\nand on").status == "ok"
    assert kernel.value("[next.text, next.session_id == r.session_id]") == ["echo: and on", True]


def test_loop_g1_stops_and_interrupts_leave_nothing_in_the_log(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run(WATCH)
    for word in (0, 4, 9):
        for stop in (kernel.interrupt, lambda: kernel.click(kernel.button("Stop"))):
            cell = kernel.start("%%agent -o r\ncount")
            kernel.wait_for(lambda word=word, cell=cell: f"w{word} " in cell.text, 30, "the stream")
            stop()
            assert kernel.wait(cell).reply["ename"] == "TurnStopped"
    assert kernel.run("%%agent\nand on").status == "ok"
    assert kernel.value("unwatch()") == []


def test_loop_g3_a_kernel_interrupt_leaves_the_loop_alive(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = streaming(kernel)
    kernel.interrupt()
    assert kernel.wait(cell).reply["ename"] == "TurnStopped"
    slept = kernel.run("import asyncio; await asyncio.sleep(0); print('slept')")
    assert slept.text == "slept\n"
    kernel.run(
        "import ipywidgets; seen = []; mine = ipywidgets.Button(description='Mine')\n"
        "mine.on_click(lambda _: seen.append(1)); display(mine)"
    )
    kernel.click(kernel.wait_for(lambda: kernel.button("Mine"), 10, "the button"))
    kernel.wait_for(lambda: kernel.value("seen") == [1], 10, "the callback")
    kernel.run("mine.close()")
    assert kernel.run("%%agent -o r\nand on").status == "ok"
    assert kernel.value("r.text") == "echo: and on"


def test_loop_g2_a_loop_patched_for_nesting_serves_and_ours_is_not_patched(
    new_kernel: NewKernel,
) -> None:
    kernel = new_kernel(load=False)
    kernel.run(PARTS)
    kernel.run("before = parts()")
    assert kernel.run("%load_ext turncell").status == "ok"
    assert kernel.run("%%agent -o r\none", 60).status == "ok"
    assert kernel.value("parts() == before") is True
    nested = kernel.run(NEST)
    assert nested.text == "nested\n", nested.error
    assert kernel.run("%%agent -o r\ntwo").status == "ok"
    assert kernel.value("r.text") == "echo: two"
    cell = streaming(kernel)
    kernel.interrupt()
    assert kernel.wait(cell).reply["ename"] == "TurnStopped"
    assert kernel.run("%%agent -o r\nthree").status == "ok"


def test_loop_g2_ipython_with_a_command(place: Place) -> None:
    code = (
        "shell = get_ipython(); shell.run_line_magic('load_ext', 'turncell')\n"
        "shell.run_cell_magic('agent', '', 'hello')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "-c", code],
        env=place.env, cwd=place.cwd, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "echo: hello" in done.stdout
    assert "Error" not in done.stdout + done.stderr


def test_proc_g3_unloading_and_shutdown_under_a_deaf_agent_are_bounded(
    new_kernel: NewKernel,
) -> None:
    kernel = new_kernel(TURNCELL_CLI=ROGUE, ROGUE_CLI=find_cli(None))
    streaming(kernel, "--bg -o r", "count [rogue deaf]")
    assert kernel.run("%unload_ext turncell", 10).status == "ok"
    kernel.place.wait_gone(kernel.pid, seconds=4)
    assert kernel.value("[str(r.reason), r.receipt.survivors]") == ["shutdown", []]
    assert kernel.run("%load_ext turncell").status == "ok"
    streaming(kernel, "--bg", "count [rogue deaf]")
    kernel.client.shutdown()
    kernel.place.wait_gone(seconds=8)


def test_proc_g4_a_restart_leaves_no_agent_and_the_session_goes_on(new_kernel: NewKernel) -> None:
    kernel = new_kernel()
    kernel.run("%%agent -o r\nthe first", 60)
    session, old = kernel.value("r.session_id"), kernel.pid
    streaming(kernel)
    (agent,) = kernel.agents
    kernel.manager.shutdown_wait_time = 2.0  # then Jupyter sends signals: the cell blocks
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    kernel.pid = int(kernel.manager.provisioner.pid)
    assert kernel.pid != old
    kernel.wait_for(lambda: not agent.is_running(), 10, "the end of the agent")
    kernel.place.wait_gone(kernel.pid, seconds=10)
    assert kernel.run("%load_ext turncell").status == "ok"
    assert kernel.run(f"%agent resume {session}").status == "ok"
    cell = kernel.run("%%agent -o r\nand on", 60)
    assert cell.status == "ok", cell.error
    assert kernel.value("[r.text, r.session_id]") == ["echo: and on", session]
    history = json.dumps(kernel.server.requests[-1].history)
    assert "echo: the first" in history
    assert "count" in history
