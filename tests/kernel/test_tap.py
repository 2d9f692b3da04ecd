"""Clicks and interrupts in real kernels, while a cell waits.

`TURNCELL_KERNELS` names further interpreters (separated like a path), each with its own
ipykernel and ipywidgets; every test then runs against every one of them.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator

import pytest
from driver import Cell, Kernel

pytestmark = pytest.mark.kernel
PYTHONS = [sys.executable, *filter(None, os.environ.get("TURNCELL_KERNELS", "").split(os.pathsep))]
GAPS = (0.0, 0.02, 0.1, 0.3)

SETUP = """
import signal, threading, time
import ipywidgets as w
from IPython.display import display
from turncell.hold import ClickTap, can_ask, hold, kernel_interrupts, stop_routes

shell = get_ipython()

class Turn:
    def __init__(self, seconds=20):
        self.over, self.end = threading.Event(), time.monotonic() + seconds
    def done(self):
        return self.over.is_set() or time.monotonic() >= self.end
    def wait(self, timeout):
        self.over.wait(timeout)
        return self.done()

def button(name):
    made = w.Button(description=name)
    made.on_click(lambda _: widget.append(name))
    return made

def wait(names=("Stop",), until=1, seconds=20, on_click=None):
    'A cell as the product makes it: button, tap, display, hold; ends with `until` clicks.'
    turn, shown = Turn(seconds), [button(name) for name in names]
    def clicked(comm_id):
        hits.append((comm_id, time.time()))
        (on_click or (lambda _: None))(comm_id)
        if len(hits) >= until:
            turn.over.set()
    with kernel_interrupts(shell), ClickTap(shell, clicked) as tap:
        for one in shown:
            tap.watch(one.comm.comm_id)
        for one in shown:
            display(one)
        hold(turn, lambda: presses.append(time.time()), pump=tap.pump)

def snapshot():
    'All that a tap or a hold might leave behind.'
    kernel = shell.kernel
    stream, comms = kernel.shell_stream, kernel.comm_manager
    return {
        "receiver": stream._recv_callback, "copy": stream._recv_copy, "loop": stream.io_loop,
        "stream": set(vars(stream)), "kernel": set(vars(kernel)), "comms": set(vars(comms)),
        "shell": dict(kernel.shell_handlers), "control": dict(kernel.control_handlers),
        "sigint": signal.getsignal(signal.SIGINT), "threads": set(threading.enumerate()),
    }

