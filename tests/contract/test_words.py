"""The words of every view: what state a turn is in, what it did, how it ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from turncell import events as ev
from turncell.outcome import Outcome, Reason, Rung, StopReceipt, Survivor, ToolCall, TurnResult
from turncell.picture import Snapshot, StopView
from turncell.views.words import error_text, final_line, status_line, stop_label, tool_line

PICTURE = Snapshot("t", "main", "running", 112.9, 100.0, model="model-x", heard_at=112.0)
RECEIPT = StopReceipt(Reason.USER, Rung.INTERRUPT, 0.0, 0.01, 0.041, 0.041, connection="warm")
RESULT = TurnResult("text", Outcome.COMPLETED, None, "0123456789ab", "t", duration=75.0)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "running 12 s · main · model-x"),
        ({"phase": "starting", "now": 100.5, "model": None}, "starting · main"),
        ({"phase": "starting", "now": 103.0, "model": None}, "starting 3 s · main"),
        ({"phase": "queued", "queued_behind": 2, "model": None}, "queued behind 2 turns · main"),
        ({"phase": "queued", "queued_behind": 1, "model": None}, "queued behind 1 turn · main"),
        ({"phase": "waiting"}, "waiting for an answer 12 s · main · model-x"),
        ({"heard_at": 98.0}, "running 12 s · main · model-x · silent for 14 s"),
        ({"heard_at": 103.0}, "running 12 s · main · model-x"),
        (
            {"retry": ev.ApiRetry(attempt=3, limit=10, delay=1.2, status=529)},
            "running 12 s · main · model-x · retrying 3/10 in 1.2 s (529)",
        ),
        (
            # The wait says why the agent is silent.
            {"retry": ev.ApiRetry(attempt=1, limit=10, delay=2.0, status=None), "heard_at": 98.0},
            "running 12 s · main · model-x · retrying 1/10 in 2.0 s (no answer from the API)",
        ),
        (
            {"retry": ev.ApiRetry(attempt=1, limit=10, delay=2.0, status=401)},
            "running 12 s · main · model-x · retrying 1/10 in 2.0 s (401: is the key right?)",
        ),
        (
            {"phase": "stopping", "stop": StopView("interrupt", 115.2, 124.5)},
            "stopping: interrupt, 3 s left (at most 12 s in all) · main · model-x",
        ),
        ({"session": "\x1b[31mred\u202e"}, "running 12 s · red · model-x"),
    ],
)
def test_the_status_line(changes: dict[str, Any], line: str) -> None:
    assert status_line(replace(PICTURE, **changes)) == line


def test_the_button_counts_down_the_whole_stop() -> None:
    assert stop_label(PICTURE) == "Stop"
    stop = StopView("terminate", 113.0, 115.5)
    assert stop_label(replace(PICTURE, phase="stopping", stop=stop)) == "Stopping 3 s (Force)"
    assert stop_label(replace(PICTURE, phase="stopping", stop=stop, now=130.0)).startswith("Stop")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (ToolCall("1", "Bash", {"command": "ls -l\n| wc"}), "Bash ls -l | wc · running"),
        (ToolCall("1", "Read", {"file_path": "/a"}, "done", 0.2), "Read /a · done · 0.20 s"),
        (ToolCall("1", "X", {"b": 1}, "failed", 12.3), 'X {"b": 1} · failed · 12 s'),
        (ToolCall("1", "X", {}, "denied", 125.0), "X · denied · 2 min 5 s"),
        (ToolCall("1", "X", {"b": "y" * 200}, "done"), 'X {"b": "' + "y" * 72 + "… · done"),
        (ToolCall("1", "Bash", {"command": ["odd"]}, "done"), 'Bash {"command": ["odd"]} · done'),
    ],
)
def test_the_line_of_a_tool_call(call: ToolCall, line: str) -> None:
    assert tool_line(call) == line


@pytest.mark.parametrize(
    ("changes", "begin"),
    [
        ({}, "completed · 1 min 15 s · main 01234567"),
        ({"cost_usd": 0.5}, "completed · 1 min 15 s · 0.5000 USD · main 01234567"),
        (
            {"outcome": "interrupted", "reason": "user", "receipt": RECEIPT},
            "stopped by you (interrupt, 0.04 s) · text is partial · agent kept warm"
            " · nothing left running · 1 min 15 s · main 01234567",
        ),
        (
            {
                "outcome": "interrupted",
                "reason": "timeout",
                "receipt": replace(RECEIPT, reaped_after=None),
            },
            "stopped by its time limit (interrupt, 0.04 s) · text is partial · agent kept warm"
            " · nobody could look what is left running",
        ),
        (
            {"outcome": "killed", "reason": "kernel_interrupt", "receipt": RECEIPT, "text": ""},
            "stopped by a kernel interrupt, by force (interrupt, 0.04 s) · agent kept warm",
        ),
        (
            {"outcome": "unstopped", "reason": "user", "receipt": RECEIPT},
            "NOT stopped: asked by you, still running",
        ),
        ({"outcome": "failed", "error": "x"}, "failed · text is partial"),
        ({"outcome": "failed", "reason": "budget"}, "failed: the budget is used up"),
        ({"outcome": "lost"}, "lost: the agent is gone · text is partial"),
        (
            {"receipt": RECEIPT, "reason": "user"},
            "completed before the stop by you took hold · agent kept warm",
        ),
        (
            {"receipt": replace(RECEIPT, survivors=(Survivor(1, "x"),)), "outcome": "killed"},
            "stopped on request, by force (interrupt, 0.04 s) · text is partial · agent kept warm"
            " · 1 still running",
        ),
    ],
)
def test_the_final_line(changes: dict[str, Any], begin: str) -> None:
    assert final_line(replace(RESULT, **changes)).startswith(begin)


def test_tokens_that_nobody_knows_are_not_shown_as_none() -> None:
    usage = {"input_tokens": 1000, "cache_read_input_tokens": 234, "output_tokens": 5}
    assert " · 1,234 tokens in, 5 tokens out · " in final_line(replace(RESULT, usage=usage))
    assert " · 5 tokens out · " in final_line(replace(RESULT, usage={"output_tokens": 5}))
    assert "token" not in final_line(replace(RESULT, usage={}))


def test_an_error_takes_two_lines_at_most() -> None:
    assert error_text(replace(RESULT, error="one\n\n two \nthree")) == "one\ntwo"
    assert len(error_text(replace(RESULT, error="x" * 5000))) == 300
    assert error_text(RESULT) == ""
