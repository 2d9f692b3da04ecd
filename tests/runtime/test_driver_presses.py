"""More than one press, more than one turn, strategies and the time limit."""

from __future__ import annotations

import anyio
import pytest
from jumped import Pictures, Room, jumped

from turncell import events as ev
from turncell import turn
from turncell.backends.scripted_steps import (
    Ask,
    EndTool,
    Finish,
    Freeze,
    Manners,
    Notify,
    Play,
    Rest,
    Say,
    StartTool,
    Tell,
)
from turncell.outcome import Outcome, Reason, Rung

FROZEN = Play("half ", Freeze(), when="freeze")
DEAF = Play("half ", Rest(), when="deaf", manners=Manners(ack=None, ends=None))
RUNS_ON = Play(Say("on " * 20, pace=1.0), when="run on", manners=Manners(ends=None))
SLOW = Play(Say("word " * 100, pace=0.1), when="slow")
DONE = Play("done")


# A press more.


@jumped
async def test_a_second_and_a_third_press_skip_to_the_next_rung_and_to_the_kill(room: Room) -> None:
    room.plays(FROZEN)
    cell = room.send("freeze")
    await cell.said("half")
    pressed = cell.stop()
    await anyio.sleep(0.5)
    cell.stop()
    await anyio.sleep(0.5)
    rungs = [e.rung for e in cell.handle._events if isinstance(e, ev.StopProgress)]
    assert rungs == ["interrupt", "sigint"]
    cell.stop()
    result = await cell.gone(within=0.1)
    assert result.receipt is not None
    assert result.receipt.rung is Rung.KILL
    assert result.receipt.requested_at == pressed
    assert cell.stop_took == pytest.approx(1.0, abs=0.01)


@jumped
async def test_a_double_click_is_one_press(room: Room) -> None:
    room.plays(DEAF)
    cell = room.send("deaf")
    await cell.said("half")
    for _ in range(4):  # a shaky finger: each press is within 0.4 s of the one that counted
        cell.stop()
        await anyio.sleep(0.09)
    result = await cell.gone()
    assert cell.stop_took == pytest.approx(5.0, abs=0.01)
    assert result.receipt is not None and result.receipt.rung is Rung.SIGINT


@jumped
async def test_now_goes_straight_to_the_kill(room: Room) -> None:
    room.plays(FROZEN)
    cell = room.send("freeze")
    await cell.said("half")
    cell.stop(now=True)
    result = await cell.gone(within=0.1)
    assert (result.outcome, result.text) == (Outcome.KILLED, "half ")
    assert result.receipt is not None and result.receipt.rung is Rung.KILL


@jumped
async def test_the_first_reason_is_kept(room: Room) -> None:
    room.plays(FROZEN)
    cell = room.send("freeze")
    await cell.said("half")
    cell.stop("timeout")
    await anyio.sleep(1)
    cell.stop("user", now=True)
    assert (await cell.gone()).reason is Reason.TIMEOUT


@jumped
async def test_a_stop_in_the_same_breath_as_the_prompt(room: Room) -> None:
    room.plays(SLOW, DONE)
    await room.send("warm up").gone()
    for laps in range(20):
        cell = await room.line_up("slow")
        for _ in range(laps):
            await anyio.sleep(0)
        cell.stop()
        assert (await cell.gone(within=0.3)).outcome is Outcome.INTERRUPTED
        assert (await room.send("next").gone(within=1)).text == "done"


@jumped
async def test_a_stop_of_a_turn_that_is_over_does_nothing(room: Room) -> None:
    room.plays(SLOW, DONE)
    first = room.send("next")
    before = await first.gone()
    slow = room.send("slow")
    await slow.said("word")
    for _ in range(5):
        first.stop()
        room.conversation.stop(first.turn_id, Reason.USER, True)
        room.conversation.stop("no such turn", Reason.USER, True)
        await anyio.sleep(0.5)
    result = await slow.gone()
    assert (result.outcome, result.receipt) == (Outcome.COMPLETED, None)
    assert await first.over() is before
    room.conversation.stop(None, Reason.USER, False)  # nothing runs
    assert (await room.send("next").gone(within=1)).outcome is Outcome.COMPLETED


@pytest.mark.parametrize("pause", [0.05, 0.09, 0.1, 0.11, 0.2])
@jumped
async def test_a_stop_while_the_agent_finishes_leaves_a_whole_answer(
    room: Room, pause: float
) -> None:
    room.plays(Play(Say("ab", pace=0.1), Finish(), manners=Manners(ends=None)))
    cell = room.send("go")
    await anyio.sleep(pause)
    cell.stop()
    result = await cell.gone(within=2)
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "ab")
    assert pause >= 0.1 or result.receipt is not None
    assert pause <= 0.1 or result.receipt is None
    if result.receipt is not None:
        assert (result.receipt.rung, result.receipt.connection) == (Rung.INTERRUPT, "warm")
    assert (await room.send("go").gone(within=1)).receipt is None


