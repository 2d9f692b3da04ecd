"""How an agent is got, lost and got back: starts, resumes, deaths, changed options."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from jumped import Cell, Pictures, Room, jumped, step_aside

from turncell import events as ev
from turncell.backends.base import Hangup, Prompt
from turncell.backends.scripted_steps import (
    Die,
    EndTool,
    Freeze,
    Manners,
    Play,
    Rest,
    Say,
    Spawn,
    StartTool,
)
from turncell.errors import SettingError
from turncell.outcome import Outcome, Reason, Rung
from turncell.procs import Verdict

DONE = Play("done")
HALF = Play("half ", Rest(), when="half")
DEAF = frozenset({"hang_up", "sigint", "sigterm"})


async def next_is_exact(room: Room, agents: int) -> None:
    """The next turn works, in the same conversation, and nothing of older agents is left."""
    session_id = room.conversation.session_id
    result = await room.send("next").gone(within=1)
    assert (result.outcome, result.text, result.receipt) == (Outcome.COMPLETED, "done", None)
    assert result.session_id == session_id
    assert {event.turn_id for event in result.events} == {result.turn_id}
    assert len(room.backend.connections) == agents
    assert all_processes(room) == room.backend.processes.tree(room.agent.pid)


def all_processes(room: Room) -> set[object]:
    return set(room.backend.processes._actors)


# A stop of a start.


@pytest.mark.parametrize("after", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("now", [False, True])
@jumped
async def test_a_stop_while_the_agent_starts(room: Room, after: float, now: bool) -> None:
    room.plays(DONE, start=1.0)
    cell = await room.line_up("go")
    await anyio.sleep(after)
    cell.stop(now=now)
    result = await cell.gone(within=0.1)
    assert (result.outcome, result.text, result.error) == (Outcome.INTERRUPTED, "", None)
    assert result.receipt is not None and result.receipt.survivors == []
    assert all_processes(room) == set()
    assert room.backend.prompts == []
    room.plays(DONE)
    await next_is_exact(room, agents=1)


@pytest.mark.parametrize("laps", range(12))
@jumped
async def test_a_stop_at_the_moment_the_agent_is_ready(room: Room, laps: int) -> None:
    room.plays(DONE, HALF, start=1.0)
    cell = await room.line_up("half")
    await anyio.sleep(1.0)
    for _ in range(laps):
        await anyio.sleep(0)
    cell.stop()
    result = await cell.gone(within=0.1)
    assert result.outcome in (Outcome.INTERRUPTED, Outcome.KILLED, Outcome.COMPLETED)
    room.plays(DONE)
    assert (await room.send("next").gone(within=1)).text == "done"


@jumped
async def test_a_start_that_fails_while_it_is_stopped(room: Room) -> None:
    room.plays(start=1.0, refuses="no login")
    cell = await room.line_up("go")
    await anyio.sleep(1.0)
    cell.stop()
    result = await cell.gone(within=0.1)
    assert result.outcome in (Outcome.INTERRUPTED, Outcome.FAILED)
    room.plays(DONE)
    await next_is_exact(room, agents=1)


@jumped
async def test_a_start_that_fails_says_why(room: Room) -> None:
    room.plays(start=1.0, refuses="no login")
    result = await room.send("go").gone(within=1.1)
    assert (result.outcome, result.receipt) == (Outcome.FAILED, None)
    assert result.error == "The agent could not start (exit code 1): no login"
    room.plays(DONE)
    await next_is_exact(room, agents=1)


@jumped
async def test_those_behind_a_start_that_fails_get_their_own_try(room: Room) -> None:
    room.plays(start=1.0, refuses="no login")
    cells = [await room.line_up(str(n)) for n in range(3)]
    await cells[0].gone()
    room.plays(DONE)
    assert [(await cell.gone(within=3)).outcome for cell in cells] == [
        Outcome.FAILED, Outcome.COMPLETED, Outcome.COMPLETED,
    ]  # fmt: skip


@jumped
async def test_a_backend_that_cannot_be_loaded_ends_as_an_outcome(room: Room) -> None:
    def load() -> None:
        raise ImportError("no SDK")

    room.load = load
    result = await room.send("go").gone(within=0.1)
    assert result.outcome is Outcome.FAILED and "no SDK" in (result.error or "")
    room.load = lambda: room.backend
    room.plays(DONE)
    await next_is_exact(room, agents=1)


# Deaths.


@pytest.mark.parametrize("opens", [True, False])
@jumped
async def test_an_agent_that_dies_before_it_said_anything(room: Room, opens: bool) -> None:
    room.plays(Play(Rest(0.5), Die("out of memory"), when="go", opens=opens), DONE)
    result = await room.send("go").gone(within=2)
    assert (result.outcome, result.error) == (Outcome.LOST, "out of memory")
    assert (result.receipt, result.text) == (None, "")
    await next_is_exact(room, agents=2)


@jumped
async def test_an_agent_that_dies_in_a_tool_keeps_the_text_and_takes_its_tools_along(
    room: Room,
) -> None:
    room.plays(Play("half ", StartTool("t"), Spawn("a shell"), Spawn("a daemon", loose=True),
                    Die(), when="go"), DONE)  # fmt: skip
    result = await room.send("go").gone(within=2)
    assert (result.outcome, result.text) == (Outcome.LOST, "half ")
    assert [tool.status for tool in result.tools] == ["cancelled"]
    assert all_processes(room) == set()
    await next_is_exact(room, agents=2)


@jumped
async def test_an_agent_that_dies_between_turns(room: Room) -> None:
    room.plays(DONE)
    await next_is_exact(room, agents=1)
    room.agent.die("killed by somebody")
    await next_is_exact(room, agents=2)
    room.agent.die("killed by somebody")
    cell = room.send("next")
    assert (await cell.gone(within=1)).error is None


@jumped
async def test_a_stop_of_an_agent_that_just_died(room: Room) -> None:
    room.plays(HALF, DONE)
    for laps in range(8):
        cell = room.send("half")
        await cell.said("half")
        room.agent.die("gone")
        for _ in range(laps):
            await anyio.sleep(0)
        cell.stop()
        result = await cell.gone(within=0.1)
        assert result.outcome in (Outcome.LOST, Outcome.KILLED)
        assert result.text == "half "
        assert (await room.send("next").gone(within=1)).text == "done"


@jumped
async def test_an_agent_that_dies_on_each_rung_of_its_stop(room: Room) -> None:
    room.plays(Play("half ", Freeze(), when="half"), DONE)
    for pause, rung in ((1.0, Rung.INTERRUPT), (6.0, Rung.SIGINT), (8.0, Rung.TERMINATE)):
        cell = room.send("half")
        await cell.said("half")
        cell.stop()
        await anyio.sleep(pause)
        room.agent.die("gone")
        result = await cell.gone(within=0.1)
        assert (result.outcome, result.text) == (Outcome.KILLED, "half ")
        assert result.receipt is not None and result.receipt.rung is rung
        assert (await room.send("next").gone(within=1)).text == "done"


@jumped
async def test_a_hang_up_said_twice_or_of_an_older_agent_hits_nobody(room: Room) -> None:
    room.plays(Play("half ", Die(), when="die"), Play(Say("word " * 10, pace=0.1)))
    await room.send("die").gone(within=2)
    old = room.agent
    cell = room.send("go on")
    await cell.said("word")
    old._deliver(Hangup("again"))
    result = await cell.gone(within=2)
    assert (result.outcome, result.error) == (Outcome.COMPLETED, None)


@pytest.mark.parametrize("error", [BrokenPipeError("full"), SettingError("too long")])
@jumped
async def test_an_agent_that_will_not_take_the_prompt(room: Room, error: Exception) -> None:
    room.plays(DONE)
    await next_is_exact(room, agents=1)

    async def send(prompt: Prompt) -> None:
        raise error

    room.agent.send = send  # type: ignore[method-assign]
    result = await room.send("go").gone(within=2)
    assert result.outcome in (Outcome.LOST, Outcome.FAILED)
    assert result.error == str(error)
    await next_is_exact(room, agents=2)


@jumped
async def test_an_agent_that_cannot_even_be_let_go(room: Room) -> None:
    room.plays(HALF, DONE)
    cell = room.send("half")
    await cell.said("half")

    async def aclose() -> None:
        raise RuntimeError("the adapter is broken")

    room.agent.aclose = aclose  # type: ignore[method-assign]
    cell.stop(now=True)
    assert (await cell.gone(within=0.1)).outcome is Outcome.KILLED
    await next_is_exact(room, agents=2)


@jumped
async def test_an_agent_that_is_never_done_being_let_go(room: Room) -> None:
    room.plays(HALF, DONE)
    cell = room.send("half")
    await cell.said("half")
    room.agent.aclose = anyio.sleep_forever  # type: ignore[method-assign]
    cell.stop(now=True)
    assert (await cell.over(within=0.1)).outcome is Outcome.KILLED
    result = await room.send("next").gone(within=2)
    assert result.text == "done"


@jumped
async def test_processes_that_cannot_be_looked_at(room: Room) -> None:
    room.plays(Play("half ", Freeze(), when="half"), DONE)
    cell = room.send("half")
    await cell.said("half")
    clear, go = room.backend.processes.clear, threading.Event()

    def stuck(*args: Any, **options: Any) -> Verdict:
        step_aside()
        go.wait(30)
        return Verdict()

    room.backend.processes.clear = stuck  # type: ignore[method-assign]
    cell.stop()
    result = await cell.gone()
    assert cell.stop_took == pytest.approx(10.5, abs=0.02)
    assert result.receipt is not None and result.receipt.reaped_after is None
    assert "nothing left" not in str(result.receipt)
    assert await room.leave() <= 2.05
    go.set()
    room.backend.processes.clear = clear  # type: ignore[method-assign]
    assert (await room.send("next").gone(within=1)).text == "done"


@jumped
async def test_a_fault_of_ours_ends_the_turn_and_the_agent(room: Room) -> None:
    room.plays(HALF, DONE)
    cell = room.send("half")
    await cell.said("half")

    async def interrupt() -> None:
        raise KeyError("a bug")

    agent = room.agent
    agent.interrupt = interrupt  # type: ignore[assignment, method-assign]
    cell.stop()
    result = await cell.gone(within=4)
    assert result.outcome is Outcome.FAILED and "a bug" in (result.error or "")
    assert result.text == "half "
    assert not agent.alive
    await next_is_exact(room, agents=2)


@jumped
async def test_whoever_waits_is_told_when_the_loop_ends_under_the_turn(room: Room) -> None:
    room.plays(HALF)
    cells = [await room.line_up(p) for p in ("half", "waiting")]
    await cells[0].said("half")
    room.cut_off()
    for cell in cells:
        result = await cell.over(within=0.1)
        assert result.outcome is Outcome.FAILED and cell.handle.done()


# Sessions.


async def ask(room: Room, prompt: str = "go", **options: object) -> Cell:
    cell = room.send(prompt, **options)
    await cell.gone(within=5)
    return cell


@jumped
async def test_a_session_that_cannot_be_resumed_leaves_all_as_it_was(room: Room) -> None:
    room.plays(DONE)
    await ask(room)
    before, agent = room.conversation.session_id, room.agent
    result = await (await ask(room, resume="no-such-id")).over()
    assert result.outcome is Outcome.FAILED and "no-such-id" in (result.error or "")
    assert room.conversation.session_id == before and agent.alive
    await next_is_exact(room, agents=1)


@jumped
async def test_a_session_that_can_be_resumed_becomes_the_one(room: Room) -> None:
    room.plays(DONE)
    room.backend.memory["known"] = [("hello", "there")]
    await ask(room)
    old = room.agent
    result = await (await ask(room, "second", resume="known")).over()
    assert result.session_id == room.conversation.session_id == "known"
    assert room.remembered == [("hello", "there"), ("second", "done")]
    assert not old.alive and room.agent.launch.opened and room.agent.launch.exact
    await next_is_exact(room, agents=2)


@jumped
async def test_a_resume_stopped_in_its_start_leaves_all_as_it_was(room: Room) -> None:
    room.plays(DONE)
    await ask(room)
    before = room.conversation.session_id
    room.plays(DONE, start=5.0)
    room.backend.memory["known"] = []
    cell = room.send("go", resume="known")
    await anyio.sleep(1)
    cell.stop()
    await cell.gone(within=0.1)
    assert room.conversation.session_id == before
    await next_is_exact(room, agents=1)


@jumped
async def test_a_new_session_forgets_the_old_one_and_closes_its_agent(room: Room) -> None:
    room.plays(DONE)
    first = await (await ask(room)).over()
    second = await (await ask(room, new=True)).over()
    assert first.session_id != second.session_id == room.conversation.session_id
    assert room.remembered == [("go", "done")]
    await next_is_exact(room, agents=2)


@jumped
async def test_new_sessions_in_a_row_leave_no_agent_behind(room: Room) -> None:
    room.plays(Play(Say("word " * 5, pace=0.1)))
    cells = [await room.line_up(str(n), new=True) for n in range(4)]
    results = [await cell.gone() for cell in cells]
    assert len({result.session_id for result in results}) == 4
    assert room.conversation.session_id == results[-1].session_id
    assert [agent.alive for agent in room.backend.connections] == [False, False, False, True]
    assert len(all_processes(room)) == 1


@pytest.mark.parametrize("named", [{"new": True}, {"resume": "known"}])
@jumped
async def test_a_new_session_taken_out_of_the_line_changes_nothing(
    room: Room, named: dict[str, object]
) -> None:
    room.plays(Play(Say("word " * 10, pace=0.1)))
    room.backend.memory["known"] = []
    before = room.conversation.session_id
    running = await room.line_up("one")
    waiting = await room.line_up("two", **named)
    behind = await room.line_up("three")
    await running.said("word")
    waiting.stop()
    await waiting.gone(within=0.1)
    results = [await cell.gone() for cell in (running, behind)]
    assert [result.outcome for result in results] == [Outcome.COMPLETED] * 2
    assert {result.session_id for result in results} == {before}
    assert room.conversation.session_id == before
    assert len(room.backend.connections) == 1


@pytest.mark.parametrize("laps", range(12))
@jumped
async def test_a_new_session_taken_back_as_its_place_comes(room: Room, laps: int) -> None:
    room.plays(Play(Say("word " * 10, pace=0.1), when="one"), DONE)
    before = room.conversation.session_id
    running = await room.line_up("one")
    waiting = await room.line_up("two", new=True)
    await anyio.sleep(1.0)
    for _ in range(laps):
        await anyio.sleep(0)
    waiting.stop()
    result = await waiting.gone(within=0.2)
    await running.gone(within=0.1)
    assert result.outcome is not Outcome.FAILED
    if len(room.backend.connections) == 1:  # it never got as far as an agent
        assert room.conversation.session_id == before
    after = await room.send("next").gone(within=1)
    assert after.session_id == room.conversation.session_id
    assert len(all_processes(room)) == 1


@jumped
async def test_a_session_asked_for_before_a_turn_that_is_taken_back_is_kept(room: Room) -> None:
    room.plays(Play(Say("word " * 10, pace=0.1), when="one"), DONE)
    running = await room.line_up("one")
    room.conversation.renew()  # as `%agent new` does
    wanted = room.conversation.session_id
    waiting = await room.line_up("two")
    waiting.stop()
    await waiting.gone(within=0.1)
    first = await running.gone()
    assert first.session_id != wanted == room.conversation.session_id
    assert (await room.send("next").gone(within=1)).session_id == wanted
    assert len(all_processes(room)) == 1


@jumped
async def test_a_resume_that_fails_does_not_drag_along_those_behind_it(room: Room) -> None:
    room.plays(DONE)
    before = await (await ask(room)).over()
    cells = [await room.line_up("two", resume="no-such-id"), await room.line_up("three")]
    results = [await cell.gone() for cell in cells]
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.COMPLETED]
    assert results[1].session_id == before.session_id
    await next_is_exact(room, agents=1)


@jumped
async def test_a_session_is_ours_or_not_when_its_turn_is_over(room: Room) -> None:
    room.plays(DONE)
    room.backend.memory["known"] = []
    await ask(room)
    before = room.conversation.session_id
    for named, after in (("no-such-id", before), ("known", "known")):
        cell = room.send("go", resume=named)
        await cell.over()  # not `gone`: who waits may look at once
        assert room.conversation.session_id == after
        await cell.gone()


@jumped
async def test_a_lost_memory_is_said(room: Room) -> None:
    room.plays(DONE)
    await ask(room)
    room.backend.memory.clear()
    room.agent.die("gone")
    view = Pictures()
    result = await (await ask(room, view=view)).over()
    assert result.outcome is Outcome.COMPLETED
    notices = [s.text for s in view.seen[-1].segments if s.kind == "notice"]
    assert len(notices) == 1 and "does not remember" in notices[0]


@jumped
async def test_changed_options_reopen_the_same_session(room: Room) -> None:
    room.plays(DONE, Play())
    for model in (None, "a", "a", "b"):
        await ask(room, model=model)
        await ask(room, model=model, timeout=50.0, ack=1.0)  # no matter of the process
    assert [agent.launch.settings.model for agent in room.backend.connections] == [None, "a", "b"]
    assert len(room.remembered) == 8
    assert len(all_processes(room)) == 1


@pytest.mark.parametrize("after", [0.0, 0.5, 1.4, 1.6, 2.2])
@jumped
async def test_a_stop_while_the_agent_with_other_options_will_not_leave(
    room: Room, after: float
) -> None:
    room.plays(Play("done", manners=Manners(ignores=DEAF)))
    await ask(room)
    cell = await room.line_up("go", model="a")
    await anyio.sleep(after)
    cell.stop()
    result = await cell.gone(within=3.6)
    assert (result.outcome, result.text) == (Outcome.INTERRUPTED, "")
    assert all_processes(room) == set()
    await next_is_exact(room, agents=2)


@jumped
async def test_a_stop_while_the_agent_with_other_options_leaves(room: Room) -> None:
    room.plays(Play("done", manners=Manners(leaving=1.0)))
    await ask(room)
    cell = await room.line_up("go", model="a")
    await anyio.sleep(0.5)
    cell.stop()
    result = await cell.gone(within=0.6)
    assert result.outcome is Outcome.INTERRUPTED and room.backend.prompts == ["go"]
    await next_is_exact(room, agents=2)


@jumped
async def test_changed_options_and_an_agent_that_will_not_leave(room: Room) -> None:
    room.plays(Play("done", manners=Manners(ignores=DEAF)))
    await ask(room)
    cell = room.send("go", model="a")
    result = await cell.gone(within=5)
    assert result.outcome is Outcome.COMPLETED
    assert cell.over_after == pytest.approx(1.5 + 0.75, abs=0.1)
    assert len(all_processes(room)) == 1


# The idle limit.


@jumped
async def test_an_unused_agent_is_closed(room: Room) -> None:
    room.plays(DONE)
    await ask(room)
    room.nursery.start_soon(room.conversation.close_if_idle, 100.0)
    await anyio.sleep(99)
    assert room.agent.alive
    await anyio.sleep(2)
    assert not room.agent.alive and all_processes(room) == set()
    await next_is_exact(room, agents=2)


@jumped
async def test_the_idle_limit_counts_from_the_last_use(room: Room) -> None:
    room.plays(Play(Say("word " * 10, pace=1.0)))

    async def conduct_then_idle(cell: Cell) -> None:
        await cell.gone()
        await room.conversation.close_if_idle(100.0)

    cells = [await room.line_up(str(n)) for n in range(3)]
    for cell in cells:
        room.nursery.start_soon(conduct_then_idle, cell)
    await cells[-1].gone()
    await anyio.sleep(95)  # more than 100 s since the first two were over
    assert room.agent.alive
    await anyio.sleep(6)
    assert not room.agent.alive


@pytest.mark.parametrize("laps", range(10))
@jumped
async def test_a_prompt_that_comes_while_the_agent_is_being_closed(room: Room, laps: int) -> None:
    room.plays(DONE)
    await ask(room)
    room.nursery.start_soon(room.conversation.link.close_unused)
    for _ in range(laps):
        await anyio.sleep(0)
    result = await (await ask(room, "next")).over()
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "done")
    assert room.agent.alive and len(all_processes(room)) == 1


@jumped
async def test_what_the_agent_says_between_turns_reaches_no_turn(room: Room) -> None:
    room.plays(DONE)
    first = await (await ask(room)).over()
    for event in (
        ev.TextDelta(turn_id=first.turn_id, text="late", block="x"),
        ev.AgentFinished(turn_id=first.turn_id, end="completed"),
        ev.Notice(turn_id="nobody", text="a background task ended"),
    ):
        room.agent.deliver(event)
    await next_is_exact(room, agents=1)


@jumped
async def test_a_tool_that_ends_after_its_turn_was_stopped_changes_nothing(room: Room) -> None:
    room.plays(HALF, Play(StartTool("t"), Rest(1.0), EndTool("t"), "done"))
    cell = room.send("half")
    await cell.said("half")
    cell.stop()
    stopped = await cell.gone(within=0.1)
    late = ev.ToolEnded(turn_id=stopped.turn_id, tool_id="t", status="failed")
    cell = room.send("next")
    await anyio.sleep(0.5)
    room.agent.deliver(late)
    result = await cell.gone()
    assert [tool.status for tool in result.tools] == ["done"]
    assert result.reason is None and stopped.reason is Reason.USER
