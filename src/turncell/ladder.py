"""The stop ladder: a pure machine that decides what a stop does next.

Rules of this file
 1. Everything that decides a move is in `TABLE`; the class below only looks up.
 2. Time is an argument. There is no clock, thread, socket or screen here.
 3. An illegal move raises `IllegalMove`, tells the story so far and changes nothing.

Theory of operation
    A stop climbs from the politest rung to the hardest. It stays on a rung until
    the rung works or its seconds are over, and a repeated press skips to the next.

    ASK and GRACE are the polite rung: the agent is asked (again and again, since
    an early request can be lost), an ack moves ASK to GRACE, and only the turn's
    own terminal message (FINISHED) ends it. Then SETTLE waits for the acks that
    are still on their way, lest one hits the next turn, and for the sweep of the
    tools' processes; the agent stays warm.

    SIGINT, TERMINATE and KILL are the forced rungs. They end when the agent's
    process is GONE; REAP then kills what it left behind and verifies. `CLEARED`
    is the verdict on the processes: it alone ends a forced stop.

    RUNS_ON is where `strategy="interrupt"` gives up: the turn is reported as
    unstopped, and the machine keeps listening until it does end.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from turncell.errors import TurncellError
from turncell.outcome import Rung
from turncell.settings import StopPolicy, Strategy

__all__ = ["TABLE", "Act", "IllegalMove", "StopLadder", "StopState", "StopStimulus"]


class StopState(str, Enum):
    """Where a stop is."""

    IDLE = "idle"
    ASK = "ask"
    GRACE = "grace"
    SIGINT = "sigint"
    TERMINATE = "terminate"
    KILL = "kill"
    REAP = "reap"
    SETTLE = "settle"
    RUNS_ON = "runs_on"
    ENDED = "ended"


class StopStimulus(str, Enum):
    """What can happen to a stop."""

    REQUEST = "request"  # the first press
    PRESS = "press"  # a repeated press
    FORCE = "force"  # a third press, or --now
    ACK = "ack"  # the agent answered an interrupt
    NO_ACK = "no_ack"  # an interrupt could not be sent, or was refused
    FINISHED = "finished"  # this turn's own terminal message
    GONE = "gone"  # the agent's process has ended
    CLEARED = "cleared"  # the processes were swept and verified
    RESEND = "resend"  # time to ask once more
    TIMEOUT = "timeout"  # the seconds of this state are over
    QUIET = "quiet"  # SETTLE: swept, and no ack is on its way any more


class Act(str, Enum):
    """What the driver must do. The ladder never does anything itself."""

    REFUSE = "refuse"  # refuse new tools, settle open questions as cancelled
    INTERRUPT = "interrupt"  # ask the agent to stop
    SWEEP = "sweep"  # end the processes of this turn's tools; keep the agent
    SIGINT = "sigint"  # SIGINT to the agent process alone
    TERMINATE = "terminate"  # snapshot the tree, hang up, SIGTERM
    KILL = "kill"  # SIGKILL everything, sweep, reap, verify
    REAP = "reap"  # the same, after the agent left by itself
    GIVE_UP = "give_up"  # report the turn as unstopped
    CONCLUDE = "conclude"  # the stop is over


class Goto(str, Enum):
    """A target that depends on the strategy or on what was asked before."""

    FIRST = "first"
    NEXT = "next"
    FORCED = "forced"


S, M = StopState, StopStimulus

#: state -> stimulus -> where to. A pair that is missing is illegal.
TABLE: Final[dict[StopState, dict[StopStimulus, StopState | Goto]]] = {
    S.IDLE: {M.REQUEST: Goto.FIRST, M.FORCE: Goto.FORCED},
    S.ASK: {
        M.PRESS: Goto.NEXT, M.FORCE: Goto.FORCED, M.ACK: S.GRACE, M.NO_ACK: S.ASK,
        M.FINISHED: S.SETTLE, M.GONE: S.REAP, M.RESEND: S.ASK, M.TIMEOUT: Goto.NEXT,
    },
    S.GRACE: {
        M.PRESS: Goto.NEXT, M.FORCE: Goto.FORCED, M.ACK: S.GRACE, M.NO_ACK: S.GRACE,
        M.FINISHED: S.SETTLE, M.GONE: S.REAP, M.RESEND: S.GRACE, M.TIMEOUT: Goto.NEXT,
    },
    S.SETTLE: {
        M.PRESS: S.SETTLE, M.FORCE: S.SETTLE, M.ACK: S.SETTLE, M.NO_ACK: S.SETTLE,
        M.FINISHED: S.SETTLE, M.GONE: S.REAP, M.CLEARED: S.SETTLE, M.QUIET: S.ENDED,
        M.TIMEOUT: S.TERMINATE,
    },
    S.SIGINT: {
        M.PRESS: S.TERMINATE, M.FORCE: S.KILL, M.ACK: S.SIGINT, M.NO_ACK: S.SIGINT,
        M.FINISHED: S.SIGINT, M.GONE: S.REAP, M.CLEARED: S.SIGINT, M.TIMEOUT: S.TERMINATE,
    },
    S.TERMINATE: {
        M.PRESS: S.KILL, M.FORCE: S.KILL, M.ACK: S.TERMINATE, M.NO_ACK: S.TERMINATE,
        M.FINISHED: S.TERMINATE, M.GONE: S.REAP, M.CLEARED: S.TERMINATE, M.TIMEOUT: S.KILL,
    },
    S.KILL: {
        M.PRESS: S.KILL, M.FORCE: S.KILL, M.ACK: S.KILL, M.NO_ACK: S.KILL,
        M.FINISHED: S.KILL, M.GONE: S.KILL, M.CLEARED: S.ENDED, M.TIMEOUT: S.ENDED,
    },
    S.REAP: {
        M.PRESS: S.REAP, M.FORCE: S.REAP, M.ACK: S.REAP, M.NO_ACK: S.REAP,
        M.FINISHED: S.REAP, M.GONE: S.REAP, M.CLEARED: S.ENDED, M.TIMEOUT: S.ENDED,
    },
    S.RUNS_ON: {
        M.PRESS: S.ASK, M.FORCE: Goto.FORCED, M.ACK: S.RUNS_ON, M.NO_ACK: S.RUNS_ON,
        M.FINISHED: S.SETTLE, M.GONE: S.REAP,
    },
    S.ENDED: {
        M.REQUEST: S.ENDED, M.PRESS: S.ENDED, M.FORCE: S.ENDED, M.ACK: S.ENDED,
        M.NO_ACK: S.ENDED, M.FINISHED: S.ENDED, M.GONE: S.ENDED, M.CLEARED: S.ENDED,
    },
}  # fmt: skip

#: What a state demands of the driver when it is entered.
ON_ENTRY: Final[dict[StopState, tuple[Act, ...]]] = {
    S.ASK: (Act.REFUSE, Act.INTERRUPT),
    S.GRACE: (),
    S.SETTLE: (Act.SWEEP,),
    S.SIGINT: (Act.SIGINT,),
    S.TERMINATE: (Act.REFUSE, Act.TERMINATE),
    S.KILL: (Act.REFUSE, Act.KILL),
    S.REAP: (Act.REAP,),
    S.RUNS_ON: (Act.GIVE_UP,),
    S.ENDED: (Act.CONCLUDE,),
}

#: The rung a state belongs to; SETTLE and REAP only finish what a rung began.
RUNGS: Final[dict[StopState, Rung]] = {
    S.ASK: Rung.INTERRUPT,
    S.GRACE: Rung.INTERRUPT,
    S.SIGINT: Rung.SIGINT,
    S.TERMINATE: Rung.TERMINATE,
    S.KILL: Rung.KILL,
}

_LEAST_RESEND: Final = 0.02  # seconds; less would ask without a pause

_CLIMB: Final[dict[StopState, StopState]] = {S.ASK: S.SIGINT, S.GRACE: S.SIGINT}


class IllegalMove(TurncellError):
    """A stimulus the table has no answer for; the story says how it came to that."""


class StopLadder:
    """One stop of one turn. `handle` is the only door."""

    def __init__(self, policy: StopPolicy) -> None:
        self.policy = policy
        self.state = StopState.IDLE
        self.rung: Rung | None = None
        self.requested_at: float | None = None
        self.acked_at: float | None = None
        self.finished_at: float | None = None
        self.cleared_at: float | None = None
        self.acks_in_flight = 0
        self.story: list[tuple[float, StopStimulus, StopState]] = []
        self._entered_at = 0.0
        self._asked_at = 0.0
        self._pressed_at = 0.0
        self._presses = 0
        self._sweeps = 0

    @property
    def engaged(self) -> bool:
        """Whether a stop was asked for and is not over."""
        return self.state not in (StopState.IDLE, StopState.ENDED)

    @property
    def deadline(self) -> float | None:
        """When (monotonic seconds) the ladder wants a `tick` at the latest."""
        ends = self._rung_ends()
        if ends is not None and self.state in (StopState.ASK, StopState.GRACE):
            return min(ends, self._asked_at + max(self.policy.resend, _LEAST_RESEND))
        return ends

    def rung_ends(self) -> float:
        """When (monotonic seconds) the present state gives up."""
        ends = self._rung_ends()
        return self._entered_at if ends is None else ends

    def press(self, now: float, *, force: bool = False) -> list[Act]:
        """A person, a timer or a program wants the turn to stop."""
        if force:
            return self.handle(StopStimulus.FORCE, now)
        if self.state is StopState.IDLE:
            return self.handle(StopStimulus.REQUEST, now)
        if now - self._pressed_at < self.policy.repeat_after:
            return []
        if self.policy.strategy is Strategy.INTERRUPT and self.state in (S.ASK, S.GRACE):
            self._pressed_at = now  # nothing harder may be done, so ask once more
            return self.handle(StopStimulus.RESEND, now)
        third = self._presses >= 2 and self.policy.strategy is not Strategy.INTERRUPT
        return self.handle(StopStimulus.FORCE if third else StopStimulus.PRESS, now)

    def hurry(self, policy: StopPolicy, now: float) -> list[Act]:
        """Go on under a shorter policy, as if the present state began now."""
        before = self._rung_ends()
        self.policy = policy
        self._entered_at = now
        after = self._rung_ends()
        if before is not None and after is not None:  # it may not get longer
            self._entered_at -= max(0.0, after - before)
        return self.press(now) if self.state in (S.IDLE, S.RUNS_ON) else []

    def tick(self, now: float) -> list[Act]:
        """Time went on: climb when this state's seconds are over, or ask again."""
        ends = self._rung_ends()
        if ends is not None and now >= ends:
            return self.handle(StopStimulus.TIMEOUT, now)
        deadline = self.deadline
        if deadline is not None and now >= deadline:
            return self.handle(StopStimulus.RESEND, now)
        return []

    def handle(self, stimulus: StopStimulus, now: float) -> list[Act]:
        """Take one stimulus at `now` and return what must be done, in order.

        Raises IllegalMove, and changes nothing, when the table has no such move.
        """
        target = TABLE[self.state].get(stimulus)
        if stimulus is M.CLEARED and target is S.ENDED and self._sweeps > 1:
            target = self.state  # the answer to an earlier sweep proves nothing
        if target is None:
            story = " ".join(f"{t:.3f}:{m.value}->{s.value}" for t, m, s in self.story)
            raise IllegalMove(f"{stimulus.value} in state {self.state.value}; story: {story}")
        state = self._resolve(target) if isinstance(target, Goto) else target
        self._note(stimulus, now)
        self.story.append((now, stimulus, state))
        acts = self._enter(state, stimulus, now)
        if self.state is S.SETTLE and self.acks_in_flight == 0 and self.cleared_at is not None:
            acts += self.handle(StopStimulus.QUIET, now)
        return acts

    def _resolve(self, goto: Goto) -> StopState:
        strategy = self.policy.strategy
        if goto is Goto.FORCED:
            return S.KILL
        if goto is Goto.FIRST:
            return S.TERMINATE if strategy is Strategy.KILL else S.ASK
        return S.RUNS_ON if strategy is Strategy.INTERRUPT else _CLIMB[self.state]

    def _note(self, stimulus: StopStimulus, now: float) -> None:
        if stimulus in (M.REQUEST, M.PRESS, M.FORCE):
            self._pressed_at = now
            self._presses += 1
            if self.requested_at is None:
                self.requested_at = now
        elif stimulus is M.ACK:
            self.acked_at = now if self.acked_at is None else self.acked_at
        elif stimulus is M.FINISHED:
            self.finished_at = now if self.finished_at is None else self.finished_at
        elif stimulus is M.CLEARED:
            self.cleared_at = now
            self._sweeps -= 1
        if stimulus in (M.ACK, M.NO_ACK):
            self.acks_in_flight = max(0, self.acks_in_flight - 1)

    def _enter(self, state: StopState, stimulus: StopStimulus, now: float) -> list[Act]:
        if state is not self.state:
            acts = list(ON_ENTRY[state])
            if self.finished_at is None:  # else the turn is over, only its process is not
                self.rung = RUNGS.get(state, self.rung)
            self.state = state
            self._entered_at = now
            self._sweeps += sum(act in (Act.SWEEP, Act.KILL, Act.REAP) for act in acts)
            if state in (S.TERMINATE, S.KILL, S.REAP):
                self.cleared_at = None
        else:
            acts = [Act.INTERRUPT] if stimulus is M.RESEND else []
        if Act.INTERRUPT in acts:
            self._asked_at = now
            self.acks_in_flight += 1
        return acts

    def _rung_ends(self) -> float | None:
        policy = self.policy
        seconds = {
            S.ASK: policy.ack,
            S.GRACE: policy.grace,
            S.SETTLE: policy.settle,
            S.SIGINT: policy.sigint,
            S.TERMINATE: policy.terminate,
            S.KILL: policy.kill,
            S.REAP: policy.kill,
        }.get(self.state)
        return None if seconds is None else self._entered_at + seconds
