"""What a scripted agent does in a turn, and how it takes a stop: frozen values.

A `Play` is the row of steps for one prompt. A test may derive a `Step` of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from turncell import events as ev

if TYPE_CHECKING:
    from turncell.backends.scripted_scene import Scene

__all__ = [
    "Ask", "Die", "EndTool", "Finish", "Freeze", "Manners", "Notify", "Play", "Rest", "Retry",
    "Say", "Spawn", "StartTool", "Step", "Tell", "Think",
]  # fmt: skip

_WORD = re.compile(r"\S+\s*|\s+")


class Step:
    """One thing a scripted agent does."""

    async def play(self, scene: Scene) -> None:
        """Do it."""


@dataclass(frozen=True)
class Say(Step):
    """Text, a delta for each word, `pace` seconds after each; then the block is settled,
    unless `settles` is False: the rest of it never comes."""

    text: str
    pace: float = 0.0
    settles: bool = True

    async def play(self, scene: Scene) -> None:
        """Say it."""
        scene.open_block()
        for word in _WORD.findall(self.text):
            scene.say(word)
            await anyio.sleep(self.pace)
        if self.settles:
            scene.settle()


@dataclass(frozen=True)
class Think(Step):
    """Thinking, a delta for each word, `pace` seconds after each."""

    text: str
    pace: float = 0.0

    async def play(self, scene: Scene) -> None:
        """Think it."""
        block = scene.new_key("thinking")
        for word in _WORD.findall(self.text):
            scene.tell(ev.ThinkingDelta, text=word, block=block)
            await anyio.sleep(self.pace)


@dataclass(frozen=True)
class StartTool(Step):
    """A tool call begins. Once the turn is refused it is denied at once, as hooks do."""

    tool_id: str
    name: str = "Bash"
    input: Mapping[str, Any] = field(default_factory=dict)

    async def play(self, scene: Scene) -> None:
        """Call it."""
        scene.start_tool(self.tool_id, self.name, dict(self.input))


@dataclass(frozen=True)
class EndTool(Step):
    """A tool call is over; nothing when it is over already."""

    tool_id: str
    output: str = ""
    status: str = "done"

    async def play(self, scene: Scene) -> None:
        """End it."""
        scene.end_tool(self.tool_id, self.status, self.output)


@dataclass(frozen=True)
class Ask(Step):
    """A question that waits for a person, `seconds` at most (for ever), and then has its
    `answer`; a stop settles it as cancelled."""

    tool: str = "Bash"
    seconds: float = math.inf
    answer: str = "denied"
    input: Mapping[str, Any] = field(default_factory=dict)

    async def play(self, scene: Scene) -> None:
        """Ask and wait."""
        await scene.ask(self)


@dataclass(frozen=True)
class Rest(Step):
    """Nothing for `seconds` (for ever): the agent lives, and says nothing."""

    seconds: float = math.inf

    async def play(self, scene: Scene) -> None:
        """Rest."""
        await anyio.sleep(self.seconds)


@dataclass(frozen=True)
class Retry(Step):
    """The agent's API failed; it waits `delay` seconds and goes on."""

    attempt: int = 1
    limit: int = 10
    delay: float = 1.0
    status: int | None = 529

    async def play(self, scene: Scene) -> None:
        """Say so and wait."""
        scene.tell(ev.ApiRetry, **vars(self))
        await anyio.sleep(self.delay)


@dataclass(frozen=True)
class Notify(Step):
    """A line for the person."""

    text: str
    level: str = "info"

    async def play(self, scene: Scene) -> None:
        """Say it."""
        scene.tell(ev.Notice, text=self.text, level=self.level)


@dataclass(frozen=True)
class Tell(Step):
    """Any event, exactly as it is: of another turn, twice, out of order."""

    event: ev.Event

    async def play(self, scene: Scene) -> None:
        """Hand it over."""
        scene.deliver(self.event)


@dataclass(frozen=True)
class Spawn(Step):
    """A (make-believe) process of a tool. One that is `loose` left the agent's tree and
    outlives both a polite stop and the agent, one in the `background` outlives a polite
    stop; an `mcp` one is a server, not a tool's."""

    command: str = "a tool"
    loose: bool = False
    background: bool = False
    mcp: bool = False
    unkillable: bool = False

    async def play(self, scene: Scene) -> None:
        """Start it."""
        scene.connection.spawn(self)


@dataclass(frozen=True)
class Finish(Step):
    """The terminal message. A play without one ends with `Finish()` by itself."""

    end: str = "completed"
    error: str | None = None
    cost_usd: float | None = None

    async def play(self, scene: Scene) -> None:
        """Say it."""
        scene.finish(self)


@dataclass(frozen=True)
class Die(Step):
    """The process ends by itself, `detail` being its last words; its tools live on."""

    detail: str = "the agent process ended (signal 9)"

    async def play(self, scene: Scene) -> None:
        """End."""
        scene.connection.die(self.detail)
        await anyio.sleep_forever()


@dataclass(frozen=True)
class Freeze(Step):
    """Like SIGSTOP: from now on it answers nothing and heeds nothing but a kill."""

    async def play(self, scene: Scene) -> None:
        """Stop dead."""
        scene.connection.frozen = True
        await anyio.sleep_forever()


@dataclass(frozen=True)
class Manners:
    """How an agent takes a stop; the defaults are those of the agent CLI: it acks, says
    its partial text and its terminal message, and stays.

    `ack` and `ends` are seconds from the first request, None for never. The first `deaf`
    requests are acked and do nothing. One that `withdraws` lists the prompt in its ack
    and says no terminal message; else it says it `says` times, and once more after the
    next turn began when it `repeats_later`. `refuses`: cannot be asked; `dies`: ends
    while it should ack. `ignores` is a set of hang_up, sigint, sigterm, sigkill;
    `leaving` the seconds from being told to go until it has gone.
    """

    ack: float | None = 0.0
    ends: float | None = 0.0
    deaf: int = 0
    withdraws: bool = False
    says: int = 1
    repeats_later: bool = False
    refuses: bool = False
    dies: bool = False
    ignores: frozenset[str] = frozenset()
    leaving: float = 0.0


@dataclass(frozen=True, init=False)
class Play:
    """What the agent does for a prompt that has `when` in it (any prompt by default).

    A plain string is a `Say`. `opens=False`: it never says which session this is.
    """

    steps: tuple[Step, ...]
    when: str
    manners: Manners
    opens: bool

    def __init__(
        self, *steps: Step | str, when: str = "", manners: Manners | None = None, opens: bool = True
    ) -> None:
        rows = tuple(Say(step) if isinstance(step, str) else step for step in steps)
        object.__setattr__(self, "steps", rows)
        object.__setattr__(self, "when", when)
        object.__setattr__(self, "manners", manners or Manners())
        object.__setattr__(self, "opens", opens)
