"""The picture of a turn and its twin in words: they say the same, whatever the turn was."""

from __future__ import annotations

import math
import random
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turncell import events as ev
from turncell.outcome import Outcome, Reason, Rung, StopReceipt, ToolCall, TurnResult
from turncell.timeline import Lane, Span, Timeline, of_result
from turncell.views.timeline_svg import svg, words

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert(1)</script>\x1b[31m\u202e]]>&\x00\ufffe\ud800\u2028\"'"


def lane(kind: str, *spans: tuple[float, float, str], **fields: Any) -> Lane:
    name = fields.pop("name", "API retry" if kind == "retry" else kind)
    return Lane(kind, name, tuple(Span(*each) for each in spans), **fields)


def timeline(*lanes: Lane, duration: float = 10.0, **fields: Any) -> Timeline:
    facts = {"turn_id": "3f2a9c1e77", "session": "main", "outcome": "completed", "reason": None}
    return Timeline(**{**facts, **fields}, duration=duration, lanes=lanes)


STOPPED = timeline(
    lane("starting", (0.0, 1.0, "ready")),
    lane("model", (1.0, 2.0, "asked"), (2.0, 3.0, "thinking"), (3.0, 4.0, "writing")),
    lane("retry", (4.0, 5.0, "waited"), detail="1 of 10 (529)"),
    lane("tool", (5.0, 9.0, "cancelled"), name="Task", detail="look"),
    lane("tool", (6.0, 6.5, "failed"), name="Read", detail="a.py", above=("Task",)),
    lane("you", (7.0, 8.0, "allowed"), detail="Bash"),
    lane("stop", (8.0, 9.0, "interrupt"), (9.0, 10.0, "kill")),
    outcome="killed",
    reason="user",
)


def texts(picture: str) -> list[str]:
    root = ElementTree.fromstring(picture)
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def bars(picture: str) -> list[tuple[float, float]]:
    """Left and right of every bar, its outline included."""
    found = re.findall(r"M([\d.]+) 6H([\d.]+)v", picture)
    return [(float(left) - 1, float(right) + 1) for left, right in found]


def test_the_twin_in_words() -> None:
    assert words(STOPPED).splitlines() == [
        "Turn 3f2a9c1e of main: killed (user) after 10 s",
        "0.00 s  ███·························  starting                  1.0 s  ready",
        " 1.0 s  ··░░░▒▒▒████················  model                     3.0 s",
        " 4.0 s  ···········███··············  API retry 1 of 10 (529)   1.0 s  waited",
        " 5.0 s  ··············▒▒▒▒▒▒▒▒▒▒▒▒··  Task look                 4.0 s  cancelled",
        " 6.0 s  ················×××·········    Read a.py              0.50 s  failed",
        " 7.0 s  ···················████·····  you Bash                  1.0 s  allowed",
        " 8.0 s  ······················░░░███  stop                      2.0 s  kill",
        "model: ░ asked 1.0 s, ▒ thinking 1.0 s, █ writing 1.0 s",
        "stop: ░ interrupt 1.0 s, █ kill 1.0 s",
    ]


def test_the_picture_has_every_word_of_the_twin() -> None:
    picture = svg(STOPPED)
    drawn = " ".join(texts(picture)).split()
    said = re.sub(r"[░▒▓█×·:,]", " ", words(STOPPED)).split()
    starts = {line.split(" s ")[0].strip() for line in words(STOPPED).splitlines()[1:8]}
    assert not set(said) - set(drawn) - starts  # where a bar begins, its place says
    title, described = (ElementTree.fromstring(picture)[n] for n in (0, 1))
    assert title.tag == f"{SVG}title"
    assert title.text == words(STOPPED).splitlines()[0]
    assert described.tag == f"{SVG}desc"
    assert "Read a.py from 6.0 s for 0.50 s failed" in str(described.text)
    assert "stop: interrupt 1.0 s, kill 1.0 s" in str(described.text)


def test_the_picture_is_one_to_a_screen_reader_and_brings_its_own_background() -> None:
    root = ElementTree.fromstring(svg(STOPPED))
    assert root.get("role") == "img"
    ids = {each.get("id") for each in root if each.tag in (f"{SVG}title", f"{SVG}desc")}
    assert set(str(root.get("aria-labelledby")).split()) == ids
    assert str(root.get("viewBox")).startswith("0 0 720 ")
    card = next(root.iter(f"{SVG}rect"))
    assert card.get("fill") == "#fff"
    assert card.get("rx")


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colour: str, ground: str) -> float:
    one, other = sorted((luminance(colour), luminance(ground)), reverse=True)
    return (one + 0.05) / (other + 0.05)


