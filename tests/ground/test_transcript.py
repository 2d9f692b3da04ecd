"""Folding events into one picture: nothing shown is lost, nothing is shown twice."""

from __future__ import annotations

import time

import pytest

from turncell import events as ev
from turncell.picture import Segment, Snapshot
from turncell.transcript import OUTPUT_LIMIT, Transcript, cut_output


def folded(*events: ev.Event) -> Transcript:
    transcript = Transcript()
    for event in events:
        transcript.fold(event)
    return transcript


def delta(text: str, block: str = "b", at: float = 0.0) -> ev.TextDelta:
    return ev.TextDelta(text=text, block=block, at=at)


def settled(text: str, block: str = "b") -> ev.TextSettled:
    return ev.TextSettled(text=text, block=block)


def tool(tool_id: str, at: float = 0.0, parent: str | None = None) -> ev.ToolStarted:
    return ev.ToolStarted(
        tool_id=tool_id, name="Bash", input={"command": "ls"}, at=at, parent=parent
    )


def tool_over(
    tool_id: str, at: float = 0.0, output: str = "", status: str = "done"
) -> ev.ToolEnded:
    return ev.ToolEnded(tool_id=tool_id, status=status, output=output, at=at)


RETRY = ev.ApiRetry(attempt=1, limit=10, delay=0.5)


def picture(transcript: Transcript, phase: str = "running", now: float = 100.0) -> Snapshot:
    blank = Snapshot(turn_id="t", session="main", phase=phase, now=now, began=90.0)
    return transcript.paint(blank)


# Text: deltas are a preview, the message is the authority.


def test_deltas_grow_one_segment() -> None:
    transcript = folded(delta("hel"), delta("lo"))
    assert transcript.segments() == (Segment("text", "b", "hello"),)


def test_a_settled_block_replaces_its_deltas() -> None:
    transcript = folded(delta("helo"), settled("hello"))
    assert transcript.segments() == (Segment("text", "b", "hello", settled=True),)


def test_a_settled_block_without_deltas_is_shown() -> None:
    assert folded(settled("whole")).text() == "whole"


def test_settled_twice_is_shown_once() -> None:
    assert folded(delta("a"), settled("a"), settled("a")).text() == "a"


def test_a_late_delta_does_not_grow_a_settled_block() -> None:
    assert folded(delta("hel"), settled("hello"), delta("lo")).text() == "hello"


def test_looking_in_between_changes_nothing() -> None:
    transcript = Transcript()
    for piece in ("a", "b", "c"):
        transcript.fold(delta(piece))
        assert transcript.segments() == transcript.segments()
    assert transcript.text() == "abc"


def test_blocks_keep_their_order_and_a_blank_line_between() -> None:
    transcript = folded(settled("one", "1"), tool("x"), tool_over("x"), settled("two", "2"))
    assert [segment.kind for segment in transcript.segments()] == ["text", "tool", "text"]
    assert transcript.text() == "one\n\ntwo"


def test_identical_texts_of_two_tool_steps_both_stay() -> None:
    events = [delta("Next.", "1"), settled("Next.", "1"), tool("x"), tool_over("x")]
    again = [delta("Next.", "2"), settled("Next.", "2")]
    assert folded(*events, *again).text() == "Next.\n\nNext."


def test_settled_text_is_never_dropped_by_later_blocks() -> None:
    blocks = [settled(f"block {n}", str(n)) for n in range(5)]
    assert folded(*blocks).text().split("\n\n") == [f"block {n}" for n in range(5)]


# A broken try.


def test_a_broken_try_stays_while_the_next_one_is_only_a_preview() -> None:
    transcript = folded(delta("Once upon", "try-1"), RETRY, delta("Once", "try-2"))
    assert [segment.text for segment in transcript.segments()] == ["Once upon", "Once"]


def test_a_broken_try_is_replaced_when_the_next_is_settled() -> None:
    transcript = folded(
        delta("Once upon", "try-1"), RETRY, delta("Once", "try-2"), settled("Once more", "try-2")
    )
    assert transcript.text() == "Once more"


