"""Stops that come in through a real kernel: the button, a kernel interrupt, lines and cells.

The agents are scripted and live in the kernel's own process, so that all of them, at all
moments, can be had at once; what the real agent does is asked in `test_real_stops`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from driver import Cell
from places import AgentKernel, Place

from turncell.testing import StopCase
from turncell.testing.agents import MOMENTS

pytestmark = [pytest.mark.kernel]

AGENTS = {
    "polite": "interrupt",
    "acks and runs on": "sigint",
    "dies mid ack": "interrupt",
    "ignores signals": "kill",
    "child in its own session": "interrupt",
    "terminal message again in the next turn": "interrupt",
    "asked and never thaws": "kill",
}
POLICY = "--ack 1 --grace 1"
SET_UP = """
import time, turncell
from turncell.testing import *
from turncell.testing.agents import AGENTS, MOMENTS, play
from turncell.outcome import Rung
frozen = [Play(*(MOMENTS[m].steps[:1]), Freeze(), when="<asked and never thaws> " + m,
               opens=MOMENTS[m].opens) for m in MOMENTS]
plays = [play(a, m, when=f"<{a}> {m}") for a in AGENTS for m in MOMENTS]
stage = scripted(Play("As you wish.", when="and then"), *frozen, *plays)
agent = stage.__enter__()
policy = turncell.StopPolicy(ack=1, grace=1)

def broken(asked, over, rung, hurried):
    known = [p for page in agent.memory.values() for p, _ in page]
    before_that = [p for p in known if p != "and then"]
    return violations(Evidence(
        name=r.turn_id, session_id=session_id, bound=2.0 if hurried else policy.total,
        asked_at=asked, over_at=over, result=r, left=left, least_rung=Rung(rung),
        sent=agent.prompts.count(before_that[-1]) if before_that else 0,
        after=after, after_text="As you wish.", remembers="remember" in known, slack=1.5))

def look():
    warm = r.receipt is not None and r.receipt.connection == "warm"
    return tuple(p.survivor() for p in list(agent.processes._actors)
                 if p.pid not in before and not (warm and p.command == "scripted agent"))

def remember():
    global before, session_id
    before = set()
    turncell.Session("main").start("remember").result()
    agent.prompts.clear()
    session_id = turncell.Session("main").session_id
    before = {p.pid for p in agent.processes._actors}
"""


@pytest.fixture(scope="module")
def kernel(new_place: Callable[[], Place]) -> Iterator[AgentKernel]:
    with AgentKernel(new_place()) as made:
        cell = made.run(SET_UP)
        assert cell.status == "ok", cell.error
        yield made


#: What can be seen of a turn that is at the moment.
SEEN = {
    "before init": "", "first delta": "one", "mid stream": "word word", "tool running": "I look",
    "question pending": "May I", "API stalled": "Half an ans", "API retrying": "Half",
    "before the result": "there is to say",
}  # fmt: skip


def in_a_cell(kernel: AgentKernel, prompt: str, options: str = "") -> Cell:
    return kernel.start(f"%%agent -o r {POLICY} {options}\n{prompt}")


def button(kernel: AgentKernel, prompt: str, reached: Callable[[Cell], object]) -> float:
    cell = in_a_cell(kernel, prompt)
    kernel.wait_for(lambda: kernel.button("Stop"), 10, "the button")
    reached(cell)
    comm = kernel.button("Stop")
    assert comm is not None and not cell.done, cell.error
    asked = time.monotonic()
    kernel.click(comm)
    answered = kernel.wait_for(
        lambda: cell.done or str(kernel.widgets.get(comm, {}).get("description")) != "Stop"
    )
    assert answered and time.monotonic() - asked < 2.0
    ended(kernel, cell)
    return asked


def interrupt(kernel: AgentKernel, prompt: str, reached: Callable[[Cell], object]) -> float:
    cell = in_a_cell(kernel, prompt)
    reached(cell)
    asked = time.monotonic()
    kernel.interrupt()
    ended(kernel, cell)
    return asked


def ended(kernel: AgentKernel, cell: Cell) -> None:
    kernel.wait(cell)
    assert cell.error.startswith("TurnStopped"), cell.error


def time_limit(kernel: AgentKernel, prompt: str, reached: Callable[[Cell], object]) -> float:
    cell = in_a_cell(kernel, prompt, "--timeout 1.5")
    ended(kernel, cell)
    return float(kernel.value("r.receipt.requested_at"))


def from_a_thread(kernel: AgentKernel, prompt: str, reached: Callable[[Cell], object]) -> float:
    kernel.run(
        "import threading\n"
        "def stop():\n    global asked\n    asked = time.monotonic()\n"
        "    turncell.Session('main').stop('api')\n"
        "threading.Timer(1.5, stop).start()"
    )
    ended(kernel, in_a_cell(kernel, prompt))
    return float(kernel.value("asked"))


def line(kernel: AgentKernel, prompt: str, reached: Callable[[Cell], object]) -> float:
    cell = in_a_cell(kernel, prompt, "--bg")
    reached(cell)
    asked = time.monotonic()
    assert kernel.run("%agent stop").status == "ok"
    ended(kernel, kernel.start("%agent wait"))
    return asked


def unload(kernel: AgentKernel, prompt: str, reached: Callable[[Cell], object]) -> float:
    cell = in_a_cell(kernel, prompt, "--bg")
    reached(cell)
    asked = time.monotonic()
    assert kernel.run("%unload_ext turncell").status == "ok"
    kernel.run("over = time.monotonic()")
    assert kernel.run("%load_ext turncell").status == "ok"
    ended(kernel, kernel.start("%agent wait"))
    return asked


ROUTES = {
    "button": button, "kernel interrupt": interrupt, "timeout": time_limit,
    "API": from_a_thread, "%agent stop": line, "unload": unload,
}  # fmt: skip
CASES = [
    StopCase(agent, moment, route)
    for agent in AGENTS
    for moment in MOMENTS
    for route in ROUTES
    if moment != "starting"
    # That one speaks no faster than the others, and freezes only after its words.
    and not (agent == "asked and never thaws" and moment in ("first delta", "mid stream"))
    and not (route == "timeout" and moment == "question pending" and "thaws" not in agent)
]


@pytest.mark.stops(6)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_stop_through_the_kernel(kernel: AgentKernel, case: StopCase) -> None:
    kernel.run("remember()")
    prompt = f"<{case.agent}> {case.moment}"
    kernel.run("over = None")

    def reached(cell: Cell) -> None:
        kernel.wait_for(lambda: SEEN[case.moment] in cell.text or cell.error, 20, case.moment)
        kernel.listen(0.1)

    asked = ROUTES[case.route](kernel, prompt, reached)
    over = float(kernel.value("over or time.monotonic()"))
    kernel.run("left = look()")
    after = kernel.run("%%agent -o after\nand then")
    assert after.status == "ok", after.error
    hurried = case.route == "unload"
    rung = AGENTS[case.agent]
    assert kernel.value(f"broken({asked}, {over}, {json.dumps(rung)}, {hurried})") == []
