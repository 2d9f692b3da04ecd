"""`Turn`: a pure machine for one prompt and everything until its end.

Rules of this file
 1. `handle(stimulus, now)` is the only door; it returns what must be done.
 2. Time is an argument. There is no clock, thread, socket or screen here.
 3. Identity is checked here and nowhere else: an event that names another turn
    is kept in `dropped` and changes nothing.
 4. How a turn ended is decided by what we asked for and by the agent's own
    terminal message, never by the wording of an error.

Theory of operation
    NEW waits in line. STARTING has its agent being made ready. From the moment
    SEND is ordered the turn is RUNNING: the prompt counts as handed over, so a
    stop from then on asks the agent instead of withdrawing the prompt. WAITING
    is RUNNING with a question open, during which the timeout's clock stands still.
    CLEARING ends the processes of an agent that died by itself. ENDED is the end.
    A stop runs on the `StopLadder` that the turn owns; the turn ends when it does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum

from turncell import events as ev
from turncell.ladder import Act, StopLadder, StopState, StopStimulus
from turncell.outcome import Outcome, Reason, Rung, StopReceipt, Survivor
from turncell.settings import StopPolicy, Strategy
from turncell.stimuli import (
    Acked,
    Answered,
    Begin,
    Cleared,
    Gone,
    Heard,
    Hurry,
    NotAcked,
    Ready,
    StartFailed,
    Stimulus,
    StopAsked,
    Tick,
)

__all__ = ["Order", "Turn", "TurnState"]


class TurnState(str, Enum):
    """Where a turn is."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    CLEARING = "clearing"
    ENDED = "ended"


class Order(str, Enum):
    """What the driver must do besides the ladder's acts."""

    START = "start"  # make an agent ready: answers Ready or StartFailed
    SEND = "send"  # hand the prompt over
    ANSWER = "answer"  # hand on what a person said to a question
    RELEASE = "release"  # tell who waits: the turn is over, or could not be stopped


