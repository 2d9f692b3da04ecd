"""One turn: every state x stimulus, whose events count, how it ends, what is on the receipt."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from enum import Enum
from typing import Any

import pytest

from turncell import events as ev
from turncell import stimuli as do
from turncell.ladder import Act, IllegalMove, StopState
from turncell.outcome import Outcome, Reason, Rung, StopReceipt, Survivor
from turncell.questions import Answer, Verdict
from turncell.settings import StopPolicy, Strategy
from turncell.turn import Order, Turn, TurnState

NEVER_KILL = StopPolicy(strategy=Strategy.INTERRUPT)
HURRIED = StopPolicy().hurried(2.0)


def heard(kind: type[ev.Event], turn_id: str = "t", **fields: Any) -> do.Heard:
    return do.Heard(kind(turn_id=turn_id, **fields))


def finished(end: str = "completed", turn_id: str = "t", error: str | None = None) -> do.Heard:
    return heard(ev.AgentFinished, turn_id, end=end, error=error)


def asked(question_id: str = "q") -> do.Heard:
    return heard(ev.QuestionAsked, question_id=question_id, tool="Bash")


def settled(question_id: str = "q") -> do.Heard:
    return heard(ev.QuestionSettled, question_id=question_id, answer="allowed")


TEXT = heard(ev.TextDelta, text="hello", block="b")
STOP = do.StopAsked(Reason.USER)
NOW = do.StopAsked(Reason.USER, force=True)
RUN = (do.Begin(), do.Ready())

STIMULI = {
    "begin": do.Begin(),
    "ready": do.Ready(),
    "start_failed": do.StartFailed("no agent"),
    "text": TEXT,
    "foreign": finished(turn_id="another"),
    "asked": asked("q2"),
    "settled": settled(),
    "answered": do.Answered("q", Answer(Verdict.ONCE)),
    "finished": finished(),
    "stop": STOP,
    "stop_now": NOW,
    "hurry": do.Hurry(HURRIED),
    "acked": do.Acked(),
    "withdrawn": do.Acked(withdrawn=True),
    "not_acked": do.NotAcked(),
    "gone": do.Gone("died"),
    "cleared": do.Cleared(),
    "tick": do.Tick(),
}

#: How a turn comes into each situation: its state, and where its ladder is.
PATHS = {
    "new": (),
    "starting": (do.Begin(),),
    "running": RUN,
    "waiting": (*RUN, asked()),
    "clearing": (*RUN, do.Gone("died")),
    "ended": (*RUN, finished()),
    "stopping": (*RUN, STOP),
    "start_stopped": (do.Begin(), STOP),
    "reaping": (*RUN, STOP, do.Gone()),
}

#: situation -> stimulus -> orders. ">" goes to a state, "!" is illegal, "." does nothing.
#: Every stimulus that a row does not name does nothing.
GRID = {
    "new": """
        begin >starting start | start_failed >clearing reap | stop >ended release
        stop_now >ended release | hurry >ended release
        acked ! | withdrawn ! | not_acked !""",
    "starting": """
        ready >running send | start_failed >clearing reap
        stop refuse terminate | stop_now refuse kill | hurry refuse terminate
        acked ! | withdrawn ! | not_acked !""",
    "running": """
        start_failed >clearing reap | asked >waiting | finished >ended release
        answered answer | stop refuse interrupt | stop_now refuse kill | hurry refuse interrupt
        acked ! | withdrawn ! | not_acked ! | gone >clearing reap""",
    "waiting": """
        start_failed >clearing reap | settled >running | finished >ended release
        answered answer | stop refuse interrupt | stop_now refuse kill | hurry refuse interrupt
        acked ! | withdrawn ! | not_acked ! | gone >clearing reap""",
    "clearing": """
        finished >ended release | cleared >ended release | tick >ended release
        acked ! | withdrawn ! | not_acked !""",
    "ended": "",
    "stopping": """
        start_failed reap | asked >waiting | finished sweep | stop sigint | stop_now refuse kill
        withdrawn sweep | gone reap | cleared ! | tick sigint""",
    "start_stopped": """
        start_failed reap | stop refuse kill | stop_now refuse kill | gone reap
        tick refuse kill""",
    "reaping": """
        cleared >ended release | tick >ended release | asked >waiting""",
}


def expected(situation: str, stimulus: str) -> tuple[str, list[str]]:
    """The state and the orders that the grid promises ("!" for an illegal move)."""
    cells = (cell.split() for line in GRID[situation].splitlines() for cell in line.split("|"))
    words = next((cell[1:] for cell in cells if cell[:1] == [stimulus]), [])
    state = [word.lstrip(">") for word in words if word[0] in ">!"]
    return (state or [""])[0], [word for word in words if word[0] not in ">!"]


def feed(turn: Turn, stimuli: Iterable[do.Stimulus], now: float = 0.0) -> list[Act | Order]:
    return [order for stimulus in stimuli for order in turn.handle(stimulus, now)]


def turn_after(
    *stimuli: do.Stimulus, policy: StopPolicy | None = None, timeout: float | None = None
) -> Turn:
    turn = Turn("t", policy or StopPolicy(), timeout)
    feed(turn, stimuli)
    return turn


def words(orders: Iterable[Enum]) -> list[str]:
    return [order.value for order in orders]


def everything(turn: Turn) -> dict[str, Any]:
    state = {name: value for name, value in vars(turn).items() if name != "ladder"}
    return copy.deepcopy({**state, "ladder": vars(turn.ladder)})


def receipt(turn: Turn) -> StopReceipt:
    receipt = turn.receipt(opened=True, text_chars=5)
    assert receipt is not None
    return receipt


# Every state x stimulus. (A tick comes 6 s later, when an ASK or a CLEARING is over.)


def test_the_grid_has_every_state_and_kind_of_stimulus() -> None:
    assert {state.value for state in TurnState} <= set(PATHS) == set(GRID)
    kinds = {type(stimulus).__name__ for stimulus in STIMULI.values()}
    assert kinds == set(do.__all__) - {"Stimulus"}


@pytest.mark.parametrize("situation", PATHS)
@pytest.mark.parametrize("stimulus", STIMULI)
def test_every_pair(situation: str, stimulus: str) -> None:
    state, orders = expected(situation, stimulus)
    turn = turn_after(*PATHS[situation])
    before = everything(turn)
    if state == "!":
        with pytest.raises(IllegalMove):
            turn.handle(STIMULI[stimulus], 6.0)
        return
    assert words(turn.handle(STIMULI[stimulus], 6.0)) == orders
    assert turn.state.value == (state or before["state"].value)


@pytest.mark.parametrize("stimulus", [do.Acked(), do.NotAcked(), do.Cleared((Survivor(1, "x"),))])
def test_an_illegal_move_changes_nothing(stimulus: do.Stimulus) -> None:
    turn = turn_after(*(RUN if not isinstance(stimulus, do.Cleared) else (*RUN, STOP)))
    before = everything(turn)
    with pytest.raises(IllegalMove):
        turn.handle(stimulus, 1.0)
    assert everything(turn) == before


@pytest.mark.parametrize("name", STIMULI)
def test_an_ended_turn_ignores_everything_and_keeps_late_events(name: str) -> None:
    turn = turn_after(*RUN, STOP, finished("aborted"), do.Cleared(), do.Acked())
    before = everything(turn)
    stimulus = STIMULI[name]
    assert turn.handle(stimulus, 9.0) == []
    late = [stimulus.event] if isinstance(stimulus, do.Heard) else []
    assert everything(turn) == {**before, "dropped": late}


@pytest.mark.parametrize(
    ("situation", "phase"),
    [
        ("new", "queued"), ("starting", "starting"), ("running", "running"),
        ("waiting", "waiting"), ("clearing", "running"), ("ended", "ended"),
        ("stopping", "stopping"), ("start_stopped", "stopping"), ("reaping", "stopping"),
    ],
)  # fmt: skip
def test_phase_is_one_word_for_the_screen(situation: str, phase: str) -> None:
    assert turn_after(*PATHS[situation]).phase == phase


# Whose events count.


def test_another_turns_terminal_message_is_kept_aside() -> None:
    turn = turn_after(*RUN, finished("aborted", turn_id="the one before"))
    assert turn.state is TurnState.RUNNING
    assert [event.turn_id for event in turn.dropped] == ["the one before"]
    assert turn_after(*RUN, finished("completed", turn_id="")).outcome is Outcome.COMPLETED


def test_another_turns_question_does_not_make_this_one_wait() -> None:
    foreign = heard(ev.QuestionAsked, "another", question_id="q", tool="Bash")
    assert turn_after(*RUN, foreign).state is TurnState.RUNNING


def test_another_turns_terminal_message_does_not_end_a_stop() -> None:
    turn = turn_after(*RUN, STOP, finished("aborted", turn_id="another"))
    assert turn.ladder.state is StopState.ASK


def test_a_terminal_message_said_twice_counts_once() -> None:
    turn = turn_after(*RUN, STOP, finished("aborted"), finished("completed"))
    assert turn.finished is not None and turn.finished.end == "aborted"
    assert [event.end for event in turn.dropped if isinstance(event, ev.AgentFinished)] == [
        "completed"
    ]


def test_figures_count_until_the_terminal_message_and_not_twice() -> None:
    usage = heard(ev.UsageReported, cost_usd=0.5)
    assert turn_after(*RUN, usage).dropped == []
    assert turn_after(*RUN, STOP, finished("aborted"), usage).dropped == [usage.event]


@pytest.mark.parametrize("situation", ["new", "starting", "start_stopped"])
def test_a_terminal_message_before_the_prompt_was_sent_is_dropped(situation: str) -> None:
    turn = turn_after(*PATHS[situation], finished())
    assert (turn.finished, len(turn.dropped), turn.over) == (None, 1, False)


# How a turn ends without a stop.


@pytest.mark.parametrize(
    ("end", "outcome", "reason", "error"),
    [
        ("completed", Outcome.COMPLETED, None, None),
        ("max_turns", Outcome.FAILED, Reason.MAX_TURNS, "why"),
        ("budget", Outcome.FAILED, Reason.BUDGET, "why"),
        ("error", Outcome.FAILED, None, "why"),
    ],
)
def test_the_agents_own_end(
    end: str, outcome: Outcome, reason: Reason | None, error: str | None
) -> None:
    turn = turn_after(*RUN, finished(end, error="why"))
    assert (turn.outcome, turn.reason, turn.error) == (outcome, reason, error)
    assert turn.receipt(opened=True, text_chars=0) is None
    assert not turn.closed_connection


def test_an_agent_that_somebody_else_interrupted_is_closed() -> None:
    turn = turn_after(*RUN)
    assert turn.handle(finished("aborted", error="why"), 5.0) == [Act.REAP]
    assert not turn.over
    turn.handle(do.Cleared(), 6.0)
    assert (turn.outcome, turn.error, turn.closed_connection) == (Outcome.FAILED, "why", True)
    assert turn.receipt(opened=True, text_chars=0) is None


def test_an_unknown_end_is_a_failure() -> None:
    turn = turn_after(*RUN, finished("something new", error="why"))
    assert (turn.outcome, turn.error) == (Outcome.FAILED, "why")


def test_an_agent_that_cannot_start_fails_the_turn() -> None:
    turn = turn_after(do.Begin(), do.StartFailed("no credentials"), do.Cleared())
    assert (turn.outcome, turn.error) == (Outcome.FAILED, "no credentials")
    assert turn.closed_connection


@pytest.mark.parametrize("open_question", [(), (asked(),)])
def test_a_process_that_dies_under_the_turn_is_lost(open_question: tuple[do.Heard, ...]) -> None:
    turn = turn_after(*RUN, *open_question, do.Gone("exit code 3"))
    survivor = Survivor(7, "sleep")
    assert not turn.over
    assert turn.handle(do.Cleared((survivor,)), 0.1) == [Order.RELEASE]
    assert (turn.outcome, turn.error) == (Outcome.LOST, "exit code 3")
    assert (turn.survivors, turn.closed_connection) == ((survivor,), True)


def test_a_lost_process_without_a_word_still_has_an_error() -> None:
    assert turn_after(*RUN, do.Gone()).error == "the agent process ended by itself"


def test_clearing_up_is_bounded() -> None:
    turn = turn_after(*RUN, do.Gone())
    assert turn.deadline == 1.5
    assert turn.handle(do.Tick(), 1.4) == []
    assert turn.handle(do.Tick(), 1.5) == [Order.RELEASE]


@pytest.mark.parametrize("last", [finished(), do.Gone()])
def test_an_ended_turn_wants_no_tick(last: do.Stimulus) -> None:
    assert turn_after(*RUN, last, do.Cleared()).deadline is None


def test_a_death_noticed_before_the_terminal_message_was_read_is_no_loss() -> None:
    turn = turn_after(*RUN, do.Gone("exit code 0"), finished("completed"), do.Cleared())
    assert (turn.outcome, turn.error) == (Outcome.COMPLETED, None)


def test_the_first_bad_news_counts() -> None:
    turn = turn_after(*RUN, do.Gone("exit code 3"))
    assert turn.handle(do.StartFailed("broken pipe"), 1.0) == []
    turn.handle(do.Cleared(), 1.1)
    assert (turn.outcome, turn.error) == (Outcome.LOST, "exit code 3")


def test_death_after_a_failed_start_changes_nothing() -> None:
    turn = turn_after(do.Begin(), do.StartFailed("no"), do.Gone("exit code 1"), do.Cleared())
    assert (turn.outcome, turn.error) == (Outcome.FAILED, "no")


@pytest.mark.parametrize("situation", [name for name in PATHS if name != "ended"])
def test_our_own_failure_ends_a_turn_anywhere(situation: str) -> None:
    turn = turn_after(*PATHS[situation])
    turn.fail("a bug")
    assert (turn.state, turn.outcome, turn.error) == (TurnState.ENDED, Outcome.FAILED, "a bug")
    assert turn.closed_connection
    assert turn.handle(do.Tick(), 99.0) == []


# How a turn ends with a stop.


def test_its_own_terminal_message_makes_it_interrupted_and_keeps_the_agent() -> None:
    turn = turn_after(*RUN)
    turn.handle(STOP, 10.0)
    turn.handle(do.Acked(), 10.25)
    turn.handle(finished("aborted"), 11.0)
    assert not turn.over
    spared = Survivor(3, "server")
    assert turn.handle(do.Cleared(spared=(spared,)), 11.5) == [Order.RELEASE]
    assert (turn.outcome, turn.error) == (Outcome.INTERRUPTED, None)
    assert receipt(turn) == StopReceipt(
        reason=Reason.USER, rung=Rung.INTERRUPT, requested_at=10.0, ack_after=0.25,
        ended_after=1.0, reaped_after=1.5, connection="warm", resumable=True, text_chars=5,
        spared=[spared],
    )  # fmt: skip


@pytest.mark.parametrize("end", ["aborted", "error", "max_turns"])
def test_a_stop_that_looks_like_an_error_is_a_stop(end: str) -> None:
    turn = turn_after(*RUN, STOP, do.Acked(), finished(end, error="aborted"), do.Cleared())
    assert (turn.outcome, turn.reason, turn.error) == (Outcome.INTERRUPTED, Reason.USER, None)


def test_a_stop_accepted_while_it_finishes_leaves_it_completed_with_a_receipt() -> None:
    turn = turn_after(*RUN, STOP, finished("completed"), do.Acked(), do.Cleared())
    assert (turn.outcome, turn.reason) == (Outcome.COMPLETED, Reason.USER)
    assert receipt(turn).connection == "warm"


def test_a_prompt_the_agent_never_began_needs_no_terminal_message() -> None:
    turn = turn_after(*RUN, STOP)
    assert turn.handle(do.Acked(withdrawn=True), 0.1) == [Act.SWEEP]
    assert turn.handle(do.Cleared(), 0.2) == [Order.RELEASE]
    assert turn.outcome is Outcome.INTERRUPTED


def test_a_withdrawn_ack_after_the_terminal_message_changes_nothing() -> None:
    turn = turn_after(*RUN, STOP, finished("completed"), do.Cleared(), do.Acked(withdrawn=True))
    assert turn.outcome is Outcome.COMPLETED


def test_a_withdrawn_ack_ends_an_unstopped_turn() -> None:
    turn = turn_after(*RUN, STOP, policy=NEVER_KILL)
    turn.handle(do.Tick(), 5.0)
    assert turn.outcome is Outcome.UNSTOPPED
    turn.handle(do.Acked(withdrawn=True), 6.0)
    turn.handle(do.Cleared(), 6.1)
    assert turn.state is TurnState.ENDED


@pytest.mark.parametrize("last", [do.Gone(), do.StartFailed("closed")])
def test_stopped_before_the_prompt_was_sent(last: do.Stimulus) -> None:
    turn = turn_after(do.Begin())
    assert turn.handle(STOP, 1.0) == [Act.REFUSE, Act.TERMINATE]
    assert feed(turn, (do.Ready(),), 1.1) == []
    assert not turn.sent
    feed(turn, (last, do.Cleared()), 1.2)
    assert (turn.outcome, turn.error) == (Outcome.INTERRUPTED, None)
    assert receipt(turn).rung is Rung.TERMINATE
    assert receipt(turn).connection == "closed"


def test_a_start_is_closed_even_under_strategy_interrupt() -> None:
    turn = turn_after(do.Begin(), policy=NEVER_KILL)
    assert turn.handle(STOP, 1.0) == [Act.REFUSE, Act.TERMINATE]


@pytest.mark.parametrize("stop", [STOP, NOW, do.Hurry(HURRIED)])
def test_a_waiting_prompt_is_withdrawn_at_once(stop: do.Stimulus) -> None:
    turn = turn_after()
    assert turn.handle(stop, 3.0) == [Order.RELEASE]
    assert (turn.outcome, turn.state) == (Outcome.INTERRUPTED, TurnState.ENDED)
    assert receipt(turn).requested_at == 3.0
    assert (receipt(turn).ack_after, receipt(turn).ended_after, receipt(turn).reaped_after) == (
        None, 0.0, 0.0,
    )  # fmt: skip
    assert turn.handle(do.Begin(), 4.0) == []


def test_a_withdrawn_prompt_needed_nothing_harder_than_an_interrupt() -> None:
    turn = turn_after(STOP)
    assert receipt(turn).rung is Rung.INTERRUPT


def test_killed() -> None:
    turn = turn_after(*RUN, STOP)
    for at in (5.0, 7.0, 9.0):
        turn.handle(do.Tick(), at)
    survivor = Survivor(9, "stuck in the kernel")
    turn.handle(do.Gone(), 9.1)
    assert turn.handle(do.Cleared((survivor,)), 9.5) == [Order.RELEASE]
    assert turn.outcome is Outcome.KILLED
    assert receipt(turn) == StopReceipt(
        reason=Reason.USER, rung=Rung.KILL, requested_at=0.0, reaped_after=9.5,
        survivors=[survivor], connection="closed", text_chars=5,
    )  # fmt: skip


@pytest.mark.parametrize("rung", [Rung.SIGINT, Rung.TERMINATE, Rung.KILL])
def test_a_forced_rung_closes_the_connection(rung: Rung) -> None:
    turn = turn_after(*RUN, STOP)
    assert receipt(turn).connection == "warm"
    while turn.ladder.rung is not rung:
        assert turn.deadline is not None
        turn.handle(do.Tick(), turn.deadline)
    assert receipt(turn).connection == "closed"


def test_a_kill_whose_sweep_never_answers_does_not_say_that_nothing_is_left() -> None:
    turn = turn_after(*RUN, NOW)
    turn.handle(do.Tick(), 1.5)
    assert turn.outcome is Outcome.KILLED
    assert receipt(turn).reaped_after is None
    assert "nothing left running" not in str(receipt(turn))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_terminal_message_on_a_forced_rung_makes_it_interrupted(when: str) -> None:
    turn = turn_after(*RUN, STOP)
    turn.handle(do.Tick(), 5.0)
    last = [finished("aborted"), do.Gone()]
    feed(turn, last if when == "before" else reversed(last), 5.2)
    assert not turn.over
    turn.handle(do.Cleared(), 5.3)
    assert turn.outcome is Outcome.INTERRUPTED
    assert (receipt(turn).rung, receipt(turn).connection) == (Rung.SIGINT, "closed")


def test_a_terminal_message_after_kill_began_still_waits_for_the_verdict() -> None:
    turn = turn_after(*RUN, NOW, finished("aborted"), do.Acked())
    assert not turn.over
    turn.handle(do.Cleared(), 0.5)
    assert (turn.outcome, receipt(turn).rung) == (Outcome.INTERRUPTED, Rung.KILL)


def test_a_process_that_dies_on_the_polite_rung_without_a_word_is_killed() -> None:
    turn = turn_after(*RUN, STOP, do.Acked(), do.Gone("exit code 1"), do.Cleared())
    assert (turn.outcome, turn.error) == (Outcome.KILLED, None)
    assert receipt(turn).connection == "closed"


def test_unstopped_is_told_at_once_and_its_later_end_is_kept() -> None:
    turn = turn_after(*RUN, STOP, policy=NEVER_KILL)
    assert turn.handle(do.Tick(), 5.0) == [Order.RELEASE]
    assert (turn.outcome, turn.over, turn.state) == (Outcome.UNSTOPPED, True, TurnState.RUNNING)
    assert receipt(turn).ended_after is None
    feed(turn, (finished("completed"), do.Acked()), 60.0)
    assert turn.handle(do.Cleared(), 60.5) == [Order.RELEASE]
    assert (turn.outcome, turn.state) == (Outcome.COMPLETED, TurnState.ENDED)
    assert receipt(turn).ended_after == 60.0


def test_the_receipt_of_an_unstopped_turn_does_not_call_it_stopped() -> None:
    turn = turn_after(*RUN, STOP, policy=NEVER_KILL)
    turn.handle(do.Tick(), 5.0)
    assert "nothing left running" not in str(receipt(turn))
    assert not str(receipt(turn)).startswith("stopped")


def test_an_unstopped_turn_waits_for_nothing() -> None:
    turn = turn_after(*RUN, policy=NEVER_KILL, timeout=3.0)
    turn.handle(do.Tick(), 3.0)
    turn.handle(do.Tick(), 8.0)
    assert turn.outcome is Outcome.UNSTOPPED
    assert turn.deadline is None


def test_an_unstopped_turn_can_be_killed_later() -> None:
    turn = turn_after(*RUN, STOP, policy=NEVER_KILL)
    turn.handle(do.Tick(), 5.0)
    assert turn.handle(NOW, 9.0) == [Act.REFUSE, Act.KILL]
    turn.handle(do.Cleared(), 9.5)
    assert (turn.state, receipt(turn).rung) == (TurnState.ENDED, Rung.KILL)


def test_an_agent_that_got_ready_after_all_is_warm() -> None:
    turn = turn_after(do.Begin(), do.Gone("the warm one had died"), do.Ready())
    feed(turn, (STOP, do.Acked(), finished("aborted"), do.Cleared()))
    assert receipt(turn).connection == "warm"


def test_the_first_reason_is_kept() -> None:
    turn = turn_after(*RUN, do.StopAsked(Reason.API))
    turn.handle(do.StopAsked(Reason.USER), 1.0)
    turn.handle(do.Hurry(HURRIED), 2.0)
    assert turn.reason is Reason.API


def test_a_stop_while_its_process_is_gone_changes_nothing() -> None:
    turn = turn_after(*RUN, do.Gone(), STOP, NOW, do.Cleared())
    assert (turn.outcome, turn.reason) == (Outcome.LOST, None)
    assert turn.receipt(opened=True, text_chars=0) is None


def test_the_receipt_passes_on_what_only_the_driver_knows() -> None:
    turn = turn_after(*RUN, STOP)
    passed = turn.receipt(opened=False, text_chars=42)
    assert passed is not None
    assert (passed.resumable, passed.text_chars) == (False, 42)


# The timeout and its clock.


def test_the_timeout_counts_from_the_hand_over_and_is_a_stop() -> None:
    turn = turn_after(do.Begin(), timeout=10.0)
    assert turn.deadline is None
    turn.handle(do.Ready(), 5.0)
    assert turn.deadline == 15.0
    assert turn.handle(do.Tick(), 14.9) == []
    assert turn.handle(do.Tick(), 15.0) == [Act.REFUSE, Act.INTERRUPT]
    assert (turn.reason, receipt(turn).requested_at) == (Reason.TIMEOUT, 15.0)


def test_the_clock_stands_still_while_a_question_is_open() -> None:
    turn = turn_after(*RUN, timeout=10.0)
    turn.handle(asked(), 4.0)
    assert turn.deadline is None
    assert turn.handle(do.Tick(), 50.0) == []
    turn.handle(settled(), 104.0)
    assert turn.deadline == 110.0


def test_the_clock_stands_still_until_the_last_question_is_settled() -> None:
    turn = turn_after(*RUN, timeout=10.0)
    turn.handle(asked("a"), 4.0)
    turn.handle(asked("b"), 5.0)
    turn.handle(settled("a"), 6.0)
    assert (turn.state, turn.deadline) == (TurnState.WAITING, None)
    turn.handle(settled("b"), 9.0)
    assert (turn.state, turn.deadline) == (TurnState.RUNNING, 15.0)


def test_a_stop_at_an_open_question_has_its_own_clock() -> None:
    turn = turn_after(*RUN, asked(), timeout=10.0)
    turn.handle(STOP, 1.0)
    assert turn.deadline == 1.25


def test_a_deadline_at_zero_is_a_deadline() -> None:
    assert turn_after(*RUN, STOP, policy=StopPolicy(ack=0.0)).deadline == 0.0


# Hurry.


@pytest.mark.parametrize("situation", [name for name in PATHS if name not in ("new", "ended")])
def test_a_hurried_turn_is_over_in_time(situation: str) -> None:
    turn = turn_after(*PATHS[situation])
    over_at = run_hurried(turn)
    assert over_at is not None and over_at <= 1.0 + HURRIED.total + 1e-9


def test_a_hurried_clearing_takes_the_short_bound() -> None:
    policy = StopPolicy(kill=30.0)
    turn = turn_after(*RUN, do.Gone(), policy=policy)
    over_at = run_hurried(turn)
    assert over_at is not None and 1.0 < over_at <= 1.0 + HURRIED.total


def test_a_hurried_unstopped_turn_ends() -> None:
    turn = turn_after(*RUN, STOP, policy=NEVER_KILL)
    turn.handle(do.Tick(), 5.0)
    assert run_hurried(turn, 6.0) is not None


@pytest.mark.parametrize("situation", ["running", "waiting", "starting"])
def test_hurry_is_a_stop_for_shutdown(situation: str) -> None:
    turn = turn_after(*PATHS[situation], do.Hurry(HURRIED))
    assert (turn.reason, turn.phase) == (Reason.SHUTDOWN, "stopping")


def run_hurried(turn: Turn, now: float = 1.0) -> float | None:
    """Hurry at `now`, then only ticks; when it ended, or None if it never does."""
    turn.handle(do.Hurry(HURRIED), now)
    for _ in range(200):
        if turn.state is TurnState.ENDED:
            return now
        if turn.deadline is None:
            return None
        now = max(now, turn.deadline)
        turn.handle(do.Tick(), now)
    return None
