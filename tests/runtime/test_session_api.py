"""The Python API on the real runtime thread, with scripted agents."""

from __future__ import annotations

import _thread
import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest
import trio

from turncell import Outcome, Reason, Session, Turn, TurnFailed, TurnStopped
from turncell import events as ev
from turncell.errors import RuntimeGone, SessionBusy, UsageError
from turncell.outcome import Rung
from turncell.session import book
from turncell.testing import (
    Die,
    Finish,
    Freeze,
    Manners,
    Play,
    Rest,
    Say,
    ScriptedBackend,
    scripted,
)

pytestmark = pytest.mark.timeout(60)

GENEROUS = 20.0  # seconds that only a hang takes
#: The ladder with small steps: 1 s in all.
QUICK = {"ack": 0.2, "grace": 0.2, "sigint": 0.2, "terminate": 0.2, "kill": 0.4}
PLAYS = (
    Play("half ", Rest(), when="half"),
    Play("half ", Freeze(), when="freeze"),
    Play("half ", Rest(2.0), Finish(), when="run on", manners=Manners(ends=None)),
    Play(Say("word " * 20, pace=0.01), when="slow"),
    Play("half ", Die("it broke"), when="die"),
    Play("half ", Finish("error", "no credit"), when="fail"),
)


@pytest.fixture
def agent() -> Iterator[ScriptedBackend]:
    with scripted(*PLAYS) as backend:
        yield backend


@pytest.fixture
def session(agent: ScriptedBackend, request: pytest.FixtureRequest) -> Session:
    """A session of its own for each test: names live as long as the process."""
    return Session(f"t{abs(hash(request.node.nodeid))}", **QUICK)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GENEROUS
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def said(turn: Turn, text: str = "half") -> Turn:
    """Wait until the agent has said it."""
    wait_until(lambda: any(isinstance(e, ev.TextDelta) and text in e.text for e in turn._events))
    return turn


def runtime_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("turncell-runtime")]


# One name is one conversation.


def test_a_name_is_one_conversation(session: Session) -> None:
    twin = Session(session.name)
    assert twin.session_id == session.session_id
    first, second = session.start("slow one"), twin.start("slow two")
    assert [t.result(GENEROUS).session_id for t in (first, second)] == [session.session_id] * 2


def test_a_name_is_one_conversation_for_threads_that_come_at_once(agent: ScriptedBackend) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for n in range(100):
                ids = pool.map(lambda _, n=n: Session(f"race-{n}").session_id, range(8))
                assert len(set(ids)) == 1
    finally:
        sys.setswitchinterval(interval)


def test_prompts_wait_in_line_in_the_order_they_came(
    session: Session, agent: ScriptedBackend
) -> None:
    turns = [session.start(f"slow {n}") for n in range(5)]
    results = [turn.result(GENEROUS) for turn in turns]
    assert agent.prompts == [f"slow {n}" for n in range(5)]
    for turn, result in zip(turns, results, strict=True):
        assert {event.turn_id for event in result.events} == {turn.turn_id}


def test_two_sessions_run_at_once_and_a_stop_hits_one(agent: ScriptedBackend) -> None:
    one, two = Session("one", **QUICK), Session("two", **QUICK)
    first, second = said(one.start("half")), said(two.start("half"))
    one.stop()
    assert first.result(GENEROUS, raise_error=False).outcome is Outcome.INTERRUPTED
    assert not second.done()
    frozen = said(one.start("freeze"))
    frozen.stop()
    began = time.monotonic()
    second.stop()  # the ladder of the other one is no reason to wait
    assert second.result(GENEROUS, raise_error=False).outcome is Outcome.INTERRUPTED
    assert time.monotonic() - began < 0.5
    assert frozen.result(GENEROUS, raise_error=False).outcome is Outcome.KILLED


# Threads.


def test_many_threads_start_and_wait(agent: ScriptedBackend) -> None:
    def work(n: int) -> str:
        return Session(f"many-{n % 3}").start(f"prompt {n}").result(GENEROUS).text

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(work, range(60))) == [f"echo: prompt {n}" for n in range(60)]