class Turn:
    """One prompt from its place in the line to its end."""

    def __init__(self, turn_id: str, policy: StopPolicy, timeout: float | None = None) -> None:
        self.turn_id = turn_id
        self.ladder = StopLadder(policy)
        self.state = TurnState.NEW
        self.outcome: Outcome | None = None
        self.reason: Reason | None = None
        self.error: str | None = None
        self.finished: ev.AgentFinished | None = None
        self.dropped: list[ev.Event] = []
        self.survivors: tuple[Survivor, ...] = ()
        self.spared: tuple[Survivor, ...] = ()
        self.taken: tuple[Survivor, ...] = ()
        self.sent = False
        self.closed_connection = False
        self._timeout = timeout
        self._timeout_at: float | None = None
        self._waiting_since: float | None = None
        self._open: set[str] = set()
        self._withdrawn = False
        self._clear_by: float | None = None

    @property
    def phase(self) -> str:
        """One word for the screen: queued, starting, running, waiting, stopping, ended."""
        if self.state is TurnState.ENDED:
            return "ended"
        if self.ladder.engaged:
            return "stopping"
        words = {TurnState.NEW: "queued", TurnState.CLEARING: "running"}
        return words.get(self.state, str(self.state.value))

    @property
    def over(self) -> bool:
        """Whether the turn is over for those who wait (an unstopped one is)."""
        return self.outcome is not None

    @property
    def deadline(self) -> float | None:
        """When (monotonic seconds) the turn wants a `Tick` at the latest."""
        deadlines = (self.ladder.deadline, self._clear_by, self._soft_deadline())
        return next((at for at in deadlines if at is not None), None)

    def handle(self, stimulus: Stimulus, now: float) -> list[Act | Order]:
        """Take one stimulus at `now` and return what must be done, in order."""
        if self.state is TurnState.ENDED:
            if isinstance(stimulus, Heard):
                self.dropped.append(stimulus.event)
            return []
        return list(_HANDLERS[type(stimulus)](self, stimulus, now))

    def fail(self, error: str) -> None:
        """End the turn because we ourselves failed; the only move that asks no table."""
        if self.state is TurnState.ENDED:
            return
        self.error = error
        self.closed_connection = True
        self._end(Outcome.FAILED)

    def receipt(self, *, opened: bool, text_chars: int, warm: bool = True) -> StopReceipt | None:
        """The record of the stop, or None when nobody asked for one.

        `opened` says whether the agent has written this conversation down, `warm`
        whether there is an agent at all.
        """
        ladder = self.ladder
        if ladder.requested_at is None or ladder.rung is None or self.reason is None:
            return None
        start = ladder.requested_at

        def after(at: float | None) -> float | None:
            return None if at is None else at - start

        return StopReceipt(
            reason=self.reason,
            rung=ladder.rung,
            requested_at=start,
            ack_after=after(ladder.acked_at),
            ended_after=after(ladder.finished_at),
            reaped_after=after(ladder.cleared_at),
            survivors=list(self.survivors),
            connection="warm" if warm and not self.closed_connection else "closed",
            resumable=opened,
            text_chars=text_chars,
            spared=list(self.spared),
            taken=list(self.taken),
        )

    # One method a stimulus.

    def _answered(self, _: Answered, now: float) -> list[Act | Order]:
        # From a stop on, nothing more is allowed: what is open is settled as cancelled.
        asks = self.state in (TurnState.RUNNING, TurnState.WAITING) and not self.ladder.engaged
        return [Order.ANSWER] if asks else []

    def _begin(self, _: Begin, now: float) -> list[Act | Order]:
        if self.state is not TurnState.NEW:
            return []
        self.state = TurnState.STARTING
        return [Order.START]

    def _ready(self, _: Ready, now: float) -> list[Act | Order]:
        if self.state is not TurnState.STARTING or self.ladder.engaged:
            return []
        self.state = TurnState.RUNNING
        self.sent = True
        self.closed_connection = False
        if self._timeout is not None:
            self._timeout_at = now + self._timeout
        return [Order.SEND]

    def _start_failed(self, stimulus: StartFailed, now: float) -> list[Act | Order]:
        if self.ladder.engaged:
            return self._gone(Gone(stimulus.error), now)
        if self.state is TurnState.CLEARING:
            return []
        self.error = stimulus.error
        return self._clear_up(Outcome.FAILED, now)

    def _heard(self, stimulus: Heard, now: float) -> list[Act | Order]:
        event = stimulus.event
        if event.turn_id not in ("", self.turn_id):
            self.dropped.append(event)
            return []
        if isinstance(event, ev.QuestionAsked):
            self._open.add(event.question_id)
            return self._question(True, now)
        if isinstance(event, ev.QuestionSettled):
            self._open.discard(event.question_id)
            return self._question(bool(self._open), now)
        if isinstance(event, ev.AgentFinished):
            return self._agent_finished(event, now)
        if isinstance(event, ev.UsageReported) and self.finished is not None:
            self.dropped.append(event)  # the figures of a terminal message said twice
        return []

    def _question(self, asked: bool, now: float) -> list[Act | Order]:
        if asked and self.state is TurnState.RUNNING:
            self.state = TurnState.WAITING
            self._waiting_since = now
        elif not asked and self.state is TurnState.WAITING:
            self.state = TurnState.RUNNING
            if self._timeout_at is not None and self._waiting_since is not None:
                self._timeout_at += now - self._waiting_since
        return []

    def _agent_finished(self, event: ev.AgentFinished, now: float) -> list[Act | Order]:
        if not self.sent or self.finished is not None:
            self.dropped.append(event)  # it says it twice, or before it was asked
            return []
        self.finished = event
        if self.ladder.state is not StopState.IDLE:
            return self._ladder(self.ladder.handle(StopStimulus.FINISHED, now))
        outcome, self.reason = _ENDS.get(event.end, (Outcome.FAILED, None))
        self.error = (event.error or _BROKE_OFF) if outcome is Outcome.FAILED else None
        # One that was interrupted from outside is about to leave, and takes no prompt any more.
        return self._clear_up(outcome, now) if event.end == "aborted" else self._end(outcome)

    def _stop_asked(self, stimulus: StopAsked, now: float) -> list[Act | Order]:
        if self.state is TurnState.CLEARING:
            return []  # its process is gone already: nothing is left to stop
        if self.reason is None:
            self.reason = stimulus.reason
        if self.state is TurnState.NEW:
            return self._withdraw(now)
        if self.state is TurnState.STARTING and not self.ladder.engaged:
            # Nothing was sent, so there is nobody to ask: the starting agent is closed.
            self.ladder.policy = _closing(self.ladder.policy)
        return self._ladder(self.ladder.press(now, force=stimulus.force))

    def _withdraw(self, now: float) -> list[Act | Order]:
        ladder = self.ladder
        ladder.requested_at = ladder.finished_at = ladder.cleared_at = now
        ladder.rung = Rung.INTERRUPT  # nothing harder was needed
        return self._end(Outcome.INTERRUPTED)

    def _hurry(self, stimulus: Hurry, now: float) -> list[Act | Order]:
        if self.state is TurnState.CLEARING and self._clear_by is not None:
            self._clear_by = min(self._clear_by, now + stimulus.policy.kill)
            return []
        if self.state is TurnState.NEW:
            return self._stop_asked(StopAsked(Reason.SHUTDOWN), now)
        self.reason = self.reason or Reason.SHUTDOWN
        policy = stimulus.policy
        if self.state is TurnState.STARTING:
            policy = _closing(policy)
        return self._ladder(self.ladder.hurry(policy, now))

    def _acked(self, stimulus: Acked, now: float) -> list[Act | Order]:
        acts = self._ladder(self.ladder.handle(StopStimulus.ACK, now))
        if stimulus.withdrawn and self.finished is None and self.state is not TurnState.ENDED:
            # The agent dropped our prompt before it began: no message will come.
            self._withdrawn = True
            acts += self._ladder(self.ladder.handle(StopStimulus.FINISHED, now))
        return acts

    def _not_acked(self, _: NotAcked, now: float) -> list[Act | Order]:
        return self._ladder(self.ladder.handle(StopStimulus.NO_ACK, now))

    def _gone(self, stimulus: Gone, now: float) -> list[Act | Order]:
        self.closed_connection = True
        if self.ladder.state is not StopState.IDLE:
            return self._ladder(self.ladder.handle(StopStimulus.GONE, now))
        if self.state in (TurnState.RUNNING, TurnState.WAITING):
            self.error = stimulus.detail or "the agent process ended by itself"
            return self._clear_up(Outcome.LOST, now)
        return []  # while it starts, StartFailed brings the reason

    def _cleared(self, stimulus: Cleared, now: float) -> list[Act | Order]:
        acts: list[Act] = []
        if self.ladder.state is not StopState.IDLE:
            acts = self.ladder.handle(StopStimulus.CLEARED, now)
        self.survivors = stimulus.survivors
        self.spared, self.taken = stimulus.spared, stimulus.taken
        if self.ladder.state is not StopState.IDLE:
            return self._ladder(acts)
        return self._end(self._clearing) if self.state is TurnState.CLEARING else []

    def _tick(self, _: Tick, now: float) -> list[Act | Order]:
        if self.ladder.engaged:
            return self._ladder(self.ladder.tick(now))
        if self.state is TurnState.CLEARING and self._clear_by is not None:
            return self._end(self._clearing) if now >= self._clear_by else []
        soft = self._soft_deadline()
        if soft is not None and now >= soft:
            return self._stop_asked(StopAsked(Reason.TIMEOUT), now)
        return []

    def _soft_deadline(self) -> float | None:
        counts = self.state is TurnState.RUNNING and self.ladder.state is StopState.IDLE
        return self._timeout_at if counts else None

    def _clear_up(self, outcome: Outcome, now: float) -> list[Act | Order]:
        self.state = TurnState.CLEARING
        self._clearing = outcome
        self._clear_by = now + self.ladder.policy.kill
        self.closed_connection = True
        return [Act.REAP]

    def _ladder(self, acts: list[Act]) -> list[Act | Order]:
        orders: list[Act | Order] = []
        for act in acts:
            if act in _CLOSING_ACTS:
                self.closed_connection = True
            if act is Act.GIVE_UP:
                self.outcome = Outcome.UNSTOPPED
                orders.append(Order.RELEASE)
            elif act is Act.CONCLUDE:
                orders += self._end(self._stopped_outcome())
            else:
                orders.append(act)
        return orders

    def _stopped_outcome(self) -> Outcome:
        if self.finished is not None and self.finished.end == "completed":
            return Outcome.COMPLETED
        if self.finished is not None or self._withdrawn or not self.sent:
            return Outcome.INTERRUPTED
        return Outcome.KILLED

    def _end(self, outcome: Outcome) -> list[Act | Order]:
        self.state = TurnState.ENDED
        self._clear_by = None
        self.outcome = outcome  # also of an unstopped turn: now it is known how it ended
        return [Order.RELEASE]


