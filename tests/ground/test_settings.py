"""Settings are checked once, know where they came from, and say what a process needs."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from turncell.errors import UsageError
from turncell.settings import Settings, StopPolicy, Strategy

SECONDS = ["ack", "grace", "sigint", "terminate", "kill", "settle", "resend", "repeat_after"]


def test_every_number_of_the_policy_is_checked_here() -> None:
    assert {field.name for field in dataclasses.fields(StopPolicy)} == {*SECONDS, "strategy"}


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "5", None, True])
def test_bad_seconds_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"{name} is {value!r}: give a number of seconds"):
        StopPolicy(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["ack", "grace", "sigint", "terminate", "kill", "settle"])
@pytest.mark.parametrize("value", [0, 0.0, 3, 3600.0])
def test_zero_and_whole_seconds_are_fine(name: str, value: float) -> None:
    assert getattr(StopPolicy(**{name: value}), name) == value  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["interrupt_then_kill", "interrupt", "kill"])
def test_a_strategy_may_be_given_by_its_word(word: str) -> None:
    strategy = StopPolicy(strategy=word).strategy  # type: ignore[arg-type]
    assert isinstance(strategy, Strategy)
    assert str(strategy) == word


@pytest.mark.parametrize("word", ["soft", "", "Kill", None, 3])
def test_an_unknown_strategy_lists_the_choices(word: Any) -> None:
    with pytest.raises(UsageError, match="is not one of interrupt_then_kill, interrupt, kill"):
        StopPolicy(strategy=word)


def test_the_longest_a_stop_can_take() -> None:
    assert StopPolicy().total == 15.5
    assert StopPolicy(strategy=Strategy.KILL).total == 3.5
    assert StopPolicy(ack=1, grace=2, sigint=3, terminate=4, kill=5, settle=0).total == 15


def test_policies_are_frozen_and_comparable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        StopPolicy().ack = 1.0  # type: ignore[misc]
    assert StopPolicy(ack=1) == StopPolicy(ack=1.0)


# Hurried.


def test_a_hurried_policy_is_the_same_ladder_in_less_time() -> None:
    hurried = StopPolicy().hurried(2.0)
    assert hurried.total == pytest.approx(2.0)
    assert hurried.ack / hurried.grace == pytest.approx(1.0)
    assert hurried.repeat_after == 0.0


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_hurried_policy_never_gives_up(strategy: Strategy) -> None:
    assert StopPolicy(strategy=strategy).hurried().strategy is not Strategy.INTERRUPT


def test_hurrying_never_makes_a_stop_longer() -> None:
    assert StopPolicy().hurried(60.0).total == StopPolicy().total


def test_hurrying_a_short_policy_stays_within_the_total() -> None:
    assert StopPolicy(ack=0.1, grace=0.1).hurried(2.0).total <= 2.0


@pytest.mark.parametrize("slow", [{"ack": 60.0}, {"grace": 30.0, "kill": 10.0}])
def test_hurrying_a_long_policy_stays_within_the_total(slow: dict[str, float]) -> None:
    assert StopPolicy(**slow).hurried(2.0).total <= 2.0 + 1e-9  # type: ignore[arg-type]


@pytest.mark.parametrize("ack", [0.0, 5.0, 600.0, 3600.0])
def test_hurrying_squeezes_the_polite_part_and_leaves_force_its_time(ack: float) -> None:
    hurried = StopPolicy(ack=ack, grace=600.0).hurried(2.0)
    assert (hurried.terminate, hurried.kill, hurried.settle) == pytest.approx((0.3, 0.5, 0.3))
    assert hurried.total == pytest.approx(2.0)


def test_nobody_waits_longer_than_an_hour_for_a_rung() -> None:
    with pytest.raises(UsageError, match="from 0 to 3600"):
        StopPolicy(ack=3601.0)


def test_hurrying_keeps_strategy_kill() -> None:
    assert StopPolicy(strategy=Strategy.KILL).hurried().strategy is Strategy.KILL


# The settings of a turn.


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "10"])
def test_a_bad_timeout_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="timeout is .*give a number of seconds, 0 or more"):
        Settings(timeout=value)


@pytest.mark.parametrize("value", [0, -3])
def test_a_bad_max_turns_is_refused(value: int) -> None:
    with pytest.raises(UsageError, match=f"max-turns is {value}: give 1 or more"):
        Settings(max_turns=value)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_a_bad_max_budget_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="max-budget is .*give an amount in USD above 0"):
        Settings(max_budget=value)


def test_limits_that_are_fine() -> None:
    settings = Settings(timeout=0.5, max_turns=1, max_budget=0.01)
    assert (settings.timeout, settings.max_turns, settings.max_budget) == (0.5, 1, 0.01)


def test_every_changed_value_knows_its_origin() -> None:
    settings = Settings().merged("%config", {"model": "a", "timeout": 5.0})
    settings = settings.merged("this cell", {"model": "b"})
    assert (settings.model, settings.timeout) == ("b", 5.0)
    assert settings.origins == {"model": "this cell", "timeout": "%config"}


def test_the_seconds_of_a_stop_go_to_its_policy() -> None:
    settings = Settings(stop=StopPolicy(kill=9.0))
    settings = settings.merged("this cell", {"ack": 1.0, "strategy": "kill"})
    assert settings.stop == StopPolicy(ack=1.0, kill=9.0, strategy=Strategy.KILL)
    assert settings.origins == {"ack": "this cell", "strategy": "this cell"}


def test_lists_and_paths_become_plain_values() -> None:
    values = {"tools": ["Bash", "Edit"], "sources": ["user"], "cwd": Path("a", "b")}
    settings = Settings().merged("this cell", values)
    assert (settings.tools, settings.sources) == (("Bash", "Edit"), ("user",))
    assert settings.cwd == str(Path("a", "b"))
    assert Settings().merged("this cell", {"cwd": None}).cwd is None


def test_other_values_stay_what_they_are() -> None:
    values = {"max_turns": 3, "max_budget": 0.5, "expand": True, "timeout": 2}
    settings = Settings().merged("this cell", values)
    assert {name: getattr(settings, name) for name in values} == values
    assert settings.expand is True


def test_merging_checks_again_and_leaves_the_original_alone() -> None:
    original = Settings(model="a")
    for bad in ({"max_turns": 0}, {"ack": -1.0}, {"strategy": "soft"}):
        with pytest.raises(UsageError):
            original.merged("this cell", bad)
    original.merged("this cell", {"model": "b"})
    assert (original.model, original.origins) == ("a", {})


@pytest.mark.parametrize("name", ["modle", "origins", ""])
def test_a_name_that_is_no_setting_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown option {name}: use one of .*cli, cwd, "):
        Settings().merged("this cell", {"model": "a", name: 1})


def test_the_choices_name_every_option_that_is_taken() -> None:
    with pytest.raises(UsageError, match=r"\back\b.*\bstrategy\b"):
        Settings().merged("this cell", {"modle": "a"})


@pytest.mark.parametrize("bad", [{"max_turns": "3"}, {"max_budget": "1"}], ids=str)
def test_a_limit_of_the_wrong_type_is_refused_in_words(bad: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        Settings().merged("this cell", bad)


def test_origins_do_not_make_two_settings_different() -> None:
    assert Settings(model="a") == Settings().merged("this cell", {"model": "a"})


def test_what_a_process_does_not_need_is_not_in_its_key() -> None:
    plain = Settings(model="a")
    other = plain.merged("this cell", {"timeout": 5.0, "ack": 1.0})
    assert other != plain
    assert other.launch_key() == plain.launch_key()
    assert hash(other.launch_key()) == hash(plain.launch_key())
    assert other.launch_key().origins == {}


@pytest.mark.parametrize(
    "change",
    [
        {"model": "b"}, {"effort": "high"}, {"permission_mode": "plan"}, {"max_turns": 3},
        {"max_budget": 1.0}, {"cwd": "there"}, {"tools": ("Bash",)}, {"system": "be brief"},
        {"sources": ("user",)}, {"cli": "agent"},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_process_was_started_with_is_in_its_key(change: dict[str, Any]) -> None:
    assert Settings(**change).launch_key() != Settings().launch_key()


def test_a_key_is_its_own_key() -> None:
    key = Settings(model="a", timeout=3.0).launch_key()
    assert key.launch_key() == key
