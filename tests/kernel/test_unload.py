"""What is left behind: by loading, by unloading, and by the end of the kernel. Nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from places import AgentKernel

from turncell.modelserver import Recall, Reply, Scenario, Script, ToolUse

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

NewKernel = Callable[..., AgentKernel]
THREADS = "sorted(t.name for t in __import__('threading').enumerate())"
HEAVY = ("claude_agent_sdk", "mcp", "rich", "anyio", "psutil", "markdown_it", "pandas")
#: What unloading must give back.
STATE = """
import signal
def state():
    shell = get_ipython()
    magics, stream = shell.magics_manager, shell.kernel.shell_stream
    return [
        [kind for kind in ("cell", "line") if "agent" in magics.magics[kind]],
        sorted(magics.registry), len(shell.configurables),
        str(signal.getsignal(signal.SIGINT)), type(stream._recv_callback).__name__,
        {name: len(calls) for name, calls in shell.events.callbacks.items()},
        len(shell.input_transformers_cleanup), len(shell.ast_transformers),
    ]
"""


def streaming(kernel: AgentKernel, options: str = "") -> None:
    cell = kernel.start(f"%%agent {options}\ncount")
    kernel.wait_for(lambda: "w3 " in cell.text, 30, "the stream")


def test_loading_imports_and_starts_nothing(new_kernel: NewKernel) -> None:
    kernel = new_kernel(load=False)
    modules, threads = kernel.value("list(__import__('sys').modules)"), kernel.value(THREADS)
    assert kernel.run("%load_ext turncell").status == "ok"
    assert kernel.value(THREADS) == threads
    more = set(kernel.value("list(__import__('sys').modules)")) - set(modules)
    assert "turncell.magics" in more
    assert not set(HEAVY) & more
    assert kernel.place.processes(kernel.pid) == []


def test_unloading_leaves_nothing_and_it_loads_again(new_kernel: NewKernel) -> None:
    kernel = new_kernel()
    kernel.run("%unload_ext turncell\n" + STATE)
    before, threads = kernel.value("state()"), kernel.value(THREADS)
    for _ in range(2):
        assert kernel.run("%load_ext turncell").status == "ok"
        assert kernel.run("%%agent\nhi", 60).status == "ok"
        assert kernel.agents
        assert kernel.run("%unload_ext turncell").status == "ok"
        kernel.place.wait_gone(kernel.pid, seconds=5)
        kernel.wait_for(lambda: set(kernel.value(THREADS)) <= set(threads), 5, "its threads")
        assert kernel.value("state()") == before
        gone = kernel.run("%%agent\nhi")
        assert "UsageError" in gone.text + gone.error


def test_unloading_stops_what_runs(new_kernel: NewKernel) -> None:
    kernel = new_kernel()
    streaming(kernel, "--bg -o r")
    kernel.wait_for(lambda: kernel.agents)
    cell = kernel.run("%unload_ext turncell", 10)
    assert cell.status == "ok"
    kernel.place.wait_gone(kernel.pid, seconds=2)
    assert kernel.value("[str(r.reason), r.text[:9], r.receipt.survivors]") == [
        "shutdown", "w0 w1 w2 ", [],
    ]  # fmt: skip


@pytest.mark.parametrize("tool", [False, True], ids=["text", "tool"])
def test_a_shutdown_in_mid_turn(new_kernel: NewKernel, tool: bool) -> None:
    kernel = new_kernel()
    if tool:
        use = ToolUse("Bash", {"command": "tail -f /dev/null", "description": "x"})
        kernel.server.script = Script(Scenario("tool", replies=[Reply("Now. ", use)]))
        kernel.run("%%agent --bg --tools Bash\ngo")
        kernel.wait_for(lambda: kernel.place.named("tail"), 30, "the tool")
    else:
        streaming(kernel, "--bg")
    kernel.client.shutdown()
    kernel.place.wait_gone(seconds=8)


def test_a_killed_kernel_leaves_no_agent(new_kernel: NewKernel) -> None:
    kernel = new_kernel()
    streaming(kernel)
    os.kill(kernel.pid, signal.SIGKILL)
    kernel.place.wait_gone(seconds=8)
    kernel.server.wait_for(lambda request: request.outcome == "client_disconnected")


@pytest.mark.parametrize("seconds", [5, 600])
def test_unloading_ends_deaf_tools_whatever_the_seconds(
    new_kernel: NewKernel, seconds: int
) -> None:
    kernel = new_kernel()
    deaf = "trap '' INT TERM HUP; while :; do sleep 0.11; done"
    use = ToolUse("Bash", {"command": f'for i in 1 2 3; do setsid sh -c "{deaf}" & done; wait'})
    kernel.server.script = Script(Scenario("deaf", replies=[Reply("Now. ", use)]))
    kernel.run(f"%%agent --bg -o r --tools Bash --ack {seconds} --grace {seconds}\ngo")
    kernel.wait_for(lambda: len(kernel.place.named("sleep")) == 3, 60, "the tools")
    assert kernel.run("%unload_ext turncell", 20).status == "ok"
    kernel.place.wait_gone(kernel.pid, seconds=3)
    assert kernel.value("[str(r.reason), r.receipt.survivors]") == ["shutdown", []]


def test_a_kernel_interrupt_does_not_break_into_unloading(new_kernel: NewKernel) -> None:
    kernel = new_kernel()
    streaming(kernel, "--bg -o r")
    kernel.wait_for(lambda: kernel.agents)
    for agent in kernel.agents:
        agent.send_signal(signal.SIGSTOP)
    cell = kernel.start("%unload_ext turncell")
    kernel.listen(0.4)
    kernel.interrupt()
    assert kernel.wait(cell, 20).error in ("", "KeyboardInterrupt: ")
    kernel.place.wait_gone(kernel.pid, seconds=3)
    kernel.run("%load_ext turncell")
    assert kernel.run("%%agent -o after\nhello", 60).status == "ok"
    assert kernel.value("after.text") == "echo: hello"


#: As on a system that has no parent-death signal.
NO_DEATH_SIGNAL = """
from turncell.backends import claude_process
claude_process.launcher = lambda: []
"""


def test_the_guard_alone_is_enough(new_kernel: NewKernel) -> None:
    kernel = new_kernel()
    kernel.run(NO_DEATH_SIGNAL)
    streaming(kernel)
    os.kill(kernel.pid, signal.SIGKILL)
    kernel.place.wait_gone(seconds=8)
    kernel.server.wait_for(lambda request: request.outcome == "client_disconnected")


#: A tool with a child, a child in a session of its own, and a double-forked grandchild.
TREE = """
import os, subprocess, time
subprocess.Popen(["tail", "-f", "/dev/null"])
subprocess.Popen(["tail", "-f", "/dev/null"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("tail", ["tail", "-f", "/dev/null"])
    os._exit(0)
time.sleep(600)
"""


def end_with_a_group_kill(kernel: AgentKernel) -> None:
    os.killpg(os.getpgid(kernel.pid), signal.SIGKILL)


def end_with_a_kill(kernel: AgentKernel) -> None:
    os.kill(kernel.pid, signal.SIGKILL)


def end_with_a_sigterm(kernel: AgentKernel) -> None:
    os.kill(kernel.pid, signal.SIGTERM)


def end_with_an_exit(kernel: AgentKernel) -> None:
    kernel.start("import os; os._exit(0)")


@pytest.mark.stops(2)
@pytest.mark.parametrize(
    "end", [end_with_a_group_kill, end_with_a_kill, end_with_a_sigterm, end_with_an_exit]
)
def test_the_guard_ends_what_a_dead_kernel_left(
    new_kernel: NewKernel, end: Callable[[AgentKernel], None]
) -> None:
    kernel = new_kernel()
    (kernel.place.cwd / "tree.py").write_text(TREE)
    use = ToolUse("Bash", {"command": "python3 tree.py", "description": "x"})
    kernel.server.script = Script(
        Scenario("tree", when="go", replies=[Reply(use)]),
        Scenario("rest", replies=[Reply(Recall())]),
    )
    kernel.run("%%agent --bg --tools Bash\ngo")
    kernel.wait_for(lambda: len(kernel.place.named("tail")) == 3, 90, "the tree")
    session = kernel.value("get_ipython().run_line_magic('agent', 'sessions')[0]['id']")
    calls = len(kernel.server.requests)
    end(kernel)
    kernel.place.wait_gone(seconds=10)
    assert len(kernel.server.requests) == calls
    with AgentKernel(kernel.place) as after:
        assert after.run(f"%agent resume {session}").status == "ok"
        cell = after.run("%%agent --out r\nand on", 60)
        assert cell.status == "ok", cell.error
        assert "go" in str(kernel.server.requests[-1].history)