def test_a_whole_answer_without_deltas_replaces_every_broken_try() -> None:
    transcript = folded(delta("a", "try-1"), RETRY, delta("b", "try-2"), RETRY, settled("abc", "m"))
    assert transcript.text() == "abc"


def test_a_stop_after_a_broken_try_loses_nothing_that_was_shown() -> None:
    transcript = folded(settled("first", "1"), delta("broken", "try-1"), RETRY)
    transcript.close(5.0)
    assert transcript.text() == "first\n\nbroken"


def test_a_later_preview_is_not_taken_for_a_broken_try() -> None:
    transcript = folded(delta("a", "1"), delta("b", "2"), settled("A", "1"))
    assert transcript.text() == "A\n\nb"


def test_only_text_is_replaced() -> None:
    thinking = ev.ThinkingDelta(text="hm", block="th")
    transcript = folded(thinking, tool("x"), delta("broken", "1"), settled("whole", "2"))
    assert [segment.kind for segment in transcript.segments()] == ["thinking", "tool", "text"]


# Thinking, notices, and what is not drawn.


def test_thinking_grows_and_is_not_text() -> None:
    pieces = [ev.ThinkingDelta(text=piece, block="th") for piece in ("h", "m")]
    transcript = folded(*pieces, delta("hello"))
    assert transcript.segments()[0] == Segment("thinking", "th", "hm")
    assert transcript.text() == "hello"


def test_notices_each_have_a_place_of_their_own() -> None:
    notices = [ev.Notice(text="careful", level="warning") for _ in range(2)]
    segments = folded(notices[0], delta("x"), notices[1]).segments()
    assert [(s.kind, s.text, s.level) for s in segments if s.kind == "notice"] == [
        ("notice", "careful", "warning"),
        ("notice", "careful", "warning"),
    ]
    assert len({segment.key for segment in segments}) == 3
    assert folded(*notices).text() == ""


@pytest.mark.parametrize(
    "event",
    [
        ev.Event(at=4.0),
        ev.TurnEnded(outcome="completed", at=4.0),
        ev.StopProgress(rung="kill", seconds_left=1.0, at=4.0),
        ev.AgentFinished(end="completed", at=4.0),
    ],
    ids=lambda event: type(event).__name__,
)
def test_other_events_add_no_segment(event: ev.Event) -> None:
    assert folded(delta("x"), event).segments() == (Segment("text", "b", "x"),)


# Tools.


def test_a_tool_from_its_start_to_its_end() -> None:
    transcript = folded(tool("x", at=10.0, parent="p"))
    (running,) = transcript.tools()
    assert (running.status, running.seconds, running.parent) == (None, None, "p")
    transcript.fold(tool_over("x", at=12.5, output="file", status="failed"))
    (ended,) = transcript.tools()
    assert (ended.status, ended.seconds, ended.output) == ("failed", 2.5, "file")
    assert (ended.name, ended.input, ended.parent) == ("Bash", {"command": "ls"}, "p")
    assert transcript.segments()[0].settled


def test_tools_side_by_side_keep_the_order_they_began_in() -> None:
    transcript = folded(
        tool("x"), tool("y"), tool_over("y", output="2"), tool_over("x", output="1")
    )
    assert [(call.tool_id, call.output) for call in transcript.tools()] == [("x", "1"), ("y", "2")]


def test_a_tool_ends_once() -> None:
    transcript = folded(tool("x"), tool_over("x", output="a"), tool_over("x", status="cancelled"))
    assert [(call.status, call.output) for call in transcript.tools()] == [("done", "a")]


def test_a_tool_starts_once() -> None:
    transcript = folded(tool("x", at=1.0), tool_over("x", at=2.0, output="a"), tool("x", at=3.0))
    assert [(call.status, call.output, call.seconds) for call in transcript.tools()] == [
        ("done", "a", 1.0)
    ]


def test_the_end_of_an_unknown_tool_is_ignored() -> None:
    transcript = folded(delta("text", "b"), tool_over("nobody"), tool_over("b"))
    assert transcript.segments() == (Segment("text", "b", "text"),)


