"""The real agent, made to misbehave, stopped at every moment by every route."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from typing import Any, ClassVar

import psutil
import pytest
from agents import Agents, running_agents
from real import AGENTS, BY_HAND, ROGUE, SCRIPT, WAIT, words_for

from turncell import Session
from turncell import events as ev
from turncell.backends.claude_launch import find_cli
from turncell.handle import TurnHandle
from turncell.outcome import Outcome, Rung
from turncell.settings import StopPolicy
from turncell.testing import Evidence, StopCase, StopSuite


@pytest.mark.cli
@pytest.mark.stops(8)
@pytest.mark.timeout(120)
class TestRealStops(StopSuite):
    """What one of a kind, at one moment, is good for is asked by the route `user`; the
    polite agent is stopped by every route."""

    place: ClassVar[Agents]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _place(cls, tmp_path_factory: pytest.TempPathFactory) -> Any:
        home = tmp_path_factory.mktemp("stops")
        with running_agents(home) as agents, pytest.MonkeyPatch.context() as patch:
            patch.setenv("ROGUE_CLI", find_cli(None))
            patch.setenv("ROGUE_LOG", str(home / "rogue.log"))
            cls.place = agents
            agents.play(*SCRIPT)
            yield

    def agents(self) -> Iterable[str]:
        return AGENTS

    def options(self) -> dict[str, Any]:
        return {"cli": str(ROGUE), "permission_mode": "bypassPermissions", "sources": (),
                "cwd": str(self.place.cwd), "system": "test"}  # fmt: skip

    def cases(self) -> list[StopCase]:
        return [c for c in super().cases() if c.agent == "polite" or c.route == "user"]

    def prompt(self, agent: str, moment: str) -> str | None:
        return words_for(agent, moment)

    def reached(self, turn: TurnHandle, moment: str) -> bool:
        events = turn._events
        if moment == "before the result":
            return "w19" in "".join(e.text for e in events if isinstance(e, ev.TextDelta))
        if moment == "API stalled":
            return "w4" in "".join(e.text for e in events if isinstance(e, ev.TextDelta))
        if moment == "starting":
            return bool(self.place.commands("rogue.py"))
        if moment in ("first delta", "mid stream"):
            deltas = sum(isinstance(e, ev.TextDelta) for e in events)
            return deltas >= (1 if moment == "first delta" else 4)
        if moment == "tool running" and not (
            self.place.commands(WAIT) or self.place.commands("sleep 0.11")
        ):
            return False
        return super().reached(turn, moment)

    def just_before(self, agent: str, session: Session) -> None:
        connection = session._conversation.link.connection
        assert connection is not None or agent == "polite"
        if connection is not None and connection.pid is not None and agent in BY_HAND:
            root = psutil.Process(connection.pid)
            for process in [root, *root.children()]:
                process.send_signal(signal.Signals[BY_HAND[agent]])

    def stop(self, case: StopCase) -> Evidence:
        """Once more where the agent died so fast that there was nothing to stop."""
        for _ in range(5):
            seen = super().stop(case)
            result = seen.result
            if result is None or result.receipt is not None or result.outcome is not Outcome.LOST:
                break
            assert case.agent in ("killed", "dies before init"), result.error
        return seen

    def least_rung(self, case: StopCase, policy: StopPolicy) -> Rung | None:
        if case.route == "now":
            return Rung.KILL
        if case.moment == "starting":
            return Rung.TERMINATE
        # A hurried stop may not have the time that this machine takes for a polite one.
        return None if case.route == "close" else AGENTS[case.agent][1]

    def sent(self, prompt: str) -> int | None:
        log = self.place.home / "rogue.log"
        return log.read_text().split().count("prompt") if log.exists() else 0

    def remembers(self, session: Session) -> bool | None:
        return "remember this" in json.dumps(self.place.calls(self.after[0])[-1].history)


def test_every_kind_that_a_real_agent_can_be() -> None:
    assert {case.agent for case in TestRealStops().cases()} == set(AGENTS)
