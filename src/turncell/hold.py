"""How a cell waits, what a kernel interrupt means meanwhile, how a click gets in.

Theory of operation. A waiting cell blocks the main thread on purpose: Run All stays in order,
output lands in its own cell. Two things must get in. A kernel interrupt (SIGINT): our handler
only counts, and the waiting loop makes `press()` calls of it, where nothing is half done. A
click, a comm message on the shell channel, which ipykernel >= 7 receives on a thread of its own
and ipykernel 6 on the blocked main thread, where the wait must `pump`; both hand it to one
callable. `ClickTap` stands in front of that, takes clicks on watched buttons and passes on all
else, untouched and in order. Make the button, set the tap, display: else first clicks are late.

What does not work:

* Catching KeyboardInterrupt around the wait: it can be raised in a display call, under a lock
  or in the clean-up. `Event.set()` in the handler: this thread may hold that event's lock.
* Safety once the handler is given back: an interrupt is then raised in whatever clean-up runs.
  So put `kernel_interrupts()` around set-up, hold and clean-up; `hold` joins it.
* Exact counting: the system merges interrupts that come before Python could look.
* A `--bg` button while some other cell blocks ipykernel 6: nobody pumps there.
* Swapping by `stream.on_recv()`: it changes poll state that belongs to another thread.
* Looking by a plain `session.deserialize()`: the kernel would then refuse it as a replay.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, Protocol  # Any: what comes from ipykernel, which is untyped

LAP = 0.02  # seconds; how late an interrupt (and, on ipykernel 6, a click) may be noticed
_SWAP = threading.Lock()  # a cell may set its tap while a background turn removes its own
Shell = Any  # IPython's InteractiveShell, or None
Front = Literal["notebook", "terminal", "none"]
Route = Literal["shell-channel thread", "pumped", "none"]


class Waitable(Protocol):
    """What `hold` waits for."""

    def done(self) -> bool:
        """Tell whether it is over."""

    def wait(self, timeout: float) -> bool:
        """Block for at most `timeout` seconds; True when it is over."""


@dataclass
class KernelInterrupts:
    """Kernel interrupts that came. `raising`: they also raise, while code of the agent runs."""

    count: int = 0
    pressed: int = 0
    raising: bool = False

    def _arrived(self, signum: int, frame: object) -> None:
        self.count += 1  # only ever on the main thread
        if self.raising:
            raise KeyboardInterrupt


def owns_interrupts() -> bool:
    """Tell whether a kernel interrupt reaches this thread and its handler can be borrowed."""
    try:  # a rehearsal: refused off the main thread, and for a handler that C code set (None)
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    except (ValueError, TypeError):
        return False
    return True


@contextmanager
def kernel_interrupts(shell: Shell = None) -> Iterator[KernelInterrupts]:
    """Count kernel interrupts, which do not raise. Inner blocks join. For `shell` see `_late`."""
    owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if not owns_interrupts():
        yield KernelInterrupts()  # none will come
    elif isinstance(owner, KernelInterrupts) and not owner.raising:
        yield owner
    else:
        interrupts = KernelInterrupts()
        previous = signal.signal(signal.SIGINT, interrupts._arrived)
        # ipykernel sets its own handler before and after each cell, so ours will be gone, too.
        reset = hasattr(getattr(shell, "kernel", None), "saved_sigint_handler")
        try:
            yield interrupts
        finally:
            # What is pending runs first, under our handler. What comes during this call is
            # raised by the old handler as the call returns: here, and too late to mean anything.
            with suppress(KeyboardInterrupt):
                signal.signal(signal.SIGINT, partial(_late, shell) if reset else previous)


def _late(shell: Shell, signum: int, frame: Any) -> None:
    # Raised where IPython shows the error or ipykernel sends the reply, it would cost the reply:
    # the cell would never end. Only the cell's own code may be interrupted.
    while frame is not None:
        if frame.f_globals is shell.user_global_ns:
            raise KeyboardInterrupt
        frame = frame.f_back


def hold(
    turn: Waitable,
    press: Callable[[], None],
    *,
    pump: Callable[[], None] | None = None,
    give_up: Callable[[], bool] = lambda: False,
) -> None:
    """Block until the turn is done, or `give_up()`; each kernel interrupt is a `press()`, here."""
    with kernel_interrupts() as interrupts:
        while not turn.done() and not give_up():
            while interrupts.pressed < interrupts.count:
                interrupts.pressed += 1
                press()
            if pump is not None:
                pump()
            turn.wait(LAP)


def _route(shell: Shell) -> Route:
    """The way a click can come in; asks for each semi-private attribute that a tap uses."""
    kernel: Any = getattr(shell, "kernel", None)
    stream, session = getattr(kernel, "shell_stream", None), getattr(kernel, "session", None)
    needed = [(stream, "_recv_callback"), (stream, "flush"), (session, "unpack")]
    needed += [(session, "feed_identities"), (session, "deserialize")]
    if not all(callable(getattr(owner, name, None)) for owner, name in needed):
        return "none"
    thread = getattr(kernel, "shell_channel_thread", None)
    on_thread = getattr(thread, "io_loop", thread) is getattr(stream, "io_loop", None)
    return "pumped" if thread is None else "shell-channel thread" if on_thread else "none"


class ClickTap:
    """Hears the clicks on our buttons while the main thread is blocked (a context manager).

    `on_click(comm_id)`, or what a button was watched with, may be called from any thread, must
    return fast, and is called once per click. The widget gets none that was taken; it does get
    one for which it raised.
    Taps stand in a row, each passing on what is not its own, and leave in any order.
    """

    def __init__(self, shell: Shell, on_click: Callable[[str], None]) -> None:
        self.route = _route(shell)
        self.working = False  # clicks get in now; on route "pumped", as long as `pump` is called
        self._on_click = on_click
        self._kernel: Any = getattr(shell, "kernel", None)
        self._ours: dict[str, Callable[[str], None]] = {}  # by comm id
        self._taken: dict[str, Any] = {}  # headers of the clicks we took, by message id

    def watch(self, comm_id: str, on_click: Callable[[str], None] | None = None) -> None:
        """Take the clicks on this button."""
        self._ours[comm_id] = on_click or self._on_click

    def forget(self, comm_id: str) -> None:
        """Leave the clicks on this button to the widget again."""
        self._ours.pop(comm_id, None)

    def __enter__(self) -> ClickTap:
        if self.route != "none":
            self._thread = threading.get_ident()
            with _SWAP:
                self._inner = self._kernel.shell_stream._recv_callback
                self._kernel.shell_stream._recv_callback = self
                self.working = True
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.working:
            return
        self.working = False
        with _SWAP:
            place, name = self._kernel.shell_stream, "_recv_callback"
            while isinstance(ahead := getattr(place, name), ClickTap) and ahead is not self:
                place, name = ahead, "_inner"
            if ahead is self:  # else behind a stranger: we stay, as a mere passage
                setattr(place, name, self._inner)
        # Front ends keep a future per message until the kernel says busy and idle for it. Said
        # only now: an early "idle" would make the running cell look finished.
        for header in list(self._taken.values()):
            with suppress(Exception):  # good manners only, perhaps in a kernel that shuts down
                self._kernel._publish_status("busy", "shell", {"header": header})
                self._kernel._publish_status("idle", "shell", {"header": header})

    def __call__(self, message: list[Any]) -> Any:
        """Receive a shell message in the kernel's place."""
        try:
            taken = self.working and self._take(message)
        except Exception:  # noqa: BLE001 - whatever breaks here, the kernel gets its messages
            logging.getLogger("turncell").warning("a click may be late", exc_info=True)
            taken = False
        return None if taken else self._inner(message)

    def _take(self, message: list[Any]) -> bool:
        session, copied = self._kernel.session, isinstance(message[0], bytes)  # else zmq frames
        _, frames = session.feed_identities(message, copy=copied)
        small = len(frames) > 4 and len(frames[4]) < 4096  # a click has about 100 bytes
        content = b"" if not small else frames[4] if copied else frames[4].bytes
        match session.unpack(content) if b"click" in content else None:
            case {"comm_id": comm, "data": {"content": {"event": "click"}}} if comm in self._ours:
                # Raises where the signature is wrong or was seen: the kernel refuses it as well.
                header = session.deserialize(frames, content=False, copy=copied)["header"]
                if header["msg_type"] == "comm_msg" and header["msg_id"] not in self._taken:
                    self._ours[comm](comm)
                    self._taken[header["msg_id"]] = header
                return header["msg_id"] in self._taken
        return False

    def pump(self) -> None:
        """Receive what has arrived, where the waiting thread itself has to (ipykernel 6)."""
        if self.working and self.route == "pumped" and threading.get_ident() == self._thread:
            with suppress(Exception):  # whatever the kernel has with it: the turn goes on
                self._kernel.shell_stream.flush(1, 200)  # POLLIN; no flood may keep us


@dataclass(frozen=True)
class StopRoutes:
    """How a person can stop a turn from here."""

    front: Front
    button: bool
    interrupt: bool
    tap: Route

    def describe(self) -> str:
        """One line for `%agent status`."""
        heard = "heard only after the cell" if self.tap == "none" else self.tap
        key = "kernel interrupt" if self.front == "notebook" else "Ctrl-C"
        ways = [f"Stop button ({heard})"] * self.button + [key] * self.interrupt
        return f"{self.front}: " + (", ".join(ways) or "no way to stop from here")


def can_ask(shell: Shell) -> bool:
    """Tell whether a person can answer: not under nbclient. Ask while the cell runs."""
    kernel: Any = getattr(shell, "kernel", None)
    if kernel is not None:  # what the latest request said
        return getattr(kernel, "_allow_stdin", False) is True
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def stop_routes(shell: Shell) -> StopRoutes:
    """Look which ways to stop are live here; imports and installs nothing."""
    in_kernel = getattr(shell, "kernel", None) is not None
    front: Front = "notebook" if in_kernel else "terminal" if shell is not None else "none"
    button = in_kernel and can_ask(shell) and find_spec("ipywidgets") is not None
    return StopRoutes(front, button, owns_interrupts(), _route(shell))
