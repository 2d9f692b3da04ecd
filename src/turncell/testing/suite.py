"""The stop contract as a test class, for an agent of your own or a backend of your own.

    from turncell.testing import StopSuite

    class TestStopsOfMine(StopSuite):
        def backend(self):
            return MyBackend()

        def prompt(self, agent, moment):
            return MY_PROMPTS.get((agent, moment))

Stops each agent that `prompt` has words for, at each moment, by each route of the Python
API, in real time, and asserts that `violations` finds nothing. Override what you like.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psutil

from turncell import events as ev
from turncell.backends.base import Backend
from turncell.backends.scripted import ScriptedBackend
from turncell.handle import TurnHandle
from turncell.outcome import Rung
from turncell.procs import is_tool
from turncell.session import Session, book
from turncell.settings import StopPolicy
from turncell.testing import looks
from turncell.testing.agents import AGENTS, MOMENTS
from turncell.testing.promises import Evidence, Pictures, violations

__all__ = ["ROUTES", "StopCase", "StopSuite", "agents_from"]

PATIENCE = 30.0  # seconds that only a hang takes


@dataclass(frozen=True)
class StopCase:
    """One stop: which agent, when, and how it is asked for."""

    agent: str
    moment: str
    route: str

    def __str__(self) -> str:
        return f"{self.agent} / {self.moment} / {self.route}"


def _twice(session: Session, turn: TurnHandle) -> None:
    turn.stop()
    turn.wait(0.5)
    turn.stop()


#: Ways to ask for a stop from Python. `timeout` is said with the prompt.
ROUTES: dict[str, Callable[[Session, TurnHandle], object]] = {
    "user": lambda session, turn: turn.stop(),
    "user, twice": _twice,
    "kernel interrupt": lambda session, turn: turn.stop("kernel_interrupt"),
    "API": lambda session, turn: turn.stop("api"),
    "session": lambda session, turn: session.stop(),
    "now": lambda session, turn: turn.stop(now=True),
    "timeout": lambda session, turn: None,
    "close": lambda session, turn: book().close(),
}

#: How many events of a kind show that a turn is at a moment.
_REACHED: dict[str, tuple[type[ev.Event], int]] = {
    "first delta": (ev.TextDelta, 1),
    "mid stream": (ev.TextDelta, 4),
    "tool running": (ev.ToolStarted, 1),
    "question pending": (ev.QuestionAsked, 1),
    "API stalled": (ev.TextDelta, 1),
    "API retrying": (ev.ApiRetry, 1),
    "before the result": (ev.TextSettled, 1),
}


@contextmanager
def agents_from(load: Callable[[], Backend]) -> Iterator[None]:
    """While open, every agent that this process starts comes from what `load` returns.

    Opening and leaving it stops what runs and closes every agent; sessions stay.
    """
    the_book = book()

    def playing() -> Backend:
        backend = load()
        if isinstance(backend, ScriptedBackend) and backend.tasks is None:
            the_book.portal.start().start_task(backend.run)
        return backend

    the_book.close()
    before, the_book.load = the_book.load, playing
    try:
        yield
    finally:
        the_book.close()
        the_book.load = before


class StopSuite:
    """Subclass it and say how your agent is brought to misbehave."""

    policy = StopPolicy(ack=1.0, grace=1.0, sigint=1.0, terminate=1.0)
    timeout = 2.0  # seconds after which the route `timeout` stops a turn
    #: A prompt before each stop, and one after it with the answer that it must get.
    before = "remember this"
    after = ("and then", "echo: and then")

    def backend(self) -> Backend | None:
        """Your backend; None for the agent that turncell starts anyway. Called in a
        worker thread, each time an agent is started."""
        return None

    def options(self) -> dict[str, Any]:
        """Options of the session: `cli`, `cwd`, `permission_mode`, ..."""
        return {}

    def prompt(self, agent: str, moment: str) -> str | None:
        """The words at which your agent behaves like this `agent` and comes to this
        `moment`; None where it cannot."""
        raise NotImplementedError

    def reached(self, turn: TurnHandle, moment: str) -> bool:
        """Whether the turn is at the moment. By default so many events of a kind tell."""
        kind, count = _REACHED.get(moment, (ev.Event, 0))
        return sum(isinstance(event, kind) for event in turn.events) >= count

    def just_before(self, agent: str, session: Session) -> None:
        """Called right before the stop: to freeze a process, or to kill it."""

    def least_rung(self, case: StopCase, policy: StopPolicy) -> Rung | None:
        """The politest rung that such an agent heeds; None: do not check."""
        return None

    def sent(self, prompt: str) -> int | None:
        """How often your agent was given this prompt in all; None: unknown."""
        return None

    def is_agents_own(self, process: psutil.Process) -> bool:
        """Whether a process is the agent, or a server of its own, that stays when the agent
        is kept warm; a tool of the turn is not. By default the mark of the Claude agent
        tells, and of a backend of your own nothing but the agent itself stays."""
        link = Session("stops")._conversation.link
        if self.backend() is not None:
            return link.connection is not None and process.pid == link.connection.pid
        return not is_tool(process)

    def remembers(self, session: Session) -> bool | None:
        """Whether the agent, asked `after`, knew what was said `before`; None: unknown."""
        return None

    def agents(self) -> Iterable[str]:
        """The agents to try."""
        return AGENTS

    def cases(self) -> list[StopCase]:
        """Every stop to try: a question takes no time, and a start has no timeout."""
        return [
            StopCase(agent, moment, route)
            for agent in self.agents()
            for moment in MOMENTS
            for route in ROUTES
            if self.prompt(agent, moment) is not None
            and not (route == "timeout" and moment in ("starting", "question pending"))
        ]

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """One test a case."""
        if "case" in metafunc.fixturenames:
            cases = self.cases()
            if not cases:
                raise ValueError(
                    f"{type(self).__name__}.prompt has words for no agent at no moment. "
                    f"Agents: {', '.join(self.agents())}. Moments: {', '.join(MOMENTS)}."
                )
            metafunc.parametrize("case", cases, ids=str)

    def test_a_stop_keeps_its_promises(self, case: StopCase) -> None:
        """All of them, of one stop."""
        with ExitStack() as stack:
            backend = self.backend()
            if backend is not None:
                stack.enter_context(agents_from(lambda: backend))
            assert violations(self.stop(case)) == []

    def stop(self, case: StopCase) -> Evidence:
        """Bring the agent to the moment, stop it by the route, go on, and say what was seen."""
        session, prompt = Session("stops", **self.options()), self.prompt(case.agent, case.moment)
        assert prompt is not None
        session.start(self.before).result(PATIENCE)
        if case.moment == "starting":
            session.close()
        link, known = session._conversation.link, self.sent(prompt)
        there = looks.alive(link.family.token)
        earlier = looks.named(p for p in there if not self.is_agents_own(p))
        children = looks.below(link.connection.pid if link.connection else None)
        seen = Evidence(
            name=str(case),
            session_id=session.session_id,
            bound=self._policy(case).total,
            asked_at=0.0,
            over_at=None,
            earlier=earlier,
            children=tuple(s for s in earlier if s.pid in children),
            least_rung=self.least_rung(case, self._policy(case)),
            withdrawn=case.moment == "before init",
            after_text=self.after[1],
            slack=1.0,  # of a busy machine
            answer=1.0,
        )
        seen = self._stop(case, session, prompt, seen)
        sent = self.sent(prompt)
        after = session.start(self.after[0]).result(PATIENCE, raise_error=False)
        return replace(
            seen,
            sent=0 if case.moment == "starting" else sent and sent - (known or 0),
            after=after,
            remembers=self.remembers(session),
        )

    def _stop(self, case: StopCase, session: Session, prompt: str, seen: Evidence) -> Evidence:
        old = {pid for s in seen.earlier for pid in (s.pid, *looks.below(s.pid))}
        pictures, family = Pictures(), session._conversation.link.family
        limit = self.timeout if case.route == "timeout" else None
        turn = session.start(prompt, view=pictures, stop=self.policy, timeout=limit)
        self._wait_for(turn, case.moment)
        self.just_before(case.agent, session)
        asked = time.monotonic()
        ROUTES[case.route](session, turn)
        if not turn.wait(PATIENCE):
            return replace(seen, asked_at=asked)
        over_at, result = time.monotonic(), turn.result(raise_error=False)
        warm = result.receipt is not None and result.receipt.connection == "warm"
        if case.route == "timeout" and result.receipt is not None:
            asked = result.receipt.requested_at
        alive = [p for p in looks.alive(family.token) if p.pid not in old]
        return replace(
            seen,
            asked_at=asked,
            over_at=over_at,
            result=result,
            pictures=tuple(pictures.seen),
            journal=looks.in_journal(book().archive, turn.turn_id),
            left=looks.named(p for p in alive if not (warm and self.is_agents_own(p))),
            alive=frozenset(psutil.pids()) - looks.dead(),
        )

    def _wait_for(self, turn: TurnHandle, moment: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.reached(turn, moment):
            if turn.done() or time.monotonic() > deadline:
                turn.stop(now=True)
                turn.result(PATIENCE, raise_error=False)
                heard = [type(event).__name__ for event in turn.events[-5:]]
                raise TimeoutError(
                    f"`reached` never said that the turn is at the moment {moment!r}; the last "
                    f"events were {', '.join(heard) or 'none'}"
                )
            time.sleep(0.005)

    def _policy(self, case: StopCase) -> StopPolicy:
        return self.policy.hurried(2.0) if case.route == "close" else self.policy