def test_text_and_bars_stand_out_from_the_card() -> None:
    root = ElementTree.fromstring(svg(STOPPED))
    inks = {each.get("fill") for each in root.iter(f"{SVG}text")} | {root.get("fill")}
    inks |= {each.get("fill") for each in root.iter(f"{SVG}tspan")}
    assert all(contrast(str(ink), "#ffffff") >= 4.5 for ink in inks - {None})
    outlines = {each.get("stroke") for each in root.iter(f"{SVG}path") if each.get("stroke-width")}
    assert len(outlines) == 5
    assert all(contrast(str(line), "#f3f5f7") >= 3 for line in outlines)


def test_bars_are_where_the_time_was_and_none_is_too_thin_to_see() -> None:
    drawn = timeline(lane("tool", (0.0, 5.0, "done")), lane("tool", (10.0, 10.0, "done")))
    assert bars(svg(drawn)) == [(184.0, 350.0), (514.0, 516.0)]


def test_tool_calls_that_overlap_are_one_bar() -> None:
    crowd = [lane("tool", (n, n + 1.5, "done"), name="Read") for n in range(13)]
    assert bars(svg(timeline(*crowd, duration=13.5))) == [(184.0, 516.0)]


def test_twenty_spans_are_small() -> None:
    spans = [(n, n + 0.4, "writing" if n % 2 else "asked") for n in range(8)]
    tools = [lane("tool", (n, n + 1, "done"), name="Bash", detail="make all") for n in range(12)]
    picture = svg(timeline(lane("model", *spans), *tools, duration=13.0))
    assert len(bars(picture)) == 20
    assert len(picture.encode()) < 8000


@pytest.mark.parametrize(
    ("duration", "labels"),
    [
        (0.05, ["0", "0.01 s", "0.02 s", "0.03 s", "0.04 s", "0.05 s"]),
        (0.6, ["0", "0.1 s", "0.2 s", "0.3 s", "0.4 s", "0.5 s", "0.6 s"]),
        (4.2, ["0", "1 s", "2 s", "3 s", "4 s"]),
        (61.0, ["0", "15 s", "30 s", "45 s", "60 s"]),
        (330.0, ["0", "1 min", "2 min", "3 min", "4 min", "5 min"]),
        (7200.0, ["0", "30 min", "60 min", "90 min", "120 min"]),
        (40_000.0, ["0", "2 h", "4 h", "6 h", "8 h", "10 h"]),
        (3_000_000.0, ["0", "10 d", "20 d", "30 d"]),
        (0.0, ["0"]),
    ],
)
def test_ticks_are_in_sensible_units(duration: float, labels: list[str]) -> None:
    picture = svg(timeline(lane("model", (0.0, duration, "asked")), duration=duration))
    root = ElementTree.fromstring(picture)
    axis = next(each for each in root.iter(f"{SVG}g") if each.get("text-anchor") == "middle")
    assert [each.text for each in axis.iter(f"{SVG}text")] == labels


def test_many_tool_calls_share_lanes_by_name() -> None:
    dice = random.Random(1)
    calls = [
        lane("tool", (n, n + 0.5, "failed" if n % 40 == 0 else "done"), name=name, above=above)
        for n in range(198)
        for name, above in [dice.choice([("Read", ("Task",)), ("Grep", ("Task",)), ("Bash", ())])]
    ]
    tasks = [lane("tool", (n, n + 90, "done"), name="Task", detail="x") for n in (0, 100)]
    rows = words(timeline(tasks[0], *calls[:99], tasks[1], *calls[99:], duration=200)).splitlines()
    names = [re.sub(r"^.*[·█×]  ", "", row)[:26].rstrip() for row in rows[1:5]]
    assert names[0].startswith("Task ×2")
    assert {name[:7] for name in names[1:3]} == {"  Read ", "  Grep "}
    assert names[3].startswith("Bash ×")
    counts = [int(each) for each in re.findall(r"×(\d+)", "\n".join(names))]
    assert sum(counts) == 200
    assert rows[5].startswith("tool: █ done")
    assert "× failed 2.5 s" in rows[5]
    assert len(rows) == 6


def test_more_names_than_lanes_leave_one_lane_for_the_rarest() -> None:
    calls = [lane("tool", (n, n + 1, "done"), name=f"tool-{n % 30}") for n in range(200)]
    rows = words(timeline(*calls, duration=201)).splitlines()[1:]
    assert len(rows) == 12
    assert "other tools ×" in rows[-1]
    assert sum(int(each) for each in re.findall(r"(\d+) done", "\n".join(rows))) == 200


