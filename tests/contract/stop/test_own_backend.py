"""The suite as someone with a backend of their own would run it: in real time, by its class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turncell import settings
from turncell.handle import TurnHandle
from turncell.outcome import Rung
from turncell.testing import Play, StopCase, StopSuite, scripted
from turncell.testing.agents import AGENTS, MOMENTS, least_rung, play
from turncell.testing.suite import ROUTES


@pytest.mark.stops(6)
class TestStopsOfScriptedAgents(StopSuite):
    after = ("and then", "As you wish.")

    @pytest.fixture(autouse=True)
    def _stage(self) -> Any:
        plays = [play(a, m, when=f"<{a}> {m}") for a in AGENTS for m in MOMENTS]
        with scripted(Play("As you wish.", when="and then"), *plays) as self.stage:
            yield

    def agents(self) -> Iterable[str]:
        slow = {"acks late", "blocks its event loop"}  # for the seconds of this policy
        return [name for name, kind in AGENTS.items() if not kind.freezes and name not in slow]

    def prompt(self, agent: str, moment: str) -> str | None:
        had = moment in (AGENTS[agent].moments or MOMENTS) and moment != "starting"
        return f"<{agent}> {moment}" if had else None

    def least_rung(self, case: StopCase, policy: settings.StopPolicy) -> Rung | None:
        if case.route == "now":
            return Rung.KILL
        if case.route == "user, twice":
            policy = replace(policy, ack=0.5, grace=0.0)
        # A hurried stop may not have the time that this machine takes for a polite one.
        return None if case.route == "close" else least_rung(case.agent, case.moment, policy)

    def reached(self, turn: TurnHandle, moment: str) -> bool:
        at = MOMENTS[moment]
        return not at.opens or at.reached(turn.events)

    def sent(self, prompt: str) -> int:
        return self.stage.prompts.count(prompt)


class Nobody(StopSuite):
    __test__ = False

    def prompt(self, agent: str, moment: str) -> str | None:
        return None


def test_words_for_nobody_are_refused() -> None:
    class Function:
        fixturenames = ("case",)

    with pytest.raises(ValueError, match="Moments: starting"):
        Nobody().pytest_generate_tests(Function())


class Careless(TestStopsOfScriptedAgents):
    __test__ = False


def test_it_fails_where_a_promise_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    from turncell.record import Record

    monkeypatch.setattr(Record, "_stop", lambda self: None)
    suite, words = Careless(), "<acks and runs on> mid stream"
    plays = [play("acks and runs on", "mid stream", when=words)]
    case = StopCase("acks and runs on", "mid stream", "user")
    with (
        scripted(Play("As you wish.", when="and then"), *plays) as suite.stage,
        pytest.raises(AssertionError, match="2 bounded"),
    ):
        suite.test_a_stop_keeps_its_promises(case)


def test_the_example_of_the_docs_passes() -> None:
    page = (Path(__file__).parents[3] / "docs" / "stopping.md").read_text("utf-8")
    code = page[page.index("from turncell.testing import Play") :].partition("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    suite = names["TestStopsOfMine"]()
    assert {case.route for case in suite.cases()} == set(ROUTES)
    suite.test_a_stop_keeps_its_promises(suite.cases()[0])
