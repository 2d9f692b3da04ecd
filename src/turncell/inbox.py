"""What happened to a turn and was not looked at yet. Lives on the runtime loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import anyio

from turncell.backends.base import Hangup
from turncell.events import Event, TextDelta, ThinkingDelta
from turncell.stimuli import Gone, Heard, Stimulus

__all__ = ["Inbox"]

#: Seconds in which what is not urgent may pile up. A flood of deltas then costs a wake-up
#: now and then; one for each would cost as much as all else that is done with them.
PILE = 0.005


class Inbox:
    """Stimuli in the order in which they came."""

    def __init__(self) -> None:
        self._stimuli: deque[Stimulus] = deque()
        self._mail = anyio.Event()
        self._urgent = anyio.Event()

    def put(self, stimulus: Stimulus, *, urgent: bool = True) -> None:
        """Something happened."""
        self._stimuli.append(stimulus)
        self._mail.set()
        if urgent:
            self._urgent.set()

    def hear(self, event: Event | Hangup) -> None:
        """What the agent says. Text is a preview of what is said again: it may wait a little."""
        if isinstance(event, Hangup):
            self.put(Gone(event.detail))
        else:
            self.put(Heard(event), urgent=not isinstance(event, (TextDelta, ThinkingDelta)))

    def take(self) -> Iterator[Stimulus]:
        """What is here, and what comes while it is taken."""
        while self._stimuli:
            yield self._stimuli.popleft()

    async def wait(self, seconds: float | None) -> None:
        """Until it is worth looking, at most about `seconds` (None: for ever)."""
        if not self._stimuli:
            with anyio.move_on_after(seconds):
                await self._mail.wait()
        if self._stimuli and not self._urgent.is_set():
            with anyio.move_on_after(PILE):
                await self._urgent.wait()
        self._mail, self._urgent = anyio.Event(), anyio.Event()