_BROKE_OFF = "the agent broke off, or was interrupted from outside.\nRun the cell again to go on."
_CLOSING_ACTS = (Act.SIGINT, Act.TERMINATE, Act.KILL, Act.REAP)

#: What the agent's own terminal message makes of a turn nobody stopped.
_ENDS: dict[str, tuple[Outcome, Reason | None]] = {
    "completed": (Outcome.COMPLETED, None),
    "aborted": (Outcome.FAILED, None),
    "max_turns": (Outcome.FAILED, Reason.MAX_TURNS),
    "budget": (Outcome.FAILED, Reason.BUDGET),
    "error": (Outcome.FAILED, None),
}

_HANDLERS: dict[type[Stimulus], Callable[..., list[Act | Order]]] = {
    Begin: Turn._begin,
    Ready: Turn._ready,
    StartFailed: Turn._start_failed,
    Heard: Turn._heard,
    StopAsked: Turn._stop_asked,
    Hurry: Turn._hurry,
    Acked: Turn._acked,
    Answered: Turn._answered,
    NotAcked: Turn._not_acked,
    Gone: Turn._gone,
    Cleared: Turn._cleared,
    Tick: Turn._tick,
}


def _closing(policy: StopPolicy) -> StopPolicy:
    return dataclasses.replace(policy, strategy=Strategy.KILL)
