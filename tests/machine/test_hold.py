"""`hold` without a kernel: real interrupts to this process, and taps on a kernel made of paper."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.session import Session

import turncell.hold
from turncell.hold import LAP, ClickTap, StopRoutes, can_ask, hold, kernel_interrupts, stop_routes

GAPS = (0.0, 0.02, 0.1, 0.3)


def interrupt() -> None:
    """One kernel interrupt, as the kernel's process gets it."""
    if sys.platform == "win32":
        signal.raise_signal(signal.SIGINT)
    else:
        os.kill(os.getpid(), signal.SIGINT)


class Turn:
    """Done after so many laps, or when told. `each` runs at each lap, as if in the wait."""

    def __init__(self, laps: int = 10**6, each: Callable[[int], None] | None = None) -> None:
        self.laps, self.each, self.over = laps, each, threading.Event()
        self.asked: list[float] = []

    def done(self) -> bool:
        return self.over.is_set() or len(self.asked) >= self.laps

    def wait(self, timeout: float) -> bool:
        self.asked.append(timeout)
        if self.each is None:
            self.over.wait(timeout)
        else:
            self.each(len(self.asked))
        return self.done()


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Whatever a test does, the next one starts with Python's own handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def from_thread(gap: float, times: int, after: Callable[[], None]) -> threading.Thread:
    """Interrupts from a thread, the way a person presses: `times`, `gap` seconds apart."""

    def work() -> None:
        pause = threading.Event()
        for _ in range(times):
            interrupt()
            pause.wait(gap)
        after()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


# Interrupts


@pytest.mark.parametrize("gap", GAPS)
def test_three_interrupts_are_harmless_at_any_gap(gap: float) -> None:
    turn, presses = Turn(), []
    with kernel_interrupts():
        thread = from_thread(gap, 3, turn.over.set)
        hold(turn, lambda: presses.append(threading.current_thread()))
        thread.join()
    assert set(presses) <= {threading.main_thread()}
    assert len(presses) <= 3
    if gap >= 0.1:  # closer ones may be merged by the system, or come after the end
        assert len(presses) == 3


def test_each_interrupt_presses_once_and_in_order() -> None:
    story: list[str] = []

    def lap(number: int) -> None:
        story.append(f"lap {number}")
        if number in (2, 3):
            interrupt()

    hold(Turn(5, lap), lambda: story.append("press"))
    assert story == ["lap 1", "lap 2", "press", "lap 3", "press", "lap 4", "lap 5"]


def test_interrupts_of_one_lap_are_all_pressed_at_the_next() -> None:
    presses: list[int] = []

    def lap(number: int) -> None:
        for _ in range(3 if number == 1 else 0):
            signal.raise_signal(signal.SIGINT)

    hold(Turn(2, lap), lambda: presses.append(1))
    assert len(presses) == 3


def test_an_interrupt_after_the_turns_end_is_ignored() -> None:
    presses: list[int] = []
    hold(Turn(1, lambda _: interrupt()), lambda: presses.append(1))
    assert presses == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_before_the_hold_is_pressed_if_the_caller_was_counting() -> None:
    presses: list[int] = []
    with kernel_interrupts():
        interrupt()
        hold(Turn(2, lambda _: None), lambda: presses.append(1))
        interrupt()  # in the clean-up
    assert presses == [1]


