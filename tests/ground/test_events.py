"""Events are plain values with one JSON form."""

from __future__ import annotations

import dataclasses
import json

import pytest

from turncell import events as ev

EXAMPLES = [
    ev.SessionOpened(
        session_id="s-1", model="m", cwd="here", permission_mode="default", agent_version="2.1",
        capabilities=("cancel_queued", "resume"),
    ),
    ev.TextDelta(turn_id="t", at=1.5, text="héllo \u2028 \n", block="b1"),
    ev.TextSettled(text="hello", block="b1"),
    ev.ThinkingDelta(text="hm", block="b0"),
    ev.ToolStarted(
        tool_id="x", name="Bash", parent="p",
        input={"command": "ls", "flags": ["-l", {"deep": [1]}]},
    ),
    ev.ToolOutput(tool_id="t", tail="line 3\nline 4"),
    ev.ToolEnded(tool_id="x", status="done", output="a\nb"),
    ev.QuestionAsked(question_id="q", tool="Write", input={"path": "f"}),
    ev.QuestionSettled(question_id="q", answer="denied", note="not today"),
    ev.ApiRetry(attempt=2, limit=10, delay=0.5, status=529),
    ev.Notice(text="history is damaged", level="warning"),
    ev.ModelTold(text="it was stopped"),
    ev.TodosChanged(todos=({"text": "Write it", "status": "in_progress"},)),
    ev.HookReported(hook_id="h", name="Stop", status="running"),
    ev.UsageReported(cost_usd=0.01, usage={"input_tokens": 3}, model_turns=2),
    ev.AgentFinished(end="error", error="no", session_id="s-1"),
    ev.StopProgress(rung="interrupt", seconds_left=4.5),
    ev.TurnEnded(outcome="failed", reason="budget", error="no"),
]  # fmt: skip


def name_of(value: object) -> str:
    return type(value).__name__


def test_there_is_an_example_of_every_event() -> None:
    assert [name_of(example) for example in EXAMPLES] == list(
        dict.fromkeys(kind.__name__ for kind in ev.Event.__subclasses__())
    )


@pytest.mark.parametrize("event", EXAMPLES, ids=name_of)
def test_json_and_back(event: ev.Event) -> None:
    text = json.dumps(ev.to_json(event))
    back = ev.from_json(json.loads(text))
    assert back == event
    assert type(back) is type(event)


@pytest.mark.parametrize("event", EXAMPLES, ids=name_of)
def test_the_json_form_is_flat_and_names_its_kind(event: ev.Event) -> None:
    data = ev.to_json(event)
    fields = [field.name for field in dataclasses.fields(event)]
    assert list(data) == ["event", *fields]
    assert data["event"] == name_of(event)


@pytest.mark.parametrize("event", EXAMPLES, ids=name_of)
def test_fields_of_a_newer_version_are_ignored(event: ev.Event) -> None:
    assert ev.from_json({**ev.to_json(event), "colour": "red"}) == event


@pytest.mark.parametrize("event", EXAMPLES, ids=name_of)
def test_events_are_frozen(event: ev.Event) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.at = 2.0  # type: ignore[misc]


def test_optional_fields_may_be_missing() -> None:
    assert ev.from_json({"event": "ToolEnded", "tool_id": "x", "status": "done"}) == ev.ToolEnded(
        tool_id="x", status="done"
    )


@pytest.mark.parametrize("kind", ["Nonsense", "Event", "", None, 3, "from_json"])
def test_an_unknown_kind_is_a_value_error(kind: object) -> None:
    with pytest.raises(ValueError, match="unknown event"):
        ev.from_json({"event": kind, "turn_id": "t"})


def test_no_kind_at_all_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="unknown event None"):
        ev.from_json({})


def test_a_missing_field_is_a_value_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="TextDelta is incomplete.*block"):
        ev.from_json({"event": "TextDelta", "text": "x"})


def test_to_json_gives_a_copy() -> None:
    event = ev.ToolStarted(tool_id="x", name="Bash", input={"command": "ls"})
    ev.to_json(event)["input"]["command"] = "rm"
    assert event.input == {"command": "ls"}


def test_every_event_is_exported() -> None:
    kinds = {kind.__name__ for kind in ev.Event.__subclasses__()}
    assert set(ev.__all__) == kinds | {"Event", "from_json", "to_json"}
