"""One stop of one scripted agent on a jumped clock, and what was seen of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import anyio
from jumped import Cell, Room

from turncell.backends.scripted_steps import EndTool, Play, Say, Spawn, StartTool
from turncell.outcome import Reason, Rung, Survivor
from turncell.procs import listed
from turncell.settings import StopPolicy
from turncell.testing.agents import AGENTS, MOMENTS, cases, least_rung, play
from turncell.testing.promises import Evidence, Pictures
from turncell.testing.suite import StopCase

#: More virtual seconds than any stop may take.
NEVER = 100.0
#: The seconds after which `timeout` stops a turn: every moment is reached by then.
SOON = 3.0
NEIGHBOUR = "tick " * 40
#: What the turn before left running: the second is the agent's own child.
OLD_WORK = Spawn("of an earlier turn", loose=True)
OLD_CHILD = Spawn("of an earlier turn, a child", background=True)
OLD = {OLD_WORK.command, OLD_CHILD.command}
#: Seconds that the end of a kernel leaves, and the routes on which it does.
LEAVE = 2.0
LEAVING = ("unload", "kernel shutdown")


Route = Callable[[Room, Cell], Awaitable[None]]


async def button(room: Room, cell: Cell) -> None:
    cell.stop("user")


async def kernel_interrupt(room: Room, cell: Cell) -> None:
    cell.stop("kernel_interrupt")


async def line(room: Room, cell: Cell) -> None:
    room.conversation.stop(None, Reason.USER, False)


async def line_now(room: Room, cell: Cell) -> None:
    room.conversation.stop(None, Reason.USER, True)


async def timeout(room: Room, cell: Cell) -> None:
    pass  # it was said with the prompt


async def api(room: Room, cell: Cell) -> None:
    cell.stop("api")


async def twice(room: Room, cell: Cell) -> None:
    cell.stop()
    await anyio.sleep(0.5)
    cell.stop()


async def unload(room: Room, cell: Cell) -> None:
    room.nursery.start_soon(partial(room.conversation.leave, LEAVE, spare_earlier=False))


async def shutdown(room: Room, cell: Cell) -> None:
    room.nursery.start_soon(room.conversation.leave, LEAVE)


ROUTES: dict[str, Route] = {
    "button": button,
    "button twice": twice,
    "kernel interrupt": kernel_interrupt,
    "%agent stop": line,
    "%agent stop --now": line_now,
    "timeout": timeout,
    "API": api,
    "unload": unload,
    "kernel shutdown": shutdown,
}

CASES = [
    StopCase(agent, moment, route)
    for agent, moment in cases()
    for route in ROUTES
    # Waiting for an agent to start, or for a person, does not count against a timeout.
    if not (route == "timeout" and moment in ("starting", "question pending"))
]


async def stop(room: Room, case: StopCase) -> Evidence:
    """Bring the agent to the moment, stop it by the route, and go on."""
    kind, starting = AGENTS[case.agent], case.moment == "starting"
    room.plays(
        play(case.agent, case.moment, when="the task"),
        Play("Noted.", StartTool("s"), OLD_WORK, OLD_CHILD, EndTool("s"), when="remember"),
        Play(Say(NEIGHBOUR, pace=1.0), when="neighbour"),
        Play("As you wish.", when="and then"),
    )
    beside = Room(room.nursery, room.clock)
    beside.backend = room.backend
    neighbour = beside.send("neighbour")
    await neighbour.said("tick")
    if starting:
        room.backend.start, room.backend.refuses = (1.0 if kind.refuses else NEVER), kind.refuses
    else:
        await room.send("remember").gone()
    link = room.conversation.link
    assert starting or {p.command for p in link.family.left_running} == OLD
    earlier, session_id = listed(link.family.left_running), room.conversation.session_id
    pictures = Pictures(lambda snapshot: snapshot.now)  # time stands still while it is drawn
    limit = {"timeout": SOON} if case.route == "timeout" else {}
    cell = room.send("the task", view=pictures, **limit)
    await reach(room, cell, case.moment)
    if kind.freezes:
        room.agent.frozen = True
    asked = anyio.current_time()
    await ROUTES[case.route](room, cell)
    over_at = result = None
    with anyio.move_on_after(NEVER):
        result = await cell.over()
        over_at = anyio.current_time()
    warm = result is not None and result.receipt is not None and result.receipt.connection == "warm"
    if case.route == "timeout" and result is not None and result.receipt is not None:
        asked = result.receipt.requested_at
    alive = frozenset(proc.pid for proc in room.backend.processes._actors)
    left = alive_of_turn(room, warm)
    room.backend.start, room.backend.refuses = 0.0, None
    after = None
    with anyio.move_on_after(NEVER if result is not None else 0):
        after = await room.send("and then").gone()
    beside_it = await neighbour.gone()
    known = room.backend.memory.get(session_id, [])
    bound = LEAVE if case.route in LEAVING else StopPolicy().total
    return Evidence(
        name=str(case),
        session_id=session_id,
        bound=bound,
        asked_at=asked,
        over_at=over_at,
        pictures=tuple(pictures.seen),
        result=result,
        left=left,
        earlier=earlier,
        children=tuple(s for s in earlier if s.command == OLD_CHILD.command),
        alive=alive,
        least_rung=expected_rung(case),
        sent=room.backend.prompts.count("the task"),
        withdrawn=kind.manners.withdraws,
        after=after,
        after_text="As you wish.",
        remembers=None if starting else ("remember", "Noted.") in known,
        neighbour=beside_it,
        neighbour_text=NEIGHBOUR,
    )


async def reach(room: Room, cell: Cell, moment: str) -> None:
    """Wait until the turn is there."""
    if moment == "starting":
        await anyio.sleep(0.2)
    with anyio.fail_after(NEVER):
        while moment != "starting" and "the task" not in room.backend.prompts:
            await anyio.sleep(0.01)
        while MOMENTS[moment].opens and not MOMENTS[moment].reached(cell.handle._events):
            await anyio.sleep(0.01)


def alive_of_turn(room: Room, warm: bool) -> tuple[Survivor, ...]:
    """What of the turn lives, by a look at the stage itself. An agent that is kept warm
    and its servers are not the turn's any more."""
    stays = OLD | {"scripted agent", "a server"} if warm else OLD
    first = room.backend.connections[0]  # the neighbour's
    actors = room.backend.processes._actors.items()
    mine = {proc for proc, actor in actors if actor.connection is not first}
    return listed({proc for proc in mine if proc.command not in stays})


def expected_rung(case: StopCase) -> Rung:
    """The rung that will do, by the agent's manners and the clock."""
    policy = StopPolicy()
    if case.route == "%agent stop --now":
        return Rung.KILL
    if case.route in LEAVING:
        policy = policy.hurried(LEAVE)
    if case.route == "button twice":
        policy = replace(policy, ack=0.5, grace=0.0)
    return least_rung(case.agent, case.moment, policy)
