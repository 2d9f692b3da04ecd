"""What is known of one turn under way: its events, its picture, its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from turncell import events as ev
from turncell.ladder import StopState
from turncell.link import Link
from turncell.outcome import Outcome, StopReceipt, TurnResult
from turncell.picture import Snapshot, StopView
from turncell.settings import Settings
from turncell.transcript import Transcript
from turncell.turn import Turn

__all__ = ["Record"]


class Record:
    """Keeps the events of a turn and makes pictures (`look`) and the `result` of it."""

    def __init__(
        self,
        turn: Turn,
        link: Link,
        settings: Settings,
        session: str,
        clock: Callable[[], float],
    ) -> None:
        self.queued_behind = 0
        self._turn = turn
        self.link = link
        self._settings = settings
        self._session = session
        self._clock = clock
        self._transcript = Transcript()
        self._events: list[ev.Event] = []
        self._began = clock()
        self._ended: float | None = None
        self._ended_as: Outcome | None = None
        self._told = StopState.IDLE

    @property
    def used_tools(self) -> bool:
        """Whether the agent called a tool in this turn."""
        return any(isinstance(event, ev.ToolStarted) for event in self._events)

    def keep(self, event: ev.Event) -> None:
        """Take in an event of this turn."""
        self._transcript.fold(event)
        if not isinstance(event, ev.ToolOutput):  # one a second, of which the last one counts
            self._events.append(event)

    def stop_moved(self) -> ev.StopProgress | None:
        """The event of a stop that began or went on to another state since the last call."""
        ladder = self._turn.ladder
        if not ladder.engaged or ladder.rung is None or ladder.state is self._told:
            return None
        self._told = ladder.state
        now = self._clock()
        return ev.StopProgress(
            turn_id=self._turn.turn_id,
            at=now,
            rung=str(ladder.rung),
            seconds_left=max(0.0, ladder.rung_ends() - now),
        )

    def end(self) -> ev.TurnEnded:
        """The last event of the turn."""
        turn = self._turn
        return ev.TurnEnded(
            turn_id=turn.turn_id,
            at=self._clock(),
            outcome=str(turn.outcome),
            reason=turn.reason and str(turn.reason),
            error=turn.error,
        )

    def look(self) -> Snapshot:
        """The picture as it is now."""
        turn, now = self._turn, self._clock()
        picture = self._transcript.paint(
            Snapshot(
                turn_id=turn.turn_id,
                session=self._session,
                phase="ended" if turn.over else turn.phase,
                now=now,
                began=self._began,
                session_id=self.link.session_id,
                model=self._settings.model,
                queued_behind=self.queued_behind,
                stop=self._stop(),
            )
        )
        return self._last_look(picture) if turn.over else picture

    def _stop(self) -> StopView | None:
        ladder = self._turn.ladder
        if not ladder.engaged or ladder.rung is None or ladder.requested_at is None:
            return None
        rung_ends = ladder.rung_ends()
        stop_ends = ladder.requested_at + ladder.policy.total
        return StopView(ladder.rung.value, rung_ends, max(stop_ends, rung_ends))

    def _last_look(self, picture: Snapshot) -> Snapshot:
        turn = self._turn
        if self._ended is None or self._ended_as is not turn.outcome:
            self._ended, self._ended_as = self._clock(), turn.outcome
            if turn.outcome is not Outcome.UNSTOPPED:
                self._transcript.close(self._ended)
                picture = self._transcript.paint(picture)
        return replace(
            picture,
            phase="ended",
            stop=None,
            outcome=turn.outcome and str(turn.outcome),
            reason=turn.reason and str(turn.reason),
            error=turn.error,
            receipt=self._receipt(len(picture.text)),
            duration=self._ended - self._began,
        )

    def _receipt(self, text_chars: int) -> StopReceipt | None:
        link = self.link
        return self._turn.receipt(opened=link.opened, warm=not link.ended, text_chars=text_chars)

    def result(self) -> TurnResult:
        """Everything the turn has left."""
        picture, turn, usage = self.look(), self._turn, self._transcript.usage
        return TurnResult(
            text=picture.text,
            outcome=turn.outcome or Outcome.UNSTOPPED,
            reason=turn.reason,
            session_id=picture.session_id,
            turn_id=turn.turn_id,
            session=self._session,
            cost_usd=usage.cost_usd,
            usage=usage.usage,
            duration=picture.elapsed,
            model_turns=usage.model_turns,
            model=picture.model,
            tools=self._transcript.tools(),
            receipt=picture.receipt,
            error=turn.error,
            told=self._transcript.told,
            events=tuple(self._events),
        )