def test_closing_cancels_what_never_ended_and_nothing_else() -> None:
    transcript = folded(tool("x", at=1.0), tool_over("x", at=2.0), tool("y", at=3.0), delta("t"))
    transcript.close(7.0)
    assert [(call.status, call.seconds) for call in transcript.tools()] == [
        ("done", 1.0), ("cancelled", 4.0),
    ]  # fmt: skip
    assert all(segment.settled for segment in transcript.segments())
    before = transcript.segments()
    transcript.close(9.0)
    assert transcript.segments() == before


def test_a_long_output_is_cut_and_says_so() -> None:
    (call,) = folded(tool("x"), tool_over("x", output="y" * (2 * OUTPUT_LIMIT))).tools()
    kept, note = call.output.split("\n")
    assert kept == "y" * OUTPUT_LIMIT
    assert note == "[cut: 200,000 characters in all]"
    assert cut_output(call.output) == call.output


def test_an_output_at_the_limit_is_whole() -> None:
    (call,) = folded(tool("x"), tool_over("x", output="y" * OUTPUT_LIMIT)).tools()
    assert call.output == "y" * OUTPUT_LIMIT


# The picture.


def test_paint_fills_in_what_is_known() -> None:
    usage = ev.UsageReported(cost_usd=0.5, usage={"output_tokens": 7}, model_turns=2)
    opened = ev.SessionOpened(session_id="s-1", model="m", at=95.0)
    transcript = folded(opened, delta("hi", at=96.0), usage)
    snapshot = picture(transcript)
    assert (snapshot.model, snapshot.session_id, snapshot.text) == ("m", "s-1", "hi")
    assert (snapshot.cost_usd, snapshot.usage) == (0.5, {"output_tokens": 7})
    assert (snapshot.heard_at, snapshot.elapsed, snapshot.silent_for) == (96.0, 10.0, 4.0)
    assert transcript.usage == usage
    assert transcript.model == "m"


def test_paint_keeps_what_the_picture_knew_already() -> None:
    blank = Snapshot(
        turn_id="t", session="main", phase="running", now=1.0, began=0.0, session_id="s", model="m"
    )
    snapshot = Transcript().paint(blank)
    assert (snapshot.session_id, snapshot.model, snapshot.cost_usd) == ("s", "m", None)


@pytest.mark.parametrize("phase", ["starting", "waiting", "stopping", "ended"])
def test_silence_is_only_told_of_a_running_turn(phase: str) -> None:
    assert picture(folded(delta("x", at=91.0)), phase=phase).silent_for == 0.0


def test_an_ended_turn_keeps_its_length() -> None:
    blank = Snapshot(turn_id="t", session="m", phase="ended", now=99.0, began=0.0, duration=3.0)
    assert blank.elapsed == 3.0


def test_a_snapshot_does_not_change_afterwards() -> None:
    transcript = folded(delta("a"))
    snapshot = picture(transcript)
    transcript.fold(settled("b"))
    assert snapshot.text == "a"


@pytest.mark.parametrize(
    "sign", [delta("x"), settled("x"), ev.ThinkingDelta(text="x", block="t"), tool("x")], ids=repr
)
def test_a_retry_is_shown_until_the_agent_goes_on(sign: ev.Event) -> None:
    transcript = folded(RETRY)
    assert picture(transcript).retry == RETRY
    transcript.fold(sign)
    assert picture(transcript).retry is None


# A flood.


def flood_seconds(count: int) -> float:
    transcript = Transcript()
    began = time.perf_counter()
    for n in range(count):
        transcript.fold(delta("word ", "b"))
        if n % 200 == 0:
            transcript.segments()
    assert len(transcript.text()) == 5 * count
    return time.perf_counter() - began


def test_a_flood_of_deltas_folds_in_well_under_a_second() -> None:
    assert min(flood_seconds(20_000) for _ in range(3)) < 1.0


def test_many_blocks_fold_in_well_under_a_second() -> None:
    events = [make(n) for n in range(1_000) for make in (lambda n: delta("x", str(n)), done_block)]
    began = time.perf_counter()
    assert len(folded(*events).segments()) == 1_000
    assert time.perf_counter() - began < 1.0


def done_block(n: int) -> ev.TextSettled:
    return settled("x", str(n))