def test_a_storm_of_stops_hits_its_own_turns_alone(agent: ScriptedBackend) -> None:
    def work(n: int) -> tuple[int, Outcome]:
        turn = Session(f"storm-{n % 4}", **QUICK).start("slow" if n % 2 else "half")
        for _ in range(20):
            if n % 2 == 0:
                turn.stop()
        result = turn.result(GENEROUS, raise_error=False)
        turn.stop()
        return n, result.outcome

    with ThreadPoolExecutor(8) as pool:
        for n, outcome in pool.map(work, range(64)):
            assert (outcome is Outcome.COMPLETED) == bool(n % 2), n


@pytest.mark.parametrize("lap", range(10))
def test_a_stop_in_the_same_breath_as_the_prompt(
    session: Session, agent: ScriptedBackend, lap: int
) -> None:
    if lap % 2:
        session.start("warm up").result(GENEROUS)
    turn = session.start("half")
    turn.stop()
    result = turn.result(GENEROUS, raise_error=False)
    assert result.outcome is Outcome.INTERRUPTED
    assert session.start("next").result(GENEROUS).text == "echo: next"


def test_a_waiting_thread_is_released_by_a_stop_of_another(session: Session) -> None:
    turn = said(session.start("half"))
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(turn.result, GENEROUS, raise_error=False) for _ in range(4)]
        turn.stop("api")
        results = [future.result(GENEROUS) for future in waiting]
    assert {id(result) for result in results} == {id(results[0])}
    assert results[0].reason is Reason.API and results[0].text == "half "


def test_a_result_that_does_not_come_in_time(session: Session) -> None:
    turn = said(session.start("half"))
    with pytest.raises(TimeoutError):
        turn.result(0.05)
    assert not turn.done() and turn.wait(0.01) is False
    turn.stop()
    assert turn.wait(GENEROUS)


def test_a_kernel_interrupt_while_a_result_is_awaited(session: Session) -> None:
    turn = said(session.start("freeze"))
    # Unlike a signal to the process, this does not break into a wait for a lock.
    presses = [threading.Timer(0.1 * n, _thread.interrupt_main) for n in (1, 2)]
    for press in presses:
        press.start()
    with pytest.raises(TurnStopped) as stopped:
        turn.result()
    for press in presses:
        press.join()
    assert stopped.value.result.reason is Reason.KERNEL_INTERRUPT
    assert stopped.value.result.text == "half "


def test_a_stop_returns_at_once_even_while_the_loop_is_blocked(session: Session) -> None:
    turn = said(session.start("half"))
    blocked, go = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        go.wait(GENEROUS)

    book().portal.soon(block)
    assert blocked.wait(GENEROUS)
    began = time.monotonic()
    for _ in range(10):
        turn.stop()
        session.stop()
    assert time.monotonic() - began < 1.0 and not turn.done()
    go.set()
    assert turn.result(GENEROUS, raise_error=False).outcome is Outcome.INTERRUPTED


def test_a_blocked_loop_does_not_hold_up_those_who_leave(session: Session) -> None:
    said(session.start("half"))
    blocked, go = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        go.wait(GENEROUS)

    book().portal.soon(block)
    assert blocked.wait(GENEROUS)
    began = time.monotonic()
    with pytest.raises(RuntimeGone):
        book().close(0.1)
    assert time.monotonic() - began < 5.0
    go.set()
    book().close()
    assert session.start("next").result(GENEROUS).text == "echo: next"


def test_an_agent_that_cannot_be_closed_keeps_no_other_from_it(
    agent: ScriptedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = [Session(f"closing-{n}") for n in range(3)]
    for each in sessions:
        each.start("hi").result(GENEROUS)

    async def aclose() -> None:
        raise RuntimeError("the adapter is broken")

    agent.connections[0].aclose = aclose  # type: ignore[method-assign]
    book().close()
    assert runtime_threads() == []
    assert [connection.alive for connection in agent.connections] == [False] * 3
    assert "the adapter is broken" in caplog.text


# Loops.


def test_awaiting_on_a_loop_after_the_other(session: Session) -> None:
    for n in range(4):
        result = asyncio.run(session.run(f"asyncio {n}"))
        assert result.text == f"echo: asyncio {n}"
    assert trio.run(session.run, "trio").text == "echo: trio"
    assert anyio.run(session.run, "anyio").text == "echo: anyio"


def test_awaiting_one_turn_on_two_loops_at_once(session: Session) -> None:
    turn = session.start("slow")

    async def wait() -> str:
        return (await turn).text

    with ThreadPoolExecutor(2) as pool:
        texts = [pool.submit(asyncio.run, wait()), pool.submit(trio.run, wait)]
        assert {future.result(GENEROUS) for future in texts} == {"word " * 20}


@pytest.mark.parametrize("run", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)])
def test_a_session_that_is_made_inside_a_loop(
    agent: ScriptedBackend, run: Callable[[Any], str], request: pytest.FixtureRequest
) -> None:
    async def main() -> str:
        async with Session(f"inside-{abs(hash(request.node.nodeid))}") as inside:
            await inside.run("first")
            return (await inside.run("second")).text

    assert run(main()) == "echo: second"


