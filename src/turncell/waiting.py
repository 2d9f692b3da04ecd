"""How a cell waits for a turn, whoever started it: presses in, and never without a bound."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from turncell.errors import RuntimeGone
from turncell.hold import ClickTap, hold, kernel_interrupts

if TYPE_CHECKING:
    from turncell.handle import TurnHandle
    from turncell.questions import Answer

__all__ = ["Presses", "await_end", "join"]

#: Seconds beyond the bound of a stop after which the runtime must be broken.
_SLACK = 5.0


class Presses:
    """Stop presses on their way to a turn that may not have begun yet."""

    def __init__(self) -> None:
        self._handle: TurnHandle | None = None
        self._pending: deque[str] = deque()
        self._since: float | None = None

    def press(self, reason: str) -> None:
        """From any thread: stop the turn, now or as soon as there is one."""
        self._since = self._since or time.monotonic()
        self._pending.append(reason)
        self._deliver()

    def attach(self, handle: TurnHandle) -> None:
        """There is a turn now: it gets every press, early ones too."""
        self._handle = handle
        self._deliver()

    def answer(self, question_id: str, answer: Answer) -> None:
        """From any thread: what a person says to a question of the turn."""
        if self._handle is not None:
            self._handle.answer(question_id, answer.verdict, answer.chosen)

    def _deliver(self) -> None:
        # Whoever comes second finds the other's half done, so no press is lost.
        while self._handle is not None and self._pending:
            try:
                reason = self._pending.popleft()
            except IndexError:
                return
            self._handle.stop(reason)

    def hopeless(self) -> bool:
        """Whether a stop took longer than it ever may."""
        bound = self._handle.bound if self._handle is not None else 0.0
        return self._since is not None and time.monotonic() > self._since + bound + _SLACK


def await_end(
    handle: TurnHandle, presses: Presses, tap: ClickTap, listen: Callable[[], None] = lambda: None
) -> None:
    """Block until the turn is over; a kernel interrupt is a press. `listen` takes what a person
    typed meanwhile.

    Raises RuntimeGone when a stop takes longer than it ever may.
    """

    def pump() -> None:
        tap.pump()
        listen()

    hold(
        handle,
        lambda: presses.press("kernel_interrupt"),
        pump=pump,
        give_up=presses.hopeless,
    )
    if not handle.done():
        raise RuntimeGone(
            "The stop took longer than it may: turncell's runtime does not answer. "
            "Restart the kernel; the conversation stays resumable."
        )


def join(shell: Any, handle: TurnHandle) -> None:
    """Block this cell until a turn that runs in the background is over."""
    presses = Presses()
    presses.attach(handle)
    with kernel_interrupts(shell), ClickTap(shell, lambda _: None) as tap:
        await_end(handle, presses, tap)
