"""What the model is told after a turn that did not end by itself."""

from __future__ import annotations

import dataclasses

import pytest

from turncell import events as ev
from turncell.outcome import Outcome, Reason, ToolCall, TurnResult
from turncell.told import MOST_TEXT, note_for, said_in_blocks, was_heard


def ended(outcome: Outcome, reason: Reason | None = None, *tools: ToolCall) -> TurnResult:
    return TurnResult("text", outcome, reason, "s", "t", tools=tools)


BASH = ToolCall("1", "Bash", {"command": "make test"}, status="cancelled")


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED, Outcome.UNSTOPPED])
def test_nothing_where_nothing_was_stopped(outcome: Outcome) -> None:
    assert note_for(ended(outcome, Reason.USER)) is None


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.USER, "on purpose by the user"),
        (Reason.KERNEL_INTERRUPT, "with a kernel interrupt"),
        (Reason.TIMEOUT, "time limit"),
        (Reason.SHUTDOWN, "kernel was shut down"),
        (Reason.API, "program"),
    ],
)
def test_who_stopped_it(reason: Reason, words: str) -> None:
    note = note_for(ended(Outcome.INTERRUPTED, reason))
    assert note is not None
    assert words in note
    assert "half done" in note
    assert "force" not in note


def test_what_was_running() -> None:
    done = dataclasses.replace(BASH, name="Read", input={"file_path": "a.py"}, status="done")
    note = note_for(ended(Outcome.KILLED, Reason.USER, done, BASH))
    assert note is not None
    assert "Running at that moment: Bash (make test)." in note
    assert "a.py" not in note
    assert "ended by force" in note


def test_a_long_command_is_cut() -> None:
    long = dataclasses.replace(BASH, input={"command": "x" * 5000})
    assert len(note_for(ended(Outcome.KILLED, Reason.USER, long)) or "") < 1000


def test_text_that_the_agent_lacks_is_told_again() -> None:
    note = note_for(ended(Outcome.KILLED, Reason.USER), ["I had", " ", "said"], "Do it")
    assert note is not None
    assert note.endswith("Missing from the record above, you had said:\n\nI had\n\nsaid")
    assert "the user had asked:\n\nDo it\n" in note


def test_of_very_long_text_the_end_is_told() -> None:
    note = note_for(ended(Outcome.LOST), ["x" * MOST_TEXT + "the end"])
    assert note is not None
    assert note.endswith("xthe end")
    assert len(note) < MOST_TEXT + 1000


def test_what_a_completed_turn_lost_is_told_without_a_stop() -> None:
    note = note_for(ended(Outcome.COMPLETED), ["the answer"])
    assert note is not None
    assert "damaged" in note
    assert "stopped" not in note


def test_a_lost_turn_is_no_error_of_the_model() -> None:
    assert "no error of yours" in (note_for(ended(Outcome.LOST)) or "")


def test_the_blocks_that_were_said() -> None:
    events = [
        ev.TextDelta(text="half", block="a"),
        ev.TextDelta(text="whole wo", block="b"),
        ev.TextSettled(text="whole words", block="b"),
        ev.TextDelta(text=" of it", block="a"),
    ]
    assert said_in_blocks(events) == ["half of it", "whole words"]


def test_what_was_heard() -> None:
    quiet = ended(Outcome.INTERRUPTED, Reason.USER)
    assert not was_heard(quiet)
    assert was_heard(dataclasses.replace(quiet, events=(ev.SessionOpened(session_id="s"),)))