# More than one turn.


@jumped
async def test_turns_wait_in_line_in_order(room: Room) -> None:
    room.plays(SLOW, Play(Say("short", pace=1.0)))
    views = [Pictures() for _ in range(4)]
    cells = [await room.line_up(f"slow {n}", view=view) for n, view in enumerate(views)]
    for n, cell in enumerate(cells):
        result = await cell.gone()
        assert cell.over_after == pytest.approx(10 * (n + 1), abs=0.1)
        assert result.outcome is Outcome.COMPLETED
        assert {event.turn_id for event in result.events} == {cell.turn_id}
    assert room.backend.prompts == [f"slow {n}" for n in range(4)]
    places = [picture.queued_behind for picture in views[3].seen if picture.phase == "queued"]
    assert places == sorted(places, reverse=True) and set(places) == {3, 2, 1}


@jumped
async def test_a_stop_of_a_waiting_turn_removes_it_alone(room: Room) -> None:
    room.plays(SLOW, DONE)
    first, second, third = [await room.line_up(p) for p in ("slow one", "never sent", "three")]
    await first.said("word")
    second.stop()
    result = await second.gone(within=0.1)
    assert (result.outcome, result.reason, result.text) == (
        Outcome.INTERRUPTED, Reason.USER, "",
    )  # fmt: skip
    assert result.receipt is not None and result.receipt.survivors == []
    assert (await first.gone()).outcome is Outcome.COMPLETED
    assert (await third.gone(within=0.1)).text == "done"
    assert room.backend.prompts == ["slow one", "three"]


@jumped
async def test_a_stop_of_the_running_turn_leaves_those_behind_it(room: Room) -> None:
    room.plays(FROZEN, DONE)
    first, second, third = [await room.line_up(p) for p in ("freeze", "two", "three")]
    await first.said("half")
    room.conversation.stop(None, Reason.USER, False)
    assert (await first.gone(within=9.1)).outcome is Outcome.KILLED
    assert [(await c.gone(within=0.1)).text for c in (second, third)] == ["done", "done"]
    assert len(room.backend.connections) == 2


# Strategies.


@jumped
async def test_strategy_kill_starts_at_terminate(room: Room) -> None:
    room.plays(SLOW)
    cell = room.send("slow", strategy="kill")
    await cell.said("word")
    cell.stop()
    result = await cell.gone(within=0.1)
    assert (result.outcome, result.receipt and result.receipt.rung) == (
        Outcome.KILLED, Rung.TERMINATE,
    )  # fmt: skip
    assert room.agent.interrupts == 0


@jumped
async def test_strategy_kill_of_a_frozen_agent(room: Room) -> None:
    room.plays(FROZEN)
    cell = room.send("freeze", strategy="kill")
    await cell.said("half")
    cell.stop()
    result = await cell.gone(within=2.1)
    assert (result.outcome, result.text) == (Outcome.KILLED, "half ")
    assert cell.stop_took == pytest.approx(2.0, abs=0.01)


@jumped
async def test_strategy_interrupt_gives_up_honestly_and_the_turn_ends_by_itself(room: Room) -> None:
    room.plays(RUNS_ON, DONE)
    cell = room.send("run on", strategy="interrupt")
    await cell.said("on")
    cell.stop()
    result = await cell.over(within=10.1)
    assert result.outcome is Outcome.UNSTOPPED
    assert cell.stop_took == pytest.approx(5.0, abs=0.01)
    assert room.conversation.unstopped and room.conversation.busy and cell.handle.running
    waiting = room.send("next")
    await cell.gone()
    assert cell.gone_after == pytest.approx(20.0, abs=0.1)
    assert not room.conversation.unstopped and not cell.handle.running
    assert (await waiting.gone(within=0.1)).text == "done"
    assert len(room.backend.connections) == 1


@jumped
async def test_an_unstopped_turn_is_ended_by_stop_now(room: Room) -> None:
    room.plays(RUNS_ON, DONE)
    cell = room.send("run on", strategy="interrupt")
    await cell.said("on")
    cell.stop()
    await cell.over()
    agent = room.agent
    cell.stop(now=True)
    await cell.gone(within=0.1)
    assert not agent.alive and not room.conversation.unstopped
    assert (await room.send("next").gone(within=0.1)).text == "done"
    assert room.remembered == [("run on", ""), ("next", "done")]


@jumped
async def test_a_waiting_turn_that_leaves_does_not_hide_the_unstopped_one(room: Room) -> None:
    room.plays(RUNS_ON, DONE)
    cell = await room.line_up("run on", strategy="interrupt")
    waiting = await room.line_up("next")
    await cell.said("on")
    cell.stop()
    await cell.over()
    waiting.stop()
    await waiting.gone(within=0.1)
    assert room.conversation.unstopped
    room.conversation.stop(None, Reason.USER, True)
    await cell.gone(within=0.1)
    assert not room.conversation.unstopped