@pytest.mark.parametrize("field", ["name", "detail", "word", "session", "turn_id"])
def test_what_others_wrote_is_text_and_nothing_else(field: str) -> None:
    fields = {"name": "Bash", "detail": "ls", "word": "done", "session": "main", "turn_id": "t"}
    fields[field] = EVIL
    call = Lane("tool", fields["name"], (Span(0, 1, fields["word"]),), fields["detail"])
    drawn = timeline(call, session=fields["session"], turn_id=fields["turn_id"])
    picture, table = svg(drawn), words(drawn)
    root = ElementTree.fromstring(picture)
    assert {each.tag for each in root.iter()} <= {
        SVG + tag
        for tag in ("svg", "title", "desc", "defs", "pattern", "path", "rect", "text", "tspan", "g")
    }
    for text in (picture, table):
        assert not set(text) & set("\x1b\x00\u202e\ufffe\ud800\u2028")
    assert len(table.splitlines()) == 2
    assert "&lt;script&gt;" in picture


def test_long_names_keep_their_end_and_wide_ones_their_columns() -> None:
    mcp = lane("tool", (0, 1, "done"), name="mcp__github__list_pull_requests")
    wide = lane("tool", (0, 1, "done"), name="読み取り" * 9)
    table = words(timeline(mcp, wide))
    assert "mcp__gith…_pull_requests" in table
    assert "…" in table.splitlines()[2]
    # Two columns a sign: eleven of them and the ellipsis fill 23 of 24 columns.
    assert len(re.findall("[読み取り]", table)) == 11


# Whatever happens.

ids = st.sampled_from(["a", "b", "c", "d", ""])
when = st.one_of(st.just(0.0), st.floats(0.0, 8000.0), st.sampled_from([math.nan, math.inf, -1.0]))
label = st.one_of(st.text(max_size=60), st.sampled_from([EVIL, "Bash", "W" * 70, "長" * 40]))
word = st.one_of(st.sampled_from(["done", "failed", "denied", "cancelled", ""]), label)
given_to = st.dictionaries(st.text(max_size=3), label, max_size=2)
an_event = st.one_of(
    st.builds(ev.SessionOpened, at=when, session_id=label),
    st.builds(ev.TextDelta, at=when, text=label, block=ids),
    st.builds(ev.TextSettled, at=when, text=label, block=ids),
    st.builds(ev.ThinkingDelta, at=when, text=label, block=ids),
    st.builds(
        ev.ToolStarted, at=when, tool_id=st.one_of(ids, label), name=label, input=given_to,
        parent=st.one_of(st.none(), ids),
    ),
    st.builds(ev.ToolEnded, at=when, tool_id=ids, status=word),
    st.builds(ev.QuestionAsked, at=when, question_id=ids, tool=label),
    st.builds(ev.QuestionSettled, at=when, question_id=ids, answer=word),
    st.builds(ev.ApiRetry, at=when, attempt=st.integers(0, 99), limit=st.just(10), delay=when),
    st.builds(ev.StopProgress, at=when, rung=st.sampled_from([*map(str, Rung)]), seconds_left=when),
    st.builds(ev.AgentFinished, at=when, end=word),
    st.builds(ev.Notice, at=when, text=label),
    st.builds(ev.TurnEnded, at=when, outcome=word),
)  # fmt: skip
some_events = st.one_of(
    st.lists(an_event, max_size=12), st.lists(an_event, min_size=20, max_size=50)
)
a_receipt = st.builds(
    StopReceipt, reason=st.sampled_from(Reason), rung=st.sampled_from(Rung), requested_at=when,
    ended_after=st.one_of(st.none(), when), reaped_after=st.one_of(st.none(), when),
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(
    events=some_events,
    in_order=st.booleans(),
    duration=when,
    receipt=st.one_of(st.none(), a_receipt),
    outcome=st.sampled_from(Outcome),
    session=label,
)
def test_any_events_make_a_timeline(
    events: list[ev.Event],
    in_order: bool,
    duration: float,
    receipt: StopReceipt | None,
    outcome: Outcome,
    session: str,
) -> None:
    if in_order:
        events.sort(key=lambda event: event.at if math.isfinite(event.at) else 0.0)
    drawn = of_result(
        TurnResult(
            "", outcome, None, "s", "3f2a9c1e77", session=session, duration=duration,
            receipt=receipt, events=tuple(events), tools=(ToolCall("a", "Bash", status="done"),),
        )
    )  # fmt: skip
    assert drawn.duration >= 0
    assert all(lane.spans for lane in drawn.lanes)
    for span in (span for lane in drawn.lanes for span in lane.spans):
        assert 0 <= span.start <= span.end <= drawn.duration
    bundle = drawn._repr_mimebundle_()
    assert bundle["text/plain"] == str(drawn)
    assert all(0 < len(line) <= 80 for line in str(drawn).splitlines())
    assert ("image/svg+xml" in bundle) == bool(drawn.lanes)
    if drawn.lanes:
        picture = bundle["image/svg+xml"]
        ElementTree.fromstring(picture)
        assert "<script" not in picture
        assert all(182 <= left <= right - 1.9 <= 516 for left, right in bars(picture))
        assert len(picture) < 20_000