other = w.Button(description="Other")
other.on_click(lambda _: order.append("click"))
hits, presses, widget, order = [], [], [], []
"""


@pytest.fixture(scope="module", params=PYTHONS, ids=lambda python: python)
def started(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with Kernel(request.param) as kernel:
        yield kernel


@pytest.fixture
def kernel(started: Kernel) -> Kernel:
    """One kernel for all tests of an interpreter, with fresh names in it."""
    started.cells.clear()
    started.widgets.clear()
    cell = started.run(SETUP)
    assert cell.status == "ok", cell.error
    return started


@pytest.fixture
def major(kernel: Kernel) -> int:
    return kernel.value("__import__('ipykernel').version_info[0]")


def on_screen(kernel: Kernel, name: str = "Stop") -> str:
    return kernel.wait_for(lambda: kernel.button(name), 20, f"a button {name}")


def clicks(kernel: Kernel, button: str, times: int, subshell: str | None = None) -> list:
    sent = []
    for _ in range(times):
        sent.append(kernel.click(button, subshell))
        kernel.listen(0.03)
    return sent


def hits(kernel: Kernel) -> list[list]:
    return kernel.value("hits")


@pytest.mark.parametrize("by_subshell", [False, True])
def test_clicks_get_in_while_the_cell_blocks(kernel: Kernel, by_subshell: bool) -> None:
    subshell = kernel.create_subshell() if by_subshell else None  # ipykernel 6 has none
    cell = kernel.start("wait(until=10)")
    sent = clicks(kernel, on_screen(kernel), 10, subshell)
    assert kernel.wait(cell).status == "ok"
    late = [heard - clicked for (_, heard), (_, clicked) in zip(hits(kernel), sent, strict=True)]
    assert statistics.median(late) < 0.5
    assert kernel.value("widget") == []  # taken is taken
    assert {message for message, _ in sent} <= kernel.idle  # the front end's futures end


def test_the_first_click_is_heard_however_early(kernel: Kernel) -> None:
    for number in range(10):
        cell = kernel.start(f"hits.clear(); wait(['Stop {number}'], seconds=10)")
        kernel.click(on_screen(kernel, f"Stop {number}"))
        kernel.wait(cell)
        assert len(hits(kernel)) == 1
    assert kernel.value("widget") == []


def test_all_other_messages_wait_their_turn_in_order(kernel: Kernel) -> None:
    kernel.run("display(other)")
    other = on_screen(kernel, "Other")
    cell = kernel.start("wait(until=4); order.append('end')")
    stop = on_screen(kernel)
    expected, cells, clicked = ["end"], [], []
    for number in range(4):
        cells.append(kernel.start(f"order.append({number}); print({number})"))
        clicked.append(kernel.click(other)[0])
        kernel.click(stop)
        expected += [str(number), "click"]
        kernel.listen(0.05)
    for one in (cell, *cells):
        assert kernel.wait(one).status == "ok"
    kernel.wait_for(lambda: kernel.idle >= set(clicked))
    assert kernel.value("list(map(str, order))") == expected
    assert [one.text for one in cells] == ["0\n", "1\n", "2\n", "3\n"]
    assert len(hits(kernel)) == 4


def test_another_widgets_clicks_by_subshell_are_not_lost(kernel: Kernel) -> None:
    subshell = kernel.create_subshell()
    kernel.run("display(other)")
    other = on_screen(kernel, "Other")
    cell = kernel.start("wait(until=3)")
    stop, clicked = on_screen(kernel), []
    for _ in range(3):
        clicked.append(kernel.click(other, subshell)[0])
        kernel.click(stop, subshell)
    kernel.wait(cell)
    kernel.wait_for(lambda: kernel.idle >= set(clicked))
    assert kernel.value("order") == ["click"] * 3
    assert len(hits(kernel)) == 3


def test_a_flood_of_queued_cells_keeps_its_order(kernel: Kernel) -> None:
    cell = kernel.start("wait()")
    stop = on_screen(kernel)
    queued = [kernel.start(f"order.append({number})") for number in range(300)]
    kernel.click(stop)
    for one in (cell, *queued):
        assert kernel.wait(one, 60).status == "ok"
    assert kernel.value("order") == list(range(300))
    assert len(hits(kernel)) == 1


def test_run_all_halts_when_the_stopped_cell_raises(kernel: Kernel) -> None:
    cell = kernel.start("wait()\nraise LookupError('stopped')")
    stop = on_screen(kernel)
    queued = [kernel.start(f"order.append({number})") for number in range(5)]
    kernel.listen(0.1)
    kernel.click(stop)
    assert kernel.wait(cell).error == "LookupError: stopped"
    assert {kernel.wait(one).status for one in queued} == {"aborted"}
    assert kernel.value("(order, len(hits))") == [[], 1]


def test_nothing_is_left_installed(kernel: Kernel) -> None:
    kernel.run("before = snapshot()")
    cell = kernel.start("wait()\ninside = shell.kernel.shell_stream._recv_callback")
    kernel.click(on_screen(kernel))
    assert kernel.wait(cell).status == "ok"
    failed = kernel.start("with ClickTap(shell, print) as tap:\n    1 / 0")
    assert kernel.wait(failed).error == "ZeroDivisionError: division by zero"
    kernel.run("after = snapshot()")
    assert kernel.value("[name for name in before if before[name] != after[name]]") == []
    assert kernel.value("inside == before['receiver']") is True


def test_a_button_that_outlives_its_cell_works_as_ever(kernel: Kernel) -> None:
    cell = kernel.start("wait()")
    stop = on_screen(kernel)
    kernel.click(stop)
    kernel.wait(cell)
    late, _ = kernel.click(stop)
    kernel.wait_for(lambda: late in kernel.idle)
    assert kernel.value("widget") == ["Stop"]
    assert len(hits(kernel)) == 1


BACKGROUND = """
behind, heard = ClickTap(shell, lambda _: heard.append(time.time())), []
background = button("Background")
behind.watch(background.comm.comm_id)
behind.__enter__()
display(background)
"""


def test_a_background_button_is_heard_while_any_cell_blocks(kernel: Kernel, major: int) -> None:
    kernel.run("before = snapshot()")
    kernel.run(BACKGROUND)
    button = on_screen(kernel, "Background")
    cell = kernel.start("print('up')\ntime.sleep(2)\nawake = time.time()")
    kernel.wait_for(lambda: cell.text)
    sent = clicks(kernel, button, 3)
    kernel.wait(cell)
    click, at = kernel.click(button)  # and in an idle kernel
    kernel.run("order.append('idle')")
    heard = kernel.value("heard")
    assert len(heard) == 4
    assert kernel.value("widget") == []
    if major >= 7:
        late = [then - clicked for then, (_, clicked) in zip(heard, sent, strict=False)]
        assert statistics.median(late) < 0.5
    else:
        assert min(heard[:3]) >= kernel.value("awake")  # documented: nobody could
    kernel.run("behind.__exit__(None, None, None); after = snapshot()")
    kernel.wait_for(lambda: kernel.idle >= {click, *(message for message, _ in sent)})
    assert kernel.value("[name for name in before if before[name] != after[name]]") == []


@pytest.mark.parametrize("ends_first", ["cell", "background"])
def test_a_background_tap_and_a_blocking_one_compose(kernel: Kernel, ends_first: str) -> None:
    kernel.run("before = snapshot()")
    kernel.run(BACKGROUND)
    button = on_screen(kernel, "Background")
    leave = "behind.__exit__(None, None, None)"
    code = "wait(until=2)"
    if ends_first == "background":
        ending = f"threading.Thread(target=lambda: {leave}).start()"
        code = f"wait(until=2, on_click=lambda _: len(hits) == 1 and {ending})"
    cell = kernel.start(code)
    stop = on_screen(kernel)
    kernel.click(button)
    kernel.listen(0.1)
    kernel.click(stop)
    kernel.listen(0.1)
    kernel.click(stop)
    kernel.wait(cell)
    kernel.run(leave)
    assert kernel.value("(len(heard), len(hits), widget)") == [1, 2, []]
    assert kernel.value("[n for n, v in snapshot().items() if v != before[n]]") == []


def test_a_click_whose_handler_fails_reaches_the_widget(kernel: Kernel) -> None:
    cell = kernel.start("wait(on_click=lambda _: len(hits) == 1 and 1 / 0, until=2)")
    stop = on_screen(kernel)
    clicks(kernel, stop, 2)
    kernel.wait(cell)
    kernel.run("")
    assert kernel.value("(len(hits), widget)") == [2, ["Stop"]]


def test_a_forged_click_is_not_heard(kernel: Kernel) -> None:
    cell = kernel.start("wait()")
    stop = on_screen(kernel)
    session = kernel.client.session
    true, session.key = session.key, b"forged"
    kernel.click(stop)
    session.key = true
    kernel.listen(0.2)
    assert not cell.done
    kernel.click(stop)
    kernel.wait(cell)
    assert kernel.value("(len(hits), widget)") == [1, []]


# Interrupts


INTERRUPTED = """
turn = Turn(10)
def press():
    presses.append(time.time())
    threading.Timer({end}, turn.over.set).start()
