"""How a turn ended, as words, as a line for a person and as JSON."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum

import pytest

from turncell import events as ev
from turncell.outcome import Outcome, Reason, Rung, StopReceipt, Survivor, ToolCall, TurnResult

WARM = StopReceipt(
    reason=Reason.USER, rung=Rung.INTERRUPT, requested_at=100.0, ack_after=0.1, ended_after=0.4,
    reaped_after=0.5, connection="warm", text_chars=12,
)  # fmt: skip
SLEEP = Survivor(41, "sleep 1000")
SERVER = Survivor(42, "python -m http.server")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Outcome, ["completed", "interrupted", "killed", "failed", "lost", "unstopped"]),
        (Reason, ["user", "kernel_interrupt", "timeout", "budget", "max_turns", "shutdown", "api"]),
        (Rung, ["interrupt", "sigint", "terminate", "kill"]),
    ],
)
def test_the_words_are_fixed_and_print_as_themselves(kind: type[Enum], words: list[str]) -> None:
    assert [str(member) for member in kind] == words
    assert [f"{member}" for member in kind] == words
    assert [member.value for member in kind] == words
    assert all(member == word for member, word in zip(kind, words, strict=True))


def test_a_result_knows_who_worked_when() -> None:
    heard = ev.SessionOpened(session_id="s", at=101.0), ev.AgentFinished(end="completed", at=104.0)
    done = TurnResult("", Outcome.COMPLETED, None, "s", "t", duration=4.0, events=heard)
    assert [lane.kind for lane in done.timeline().lanes] == ["starting", "model"]
    assert not TurnResult.from_json(done.to_json()).timeline().lanes


def receipt(**changes: object) -> StopReceipt:
    return dataclasses.replace(WARM, **changes)  # type: ignore[arg-type]


def test_the_line_of_a_warm_stop() -> None:
    assert str(WARM) == "stopped by interrupt in 0.50 s · agent kept warm · nothing left running"


def test_the_line_of_a_kill() -> None:
    killed = receipt(rung=Rung.KILL, ended_after=None, reaped_after=10.25, connection="closed")
    assert str(killed) == "stopped by kill in 10.25 s · agent closed · nothing left running"


def test_the_line_names_survivors_and_does_not_say_that_nothing_is_left() -> None:
    line = str(receipt(survivors=[SLEEP, SERVER]))
    assert "STILL RUNNING: 41 sleep 1000, 42 python -m http.server" in line
    assert "nothing left running" not in line


def test_the_line_names_what_was_spared() -> None:
    line = str(receipt(spared=[SERVER]))
    assert line.endswith("nothing left running · spared: 42 python -m http.server")


def test_the_line_names_what_ended_too() -> None:
    line = str(receipt(taken=[SERVER]))
    assert line.endswith("running · of earlier turns, ended too: 42 python -m http.server")


def test_the_line_vouches_for_nothing_that_was_not_looked_at() -> None:
    assert "nothing left running" not in str(receipt(reaped_after=None))


def test_a_receipt_as_json() -> None:
    data = json.loads(json.dumps(receipt(survivors=[SLEEP], spared=[SERVER]).to_json()))
    assert data == {
        "reason": "user", "rung": "interrupt", "requested_at": 100.0, "ack_after": 0.1,
        "ended_after": 0.4, "reaped_after": 0.5,
        "survivors": [{"pid": 41, "command": "sleep 1000"}], "connection": "warm",
        "resumable": True, "text_chars": 12,
        "spared": [{"pid": 42, "command": "python -m http.server"}], "taken": [],
    }  # fmt: skip


@pytest.mark.parametrize("word", ["reason", "rung"])
def test_json_holds_plain_words(word: str) -> None:
    assert type(WARM.to_json()[word]) is str


RESULT = TurnResult(
    text="hello", outcome=Outcome.INTERRUPTED, reason=Reason.USER, session_id="s-1", turn_id="t",
    usage={"output_tokens": 3}, duration=1.5,
    tools=(ToolCall("x", "Bash", {"command": "ls"}, "cancelled", 0.5, "out"),),
    receipt=WARM, events=(ev.TextDelta(text="hello", block="b"),),
)  # fmt: skip


def test_the_text_of_a_result_is_its_str() -> None:
    assert str(RESULT) == "hello"
    assert f"{RESULT}" == "hello"


def test_a_result_as_json_can_be_saved() -> None:
    data = json.loads(json.dumps(RESULT.to_json()))
    fields = {field.name for field in dataclasses.fields(TurnResult)}
    assert set(data) == fields - {"events"} | {"version"}
    assert (data["version"], data["outcome"], data["reason"]) == (1, "interrupted", "user")
    assert data["receipt"] == WARM.to_json() | {"survivors": [], "spared": []}
    assert data["tools"] == [
        {
            "tool_id": "x", "name": "Bash", "input": {"command": "ls"}, "status": "cancelled",
            "seconds": 0.5, "output": "out", "change": "", "parent": None,
        }
    ]  # fmt: skip


def test_what_is_unknown_is_null_and_never_zero() -> None:
    plain = TurnResult("", Outcome.COMPLETED, None, session_id="s", turn_id="t")
    data = plain.to_json()
    unknown = ["reason", "cost_usd", "usage", "model_turns", "model", "receipt", "error"]
    assert [data[name] for name in unknown] == [None] * len(unknown)


def test_the_events_stay_out_of_the_repr() -> None:
    assert "TextDelta" not in repr(RESULT)