@contextmanager
def hail() -> Iterator[None]:
    """Interrupts as fast as a thread can send them."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.0002):
            interrupt()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_hail_of_interrupts_never_raises_in_any_hold() -> None:
    outside: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: outside.append(1))  # before and after our time
    presses: list[int] = []
    with hail():
        while len(presses) < 100:
            hold(Turn(3, lambda _: None), lambda: presses.append(1))
    assert outside


def test_a_hail_of_interrupts_never_raises_in_the_clean_up() -> None:
    with kernel_interrupts() as interrupts, hail():  # outside: Python's handler, which raises
        while interrupts.count < 100:
            hold(Turn(3, lambda _: None), lambda: None)


@pytest.mark.skipif(sys.platform == "win32", reason="a real signal to another process")
def test_an_interrupt_at_the_very_restore_is_swallowed() -> None:
    arrived = threading.Event()

    def old(*_: object) -> None:
        arrived.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, old)
    real = signal.signal

    def late(number: int, handler: Any) -> Any:
        before = real(number, handler)
        if handler is old and before is not old:
            interrupt()  # lands after the switch, inside the call
        return before

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turncell.hold.signal, "signal", late)
        hold(Turn(1, lambda _: None), lambda: None)
    assert arrived.is_set()


def test_code_of_the_agent_is_interrupted_and_the_press_still_counts() -> None:
    presses, story = [], []

    def code() -> None:
        interrupts.raising = True
        try:
            interrupt()
            threading.Event().wait(5)
            story.append("not interrupted")
        except KeyboardInterrupt:
            story.append("interrupted")
        finally:
            interrupts.raising = False

    with kernel_interrupts() as interrupts:
        hold(Turn(2, lambda _: None), lambda: presses.append(1), pump=lambda: story or code())
    assert (story, presses) == (["interrupted"], [1])


def test_with_a_kernel_only_the_cells_own_code_is_interruptible_until_its_reply() -> None:
    cell = "interrupt()"  # what follows our block in the same cell
    names: dict[str, Any] = {"interrupt": interrupt, "__name__": "__main__"}
    shell = SimpleNamespace(kernel=Paper(), user_global_ns=names)
    shell.kernel.saved_sigint_handler = signal.SIG_IGN
    with kernel_interrupts(shell):
        interrupt()
    interrupt()  # here the kernel would show the error and send the reply
    with pytest.raises(KeyboardInterrupt):
        exec(cell, names)
    with kernel_interrupts(shell):  # the same again in one cell
        interrupt()
    interrupt()


def test_without_a_kernel_that_sets_its_own_the_handler_is_put_back() -> None:
    for shell in (None, SimpleNamespace(), SimpleNamespace(kernel=Paper())):
        with kernel_interrupts(shell):
            interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# The handler


@pytest.mark.parametrize(
    "before", [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, lambda *_: None]
)
def test_the_handler_is_put_back_exactly(before: Any) -> None:
    signal.signal(signal.SIGINT, before)
    during: list[Any] = []
    hold(Turn(1, lambda _: during.append(signal.getsignal(signal.SIGINT))), lambda: None)
    assert during != [before]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_c_code_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turncell.hold.signal, "getsignal", lambda _: None)
    hold(Turn(2, lambda _: None), lambda: None)
    assert stop_routes(None).interrupt is False
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("culprit", ["press", "pump", "wait"])
def test_the_handler_is_put_back_when_the_callers_code_raises(culprit: str) -> None:
    def fail(*_: object) -> None:
        raise LookupError(culprit)

    def lap(_: int) -> None:
        interrupt()
        if culprit == "wait":
            fail()

    press = fail if culprit == "press" else lambda: None
    with pytest.raises(LookupError):
        hold(Turn(3, lap), press, pump=fail if culprit == "pump" else None)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_hold_inside_a_hold_takes_the_presses_and_gives_the_handler_back() -> None:
    story: list[str] = []

    def inner() -> None:
        if "inner" not in story:
            hold(Turn(2, lambda n: interrupt() if n == 1 else None), lambda: story.append("inner"))

    hold(Turn(2, lambda _: None), lambda: story.append("outer"), pump=inner)
    assert story == ["inner"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_off_the_main_thread_nothing_is_touched() -> None:
    turn, seen = Turn(), []

    def work() -> None:
        hold(turn, lambda: None, pump=lambda: seen.append(signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    turn.over.set()
    thread.join(5)
    assert not thread.is_alive()
    assert set(seen) <= {signal.default_int_handler}


# The wait


def test_it_wakes_every_lap_and_pumps() -> None:
    turn, pumped = Turn(7, lambda _: None), []
    hold(turn, lambda: None, pump=lambda: pumped.append(1))
    assert turn.asked == [LAP] * 7
    assert len(pumped) == 7


def test_give_up_ends_the_wait() -> None:
    turn = Turn(each=lambda _: None)
    hold(turn, lambda: None, give_up=lambda: len(turn.asked) == 4)
    assert len(turn.asked) == 4
    assert not turn.done()


def test_a_turn_that_is_over_is_not_waited_for() -> None:
    turn = Turn(0)
    hold(turn, lambda: None)
    assert turn.asked == []


def test_importing_it_imports_no_kernel() -> None:
    code = (
        "import sys, importlib.util as u\n"
        "s = u.spec_from_file_location('hold', sys.argv[1]); m = u.module_from_spec(s)\n"
        "sys.modules['hold'] = m; s.loader.exec_module(m)\n"
        "bad = {'IPython', 'ipykernel', 'ipywidgets', 'zmq', 'tornado', 'asyncio'}\n"
        "assert m.stop_routes(None).front == 'none'\n"
        "assert not bad & set(sys.modules), bad & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, turncell.hold.__file__], check=True, timeout=60)


# The tap, on a kernel of paper


class Paper:
    """A kernel whose shell messages are handed in by the test, and reach `received`."""

    def __init__(self, thread: bool = True) -> None:
        self.received: list[Any] = []
        self.said: list[tuple[str, str]] = []
        self.session = Session(key=b"a key")
        self.shell_stream: Any = SimpleNamespace(
            _recv_callback=self.received.append, io_loop=object(), flush=lambda *_: self.arrive()
        )
        self.own = self.shell_stream._recv_callback
        loop = self.shell_stream.io_loop
        self.shell_channel_thread = SimpleNamespace(io_loop=loop) if thread else None
        self.waiting: list[Any] = []

    @property
    def shell(self) -> Any:
        return SimpleNamespace(kernel=self)

    def arrive(self) -> None:
        while self.waiting:
            self.shell_stream._recv_callback(self.waiting.pop(0))

    def _publish_status(self, state: str, channel: str, parent: Any) -> None:
        self.said.append((state, parent["header"]["msg_id"]))


def message(
    comm_id: str = "stop", key: bytes = b"a key", kind: str = "comm_msg", **data: Any
) -> list[bytes]:
    """The frames of a message; a click, unless told otherwise."""
    session = Session(key=key)
    data = data or {"method": "custom", "content": {"event": "click"}}
    return session.serialize(session.msg(kind, {"comm_id": comm_id, "data": data}), ident=b"client")


@pytest.fixture
def paper() -> Paper:
    return Paper()


def test_a_click_on_a_watched_button_is_taken_once_and_settled_at_the_end(paper: Paper) -> None:
    clicks: list[str] = []
    click, other = message(), message("other")
    with ClickTap(paper.shell, clicks.append) as tap:
        tap.watch("stop")
        for frames in (click, other, click):
            paper.shell_stream._recv_callback(frames)
        assert (clicks, paper.received, paper.said) == (["stop"], [other], [])
    assert [state for state, _ in paper.said] == ["busy", "idle"]
    assert paper.shell_stream._recv_callback == paper.own


def test_zmq_frames_are_understood(paper: Paper) -> None:
    zmq = importlib.import_module("zmq")
    clicks: list[str] = []
    with ClickTap(paper.shell, clicks.append) as tap:
        tap.watch("stop")
        other = [zmq.Frame(part) for part in message("other")]
        paper.shell_stream._recv_callback([zmq.Frame(part) for part in message()])
        paper.shell_stream._recv_callback(other)
    assert (clicks, paper.received) == (["stop"], [other])


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([b"stop aborting"], id="no message"),
        pytest.param([b"<IDS|MSG>", b"click"], id="too short"),
        pytest.param([b"<IDS|MSG>", b"", b"{", b"", b"", b"click"], id="no JSON"),
        pytest.param(message("other"), id="another button"),
        pytest.param(message(method="update", state={"description": "click"}), id="an update"),
        pytest.param(message(method="custom", content={"event": "hover"}), id="another event"),
        pytest.param(message(method="custom", content="click"), id="another content"),
        pytest.param(message(content={"event": "click"}, big="x" * 5000), id="too big"),
        pytest.param(message(key=b"forged"), id="forged"),
        pytest.param(message(kind="comm_open"), id="another type"),
        pytest.param([*message()[:2], b"", *message()[3:]], id="unsigned"),
    ],
)
def test_all_else_passes_unharmed(paper: Paper, frames: list[bytes]) -> None:
    clicks: list[str] = []
    with ClickTap(paper.shell, clicks.append) as tap:
        tap.watch("stop")
        paper.shell_stream._recv_callback(frames)
    assert (clicks, paper.received) == ([], [frames])
    assert not paper.session.digest_history


def test_a_click_whose_handler_raises_goes_to_the_widget(paper: Paper) -> None:
    def broken(_: str) -> None:
        raise LookupError

    click = message()
    with ClickTap(paper.shell, broken) as tap:
        tap.watch("stop")
        paper.shell_stream._recv_callback(click)
    assert paper.received == [click]
    _, frames = paper.session.feed_identities(click)
    assert paper.session.deserialize(frames)["msg_type"] == "comm_msg"  # no "duplicate"


def test_a_forgotten_button_is_the_widgets_again(paper: Paper) -> None:
    clicks: list[str] = []
    with ClickTap(paper.shell, clicks.append) as tap:
        tap.watch("stop")
        tap.forget("stop")
        paper.shell_stream._recv_callback(message())
    assert (clicks, len(paper.received)) == ([], 1)


@pytest.mark.parametrize("leaving", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_taps_compose_and_leave_in_any_order(paper: Paper, leaving: tuple[int, ...]) -> None:
    clicks: list[str] = []
    taps = [ClickTap(paper.shell, clicks.append) for _ in range(3)]
    for number, tap in enumerate(taps):
        tap.watch(str(number))
        tap.__enter__()
    here = {0, 1, 2}
    for gone in leaving:
        clicks.clear()
        paper.received.clear()
        for number in range(3):
            paper.shell_stream._recv_callback(message(str(number)))
        assert clicks == [str(number) for number in sorted(here)]
        assert len(paper.received) == 3 - len(here)
        taps[gone].__exit__(None, None, None)
        here.discard(gone)
    assert paper.shell_stream._recv_callback == paper.own


def test_a_stranger_in_front_keeps_us_as_a_passage_only(paper: Paper) -> None:
    clicks: list[str] = []
    tap = ClickTap(paper.shell, clicks.append)
    tap.watch("stop")
    with tap:
        paper.shell_stream._recv_callback = lambda frames: tap(frames)
    paper.shell_stream._recv_callback(message())
    assert (clicks, len(paper.received)) == ([], 1)


def test_only_the_thread_that_receives_pumps() -> None:
    paper, clicks = Paper(thread=False), []
    paper.waiting = [message(), message("other")]
    with ClickTap(paper.shell, clicks.append) as tap:
        tap.watch("stop")
        thread = threading.Thread(target=tap.pump)
        thread.start()
        thread.join()
        assert clicks == []
        tap.pump()
    assert (clicks, len(paper.received)) == (["stop"], 1)
    assert tap.route == "pumped"


@pytest.mark.parametrize("missing", ["_recv_callback", "flush", "io_loop", "unpack", "session"])
def test_a_kernel_without_what_we_use_has_no_tap(paper: Paper, missing: str) -> None:
    if missing == "session":
        paper.session = None
    elif missing == "unpack":
        paper.session = SimpleNamespace(feed_identities=list, deserialize=list)
    else:
        delattr(paper.shell_stream, missing)
    with ClickTap(paper.shell, lambda _: None) as tap:
        tap.watch("stop")
        tap.pump()
        assert (tap.route, tap.working) == ("none", False)


@pytest.mark.parametrize("shell", [None, SimpleNamespace(), SimpleNamespace(kernel=None)])
def test_without_a_kernel_there_is_no_tap(shell: Any) -> None:
    with ClickTap(shell, lambda _: None) as tap:
        assert (tap.route, tap.working) == ("none", False)


# Routes


def test_the_routes_of_a_kernel_follow_what_the_request_allows(paper: Paper) -> None:
    paper._allow_stdin = True
    routes = stop_routes(paper.shell)
    assert routes == StopRoutes("notebook", True, True, "shell-channel thread")
    line = "notebook: Stop button (shell-channel thread), kernel interrupt"
    assert routes.describe() == line
    paper._allow_stdin = False
    assert (can_ask(paper.shell), stop_routes(paper.shell).button) == (False, False)


@pytest.mark.parametrize("isatty", [True, False])
def test_in_a_terminal_a_person_is_there_if_stdin_is_one(
    monkeypatch: pytest.MonkeyPatch, isatty: bool
) -> None:
    stdin = SimpleNamespace(isatty=lambda: isatty, closed=False)
    monkeypatch.setattr(sys, "stdin", stdin)
    shell: Any = SimpleNamespace()
    assert can_ask(shell) is isatty
    assert stop_routes(shell) == StopRoutes("terminal", False, True, "none")
    assert stop_routes(shell).describe() == "terminal: Ctrl-C"


def test_no_stdin_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert can_ask(None) is False