with kernel_interrupts(shell):
    print("up")
    hold(turn, press)
    time.sleep({clean_up})
    print("cleaned up")
raise LookupError("stopped")
"""


def interrupt_thrice(kernel: Kernel, code: str, gap: float) -> Cell:
    cell = kernel.start(code)
    kernel.wait_for(lambda: cell.text)
    first = kernel.interrupt()
    for _ in range(2):
        kernel.listen(gap)
        kernel.interrupt()
    kernel.wait(cell)
    assert cell.text == "up\ncleaned up\n"
    assert 1 <= kernel.value("len(presses)") <= 3
    assert kernel.value("presses.pop(0)") - first < 0.5
    assert kernel.run("presses.clear(); 6 * 7").text == "42"
    return cell


@pytest.mark.parametrize("end", [0.0, 0.15, 0.5])
@pytest.mark.parametrize("gap", GAPS)
def test_three_interrupts_are_harmless(kernel: Kernel, gap: float, end: float) -> None:
    code = INTERRUPTED.format(end=end, clean_up=0.05)
    assert interrupt_thrice(kernel, code, gap).error == "LookupError: stopped"


def test_interrupts_at_the_very_end_do_not_cost_the_reply(kernel: Kernel) -> None:
    code = INTERRUPTED.format(end=0.03, clean_up=0)
    for number in range(25):  # some of them hit IPython showing the error, or the reply
        cell = interrupt_thrice(kernel, code, 0.01 + 0.0012 * number)
        assert cell.error in {"LookupError: stopped", "KeyboardInterrupt: "}  # in its own code


def test_nothing_of_an_interrupted_cell_is_left(kernel: Kernel) -> None:
    kernel.run("before = snapshot()")
    interrupt_thrice(kernel, INTERRUPTED.format(end=0, clean_up=0), 0)
    kernel.run("after = snapshot()")
    assert kernel.value("[name for name in before if before[name] != after[name]]") == []
    cell = kernel.start("print('up')\ntime.sleep(20)")
    kernel.wait_for(lambda: cell.text)
    kernel.interrupt()
    assert kernel.wait(cell).error.startswith("KeyboardInterrupt")


def test_after_our_block_the_cells_own_code_can_be_interrupted(kernel: Kernel) -> None:
    block = "with kernel_interrupts(shell):\n    hold(Turn(0), print)\n"
    cell = kernel.start(f"{block}print('up')\ntime.sleep(20)")
    kernel.wait_for(lambda: cell.text)
    kernel.interrupt()
    assert kernel.wait(cell).error.startswith("KeyboardInterrupt")


def test_interrupts_and_clicks_mix(kernel: Kernel) -> None:
    cell = kernel.start("wait(until=3)")
    stop = on_screen(kernel)
    for _ in range(3):
        kernel.interrupt()
        kernel.click(stop)
        kernel.listen(0.1)
    assert kernel.wait(cell).status == "ok"
    assert len(hits(kernel)) == 3
    assert 1 <= kernel.value("len(presses)") <= 3


# Routes


def test_the_route_is_that_of_the_kernel(kernel: Kernel, major: int) -> None:
    cell = kernel.run("with ClickTap(shell, print) as tap: print(tap.route, tap.working)")
    assert cell.text == ("shell-channel thread True\n" if major >= 7 else "pumped True\n")
    route = cell.text.removesuffix(" True\n")
    line = f"notebook: Stop button ({route}), kernel interrupt"
    assert kernel.run("print(stop_routes(shell).describe())").text == f"{line}\n"


@pytest.mark.parametrize("allowed", [True, False])
def test_who_forbids_stdin_has_nobody_to_ask(kernel: Kernel, allowed: bool) -> None:
    cell = kernel.run("print(can_ask(shell), stop_routes(shell).button)", allow_stdin=allowed)
    assert cell.text == f"{allowed} {allowed}\n"


def test_a_cell_run_in_a_subshell_waits_without_a_handler(kernel: Kernel) -> None:
    subshell = kernel.create_subshell()  # ipykernel 6 has none: a plain cell then
    cell = kernel.start("wait()", subshell)
    kernel.click(on_screen(kernel), subshell)
    assert kernel.wait(cell).status == "ok"
    assert len(hits(kernel)) == 1