@jumped
async def test_strategy_interrupt_never_kills_however_often_it_is_pressed(room: Room) -> None:
    room.plays(RUNS_ON)
    cell = room.send("run on", strategy="interrupt")
    await cell.said("on")
    for _ in range(6):
        cell.stop()
        await anyio.sleep(0.6)
    assert (await cell.over()).outcome is Outcome.UNSTOPPED
    assert room.agent.alive


# The time limit.


@jumped
async def test_the_time_limit_counts_from_the_hand_over_and_not_while_a_person_is_asked(
    room: Room,
) -> None:
    room.plays(Play(Ask(seconds=30, answer="allowed"), SLOW.steps[0]), start=7.0)
    cell = room.send("go", timeout=1.95)
    result = await cell.gone()
    assert (result.outcome, result.reason) == (Outcome.INTERRUPTED, Reason.TIMEOUT)
    assert result.receipt is not None and result.receipt.reason is Reason.TIMEOUT
    assert cell.over_after == pytest.approx(7 + 30 + 1.95, abs=0.02)
    assert result.text == "word " * 20


@jumped
async def test_a_turn_that_is_quicker_than_its_limit(room: Room) -> None:
    room.plays(DONE)
    assert (await room.send("go", timeout=2.0).gone()).receipt is None
    await anyio.sleep(10)
    assert (await room.send("go").gone(within=1)).outcome is Outcome.COMPLETED


# What the agent says to others, or unasked.


@jumped
async def test_events_of_other_turns_are_dropped(room: Room) -> None:
    foreign = [
        Tell(ev.TextDelta(turn_id="other", text="theirs", block="x")),
        Tell(ev.TextSettled(turn_id="nobody", text="theirs", block="y")),
        Tell(ev.UsageReported(turn_id="other", cost_usd=99.0)),
        Tell(ev.AgentFinished(turn_id="other", end="completed")),
        Tell(ev.AgentFinished(turn_id="nobody", end="error", error="theirs")),
    ]
    room.plays(Play(*foreign, Say("ours", pace=1.0), *foreign))
    result = await room.send("go").gone()
    assert (result.outcome, result.text, result.cost_usd) == (Outcome.COMPLETED, "ours", None)
    assert {event.turn_id for event in result.events} == {result.turn_id}


@jumped
async def test_a_terminal_message_without_a_stop_counts_once(room: Room) -> None:
    room.plays(Play("ours", Finish(cost_usd=0.5), Finish("error", "again", 9.9), when="go"), DONE)
    result = await room.send("go").gone()
    assert (result.outcome, result.error, result.cost_usd) == (Outcome.COMPLETED, None, 0.5)
    assert (await room.send("next").gone(within=1)).text == "done"


@pytest.mark.parametrize(
    ("finish", "outcome", "reason"),
    [
        (Finish("error", "no credit"), Outcome.FAILED, None),
        (Finish("max_turns", "used up"), Outcome.FAILED, Reason.MAX_TURNS),
        (Finish("budget", "used up"), Outcome.FAILED, Reason.BUDGET),
        (Finish("aborted"), Outcome.FAILED, None),
    ],
)
@jumped
async def test_the_agents_own_ends(
    room: Room, finish: Finish, outcome: Outcome, reason: Reason | None
) -> None:
    room.plays(Play("half", finish, when="go"), DONE)
    result = await room.send("go").gone(within=1)
    assert (result.outcome, result.reason, result.receipt) == (outcome, reason, None)
    assert result.error == (finish.error or turn._BROKE_OFF)
    assert result.text == "half"
    assert (await room.send("next").gone(within=1)).outcome is Outcome.COMPLETED
    # An error of the agent leaves it warm; one that somebody else interrupted is about to leave.
    assert len(room.backend.connections) == (2 if finish.end == "aborted" else 1)


@jumped
async def test_a_notice_and_a_denied_tool_are_seen(room: Room) -> None:
    room.plays(Play(
        StartTool("t1", input={"command": "rm"}), Ask("Bash", 0.0, "denied"),
        Notify("Bash was denied", "warning"), EndTool("t1", status="denied"), "As you wish.",
    ))  # fmt: skip
    cell = room.send("go")
    result = await cell.gone(within=1)
    assert [(t.name, t.status) for t in result.tools] == [("Bash", "denied")]
    last = cell.view.seen[-1]
    assert [(s.text, s.level) for s in last.segments if s.kind == "notice"] == [
        ("Bash was denied", "warning")
    ]


@jumped
async def test_a_tool_that_a_stopped_agent_still_calls_is_refused(room: Room) -> None:
    late = (Rest(1.5), StartTool("late"), EndTool("late", "it ran"), Rest())
    room.plays(Play("half ", *late, manners=Manners(ends=None)))
    cell = room.send("go")
    await anyio.sleep(1)
    cell.stop()
    result = await cell.gone()
    assert [(t.tool_id, t.status, t.output) for t in result.tools] == [("late", "denied", "")]
