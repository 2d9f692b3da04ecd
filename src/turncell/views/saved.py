"""What a finished turn leaves in the notebook: one bundle, readable everywhere.

text/plain has every word; Markdown and HTML show the same, escaped; the record is for tools
(and holds no second copy of the text).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

from turncell.outcome import RECORD_TYPE, Outcome, Reason, ToolCall, TurnResult
from turncell.picture import Segment, Snapshot
from turncell.transcript import Transcript
from turncell.views import frames
from turncell.views.blocks import PLAIN_AFTER
from turncell.views.cleaning import clean
from turncell.views.escaping import escape_markdown, literal
from turncell.views.words import (
    earlier_lines,
    error_text,
    final_line,
    question_line,
    survivor_lines,
    tool_line,
)

__all__ = ["ended_bundle", "plain_text", "result_bundle", "running_bundle"]

_ROOM = 800_000  # characters of folded cards and outputs; what comes then has its line
_END = 50_000  # characters of a long text that are unfolded
_MOST = 2_000_000  # characters of a text that a page is given
_RECORD_STRING = 2000  # characters of a tool's input or output that the record keeps


def result_bundle(result: TurnResult) -> dict[str, Any]:
    """The mime bundle of a result: plain, Markdown, HTML and its record."""
    return _bundle(_picture(result), result)


def ended_bundle(snapshot: Snapshot, *, math: bool = False) -> dict[str, Any]:
    """The same bundle from the last picture of a turn; `math` leaves what stands between
    dollars to the front end."""
    return _bundle(snapshot, _result(snapshot), math=math)


def running_bundle(snapshot: Snapshot, *, math: bool = False) -> dict[str, Any]:
    """A turn so far, as one output."""
    lines = _step_lines(snapshot.segments)
    bundle = {"text/plain": "\n\n".join(filter(None, [clean(snapshot.text), "\n".join(lines)]))}
    bundle["text/html"] = frames.frame(_body(snapshot, frames.LIVE, math), math=math)
    return bundle


def plain_text(snapshot: Snapshot) -> str:
    """The whole answer, then a line for each step, then how the turn ended."""
    steps = "\n".join(_step_lines(snapshot.segments))
    parts = [clean(snapshot.text), steps, "\n".join(_ending(snapshot))]
    return "\n\n".join(filter(None, parts))


def _bundle(snapshot: Snapshot, result: TurnResult, *, math: bool = False) -> dict[str, Any]:
    bundle: dict[str, Any] = {"text/plain": plain_text(snapshot), RECORD_TYPE: _record(result)}
    bundle["text/html"] = _html(snapshot, math)
    bundle["text/markdown"] = _markdown(snapshot, math)
    return bundle


def _is_long(snapshot: Snapshot) -> bool:
    # Megabytes of Markdown would take a front end (and the parser) minutes.
    return sum(len(s.text) for s in snapshot.segments if s.kind == "text") > PLAIN_AFTER


def _tools(snapshot: Snapshot) -> list[ToolCall]:
    return [s.tool for s in snapshot.segments if s.tool is not None]


def _step_lines(segments: Iterable[Segment]) -> list[str]:
    """A line for each notice, question and tool call; those of sub-agents are set in."""
    lines = [frames.notice_line(s) for s in segments if s.kind == "notice"]
    for segment in segments:
        if segment.tool is not None:
            lines.append(("  " if segment.tool.parent else "") + tool_line(segment.tool))
        elif segment.question is not None:
            lines.append(question_line(segment.question))
        elif segment.kind == "todos" and segment.text:
            lines += clean(segment.text).split("\n")
    return lines


def _ending(snapshot: Snapshot) -> list[str]:
    error = error_text(snapshot)
    lines = [f"error: {error}"] if error else []
    return [*lines, *survivor_lines(snapshot), *earlier_lines(snapshot), final_line(snapshot)]


def _markdown(snapshot: Snapshot, math: bool) -> str:
    """The turn in its own order; of a text that is too long to be rendered, its end."""
    ending = "\n\n".join(literal(line) for line in _ending(snapshot))
    if _is_long(snapshot):
        text = clean(snapshot.text)
        left = literal(f"[{len(text) - _END:,} characters before]")
        return "\n\n".join([left, literal(text[-_END:]), ending])
    parts = []
    for is_text, run in groupby(snapshot.segments, key=lambda s: s.kind == "text"):
        if is_text:
            parts += [escape_markdown(clean(s.text), math=math) for s in run]
        else:
            parts.append("\n".join(f"- {literal(line)}" for line in _step_lines(list(run))))
    return "\n\n".join(filter(None, [*parts, ending]))


def _html(snapshot: Snapshot, math: bool) -> str:
    parts = []
    error = error_text(snapshot)
    if error:
        parts.append(frames.line(f"error: {error}", "error", wrap=True))
    parts += [frames.line(text, "alarm") for text in survivor_lines(snapshot)]
    parts += [frames.line(text) for text in earlier_lines(snapshot)]
    parts.append(frames.closing_line(final_line(snapshot)))
    ending = "".join(parts)
    body = _body(snapshot, frames.Room(_ROOM), math)
    return frames.frame(body + (frames.frame(ending) if math else ending), math=math)


def _body(snapshot: Snapshot, room: frames.Room, math: bool) -> str:
    """What the agent said and did. A long text is shown as it is written, its end unfolded;
    of megabytes only that end, for no page can take more."""
    if not _is_long(snapshot):
        return frames.segments_html(snapshot.segments, room, math=math)
    text = clean(snapshot.text)
    steps = [s for s in snapshot.segments if s.kind != "text"]
    before, end = text[:-_END], text[-_END:]
    if len(text) > _MOST:
        words = f"{len(before):,} characters before this are in the result's text"
        parts = [frames.line(words)]
    else:
        parts = [frames.earlier(frames.plain_html(before), f"earlier: {len(before):,} characters")]
    return "".join([*parts, frames.plain_html(end), frames.segments_html(steps, room, math=math)])


def _record(result: TurnResult) -> dict[str, Any]:
    data = result.to_json()
    text = data.pop("text")
    record: dict[str, Any] = _plain_data(data)
    return {**record, "text_chars": len(text)}


def _plain_data(value: Any) -> Any:
    """Data that every JSON reader takes, long strings cut."""
    if isinstance(value, dict):
        return {clean(str(key)): _plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_data(item) for item in value]
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = str(value)
    return clean(text if len(text) <= _RECORD_STRING else f"{text[:_RECORD_STRING]}…")


def _result(snapshot: Snapshot) -> TurnResult:
    return TurnResult(
        text=snapshot.text,
        outcome=Outcome(snapshot.outcome or "failed"),
        reason=Reason(snapshot.reason) if snapshot.reason else None,
        session_id=snapshot.session_id,
        turn_id=snapshot.turn_id,
        session=snapshot.session,
        cost_usd=snapshot.cost_usd,
        usage=snapshot.usage,
        duration=snapshot.elapsed,
        model=snapshot.model,
        tools=tuple(_tools(snapshot)),
        receipt=snapshot.receipt,
        error=snapshot.error,
    )


def _picture(result: TurnResult) -> Snapshot:
    return Snapshot(
        turn_id=result.turn_id,
        session=result.session,
        phase="ended",
        now=result.duration,
        began=0.0,
        segments=_segments(result),
        session_id=result.session_id,
        model=result.model,
        cost_usd=result.cost_usd,
        usage=result.usage,
        outcome=str(result.outcome),
        reason=result.reason and str(result.reason),
        error=result.error,
        receipt=result.receipt,
        duration=result.duration,
    )


def _segments(result: TurnResult) -> tuple[Segment, ...]:
    """The turn in its own order where its events are at hand, else text and then tools."""
    transcript = Transcript()
    for event in result.events:
        transcript.fold(event)
    same = transcript.text() == result.text
    if same and len(transcript.tools()) == len(result.tools):
        return tuple(_named(transcript.segments(), result))
    text = Segment("text", "text", result.text, settled=True)
    tools = (Segment("tool", t.tool_id, settled=True, tool=t) for t in result.tools)
    return (text, *tools) if result.text else tuple(tools)


def _named(segments: tuple[Segment, ...], result: TurnResult) -> list[Segment]:
    # The result knows how each call ended, also the ones its events left open.
    ended = {tool.tool_id: tool for tool in result.tools}
    return [replace(s, tool=ended.get(s.tool.tool_id, s.tool)) if s.tool else s for s in segments]
