"""The settings of a stop and of a turn: frozen, checked once, each with its origin."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from turncell.errors import UsageError
from turncell.questions import Unattended

__all__ = ["InUse", "Settings", "StopPolicy", "Strategy"]

E = TypeVar("E", bound=Enum)

#: The most seconds that one rung of a stop may take: nobody waits longer for a Stop.
MOST = 3600.0


class Strategy(str, Enum):
    """Which rungs of the ladder a stop may use."""

    INTERRUPT_THEN_KILL = "interrupt_then_kill"
    INTERRUPT = "interrupt"
    KILL = "kill"

    def __str__(self) -> str:
        return self.value


class InUse(str, Enum):
    """What a prompt does when another kernel has its session open."""

    REFUSE = "refuse"  # say who has it, and send nothing
    WAIT = "wait"  # until the turn there is over
    TAKE = "take"  # end the agent there

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class StopPolicy:
    """Seconds a stop may spend on each rung, and which rungs it may use.

    The defaults add up to 15.5 s, the most a stop can take. Raises UsageError
    for a number that is negative, over an hour, or not a number.
    """

    ack: float = 5.0
    grace: float = 5.0
    sigint: float = 2.0
    terminate: float = 2.0
    kill: float = 1.5
    settle: float = 1.0
    # An interrupt within 20 ms of a prompt on a warm agent is acked and does
    # nothing, so it is sent again until the turn's own terminal message comes.
    resend: float = 0.25
    # Two presses closer than this are one press with a shaky finger.
    repeat_after: float = 0.4
    strategy: Strategy = Strategy.INTERRUPT_THEN_KILL

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            if f.name != "strategy":
                _check_seconds(f.name, getattr(self, f.name), MOST)
        object.__setattr__(self, "strategy", _one_of(Strategy, "--strategy", self.strategy))

    @property
    def total(self) -> float:
        """The longest a stop can take, in seconds."""
        forced = self.terminate + self.kill
        if self.strategy is Strategy.KILL:
            return forced
        polite = self.ack + self.grace
        if self.strategy is Strategy.INTERRUPT:
            return polite + self.settle + forced
        return polite + max(self.sigint, self.settle) + forced

    def hurried(self, total: float = 2.0) -> StopPolicy:
        """The same ladder squeezed into `total` seconds, for the end of the kernel."""
        gentle = Strategy.INTERRUPT_THEN_KILL
        strategy = Strategy.KILL if self.strategy is Strategy.KILL else gentle
        # Force takes the time it takes: only the polite part can be squeezed at will.
        forced = {"sigint": 0.1, "terminate": 0.15, "kill": 0.25, "settle": 0.15}
        seconds = {name: min(getattr(self, name), part * total) for name, part in forced.items()}
        polite = total - seconds["terminate"] - seconds["kill"]
        polite -= max(seconds["sigint"], seconds["settle"])
        scale = min(1.0, polite / (self.ack + self.grace)) if self.ack + self.grace else 1.0
        for name in ("ack", "grace", "resend"):
            seconds[name] = getattr(self, name) * scale
        # A kernel that leaves must not leave an agent: `interrupt` may not give up here.
        return dataclasses.replace(self, repeat_after=0.0, strategy=strategy, **seconds)


def _one_of(choices: type[E], option: str, word: str) -> E:
    try:
        return choices(word)
    except ValueError:
        listed = ", ".join(map(str, choices))
        raise UsageError(f"{option} {word} is not one of {listed}. Choose one of these.") from None


def _check_seconds(name: str, value: object, most: float = math.inf) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= float(str(value)) < math.inf or float(str(value)) > most:
        words = "0 or more" if most == math.inf else f"from 0 to {most:g}"
        raise UsageError(f"{name} is {value!r}: give a number of seconds, {words}.")


@dataclass(frozen=True)
class Settings:
    """What a turn runs with. `origins` says where each value that was set came from.

    `in_use`: what to do when another kernel has the session open; `tell`: whether the model
    is told that the turn before was stopped; `unattended`: what a question gets where nobody
    can answer it; `math`: a notebook typesets what stands between dollars.
    """

    model: str | None = None
    effort: str | None = None
    permission_mode: str | None = None
    max_turns: int | None = None
    max_budget: float | None = None
    cwd: str | None = None
    tools: tuple[str, ...] = ()
    system: str | None = None
    sources: tuple[str, ...] | None = None
    expand: bool = False
    cli: str | None = None
    timeout: float | None = None
    in_use: InUse = InUse.REFUSE
    tell: bool = True
    unattended: Unattended = Unattended.DENY
    math: bool = False
    stop: StopPolicy = field(default_factory=StopPolicy)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.timeout is not None:
            _check_seconds("timeout", self.timeout)
        object.__setattr__(self, "in_use", _one_of(InUse, "--in-use", self.in_use))
        policy = _one_of(Unattended, "--unattended", self.unattended)
        object.__setattr__(self, "unattended", policy)
        turns, budget = self.max_turns, self.max_budget
        if turns is not None and not (isinstance(turns, int) and turns >= 1):
            raise UsageError(f"max-turns is {self.max_turns}: give 1 or more.")
        if budget is not None and not (isinstance(budget, (int, float)) and budget > 0):
            raise UsageError(f"max-budget is {self.max_budget}: give an amount in USD above 0.")

    def launch_key(self) -> Settings:
        """The part a running agent process was started with: two turns with equal
        keys can share one process."""
        return dataclasses.replace(
            self, timeout=None, in_use=InUse.REFUSE, tell=True, unattended=Unattended.DENY,
            math=False, stop=StopPolicy(), origins={},
        )  # fmt: skip

    def merged(self, origin: str, values: Mapping[str, Any]) -> Settings:
        """A copy with `values`, each marked as coming from `origin`.

        `ack`, `grace` and `strategy` belong to its stop policy. Raises UsageError
        for a name that is no setting or a value that cannot be used.
        """
        mine = {f.name for f in dataclasses.fields(self)} - {"origins"}
        unknown = [name for name in values if name not in mine and name not in _STOP_NAMES]
        if unknown:
            names = ", ".join(sorted({*mine, *_STOP_NAMES}))
            raise UsageError(f"unknown option {unknown[0]}: use one of {names}.")
        own = {name: _tidy(name, value) for name, value in values.items() if name in mine}
        of_stop = {name: value for name, value in values.items() if name in _STOP_NAMES}
        origins = {**self.origins, **dict.fromkeys(values, origin)}
        stop = own.pop("stop", self.stop)
        if not isinstance(stop, StopPolicy):
            raise UsageError(f"stop is {stop!r}: give a StopPolicy.")
        stop = dataclasses.replace(stop, **of_stop)
        return dataclasses.replace(self, stop=stop, origins=origins, **own)


_STOP_NAMES = ("ack", "grace", "sigint", "terminate", "kill", "strategy")


def _tidy(name: str, value: Any) -> Any:
    if name in ("tools", "sources") and isinstance(value, (list, tuple)):
        return tuple(str(item) for item in value)
    return str(value) if name == "cwd" and value is not None else value
