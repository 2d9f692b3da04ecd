"""The kernel leaves: from every state within 2 s, with nothing left behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
from jumped import Cell, Room, StuckView, jumped

from turncell.backends.scripted_steps import (
    Ask,
    EndTool,
    Freeze,
    Manners,
    Play,
    Rest,
    Say,
    Spawn,
    StartTool,
)
from turncell.outcome import Outcome, Reason

DEAF = frozenset({"hang_up", "sigint", "sigterm"})
RUNS_ON = Manners(ends=None)
LIMIT = 2.0
SLACK = 0.05  # the line is looked at every 10 ms

Scene = Callable[[Room], Awaitable[list[Cell]]]
SCENES: dict[str, Scene] = {}


def scene(make: Scene) -> Scene:
    SCENES[make.__name__.replace("_", " ")] = make
    return make


async def running(
    room: Room, *steps: object, manners: Manners | None = None, **options: object
) -> Cell:
    room.plays(Play("half ", *(steps or (Rest(),)), manners=manners))  # type: ignore[arg-type]
    cell = await room.line_up("go", **options)
    await cell.said("half")
    return cell


@scene
async def never_used(room: Room) -> list[Cell]:
    return []


@scene
async def idle_and_warm(room: Room) -> list[Cell]:
    room.plays(Play("done"))
    await room.send("go").gone()
    return []


@scene
async def idle_and_deaf(room: Room) -> list[Cell]:
    room.plays(Play("done", manners=Manners(ignores=DEAF)))
    await room.send("go").gone()
    return []


@scene
async def idle_and_slow_to_leave(room: Room) -> list[Cell]:
    room.plays(Play("done", manners=Manners(leaving=60.0)))
    await room.send("go").gone()
    return []


@scene
async def starting(room: Room) -> list[Cell]:
    room.plays(start=100.0)
    cell = room.send("go")
    await anyio.sleep(1)
    return [cell]


@scene
async def text_is_streaming(room: Room) -> list[Cell]:
    return [await running(room, Say("word " * 100, pace=0.5))]


@scene
async def a_question_is_open(room: Room) -> list[Cell]:
    return [await running(room, Ask(), Rest())]


@scene
async def acks_and_runs_on(room: Room) -> list[Cell]:
    return [await running(room, manners=RUNS_ON)]


@scene
async def frozen(room: Room) -> list[Cell]:
    return [await running(room, Freeze())]


@scene
async def deaf_to_all_but_a_kill(room: Room) -> list[Cell]:
    return [await running(room, manners=Manners(ack=None, ends=None, ignores=DEAF))]


@scene
async def slow_to_leave(room: Room) -> list[Cell]:
    return [await running(room, manners=Manners(ack=None, ends=None, leaving=60.0))]


@scene
async def being_stopped_for_a_moment(room: Room) -> list[Cell]:
    cell = await running(room, Freeze())
    cell.stop()
    await anyio.sleep(0.1)
    return [cell]


@scene
async def being_stopped_and_almost_done_with_the_first_rung(room: Room) -> list[Cell]:
    cell = await running(room, Freeze())
    cell.stop()
    await anyio.sleep(4.9)
    return [cell]


@scene
async def being_stopped_on_the_kill_rung(room: Room) -> list[Cell]:
    cell = await running(room, Freeze(), strategy="kill")
    cell.stop()
    await anyio.sleep(1.99)
    return [cell]


@scene
async def stopped_and_settling(room: Room) -> list[Cell]:
    cell = await running(room, manners=Manners(ack=None))  # its ack is still awaited
    cell.stop()
    await anyio.sleep(0.5)
    return [cell]


@scene
async def never_to_be_killed(room: Room) -> list[Cell]:
    return [await running(room, Freeze(), strategy="interrupt")]


@scene
async def unstopped(room: Room) -> list[Cell]:
    cell = await running(room, Freeze(), strategy="interrupt")
    cell.stop()
    assert (await cell.over()).outcome is Outcome.UNSTOPPED
    return [cell]


@scene
async def three_in_line(room: Room) -> list[Cell]:
    cell = await running(room, Freeze())
    return [cell, await room.line_up("two"), await room.line_up("three")]


@scene
async def in_a_session_just_begun(room: Room) -> list[Cell]:
    room.plays(Play("done"))
    await room.send("go").gone()
    return [await running(room, Freeze(), new=True)]


@scene
async def with_a_stuck_view(room: Room) -> list[Cell]:
    return [await running(room, Freeze(), view=StuckView())]


@pytest.mark.parametrize("make", SCENES.values(), ids=SCENES)
@jumped
async def test_the_kernel_leaves(room: Room, make: Scene) -> None:
    cells = await make(room)
    before = [cell.over_after for cell in cells]
    assert await room.leave(LIMIT) <= LIMIT + SLACK
    room.cut_off()
    for cell, over_after in zip(cells, before, strict=True):
        result = await cell.over(within=0.1)
        if over_after is None and result.reason is not Reason.USER:
            assert result.reason is Reason.SHUTDOWN
        if result.outcome is not Outcome.UNSTOPPED:
            assert result.outcome in (Outcome.INTERRUPTED, Outcome.KILLED)
        assert result.receipt is not None and result.receipt.survivors == []
    assert [agent.pid for agent in room.backend.connections if agent.alive] == []
    assert (
        room.backend.processes.tree(room.agent.pid if room.backend.connections else None) == set()
    )


@jumped
async def test_leaving_twice_and_after_everything_is_harmless(room: Room) -> None:
    cell = await running(room, Freeze())
    async with anyio.create_task_group() as group:
        group.start_soon(room.leave)
        group.start_soon(room.leave)
    await cell.gone(within=0.1)
    assert await room.leave() <= SLACK
    room.plays(Play("as ever"))
    assert (await room.send("go").gone(within=1)).text == "as ever"


@jumped
async def test_an_agent_that_nothing_can_kill_is_named(room: Room) -> None:
    cell = await running(room, Freeze(), manners=Manners(ignores=frozenset({"sigkill"})))
    assert await room.leave() <= LIMIT + SLACK
    result = await cell.over(within=0.1)
    assert result.receipt is not None
    assert [s.command for s in result.receipt.survivors] == ["scripted agent"]


# What the turn started besides.


@jumped
async def test_a_polite_stop_ends_the_tools_and_spares_the_servers_and_older_work(
    room: Room,
) -> None:
    room.plays(
        Play(
            Spawn("a server", mcp=True),
            Spawn("old work", loose=True),
            StartTool("t"),
            EndTool("t"),
            when="first",
        ),
        Play("half ", Spawn("a shell"), Spawn("a daemon", loose=True), Rest(), when="second"),
    )
    await room.send("first, and use a tool").gone()
    cell = room.send("second")
    await cell.said("half")
    cell.stop()
    result = await cell.gone(within=1)
    assert result.receipt is not None
    left = {p.command for p in room.backend.processes.marked(room.agent.launch.token)}
    assert left == {"scripted agent", "a server", "old work"}
    assert [s.command for s in result.receipt.spared] == ["old work"]
    assert result.receipt.survivors == []


@jumped
async def test_a_turn_that_comes_while_the_session_is_closed_is_left_alone(room: Room) -> None:
    room.plays(Play(Say("word " * 50, pace=0.1), when="slow"), Play("done"))
    cell = room.send("slow")
    await cell.said("word")
    room.nursery.start_soon(room.conversation.leave, 2.0)
    await cell.over()
    result = await room.send("next").gone()
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "done")


@jumped
async def test_a_stop_that_names_no_turn_spares_the_one_that_waits(room: Room) -> None:
    room.plays(Play(Say("word " * 50, pace=0.1), when="slow"), Play("done"))
    cell = await room.line_up("slow")
    behind = await room.line_up("next")
    await cell.said("word")
    for _ in range(3):
        room.conversation.stop(None, Reason.USER, False)
        await anyio.sleep(0)
    assert (await cell.gone()).outcome is Outcome.INTERRUPTED
    assert (await behind.gone()).outcome is Outcome.COMPLETED
