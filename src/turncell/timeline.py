"""Who worked when in one turn: spans on lanes, made from the turn's events.

A `Timeline` is plain data; `views/timeline_svg.py` draws it. Its times are seconds after
the turn's start. A time that an event lacks (`at` is 0) is that of the event before it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from turncell import events as ev
from turncell.outcome import TurnResult, main_input

__all__ = ["Lane", "Span", "Timeline", "of_result", "under_way"]

#: What a timeline says that has nothing to draw.
NOTHING = "No timeline: this result has no events. The journal may: %agent timeline ID"
#: By name, loaded on first use: this is plain data, what draws it needs a template engine.
_DRAWING = "turncell.views.timeline_svg"

_OURS = (ev.Notice, ev.ModelTold, ev.StopProgress, ev.TurnEnded)  # not of the agent

_Period = tuple[float, float]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of a lane in seconds. `word` says what it was, or how it ended."""

    start: float
    end: float
    word: str


@dataclass(frozen=True, slots=True)
class Lane:
    """What one of those at work did: `kind` is starting, model, tool, you, retry or stop.

    A tool's lane is one call; `above` names the calls it was made for, the outermost first.
    `detail` says more: the main input of a call, what a person was asked about.
    """

    kind: str
    name: str
    spans: tuple[Span, ...]
    detail: str = ""
    above: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds in which any of its spans was open."""
        return sum(end - start for start, end in _union(self.spans))


@dataclass(frozen=True, slots=True)
class Timeline:
    """Who worked when in a turn of `duration` seconds; `str()` is the table in words.

    `outcome` is running for a turn under way; `note` says why there are no lanes.
    """

    turn_id: str
    session: str
    outcome: str
    reason: str | None
    duration: float
    lanes: tuple[Lane, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return str(importlib.import_module(_DRAWING).words(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return dict(importlib.import_module(_DRAWING).bundle(self))


def of_result(result: TurnResult) -> Timeline:
    """The timeline of a turn that is over."""
    duration = result.duration if _known(result.duration) else 0.0
    facts = result.turn_id, result.session, str(result.outcome), result.reason
    times = [event.at for event in result.events if _known(event.at)]
    if not times:
        return Timeline(*facts, duration, note=NOTHING)
    end = max(_end(result, times), min(times))
    log = _Log(result.events, min(end - duration, min(times)), end)
    return Timeline(*facts, log.duration, log.lanes({t.tool_id: t.status for t in result.tools}))


def under_way(
    events: Iterable[ev.Event], began: float, now: float, turn_id: str, session: str
) -> Timeline:
    """The timeline so far of a turn that began at `began`, at `now` (monotonic seconds)."""
    log = _Log(events, began, max(began, now))
    return Timeline(turn_id, session, "running", None, log.duration, log.lanes({}))


def _known(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0


def _end(result: TurnResult, times: list[float]) -> float:
    """When the turn was over, on the clock of its events."""
    receipt = result.receipt
    after = receipt and (receipt.reaped_after or receipt.ended_after)
    if receipt is not None and after and _known(receipt.requested_at + after):
        return receipt.requested_at + after
    # `TurnEnded` comes only when the last picture was drawn and the disk has the journal.
    finished = [e.at for e in result.events if isinstance(e, ev.AgentFinished) and _known(e.at)]
    return max(finished or times)


@dataclass
class _Stretch:
    """A span that may still be open. `line` numbers a call and, before it, those above it."""

    start: float
    word: str = ""
    end: float | None = None
    name: str = ""
    detail: str = ""
    line: tuple[int, ...] = ()
    above: tuple[str, ...] = ()


class _Log:
    """What the events of one turn say, read in order."""

    def __init__(self, events: Iterable[ev.Event], began: float, end: float) -> None:
        self.duration, self._now = end - began, 0.0
        self._opened: float | None = None
        self._finished = self.duration
        self._calls, self._asked = dict[str, _Stretch](), dict[str, _Stretch]()
        self._said = dict[tuple[str, str], _Stretch]()
        self._retries, self._rungs = list[_Stretch](), dict[str, float]()
        for event in events:
            if _known(event.at):
                self._now = min(max(self._now, event.at - began), self.duration)
            if not isinstance(event, _OURS):
                self._opened = self._now if self._opened is None else self._opened
                for retry in self._retries[-1:]:  # it waited no longer than this
                    retry.end = min(retry.end or 0.0, self._now)
            self._add(event)

    def _add(self, event: ev.Event) -> None:
        match event:
            case ev.TextDelta() | ev.TextSettled() | ev.ThinkingDelta():
                word = "thinking" if isinstance(event, ev.ThinkingDelta) else "writing"
                said = self._said.setdefault((word, event.block), _Stretch(self._now, word))
                said.end = self._now
            case ev.ToolStarted():
                self._call(event)
            case ev.ToolEnded():
                self._settle(self._calls.get(event.tool_id), event.status)
            case ev.QuestionAsked():
                asked = _Stretch(self._now, "not answered", detail=event.tool)
                self._asked.setdefault(event.question_id, asked)
            case ev.QuestionSettled():
                self._settle(self._asked.get(event.question_id), event.answer)
            case ev.ApiRetry():
                self._wait(event)
            case ev.StopProgress():
                self._rungs.setdefault(event.rung, self._now)
            case ev.AgentFinished():
                self._finished = self._now

    def _settle(self, stretch: _Stretch | None, word: str) -> None:
        if stretch is not None and stretch.end is None:
            stretch.word, stretch.end = word, self._now

    def _call(self, event: ev.ToolStarted) -> None:
        detail = main_input(event.input)[:200]
        call = _Stretch(self._now, "", None, event.name, detail, (len(self._calls),))
        parent = self._calls.get(event.parent or "")
        if parent is not None:
            call.line, call.above = parent.line + call.line, (*parent.above, parent.name)
        self._calls.setdefault(event.tool_id, call)

    def _wait(self, event: ev.ApiRetry) -> None:
        detail = f"{event.attempt} of {event.limit}" + f" ({event.status})" * bool(event.status)
        end = self._now + (event.delay if _known(event.delay) else 0.0)
        self._retries.append(_Stretch(self._now, "waited", end, detail=detail))

    def lanes(self, statuses: dict[str, str | None]) -> tuple[Lane, ...]:
        """Every lane with something on it; `statuses` of calls whose end is no event."""
        for tool_id, call in self._calls.items():
            call.word = call.word or statuses.get(tool_id) or "running"
        calls = sorted(self._calls.values(), key=lambda call: call.line)
        opened = _Stretch(0.0, "not ready" if self._opened is None else "ready", self._opened)
        edges = [*self._rungs.values(), self.duration]
        lanes = [
            self._lane("starting", "starting", [opened] if self._opened != 0.0 else []),
            Lane("model", "model", self._model()),
            self._lane("retry", "API retry", self._retries),
            *(self._lane("tool", call.name, [call]) for call in calls),
            self._lane("you", "you", self._asked.values()),
            Lane("stop", "stop", tuple(map(Span, edges, edges[1:], self._rungs))),
        ]
        return tuple(lane for lane in lanes if lane.spans)

    def _lane(self, kind: str, name: str, stretches: Iterable[_Stretch]) -> Lane:
        last = [_Stretch(0.0), *stretches][-1]
        return Lane(kind, name, tuple(map(self._span, stretches)), last.detail, last.above)

    def _span(self, stretch: _Stretch) -> Span:
        end = self.duration if stretch.end is None else min(stretch.end, self.duration)
        return Span(stretch.start, end, stretch.word)

    def _model(self) -> tuple[Span, ...]:
        """Its time without tools, people and pauses of the API; and what it said meanwhile."""
        if self._opened is None:
            return ()
        top = [call for call in self._calls.values() if len(call.line) == 1]
        busy = _union(map(self._span, [*top, *self._asked.values(), *self._retries]))
        said = sorted(map(self._span, self._said.values()))
        meanwhile = [(s, a, b) for a, b in busy for s in said if s.start < b and s.end > a]
        spans = [Span(max(s.start, a), min(s.end, b), s.word) for s, a, b in meanwhile]
        for period in _gaps(busy, self._opened, self._finished):
            spans += _phases(*period, said)
        return tuple(sorted(span for span in spans if span.end > span.start))


def _union(spans: Iterable[Span]) -> list[_Period]:
    """The times in which any of them was open."""
    merged: list[_Period] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], span.end)
        else:
            merged.append((span.start, span.end))
    return merged


def _gaps(busy: list[_Period], start: float, end: float) -> list[_Period]:
    """What of the time from `start` to `end` is not in `busy`."""
    edges = [start, *(min(max(edge, start), end) for period in busy for edge in period), end]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _phases(start: float, end: float, said: list[Span]) -> list[Span]:
    """One stretch of the model's work: asked, until it thinks or writes."""
    starts = [(start, "asked")]
    for span in said:
        if span.start < end and span.end >= start and span.word != starts[-1][1]:
            starts.append((max(start, span.start), span.word))
    edges = [*(at for at, _ in starts), end]
    return [Span(at, edges[n + 1], word) for n, (at, word) in enumerate(starts)]
