"""What was seen of one stop, from the outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from turncell.outcome import Rung, Survivor, TurnResult
from turncell.picture import Snapshot

__all__ = ["Evidence", "Picture", "Pictures"]

#: Seconds in which every stop must be answered on screen.
SEEN_WITHIN = 0.5


@dataclass(frozen=True)
class Picture:
    """What a view was shown, and when that was (seconds)."""

    at: float
    snapshot: Snapshot


class Pictures:
    """A view that keeps what it was shown. `clock` tells when."""

    def __init__(self, clock: Callable[[Snapshot], float] | None = None) -> None:
        self.seen: list[Picture] = []
        self._clock = clock or (lambda snapshot: time.monotonic())

    def show(self, snapshot: Snapshot) -> None:
        """Keep it."""
        self.seen.append(Picture(self._clock(snapshot), snapshot))


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was seen of one stop. Times are seconds of one monotonic clock.

    What is None was not looked at, and what needs it is not judged.

    `bound`: the longest this stop may take (s). `over_at`: when those who wait could go
    on, None when they never could. `pictures`: all that a view was shown. `left`: what of
    the turn was alive when it was over, `alive`: the pids of all that was, by a look at the
    processes that does not ask turncell. `earlier`: what earlier turns had left running
    when the stop was asked for; `children`: what of it is the agent's own child and may
    end with it. `least_rung`: the politest rung that such an agent heeds. `sent`: how often
    the agent was given the prompt. `withdrawn`: it may have dropped the prompt before it
    began it. `after`: the next turn of the session, which was to say `after_text`;
    `remembers`: it knew of the turn before the stop. `journal`: the text that is on disk.
    `neighbour`: a turn of another session
    that ran all the time and was to say `neighbour_text`. `slack`: seconds that the machine
    may add to an end, `answer`: seconds that it may take to an answer.
    """

    name: str
    session_id: str
    bound: float
    asked_at: float
    over_at: float | None
    pictures: tuple[Picture, ...] | None = None
    result: TurnResult | None = None
    left: tuple[Survivor, ...] = ()
    earlier: tuple[Survivor, ...] = ()
    children: tuple[Survivor, ...] = ()
    alive: frozenset[int] | None = None
    least_rung: Rung | None = None
    sent: int | None = None
    withdrawn: bool = False
    after: TurnResult | None = None
    after_text: str = ""
    remembers: bool | None = None
    journal: str | None = None
    neighbour: TurnResult | None = None
    neighbour_text: str = ""
    slack: float = 0.1
    answer: float = SEEN_WITHIN