@pytest.mark.filterwarnings("error")
def test_a_waiting_loop_is_left_tidy(session: Session) -> None:
    async def look_at_three_events() -> None:
        turn = session.start("slow")
        seen = 0
        async for _ in turn:
            seen += 1
            if seen == 3:
                break
        await turn

    asyncio.run(look_at_three_events())
    trio.run(look_at_three_events)
    assert session.start("slow")._wakers == set()


def test_an_awaited_turn_answers_at_once(session: Session) -> None:
    """The beat of a waiting loop must not add to each turn."""

    async def main() -> float:
        await session.run("warm up")
        began = time.monotonic()
        for n in range(20):
            await session.run(str(n))
        return time.monotonic() - began

    assert asyncio.run(main()) < 20 * 0.09


# Cancelling.


async def wait_for_half(session: Session) -> None:
    turn = book().turns[-1]
    while not any(isinstance(e, ev.TextDelta) for e in turn._events):
        await anyio.sleep(0.005)


@pytest.mark.parametrize("prompt", ["half", "freeze"])
def test_cancelling_an_asyncio_task_stops_the_turn(session: Session, prompt: str) -> None:
    async def main() -> None:
        task = asyncio.create_task(session.run(prompt))
        await asyncio.sleep(0)
        await wait_for_half(session)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())
    turn = book().turns[-1]
    assert turn.done()  # the ladder was waited for
    result = turn.result(0, raise_error=False)
    assert (result.reason, result.text) == (Reason.API, "half ")
    assert session.start("next").result(GENEROUS).text == "echo: next"


def test_a_time_limit_around_a_run_stops_the_turn(session: Session) -> None:
    async def on_asyncio() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.run("half"), 0.2)

    async def on_trio() -> None:
        with trio.move_on_after(0.2) as scope:
            await session.run("half")
        assert scope.cancelled_caught

    for run in (lambda: asyncio.run(on_asyncio()), lambda: trio.run(on_trio)):
        run()
        assert book().turns[-1].result(0, raise_error=False).reason is Reason.API


def test_cancelling_a_bare_wait_leaves_the_turn_alone(session: Session) -> None:
    turn = session.start("half")

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(turn, 0.2)

    asyncio.run(main())
    assert not turn.done()
    turn.stop()
    turn.result(GENEROUS, raise_error=False)


# Events.


def test_events_end_with_the_end(session: Session) -> None:
    async def main() -> tuple[list[ev.Event], list[ev.Event]]:
        turn = session.start("slow")
        live = [event async for event in turn]
        return live, [event async for event in turn]

    for run in (asyncio.run, lambda coroutine: trio.run(lambda: coroutine)):
        live, again = run(main())
        assert live == again
        assert isinstance(live[-1], ev.TurnEnded) and live[-1].outcome == "completed"
        assert sum(isinstance(event, ev.TurnEnded) for event in live) == 1
        assert "".join(e.text for e in live if isinstance(e, ev.TextDelta)) == "word " * 20


def test_events_of_a_stopped_turn_show_the_stop(session: Session) -> None:
    async def main() -> list[ev.Event]:
        turn = session.start("freeze")
        seen = []
        async for event in turn:
            seen.append(event)
            if isinstance(event, ev.TextDelta):
                turn.stop()
        return seen

    seen = asyncio.run(main())
    rungs = [event.rung for event in seen if isinstance(event, ev.StopProgress)]
    assert rungs == ["interrupt", "sigint", "terminate", "kill"]
    assert isinstance(seen[-1], ev.TurnEnded) and seen[-1].outcome == "killed"


