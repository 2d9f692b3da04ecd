"""Every agent that misbehaves, against the real driver: how long a stop takes, what it says
of itself, what is kept, and that the next turn is exact."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import pytest
from jumped import Cell, Room, jumped

from turncell import events as ev
from turncell.backends.scripted_steps import (
    Ask,
    Freeze,
    Manners,
    Play,
    Rest,
    Retry,
    Say,
    StartTool,
    Think,
)
from turncell.outcome import Outcome, Reason, Rung, TurnResult

INTERRUPTED, KILLED = Outcome.INTERRUPTED, Outcome.KILLED
ALL_DEAF = frozenset({"hang_up", "sigint", "sigterm"})
NEXT = Play("The next answer.", when="next")
TALK = Say("one two three four five six seven eight nine ten", pace=0.5)


@dataclass(frozen=True)
class Case:
    """An agent that was stopped 1.1 s after its prompt, and what must come of it."""

    took: float  # seconds from the request to the end of the cell
    rung: Rung
    outcome: Outcome = INTERRUPTED
    warm: bool = False
    steps: tuple[object, ...] = (TALK,)
    opens: bool = True
    text: str = "one two three "
    remembered: bool = True  # whether the agent itself wrote the partial text down
    manners: Manners = field(default_factory=Manners)


CASES = {
    "acks and ends": Case(0.0, Rung.INTERRUPT, warm=True),
    "ends a little later": Case(0.7, Rung.INTERRUPT, warm=True, manners=Manners(ends=0.7),
                                text="one two three four "),
    "never acks": Case(5.0, Rung.SIGINT, manners=Manners(ack=None, ends=None),
                       steps=(TALK, Rest()), text=TALK.text),
    "acks and runs on": Case(5.0, Rung.SIGINT, manners=Manners(ends=None),
                             steps=(TALK, Rest()), text=TALK.text),
    "acks late, within the bound": Case(4.9, Rung.INTERRUPT, warm=True, text=TALK.text,
                                        manners=Manners(ack=4.9, ends=4.9), steps=(TALK, Rest())),
    "acks late, after the bound": Case(5.0, Rung.SIGINT, manners=Manners(ack=7.0, ends=7.0),
                                       steps=(TALK, Rest()), text=TALK.text),
    "ends, then acks": Case(0.8, Rung.INTERRUPT, warm=True, manners=Manners(ack=0.8)),
    "ends without ever acking": Case(1.0, Rung.INTERRUPT, manners=Manners(ack=None)),
    "ends without a terminal message": Case(5.0, Rung.SIGINT, KILLED, manners=Manners(says=0),
                                            remembered=False),
    "says the terminal message twice": Case(0.0, Rung.INTERRUPT, warm=True,
                                            manners=Manners(says=2)),
    "says the terminal message twice, and only then acks": Case(
        0.5, Rung.INTERRUPT, warm=True, manners=Manners(ack=0.5, says=2)),
    "says it again after the next turn began": Case(0.0, Rung.INTERRUPT, warm=True,
                                                    manners=Manners(repeats_later=True)),
    "withdraws the prompt": Case(0.0, Rung.INTERRUPT, warm=True, steps=(Rest(),), opens=False,
                                 text="", manners=Manners(withdraws=True), remembered=False),
    "withdraws it and says the terminal message later": Case(
        0.0, Rung.INTERRUPT, warm=True, steps=(Rest(),), opens=False, text="",
        manners=Manners(withdraws=True, repeats_later=True), remembered=False),
    "is deaf to the first request": Case(0.25, Rung.INTERRUPT, warm=True, manners=Manners(deaf=1)),
    "is deaf to the first five": Case(1.25, Rung.INTERRUPT, warm=True, manners=Manners(deaf=5),
                                      text="one two three four five "),
    "dies mid ack": Case(0.0, Rung.INTERRUPT, KILLED, remembered=False,
                         manners=Manners(ends=None, dies=True)),
    "cannot be asked": Case(5.0, Rung.SIGINT, manners=Manners(refuses=True),
                            steps=(TALK, Rest()), text=TALK.text),
    "ignores SIGINT": Case(7.0, Rung.TERMINATE, KILLED, remembered=False, text=TALK.text,
                           steps=(TALK, Rest()),
                           manners=Manners(ack=None, ends=None, ignores=frozenset({"sigint"}))),
    "ignores hanging up, SIGINT and SIGTERM": Case(
        9.0, Rung.KILL, KILLED, remembered=False, steps=(TALK, Rest()), text=TALK.text,
        manners=Manners(ack=None, ends=None, ignores=ALL_DEAF)),
    "frozen": Case(9.0, Rung.KILL, KILLED, remembered=False,
                   steps=("one two three ", Freeze())),
    "leaves slowly": Case(6.9, Rung.SIGINT, steps=(TALK, Rest()), text=TALK.text,
                          manners=Manners(ack=None, ends=None, leaving=1.9)),
    # It ended its turn when it was asked to leave; that it had to be killed came later.
    "leaves too slowly": Case(9.0, Rung.SIGINT, steps=(TALK, Rest()), text=TALK.text,
                              manners=Manners(ack=None, ends=None, leaving=30.0)),
    "leaves too slowly, acks and ignores SIGINT": Case(
        9.0, Rung.KILL, KILLED, steps=(TALK, Rest()), text=TALK.text, remembered=False,
        manners=Manners(ends=None, leaving=30.0, ignores=frozenset({"sigint"}))),
    "says nothing at all": Case(0.0, Rung.INTERRUPT, warm=True, steps=(Rest(),), opens=False,
                                text="", remembered=False),
    "is silent after some text": Case(0.0, Rung.INTERRUPT, warm=True,
                                      steps=("one two three ", Rest())),
    "thinks": Case(0.0, Rung.INTERRUPT, warm=True, steps=(Think("hm " * 99, pace=0.1),), text=""),
    "uses a tool": Case(0.0, Rung.INTERRUPT, warm=True, text="one two three ",
                        steps=("one two three ", StartTool("t1"), Rest())),
    "asks and waits": Case(0.0, Rung.INTERRUPT, warm=True,
                           steps=("one two three ", Ask(), Rest())),
    "is done once its question is cancelled": Case(
        0.0, Rung.INTERRUPT, Outcome.COMPLETED, warm=True, steps=("one two three ", Ask())),
    "waits for its API": Case(0.0, Rung.INTERRUPT, warm=True,
                              steps=("one two three ", Retry(delay=60.0))),
}  # fmt: skip


async def stopped(room: Room, case: Case) -> tuple[Cell, TurnResult]:
    room.plays(NEXT, Play(*case.steps, manners=case.manners, opens=case.opens))  # type: ignore[arg-type]
    cell = room.send("go on")
    await anyio.sleep(1.1)
    cell.stop()
    return cell, await cell.gone(within=16.0)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@jumped
async def test_a_stop_of_an_agent_that(room: Room, case: Case) -> None:
    cell, result = await stopped(room, case)
    receipt = result.receipt
    assert receipt is not None
    assert (result.outcome, receipt.rung, receipt.reason) == (case.outcome, case.rung, Reason.USER)
    assert cell.stop_took == pytest.approx(case.took, abs=0.02)
    assert receipt.connection == ("warm" if case.warm else "closed")
    assert receipt.survivors == []
    assert result.text == case.text == cell.text
    assert receipt.text_chars == len(case.text)
    assert result.error is None
    assert [type(event) for event in result.events].count(ev.AgentFinished) <= 1
    assert all(tool.status == "cancelled" for tool in result.tools)
    remembered = room.backend.memory.get(result.session_id, [])
    assert (remembered == [("go on", case.text)]) == (case.remembered and case.opens)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@jumped
async def test_the_turn_after_an_agent_that(room: Room, case: Case) -> None:
    _, before = await stopped(room, case)
    cell = room.send("next")
    result = await cell.gone(within=1.0)
    assert (result.outcome, result.text, result.error) == (
        Outcome.COMPLETED, "The next answer.", None,
    )  # fmt: skip
    assert result.receipt is None and result.reason is None
    assert result.session_id == before.session_id
    assert {event.turn_id for event in result.events} == {cell.turn_id}
    assert [type(event) for event in result.events].count(ev.AgentFinished) == 1
    assert len(room.backend.connections) == (1 if case.warm else 2)
    assert room.remembered[-1] == ("next", "The next answer.")
    assert room.backend.prompts == ["go on", "next"]
