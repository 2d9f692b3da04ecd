"""The public names, pinned: adding or losing one is a decision."""

from __future__ import annotations

import turncell
from turncell import events, testing
from turncell.backends import scripted_steps

PUBLIC = {
    "Outcome",
    "Reason",
    "Session",
    "StopPolicy",
    "StopReceipt",
    "Turn",
    "TurnFailed",
    "TurnResult",
    "TurnStopped",
    "TurncellError",
    "load_ipython_extension",
    "unload_ipython_extension",
}
EVENTS = {
    "ApiRetry",
    "QuestionAsked",
    "QuestionSettled",
    "SessionOpened",
    "StopProgress",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnded",
    "ToolStarted",
    "TurnEnded",
    "UsageReported",
}


#: `turncell.testing`, but for the steps of a play, which are pinned by their own module.
TESTING = {
    "PROMISES",
    "Evidence",
    "ModelServer",
    "Pictures",
    "Reply",
    "Scenario",
    "Script",
    "ScriptedBackend",
    "StopCase",
    "StopSuite",
    "agents_from",
    "scripted",
    "violations",
}


def test_the_names_for_tests() -> None:
    steps = {*scripted_steps.__all__}
    assert set(testing.__all__) == TESTING | steps
    assert all(getattr(testing, name) is not None for name in testing.__all__)


def test_public_names() -> None:
    assert set(turncell.__all__) == PUBLIC
    assert all(getattr(turncell, name) is not None for name in PUBLIC)


def test_event_classes_of_the_contract() -> None:
    assert set(events.__all__) >= EVENTS
    assert all(issubclass(getattr(events, name), events.Event) for name in EVENTS)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(turncell, "Manager")