# What is raised.


@pytest.mark.parametrize(
    ("prompt", "error", "outcome"),
    [
        ("die", TurnFailed, Outcome.LOST),
        ("fail", TurnFailed, Outcome.FAILED),
        ("freeze", TurnStopped, Outcome.KILLED),
        ("half", TurnStopped, Outcome.INTERRUPTED),
    ],
)
def test_what_is_raised(
    session: Session, prompt: str, error: type[TurnStopped | TurnFailed], outcome: Outcome
) -> None:
    turn = said(session.start(prompt))
    if error is TurnStopped:
        turn.stop()
    with pytest.raises(error) as raised:
        turn.result(GENEROUS)
    assert raised.value.result.outcome is outcome and raised.value.result.text == "half "
    assert "\n" not in str(raised.value)
    with pytest.raises(error):
        asyncio.run(turn.join())
    assert turn.result(raise_error=False) is raised.value.result


def test_a_run_raises_or_does_not(session: Session) -> None:
    with pytest.raises(TurnFailed, match="no credit"):
        asyncio.run(session.run("fail"))
    result = asyncio.run(session.run("fail", raise_error=False))
    assert (result.outcome, result.error) == (Outcome.FAILED, "no credit")


def test_an_unstopped_turn_and_a_busy_session(session: Session) -> None:
    turn = said(session.start("freeze", strategy="interrupt"))
    turn.stop()
    with pytest.raises(TurnStopped, match="still runs"):
        turn.result(GENEROUS)
    assert turn.done() and turn.running
    with pytest.raises(SessionBusy, match="--now"):
        session.start("next")
    turn.stop(now=True)
    wait_until(lambda: not turn.running)
    wait_until(lambda: not session._conversation.busy)
    assert session.start("next").result(GENEROUS).text == "echo: next"


def test_an_unstopped_turn_that_ends_by_itself(session: Session, agent: ScriptedBackend) -> None:
    turn = said(session.start("run on", strategy="interrupt"))
    session.stop()
    assert turn.result(GENEROUS, raise_error=False).outcome is Outcome.UNSTOPPED
    wait_until(lambda: not session._conversation.busy)
    assert session.start("next").result(GENEROUS).text == "echo: next"
    assert len(agent.connections) == 1


# Words.


@pytest.mark.parametrize("prompt", ["", "   ", "\n\t\n"])
def test_an_empty_prompt_runs_nothing(
    session: Session, agent: ScriptedBackend, prompt: str
) -> None:
    with pytest.raises(UsageError, match="empty"):
        session.start(prompt)
    with pytest.raises(UsageError, match="empty"):
        asyncio.run(session.run(prompt))
    assert agent.prompts == [] and runtime_threads() == []


def test_bad_words_are_refused_before_anything_starts(agent: ScriptedBackend) -> None:
    with pytest.raises(UsageError, match="modell"):
        Session("words", modell="x")
    with pytest.raises(UsageError, match="view2"):
        Session("words").start("hi", view2=None)
    with pytest.raises(UsageError, match="ack"):
        Session("words", ack=-1)
    with pytest.raises(UsageError, match="strategy"):
        Session("words").start("hi", strategy="polite")
    with pytest.raises(UsageError, match="session name"):
        Session("a name with spaces")
    with pytest.raises(ValueError, match="boredom"):
        Session("words").stop("boredom")
    assert agent.prompts == [] and runtime_threads() == []


def test_a_wrong_reason_is_refused_in_every_state(session: Session) -> None:
    turn = session.start("hi")
    turn.result(GENEROUS)
    with pytest.raises(ValueError, match="boredom"):
        turn.stop("boredom")


# The end.


def test_close_ends_the_agent_and_keeps_the_conversation(
    session: Session, agent: ScriptedBackend
) -> None:
    session.start("one").result(GENEROUS)
    before = session.session_id
    session.close()
    session.close()
    assert not agent.connections[0].alive
    session.start("two").result(GENEROUS)
    assert session.session_id == before
    assert [prompt for prompt, _ in agent.memory[before]] == ["one", "two"]


def test_close_stops_what_runs_and_what_waits(session: Session, agent: ScriptedBackend) -> None:
    running, waiting = said(session.start("freeze")), session.start("never sent")
    began = time.monotonic()
    session.close()
    assert time.monotonic() - began < 3.0
    for turn in (running, waiting):
        assert turn.result(0.5, raise_error=False).reason is Reason.SHUTDOWN
    assert agent.prompts == ["freeze"]


