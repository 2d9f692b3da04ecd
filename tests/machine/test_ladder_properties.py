"""What holds for the ladder and the turn whatever happens, in whatever order."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from turncell import events as ev
from turncell import stimuli as do
from turncell.ladder import Act, IllegalMove, StopLadder, StopState, StopStimulus
from turncell.outcome import Reason, Rung
from turncell.settings import StopPolicy, Strategy
from turncell.turn import Order, Turn, TurnState

CLIMB = [None, Rung.INTERRUPT, Rung.SIGINT, Rung.TERMINATE, Rung.KILL]
SLACK = 1e-6  # seconds that adding floats may be off

seconds = st.floats(0.0, 6.0)
policies = st.builds(
    StopPolicy,
    ack=seconds, grace=seconds, sigint=seconds, terminate=seconds, kill=seconds, settle=seconds,
    resend=st.floats(0.05, 2.0),
    repeat_after=st.floats(0.0, 1.0),
    strategy=st.sampled_from(Strategy),
)  # fmt: skip


class AnyOrder(RuleBasedStateMachine):
    """Stimuli in any order, at any time; a tick at each deadline."""

    @initialize(policy=policies, start=st.floats(0.0, 1e5))
    def begin(self, policy: StopPolicy, start: float) -> None:
        self.ladder = StopLadder(policy)
        self.now = start
        self.acts: list[Act] = []
        self.rung: Rung | None = None
        self.over_by: float | None = None

    @rule(stimulus=st.sampled_from(StopStimulus))
    def stimulate(self, stimulus: StopStimulus) -> None:
        before = copy.deepcopy(vars(self.ladder))
        try:
            self._took(self.ladder.handle(stimulus, self.now))
        except IllegalMove:
            assert vars(self.ladder) == before

    @rule(force=st.booleans())
    def press(self, force: bool) -> None:
        self._took(self.ladder.press(self.now, force=force))

    @rule(total=st.floats(0.1, 5.0))
    def hurry(self, total: float) -> None:
        ended = self.ladder.state is StopState.ENDED
        self._took(self.ladder.hurry(self.ladder.policy.hurried(total), self.now))
        if not ended:
            self.over_by = max(self.over_by or 0.0, self._bound(self.now))

    @rule(seconds=st.floats(0.0, 8.0))
    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (deadline := self.ladder.deadline) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self._took(self.ladder.tick(self.now))
            assert self.ladder.deadline is None or self.ladder.deadline >= self.now
        self.now = until

    @invariant()
    def acks_in_flight_is_a_count(self) -> None:
        assert self.ladder.acks_in_flight >= 0

    @invariant()
    def the_rung_only_climbs(self) -> None:
        assert CLIMB.index(self.ladder.rung) >= CLIMB.index(self.rung)
        self.rung = self.ladder.rung

    @invariant()
    def it_is_over_in_time(self) -> None:
        if self._bounded() and self.now > self._limit() + SLACK:
            assert self.ladder.state is StopState.ENDED

    @invariant()
    def it_concludes_once_and_at_the_end(self) -> None:
        ended = self.ladder.state is StopState.ENDED
        assert self.acts.count(Act.CONCLUDE) == int(ended)
        assert Act.CONCLUDE not in self.acts[:-1]

    @invariant()
    def every_interrupt_is_counted(self) -> None:
        assert self.ladder.acks_in_flight <= self.acts.count(Act.INTERRUPT)

    def _took(self, acts: list[Act]) -> None:
        self.acts += acts

    def _bounded(self) -> bool:
        kept = self.ladder.policy.strategy is not Strategy.INTERRUPT
        return kept and self.ladder.requested_at is not None

    def _bound(self, start: float) -> float:
        return start + self.ladder.policy.total + self.ladder.policy.settle

    def _limit(self) -> float:
        assert self.ladder.requested_at is not None
        return self.over_by or self._bound(self.ladder.requested_at)


EVENTS = [
    ev.TextDelta(turn_id="t", text="x", block="b"),
    ev.QuestionAsked(turn_id="t", question_id="q", tool="Bash"),
    ev.QuestionSettled(turn_id="t", question_id="q", answer="denied"),
    ev.AgentFinished(turn_id="t", end="completed"),
    ev.AgentFinished(turn_id="t", end="aborted"),
    ev.AgentFinished(turn_id="t", end="error", error="no"),
    ev.AgentFinished(turn_id="another", end="completed"),
]


class HonestDriver(RuleBasedStateMachine):
    """A turn whose driver answers only what was ordered, in any order.

    Such a driver never meets an exception, IllegalMove included.
    """

    @initialize(policy=policies, timeout=st.none() | st.floats(0.0, 20.0))
    def begin(self, policy: StopPolicy, timeout: float | None) -> None:
        self.turn = Turn("t", policy, timeout)
        self.now = 1.0
        self.log: list[Any] = []
        self.open = {"start": 0, "interrupt": 0, "sweep": 0}
        self.connected = False
        self.prompt_may_be_refused = False

    @rule()
    def its_place_comes(self) -> None:
        self._feed(do.Begin())

    @precondition(lambda self: self.open["start"])
    @rule(works=st.booleans())
    def the_start_answers(self, works: bool) -> None:
        self.open["start"] -= 1
        self.connected = works
        self._feed(do.Ready() if works else do.StartFailed("no agent"))

    @precondition(lambda self: self.prompt_may_be_refused)
    @rule()
    def the_prompt_is_refused(self) -> None:
        self.prompt_may_be_refused = False
        self._feed(do.StartFailed("broken pipe"))

    @precondition(lambda self: self.open["interrupt"])
    @rule(answer=st.sampled_from([do.Acked(), do.Acked(withdrawn=True), do.NotAcked()]))
    def the_interrupt_answers(self, answer: do.Stimulus) -> None:
        self.open["interrupt"] -= 1
        self._feed(answer)

    @precondition(lambda self: self.open["sweep"])
    @rule()
    def the_sweep_answers(self) -> None:
        self.open["sweep"] -= 1
        self._feed(do.Cleared())

    @precondition(lambda self: self.connected)
    @rule()
    def the_process_dies(self) -> None:
        self._feed(do.Gone("died"))

    @precondition(lambda self: self.connected)
    @rule(event=st.sampled_from(EVENTS))
    def the_agent_speaks(self, event: ev.Event) -> None:
        self._feed(do.Heard(event))

    @rule(reason=st.sampled_from(Reason), force=st.booleans())
    def somebody_stops_it(self, reason: Reason, force: bool) -> None:
        self._feed(do.StopAsked(reason, force))

    @rule()
    def the_kernel_leaves(self) -> None:
        self._feed(do.Hurry(self.turn.ladder.policy.hurried(2.0)))

    def teardown(self) -> None:
        """Whatever came before: a forced stop ends it in time."""
        self._feed(do.StopAsked(Reason.USER, force=True))
        policy = self.turn.ladder.policy
        self.time_goes_on(policy.total + policy.settle + policy.terminate + policy.kill)
        assert self.turn.state is TurnState.ENDED

    @rule(seconds=st.floats(0.0, 8.0))
    def time_goes_on(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(1000):
            deadline = self.turn.deadline
            if deadline is None or deadline > until or self.turn.state is TurnState.ENDED:
                break
            self.now = max(self.now, deadline)
            self._feed(do.Tick())
        else:
            raise AssertionError("the deadline does not move on")
        self.now = until

    @invariant()
    def over_is_told(self) -> None:
        assert self.turn.over == (Order.RELEASE in self.log)

    @invariant()
    def the_end_has_an_outcome(self) -> None:
        if self.turn.state is TurnState.ENDED:
            assert self.turn.outcome is not None
            assert not self.turn.ladder.engaged

    @invariant()
    def the_prompt_is_handed_over_once(self) -> None:
        assert self.log.count(Order.SEND) == int(self.turn.sent)

    @invariant()
    def the_receipt_can_be_printed(self) -> None:
        receipt = self.turn.receipt(opened=True, text_chars=0)
        assert receipt is None or str(receipt)

    def _feed(self, stimulus: do.Stimulus) -> None:
        orders = self.turn.handle(stimulus, self.now)
        self.log += orders
        self.prompt_may_be_refused |= Order.SEND in orders
        self.open["start"] += orders.count(Order.START)
        self.open["interrupt"] += orders.count(Act.INTERRUPT)
        self.open["sweep"] += sum(o in (Act.SWEEP, Act.KILL, Act.REAP) for o in orders)


FEW = settings(max_examples=60, stateful_step_count=40, deadline=None, database=None)


@pytest.mark.parametrize("machine", [AnyOrder, HonestDriver])
def test_whatever_happens(machine: type[RuleBasedStateMachine]) -> None:
    case = machine.TestCase
    case.settings = FEW
    case().runTest()
