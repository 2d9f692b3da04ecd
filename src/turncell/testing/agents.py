"""Agents that misbehave, and the moments at which they are stopped, as scripted plays.

`AGENTS` names each kind of misbehaviour, `MOMENTS` where a turn can be, and
`play(agent, moment)` is such an agent brought to such a moment. `least_rung` says, from
its manners and the seconds of a policy alone, which rung is the politest that it heeds:
the answer that a stop of it must agree with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turncell import events as ev
from turncell.backends.scripted_steps import (
    Ask,
    Manners,
    Play,
    Rest,
    Retry,
    Say,
    Spawn,
    StartTool,
    Step,
)
from turncell.outcome import Rung
from turncell.settings import StopPolicy, Strategy

__all__ = ["AGENTS", "MOMENTS", "Agent", "Moment", "cases", "least_rung", "play"]


@dataclass(frozen=True)
class Agent:
    """One kind of agent.

    `freezes`: it is frozen (SIGSTOP) right before the stop. `first` it does before
    anything else, `then` after it was brought to the moment; `moments` are those at which
    it can be had, all of them by default; `start` are the seconds until it is up.
    """

    manners: Manners = Manners()
    freezes: bool = False
    first: tuple[Step, ...] = ()
    then: tuple[Step, ...] = (Rest(),)
    moments: tuple[str, ...] = ()
    refuses: str | None = None


@dataclass(frozen=True)
class Moment:
    """Where a turn is: what the agent does until then, and how to know it was reached."""

    steps: tuple[Step, ...] = ()
    reached: Callable[[Sequence[ev.Event]], bool] = bool
    opens: bool = True


def _said(part: str) -> Callable[[Sequence[ev.Event]], bool]:
    return lambda events: part in "".join(e.text for e in events if isinstance(e, ev.TextDelta))


def _heard(kind: type[ev.Event]) -> Callable[[Sequence[ev.Event]], bool]:
    return lambda events: any(isinstance(event, kind) for event in events)


#: Nothing was heard of the turn at "starting" and "before init": see `Moment.opens`.
MOMENTS: dict[str, Moment] = {
    "starting": Moment(opens=False),
    "before init": Moment(opens=False),
    "first delta": Moment((Say("one two three four ", pace=0.5),), _said("one")),
    "mid stream": Moment((Say("word " * 60, pace=0.1),), _said("word " * 7)),
    "tool running": Moment(
        (Say("I look. "), StartTool("t"), Spawn("the tool")), _heard(ev.ToolStarted)
    ),
    "question pending": Moment((Say("May I? "), Ask()), _heard(ev.QuestionAsked)),
    "API stalled": Moment((Say("Half an ans", settles=False),), _said("ans")),
    "API retrying": Moment((Say("Half ", settles=False), Retry(delay=60.0)), _heard(ev.ApiRetry)),
    "before the result": Moment((Say("All that there is to say."),), _heard(ev.TextSettled)),
}  # fmt: skip

_FLOOD = (Say("x " * 3000, pace=0.0001), Rest())

AGENTS: dict[str, Agent] = {
    "polite": Agent(),
    "never acks": Agent(Manners(ack=None, ends=None)),
    "ends and never acks": Agent(Manners(ack=None)),
    "acks and runs on": Agent(Manners(ends=None)),
    "deaf at first": Agent(Manners(deaf=3)),
    "acks late": Agent(Manners(ack=5.5, ends=None)),
    "acks after its end": Agent(Manners(ack=0.6)),
    "no terminal message": Agent(Manners(says=0)),
    "terminal message twice": Agent(Manners(says=2)),
    "terminal message again in the next turn": Agent(Manners(repeats_later=True)),
    "withdraws the prompt": Agent(Manners(withdraws=True), moments=("before init",)),
    "dies before init": Agent(refuses="no memory left", moments=("starting",)),
    "dies mid ack": Agent(Manners(ack=0.2, ends=None, dies=True)),
    "cannot be asked": Agent(Manners(refuses=True)),
    "frozen": Agent(freezes=True),
    "ignores signals": Agent(
        Manners(ack=None, ends=None, ignores=frozenset({"hang_up", "sigint", "sigterm"}))
    ),
    "leaves slowly": Agent(Manners(ack=None, ends=None, leaving=1.5)),
    "child in its own session": Agent(first=(Spawn("a setsid child", loose=True),)),
    "double-forked grandchild, deaf": Agent(
        Manners(ack=None, ends=None), first=(Spawn("a grandchild", loose=True), Spawn("a child"))
    ),
    "unkillable child": Agent(first=(Spawn("in the kernel's hands", unkillable=True),)),
    "keeps a server": Agent(first=(Spawn("a server", mcp=True), Spawn("a tool"))),
    "background task": Agent(first=(Spawn("a background task", background=True),)),
    "floods": Agent(
        Manners(ack=0.05, ends=0.05), then=_FLOOD,
        moments=("first delta", "mid stream", "tool running", "before the result"),
    ),
    "blocks its event loop": Agent(Manners(ack=3.0, ends=3.0)),
}  # fmt: skip


def cases() -> list[tuple[str, str]]:
    """Every agent at every moment at which it can be had."""
    return [
        (agent, moment)
        for agent, kind in AGENTS.items()
        for moment in MOMENTS
        if moment in (kind.moments or MOMENTS) and not (kind.freezes and moment == "starting")
    ]


def play(agent: str, moment: str, when: str = "") -> Play:
    """This agent, brought to this moment by a prompt that has `when` in it."""
    kind, at = AGENTS[agent], MOMENTS[moment]
    steps = (*kind.first, *at.steps, *kind.then)
    return Play(*steps, when=when, manners=kind.manners, opens=at.opens)


def least_rung(agent: str, moment: str, policy: StopPolicy) -> Rung:
    """The politest rung that this agent heeds within the seconds of `policy`."""
    kind, manners = AGENTS[agent], AGENTS[agent].manners
    if moment == "starting":  # there is nobody to ask yet
        return Rung.TERMINATE
    if kind.freezes:
        return Rung.KILL
    told = {"hang_up", "sigterm"} - manners.ignores
    deaf = {
        Rung.INTERRUPT: policy.strategy is Strategy.KILL or not _heeds_interrupt(manners, policy),
        # Its terminal message ends the turn, however long it takes to leave after it.
        Rung.SIGINT: policy.strategy is Strategy.KILL or "sigint" in manners.ignores,
        Rung.TERMINATE: not told or manners.leaving > policy.terminate,
        Rung.KILL: False,
    }
    return next(rung for rung in Rung if not deaf[rung])


def _heeds_interrupt(manners: Manners, policy: StopPolicy) -> bool:
    if manners.dies:  # its death is an end, at the rung where it came
        return manners.ack is not None and manners.ack < policy.ack
    if manners.refuses or manners.ends is None or (manners.says == 0 and not manners.withdraws):
        return False
    ends = manners.ends + manners.deaf * policy.resend
    acked = manners.ack is not None and manners.ack <= policy.ack
    return ends < policy.ack + (policy.grace if acked else 0.0)
