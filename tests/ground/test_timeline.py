"""Who worked when: the lanes of one turn, from its events."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from turncell import events as ev
from turncell.outcome import Outcome, Reason, Rung, StopReceipt, ToolCall, TurnResult
from turncell.timeline import NOTHING, Lane, Span, Timeline, of_result, under_way

BEGAN = 1000.0


def result(*events: ev.Event, duration: float = 10.0, **fields: object) -> TurnResult:
    blank = TurnResult("", Outcome.COMPLETED, None, "s", "t", duration=duration, events=events)
    return TurnResult(**{**vars(blank), **fields})  # type: ignore[arg-type]


def opened(at: float = 0.0) -> ev.SessionOpened:
    return ev.SessionOpened(session_id="s", at=BEGAN + at)


def says(at: float, block: str = "b") -> ev.TextDelta:
    return ev.TextDelta(text="x", block=block, at=BEGAN + at)


def thinks(at: float, block: str = "b") -> ev.ThinkingDelta:
    return ev.ThinkingDelta(text="x", block=block, at=BEGAN + at)


def tool(
    at: float, tool_id: str = "1", name: str = "Bash", parent: str | None = None
) -> ev.ToolStarted:
    given = {"timeout": 5, "command": f"run {tool_id}", "note": "later"}
    return ev.ToolStarted(tool_id=tool_id, name=name, input=given, parent=parent, at=BEGAN + at)


def tool_over(at: float, tool_id: str = "1", status: str = "done") -> ev.ToolEnded:
    return ev.ToolEnded(tool_id=tool_id, status=status, at=BEGAN + at)


def rung(at: float, name: str) -> ev.StopProgress:
    return ev.StopProgress(rung=name, seconds_left=1.0, at=BEGAN + at)


def finished(at: float) -> ev.AgentFinished:
    return ev.AgentFinished(end="completed", at=BEGAN + at)


def ended(at: float) -> ev.TurnEnded:
    return ev.TurnEnded(outcome="completed", at=BEGAN + at)


def lanes(timeline: Timeline, kind: str) -> list[Lane]:
    return [lane for lane in timeline.lanes if lane.kind == kind]


def spans(timeline: Timeline, kind: str) -> list[tuple[float, float, str]]:
    found = [span for lane in lanes(timeline, kind) for span in lane.spans]
    return [(round(s.start, 6), round(s.end, 6), s.word) for s in found]


# Start and end.


def test_the_start_is_what_the_duration_has_before_the_first_event() -> None:
    drawn = of_result(result(opened(2.0), says(3.0), finished(10.0)))
    assert spans(drawn, "starting") == [(0.0, 2.0, "ready")]
    assert spans(drawn, "model") == [(2.0, 3.0, "asked"), (3.0, 10.0, "writing")]
    assert drawn.duration == 10.0


def test_the_turn_is_over_when_the_agent_is_and_not_when_that_is_written_down() -> None:
    late = of_result(result(opened(2.0), finished(10.0), ended(11.5)))
    assert spans(late, "starting") == [(0.0, 2.0, "ready")]
    assert late.duration == 10.0


def test_a_stopped_turn_is_over_when_its_receipt_says_so() -> None:
    receipt = StopReceipt(Reason.USER, Rung.KILL, BEGAN + 6, None, 3.5, 4.0)
    stopped = result(opened(1.0), rung(6.0, "interrupt"), rung(8.0, "kill"), receipt=receipt)
    drawn = of_result(stopped)
    assert spans(drawn, "starting") == [(0.0, 1.0, "ready")]
    assert spans(drawn, "stop") == [(6.0, 8.0, "interrupt"), (8.0, 10.0, "kill")]


def test_an_agent_that_never_had_the_prompt() -> None:
    notice = ev.Notice(text="its history is missing", at=BEGAN + 0.5)
    drawn = of_result(result(notice, rung(4.0, "interrupt"), ended(5.0), duration=5.0))
    assert spans(drawn, "starting") == [(0.0, 5.0, "not ready")]
    assert not lanes(drawn, "model")


def test_a_warm_agent_has_no_start() -> None:
    assert not lanes(of_result(result(opened(), finished(10.0))), "starting")


def test_a_duration_shorter_than_its_events_is_not_believed() -> None:
    drawn = of_result(result(opened(1.0), finished(9.0), duration=0.5))
    assert drawn.duration == 8.0
    assert spans(drawn, "model") == [(0.0, 8.0, "asked")]


@pytest.mark.parametrize(
    "events", [(), (ev.Notice(text="x"),), (ev.SessionOpened(session_id="s", at=math.nan),)]
)
def test_nothing_to_draw_is_one_line(events: tuple[ev.Event, ...]) -> None:
    drawn = of_result(result(*events))
    assert str(drawn) == drawn.note == NOTHING
    assert len(NOTHING) <= 80
    assert drawn._repr_mimebundle_() == {"text/plain": NOTHING}


def test_an_event_without_a_time_has_that_of_the_one_before() -> None:
    untimed = ev.ToolStarted(tool_id="1", name="Bash")
    drawn = of_result(result(opened(), says(2.0), untimed, tool_over(5.0), finished(10.0)))
    assert spans(drawn, "tool") == [(2.0, 5.0, "done")]


# The model.


def test_the_model_is_asked_then_thinks_then_writes() -> None:
    events = opened(1.0), thinks(2.0), thinks(3.0), says(4.0, "c"), says(5.0, "c"), finished(6.0)
    drawn = of_result(result(*events, ended(6.1), duration=6.0))
    phases = [(1.0, 2.0, "asked"), (2.0, 4.0, "thinking"), (4.0, 6.0, "writing")]
    assert spans(drawn, "model") == phases


def test_the_model_rests_while_tools_and_people_are_at_it() -> None:
    asked = ev.QuestionAsked(question_id="2", tool="Edit", at=BEGAN + 5.0)
    settled = ev.QuestionSettled(question_id="2", answer="denied", at=BEGAN + 7.0)
    events = opened(), says(1.0), tool(2.0), tool_over(4.0), asked, settled, finished(10.0)
    drawn = of_result(result(*events))
    assert spans(drawn, "model") == [
        (0.0, 1.0, "asked"), (1.0, 2.0, "writing"), (4.0, 5.0, "asked"), (7.0, 10.0, "asked"),
    ]  # fmt: skip
    assert spans(drawn, "you") == [(5.0, 7.0, "denied")]
    assert lanes(drawn, "you")[0].detail == "Edit"


def test_what_it_says_while_a_tool_runs_is_its_work_too() -> None:
    events = opened(), tool(1.0), says(3.0), says(4.0), tool_over(9.0), finished(10.0)
    drawn = of_result(result(*events))
    assert (3.0, 4.0, "writing") in spans(drawn, "model")
    assert lanes(drawn, "model")[0].seconds == pytest.approx(3.0)


def test_a_question_that_nobody_answered_ends_with_the_turn() -> None:
    asked = ev.QuestionAsked(question_id="2", tool="Edit", at=BEGAN + 5.0)
    assert spans(of_result(result(opened(), asked, ended(10.0))), "you") == [
        (5.0, 10.0, "not answered")
    ]


def test_the_api_is_waited_for_until_something_comes() -> None:
    first = ev.ApiRetry(attempt=1, limit=10, delay=2.0, status=529, at=BEGAN + 1.0)
    second = ev.ApiRetry(attempt=2, limit=10, delay=60.0, at=BEGAN + 4.0)
    drawn = of_result(result(opened(), first, second, says(6.0), finished(10.0)))
    assert spans(drawn, "retry") == [(1.0, 3.0, "waited"), (4.0, 6.0, "waited")]
    assert lanes(drawn, "retry")[0].detail == "2 of 10"
    assert spans(drawn, "model") == [
        (0.0, 1.0, "asked"), (3.0, 4.0, "asked"), (6.0, 10.0, "writing"),
    ]  # fmt: skip


# Tools.


def test_tools_may_overlap() -> None:
    events = opened(), tool(1.0), tool(2.0, "2"), tool_over(5.0, "2", "failed"), tool_over(6.0)
    drawn = of_result(result(*events, finished(10.0)))
    assert spans(drawn, "tool") == [(1.0, 6.0, "done"), (2.0, 5.0, "failed")]
    assert [lane.detail for lane in lanes(drawn, "tool")] == ["run 1", "run 2"]
    assert (6.0, 10.0, "asked") in spans(drawn, "model")


def test_the_tools_of_a_sub_agent_come_below_it() -> None:
    events = (
        opened(), tool(1.0, "A", "Task"), tool(1.5, "B", "Task"), tool(2.0, "b", "Read", "B"),
        tool(2.5, "a", "Grep", "A"), tool(3.0, "deep", "Bash", "a"), finished(10.0),
    )  # fmt: skip
    found = lanes(of_result(result(*events)), "tool")
    assert [(lane.name, lane.above) for lane in found] == [
        ("Task", ()), ("Grep", ("Task",)), ("Bash", ("Task", "Grep")),
        ("Task", ()), ("Read", ("Task",)),
    ]  # fmt: skip


def test_a_tool_of_an_unknown_parent_or_of_itself_is_a_tool() -> None:
    events = opened(), tool(1.0, "1", parent="gone"), tool(2.0, "2", parent="2"), ended(10.0)
    assert [lane.above for lane in lanes(of_result(result(*events)), "tool")] == [(), ()]


@pytest.mark.parametrize(("status", "word"), [("cancelled", "cancelled"), (None, "running")])
def test_a_tool_that_never_ended_ends_with_the_turn(status: str | None, word: str) -> None:
    known = (ToolCall("1", "Bash", status=status),)
    drawn = of_result(result(opened(), tool(4.0), ended(10.0), tools=known))
    assert spans(drawn, "tool") == [(4.0, 10.0, word)]


def test_a_call_is_told_once() -> None:
    events = opened(), tool(1.0), tool(2.0, name="Again"), tool_over(3.0), tool_over(4.0, "1", "x")
    drawn = of_result(result(*events, tool_over(5.0, "unknown"), finished(10.0)))
    assert spans(drawn, "tool") == [(1.0, 3.0, "done")]


# The stop, and a turn under way.


def test_a_rung_that_is_told_twice_is_one() -> None:
    events = opened(), rung(4.0, "interrupt"), rung(5.0, "interrupt"), rung(7.0, "terminate")
    drawn = of_result(result(*events, ended(10.0), reason=Reason.USER))
    assert spans(drawn, "stop") == [(4.0, 7.0, "interrupt"), (7.0, 10.0, "terminate")]
    assert drawn.reason == "user"


def test_a_turn_under_way_goes_on_until_now() -> None:
    drawn = under_way([opened(2.0), tool(3.0)], BEGAN, BEGAN + 30.0, "t", "main")
    assert drawn.outcome == "running"
    assert drawn.duration == 30.0
    assert spans(drawn, "tool") == [(3.0, 30.0, "running")]
    assert spans(drawn, "starting") == [(0.0, 2.0, "ready")]
    assert spans(under_way([], BEGAN, BEGAN - 5, "t", "main"), "model") == []


def test_the_seconds_of_a_lane_count_each_moment_once() -> None:
    crowd = Lane("tool", "Read", (Span(0.0, 4.0, "done"), Span(1.0, 2.0, "done"), Span(6, 7, "")))
    assert crowd.seconds == 5.0


def test_it_is_plain_data_and_loads_no_engine_until_it_is_drawn() -> None:
    code = (
        "import sys; from turncell.timeline import Timeline; "
        "drawn = Timeline('t', 'main', 'completed', None, 1.0); "
        "assert not {'jinja2', 'turncell.views.timeline_svg'} & set(sys.modules); "
        "str(drawn); assert 'jinja2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