def test_with_and_async_with(agent: ScriptedBackend) -> None:
    with Session("with") as session:
        session.start("hi").result(GENEROUS)
    assert not agent.connections[-1].alive

    async def main() -> None:
        async with Session("with") as again:
            await again.run("hi")
            assert agent.connections[-1].alive

    asyncio.run(main())
    assert not agent.connections[-1].alive
    with pytest.raises(KeyError), Session("with") as session:
        session.start("half")
        raise KeyError("from the body")
    assert book().turns[-1].result(GENEROUS, raise_error=False).reason is Reason.SHUTDOWN


def test_closing_the_book_leaves_no_thread_and_it_opens_again(
    session: Session, agent: ScriptedBackend
) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        turn = said(session.start("half"))
        assert runtime_threads()
        book().close()
        assert turn.result(0.1, raise_error=False).reason is Reason.SHUTDOWN
        wait_until(lambda: set(threading.enumerate()) <= before)
        book().close()
        turn.stop()
        session.stop(now=True)
        session.close()
    assert runtime_threads() == []
    assert session.start("next").result(GENEROUS).text == "echo: next"


def test_closing_the_book_under_a_frozen_agent_and_many_waiting_threads(
    agent: ScriptedBackend,
) -> None:
    turns = [Session(f"end-{n}").start("freeze") for n in range(4)]
    for turn in turns:
        said(turn)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(turn.result, raise_error=False) for turn in turns]
        began = time.monotonic()
        book().close()
        assert time.monotonic() - began < 2.8
        assert {future.result(GENEROUS).outcome for future in waiting} == {Outcome.KILLED}


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_closing_the_book_from_two_threads(session: Session) -> None:
    said(session.start("half"))
    threads = [threading.Thread(target=book().close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GENEROUS)
        assert not thread.is_alive()
    wait_until(lambda: runtime_threads() == [])


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_prompts_while_the_book_is_closed_again_and_again(session: Session) -> None:
    over = threading.Event()

    def close() -> None:
        while not over.is_set():
            book().close()

    closer = threading.Thread(target=close)
    closer.start()
    outcomes: list[Outcome | None] = []
    try:
        for n in range(30):
            try:
                turn = session.start(f"slow {n}")
            except RuntimeGone:  # closed in the very moment: said at once, not waited for
                outcomes.append(None)
                continue
            turn.stop()
            outcomes.append(turn.result(GENEROUS, raise_error=False).outcome)
    finally:
        over.set()
        closer.join(GENEROUS)
    assert len(outcomes) == 30


def test_a_stuck_view_keeps_nobody_from_leaving(session: Session) -> None:
    go = threading.Event()

    class Stuck:
        def show(self, snapshot: object) -> None:
            go.wait(GENEROUS)

    turn = said(session.start("half", view=Stuck()))
    began = time.monotonic()
    book().close()
    assert time.monotonic() - began < 3.5
    assert turn.result(0.1, raise_error=False).outcome is Outcome.INTERRUPTED
    go.set()


# Warm agents.


def test_warm_agents_are_bounded(agent: ScriptedBackend) -> None:
    limit = book().max_warm
    for n in range(limit + 2):
        Session(f"warm-{n}").start("hi").result(GENEROUS)

    def warm() -> int:
        return sum(connection.alive for connection in agent.connections)

    wait_until(lambda: warm() == limit)
    assert [c.alive for c in agent.connections] == [False, False] + [True] * limit
    book().max_warm = 0
    try:
        Session("warm-0").start("hi").result(GENEROUS)
        wait_until(lambda: warm() == 0)
    finally:
        book().max_warm = limit


def test_the_policy_of_a_stop_is_the_callers(session: Session) -> None:
    turn = said(session.start("freeze", ack=0.1, grace=0.0, sigint=0.0, terminate=0.0, kill=5.0))
    began = time.monotonic()
    turn.stop()
    result = turn.result(GENEROUS, raise_error=False)
    assert time.monotonic() - began < 1.0
    assert result.receipt is not None and result.receipt.rung is Rung.KILL
    assert turn.bound >= 5.1
