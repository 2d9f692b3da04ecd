"""The stop ladder, move by move: every state x stimulus, then its path in time."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from turncell.ladder import ON_ENTRY, TABLE, Act, IllegalMove, StopLadder, StopState, StopStimulus
from turncell.outcome import Rung
from turncell.settings import StopPolicy, Strategy

S, M = StopState, StopStimulus

#: What every stimulus does in every state under the default strategy:
#: a state's name = go there, "." = stay, "!" = illegal.
GRID = """
            idle  ask     grace   settle     sigint     terminate  kill   reap   runs_on  ended
request     ask   !       !       !          !          !          !      !      !        .
press       !     sigint  sigint  .          terminate  kill       .      .      ask      .
force       kill  kill    kill    .          kill       kill       .      .      kill     .
ack         !     grace   .       .          .          .          .      .      .        .
no_ack      !     .       .       .          .          .          .      .      .        .
finished    !     settle  settle  .          .          .          .      .      settle   .
gone        !     reap    reap    reap       reap       reap       .      .      reap     .
cleared     !     !       !       .          .          .          ended  ended  !        .
resend      !     .       .       !          !          !          !      !      !        !
timeout     !     sigint  sigint  terminate  terminate  kill       ended  ended  !        !
quiet       !     !       !       ended      !          !          !      !      !        !
"""

#: What entering a state demands, in order.
DEMANDS = {
    "ask": ["refuse", "interrupt"],
    "grace": [],
    "settle": ["sweep"],
    "sigint": ["sigint"],
    "terminate": ["refuse", "terminate"],
    "kill": ["refuse", "kill"],
    "reap": ["reap"],
    "runs_on": ["give_up"],
    "ended": ["conclude"],
}

#: How a ladder comes into each state.
PATHS = {
    S.IDLE: (),
    S.ASK: (M.REQUEST,),
    S.GRACE: (M.REQUEST, M.ACK),
    S.SETTLE: (M.REQUEST, M.FINISHED),
    S.SIGINT: (M.REQUEST, M.TIMEOUT),
    S.TERMINATE: (M.REQUEST, M.TIMEOUT, M.TIMEOUT),
    S.KILL: (M.REQUEST, M.TIMEOUT, M.TIMEOUT, M.TIMEOUT),
    S.REAP: (M.REQUEST, M.GONE),
    S.RUNS_ON: (M.REQUEST, M.TIMEOUT),
    S.ENDED: (M.REQUEST, M.GONE, M.CLEARED),
}

NEVER_KILL = StopPolicy(strategy=Strategy.INTERRUPT)
KILL_AT_ONCE = StopPolicy(strategy=Strategy.KILL)


def grid() -> dict[tuple[StopState, StopStimulus], str]:
    head, *rows = (line.split() for line in GRID.strip().splitlines())
    return {
        (S(state), M(row[0])): cell
        for row in rows
        for state, cell in zip(head, row[1:], strict=True)
    }


def ladder_in(state: StopState, policy: StopPolicy | None = None, at: float = 0.0) -> StopLadder:
    ladder = StopLadder(policy or (NEVER_KILL if state is S.RUNS_ON else StopPolicy()))
    for stimulus in PATHS[state]:
        ladder.handle(stimulus, at)
    assert ladder.state is state
    return ladder


def everything(ladder: StopLadder) -> dict[str, Any]:
    return copy.deepcopy(vars(ladder))


def run_out(ladder: StopLadder, now: float = 0.0) -> list[tuple[float, Act]]:
    """Tick at each deadline until the ladder wants no more; returns what it asked for."""
    log: list[tuple[float, Act]] = []
    for _ in range(1000):
        if ladder.deadline is None:
            return log
        now = max(now, ladder.deadline)
        log += [(now, act) for act in ladder.tick(now)]
    raise AssertionError(f"no end in sight, in state {ladder.state.value}")


def times(log: list[tuple[float, Act]], act: Act) -> list[float]:
    return [round(at, 6) for at, done in log if done is act]


# Every state x stimulus.


def test_the_grid_has_every_state_and_stimulus() -> None:
    assert set(grid()) == {(state, stimulus) for state in S for stimulus in M}


@pytest.mark.parametrize(("state", "stimulus"), list(grid()), ids=lambda word: word.value)
def test_every_pair(state: StopState, stimulus: StopStimulus) -> None:
    expected = grid()[state, stimulus]
    ladder = ladder_in(state)
    before = everything(ladder)
    if expected == "!":
        with pytest.raises(IllegalMove):
            ladder.handle(stimulus, 9.0)
        assert everything(ladder) == before
        return
    acts = ladder.handle(stimulus, 9.0)
    assert ladder.state.value == (state.value if expected == "." else expected)
    demanded = DEMANDS.get(expected, ["interrupt"] if stimulus is M.RESEND else [])
    assert [act.value for act in acts] == demanded


@pytest.mark.parametrize(("state", "stimulus"), list(grid()), ids=lambda word: word.value)
def test_the_table_and_the_grid_agree_on_what_is_legal(
    state: StopState, stimulus: StopStimulus
) -> None:
    assert (stimulus in TABLE[state]) == (grid()[state, stimulus] != "!")


def test_every_state_that_can_be_entered_says_what_it_demands() -> None:
    assert {state.value: [a.value for a in acts] for state, acts in ON_ENTRY.items()} == DEMANDS


def test_an_illegal_move_tells_the_story_so_far() -> None:
    ladder = ladder_in(S.GRACE, at=1.5)
    with pytest.raises(IllegalMove, match=r"cleared in state grace.*1\.500:ack->grace"):
        ladder.handle(M.CLEARED, 2.0)


# Each strategy's path in time.


def test_an_agent_that_never_acks_is_killed_without_grace() -> None:
    ladder = StopLadder(StopPolicy())
    assert ladder.press(0.0) == [Act.REFUSE, Act.INTERRUPT]
    log = run_out(ladder)
    assert times(log, Act.SIGINT) == [5.0]
    assert times(log, Act.TERMINATE) == [7.0]
    assert times(log, Act.KILL) == [9.0]
    assert times(log, Act.CONCLUDE) == [10.5]
    assert ladder.rung is Rung.KILL


def test_the_worst_case_is_what_total_says() -> None:
    ladder = ladder_in(S.ASK)
    ladder.handle(M.ACK, 5.0)  # at the last moment
    log = run_out(ladder)
    assert times(log, Act.SIGINT) == [10.0]
    assert times(log, Act.TERMINATE) == [12.0]
    assert times(log, Act.KILL) == [14.0]
    assert times(log, Act.CONCLUDE) == [15.5] == [StopPolicy().total]


def test_the_agent_is_asked_again_until_the_polite_rung_is_over() -> None:
    ladder = ladder_in(S.ASK)
    asked = times(run_out(ladder), Act.INTERRUPT)
    assert asked == [round(0.25 * n, 6) for n in range(1, 20)]


def test_an_ack_does_not_end_the_asking() -> None:
    ladder = ladder_in(S.GRACE)
    assert times(run_out(ladder), Act.INTERRUPT)[:3] == [0.25, 0.5, 0.75]


def test_a_late_tick_climbs_and_the_next_rung_gets_its_full_time() -> None:
    ladder = ladder_in(S.ASK)
    assert ladder.tick(60.0) == [Act.SIGINT]
    assert ladder.deadline == 62.0


def test_a_tick_before_the_deadline_does_nothing() -> None:
    ladder = ladder_in(S.SIGINT)
    before = everything(ladder)
    assert ladder.tick(1.999) == []
    assert everything(ladder) == before


@pytest.mark.parametrize("state", [S.IDLE, S.ENDED, S.RUNS_ON])
def test_nothing_to_wait_for(state: StopState) -> None:
    ladder = ladder_in(state)
    assert ladder.deadline is None
    assert ladder.tick(1e6) == []


def test_rung_ends_leaves_the_asking_again_out() -> None:
    ladder = ladder_in(S.ASK, at=3.0)
    assert (ladder.deadline, ladder.rung_ends()) == (3.25, 8.0)
    assert ladder_in(S.RUNS_ON, at=3.0).rung_ends() == 3.0
    assert StopLadder(StopPolicy()).rung_ends() == 0.0


def test_strategy_kill_starts_at_terminate() -> None:
    ladder = StopLadder(KILL_AT_ONCE)
    assert ladder.press(0.0) == [Act.REFUSE, Act.TERMINATE]
    log = run_out(ladder)
    assert times(log, Act.KILL) == [2.0]
    assert times(log, Act.CONCLUDE) == [3.5] == [KILL_AT_ONCE.total]


def test_strategy_interrupt_gives_up_and_never_signals() -> None:
    ladder = ladder_in(S.ASK, NEVER_KILL)
    ladder.handle(M.ACK, 5.0)
    log = run_out(ladder)
    assert times(log, Act.GIVE_UP) == [10.0]
    assert {act for _, act in log} == {Act.INTERRUPT, Act.GIVE_UP}
    assert ladder.state is S.RUNS_ON and ladder.engaged


def test_what_runs_on_can_still_end_by_itself() -> None:
    ladder = ladder_in(S.RUNS_ON)
    assert ladder.handle(M.FINISHED, 60.0) == [Act.SWEEP]
    ladder.handle(M.ACK, 60.1)
    assert ladder.handle(M.CLEARED, 60.2) == [Act.CONCLUDE]
    assert ladder.rung is Rung.INTERRUPT


def test_what_runs_on_can_be_asked_again_and_forced() -> None:
    ladder = ladder_in(S.RUNS_ON)
    assert ladder.press(30.0) == [Act.REFUSE, Act.INTERRUPT]
    assert run_out(ladder)[-1] == (35.0, Act.GIVE_UP)
    assert ladder.press(40.0, force=True) == [Act.REFUSE, Act.KILL]


# Acks, and the wait for the last of them.


def test_an_ack_is_not_an_end() -> None:
    ladder = ladder_in(S.ASK)
    for at in (0.1, 0.2, 0.3):
        assert ladder.handle(M.ACK, at) == []
    assert ladder.state is S.GRACE
    assert ladder.acked_at == 0.1


def test_a_warm_stop_is_over_when_swept_and_every_ack_is_home() -> None:
    ladder = ladder_in(S.ASK)
    ladder.tick(0.25)
    assert ladder.acks_in_flight == 2
    ladder.handle(M.ACK, 0.3)
    assert ladder.handle(M.FINISHED, 0.4) == [Act.SWEEP]
    assert ladder.handle(M.CLEARED, 0.5) == []
    assert ladder.handle(M.ACK, 0.6) == [Act.CONCLUDE]
    assert (ladder.state, ladder.rung) == (S.ENDED, Rung.INTERRUPT)


def test_a_warm_stop_waits_for_the_sweep_too() -> None:
    ladder = ladder_in(S.GRACE)
    ladder.handle(M.FINISHED, 0.4)
    assert (ladder.state, ladder.acks_in_flight) == (S.SETTLE, 0)
    assert ladder.handle(M.CLEARED, 0.5) == [Act.CONCLUDE]


def test_a_refused_interrupt_is_not_waited_for() -> None:
    ladder = ladder_in(S.ASK)
    ladder.handle(M.NO_ACK, 0.1)
    ladder.handle(M.FINISHED, 0.2)
    assert ladder.acked_at is None
    assert ladder.handle(M.CLEARED, 0.3) == [Act.CONCLUDE]


def test_acks_nobody_asked_for_are_not_counted() -> None:
    ladder = ladder_in(S.ASK)
    for _ in range(3):
        ladder.handle(M.ACK, 0.1)
    assert ladder.acks_in_flight == 0


def test_an_ack_that_never_comes_closes_the_connection_but_not_by_force() -> None:
    ladder = ladder_in(S.SETTLE)
    ladder.handle(M.CLEARED, 0.1)
    assert ladder.deadline == 1.0
    assert ladder.tick(1.0) == [Act.REFUSE, Act.TERMINATE]
    assert ladder.handle(M.GONE, 1.1) == [Act.REAP]
    assert ladder.handle(M.CLEARED, 1.2) == [Act.CONCLUDE]
    assert ladder.rung is Rung.INTERRUPT


def test_closing_the_connection_keeps_the_rung_to_the_end() -> None:
    ladder = ladder_in(S.SETTLE)
    log = run_out(ladder)
    assert times(log, Act.KILL) == [3.0]
    assert ladder.rung is Rung.INTERRUPT


def test_the_verdict_of_a_warm_sweep_is_not_the_verdict_after_the_connection_closed() -> None:
    ladder = ladder_in(S.SETTLE)
    ladder.handle(M.CLEARED, 0.1)
    ladder.handle(M.GONE, 0.2)
    assert (ladder.state, ladder.cleared_at) == (S.REAP, None)


@pytest.mark.parametrize(
    "path", [(M.GONE,), (M.TIMEOUT, M.TIMEOUT)], ids=["reap after sweep", "kill after sweep"]
)
def test_a_late_answer_to_the_sweep_does_not_prove_the_reap(path: tuple[StopStimulus]) -> None:
    ladder = ladder_in(S.SETTLE)  # the sweep was ordered and has not answered
    for stimulus in path:
        ladder.handle(stimulus, 0.1)
    assert ladder.handle(M.CLEARED, 0.2) == []  # the sweep's answer
    assert ladder.handle(M.CLEARED, 0.3) == [Act.CONCLUDE]


# Forced rungs end only when the processes were looked at.


@pytest.mark.parametrize("state", [S.SIGINT, S.TERMINATE])
def test_a_terminal_message_alone_does_not_end_a_forced_stop(state: StopState) -> None:
    ladder = ladder_in(state)
    rung = ladder.rung
    assert ladder.handle(M.FINISHED, 0.1) == []
    assert ladder.handle(M.GONE, 0.2) == [Act.REAP]
    assert ladder.handle(M.CLEARED, 0.3) == [Act.CONCLUDE]
    assert (ladder.rung, ladder.finished_at, ladder.cleared_at) == (rung, 0.1, 0.3)


def test_an_old_verdict_does_not_end_a_kill() -> None:
    ladder = ladder_in(S.TERMINATE)
    ladder.handle(M.CLEARED, 0.1)
    ladder.handle(M.TIMEOUT, 0.2)
    assert (ladder.state, ladder.cleared_at) == (S.KILL, None)


def test_a_reap_without_an_answer_ends_in_time_and_unproved() -> None:
    ladder = ladder_in(S.REAP)
    assert run_out(ladder) == [(1.5, Act.CONCLUDE)]
    assert ladder.cleared_at is None


def test_the_first_time_of_each_kind_is_kept() -> None:
    ladder = ladder_in(S.ASK, at=1.0)
    for at in (2.0, 3.0):
        ladder.handle(M.ACK, at)
        ladder.handle(M.FINISHED, at)
        ladder.handle(M.PRESS, at)
    assert (ladder.requested_at, ladder.acked_at, ladder.finished_at) == (1.0, 2.0, 2.0)


# Presses.


def test_a_double_click_is_one_stop() -> None:
    ladder = ladder_in(S.ASK)
    before = everything(ladder)
    assert ladder.press(0.39) == []
    assert everything(ladder) == before


def test_presses_just_far_enough_apart_are_two() -> None:
    ladder = ladder_in(S.ASK, StopPolicy(repeat_after=0.5))
    assert ladder.press(0.5) == [Act.SIGINT]


def test_a_second_press_is_the_next_rung_and_a_third_kills() -> None:
    ladder = ladder_in(S.ASK)
    assert ladder.press(0.5) == [Act.SIGINT]
    assert ladder.press(0.6) == []
    assert ladder.press(1.0) == [Act.REFUSE, Act.KILL]
    assert ladder.rung is Rung.KILL


def test_a_third_press_kills_from_grace_too() -> None:
    ladder = ladder_in(S.TERMINATE, at=0.0)
    assert ladder.press(0.5) == [Act.REFUSE, Act.KILL]
    assert ladder.press(1.0) == []


@pytest.mark.parametrize("state", [S.IDLE, S.ASK, S.GRACE, S.SIGINT, S.TERMINATE, S.RUNS_ON])
def test_force_kills_at_once_even_within_a_double_click(state: StopState) -> None:
    assert ladder_in(state).press(0.0, force=True) == [Act.REFUSE, Act.KILL]


@pytest.mark.parametrize("state", [S.SETTLE, S.REAP, S.KILL, S.ENDED])
def test_presses_cannot_disturb_what_is_ending(state: StopState) -> None:
    ladder = ladder_in(state)
    for at in (1.0, 2.0, 3.0):
        assert ladder.press(at) == ladder.press(at, force=True) == []
    assert ladder.state is state


def test_presses_under_strategy_interrupt_ask_once_more() -> None:
    ladder = ladder_in(S.ASK, NEVER_KILL)
    for at in (0.5, 1.0, 1.5):
        assert ladder.press(at) == [Act.INTERRUPT]
    assert ladder.press(1.6) == []
    assert ladder.acks_in_flight == 4


def test_presses_under_strategy_interrupt_never_kill() -> None:
    ladder = ladder_in(S.RUNS_ON)
    ladder.press(30.0)
    run_out(ladder)
    assert ladder.state is S.RUNS_ON
    assert ladder.press(50.0) == [Act.REFUSE, Act.INTERRUPT]


@pytest.mark.parametrize(
    "policy",
    [NEVER_KILL, StopPolicy(sigint=0.0)],
    ids=["strategy interrupt", "settle longer than sigint"],
)
def test_total_covers_a_terminal_message_at_the_last_moment(policy: StopPolicy) -> None:
    ladder = ladder_in(S.ASK, policy)
    ladder.handle(M.ACK, policy.ack)
    ladder.handle(M.FINISHED, policy.ack + policy.grace)
    run_out(ladder)
    assert ladder.state is S.ENDED
    assert ladder.story[-1][0] == pytest.approx(policy.total)


def test_asking_again_always_leaves_some_time_between() -> None:
    ladder = ladder_in(S.ASK, StopPolicy(resend=0.0))
    ladder.tick(0.0)
    assert ladder.deadline is not None
    assert ladder.deadline > 0.0


# Hurry.

HURRIED = StopPolicy().hurried(2.0)


@pytest.mark.parametrize("state", [s for s in S if s not in (S.RUNS_ON, S.ENDED)])
def test_a_hurried_stop_is_over_in_its_total(state: StopState) -> None:
    ladder = ladder_in(state)
    ladder.hurry(HURRIED, 100.0)
    run_out(ladder, 100.0)
    assert ladder.state is S.ENDED
    assert ladder.story[-1][0] <= 100.0 + HURRIED.total + 1e-9


def test_hurry_also_ends_what_runs_on() -> None:
    ladder = ladder_in(S.RUNS_ON)
    ladder.hurry(HURRIED, 100.0)
    run_out(ladder, 100.0)
    assert ladder.state is S.ENDED
    assert ladder.story[-1][0] <= 100.0 + HURRIED.total + 1e-9


def test_hurry_after_the_end_does_nothing() -> None:
    ladder = ladder_in(S.ENDED)
    assert ladder.hurry(HURRIED, 100.0) == []
    assert (ladder.state, ladder.deadline) == (S.ENDED, None)


def test_hurry_gives_the_present_state_its_short_time_from_now() -> None:
    ladder = ladder_in(S.GRACE)
    assert ladder.hurry(HURRIED, 1.0) == []
    assert (ladder.state, ladder.rung_ends()) == (S.GRACE, 1.0 + HURRIED.grace)


def test_hurry_never_makes_a_stop_longer() -> None:
    ladder = ladder_in(S.KILL)
    ladder.hurry(HURRIED, 1.45)
    assert ladder.rung_ends() <= 1.5
