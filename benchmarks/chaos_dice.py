"""What the campaign of stops is made of: the throws of its dice, and what runs in the kernel."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACES = ("", "kernel", "cli", "contract/stop")
sys.path[:0] = [str(HERE.parent / "tests" / place) for place in PLACES]

from real import AGENTS, words_for  # noqa: E402 - found by the line above

from turncell.modelserver import Reply, Scenario, Words  # noqa: E402
from turncell.testing.agents import MOMENTS  # noqa: E402

__all__ = ["BESIDE", "DEATHS", "NEIGHBOUR", "ROUTES", "SET_UP", "SLACK", "Throw", "throws"]

ROUTES = {
    "button": 6, "kernel interrupt": 4, "%agent stop": 3, "%agent stop --now": 1, "timeout": 2,
    "API": 2, "unload": 1, "shutdown": 1, "SIGKILL": 1,
}  # fmt: skip
DEATHS = ("shutdown", "SIGKILL")
#: What the turn of the other session says, 12 s long.
BESIDE = "".join(f"w{n} " for n in range(120))
NEIGHBOUR = Scenario("beside", when="beside you", replies=[Reply(Words(120, pace=0.1))])
#: Seconds on this machine beyond what a rung may take; a busy one is late with everything.
SLACK = 1.0

SET_UP = """
import json, threading, time, turncell, turncell.procs
from turncell.outcome import Rung
from turncell.testing import Evidence, violations
main = turncell.Session("main")

def stop_later(presses, gap):
    global asked
    asked, turns = 0.0, turncell.session.book().turns
    def stop():
        global asked
        while (turn := turncell.session.book().turns[-1]) is turns[-1]:
            time.sleep(0.01)
        time.sleep(0.7)
        asked = time.monotonic()
        for _ in range(presses):
            turn.stop("api")
            time.sleep(gap)
    threading.Thread(target=stop).start()

def neighbour_turn(cli):
    global neighbour, turn_beside
    neighbour = turncell.Session("neighbour", cli=cli, system="test", sources=())
    if "turn_beside" not in globals() or turn_beside.done():
        turn_beside = neighbour.start("beside you")

def beside():
    # How the other session's turn fares, and its processes.
    done, words = turn_beside.done(), WORDS_BESIDE
    result = turn_beside.result(raise_error=False) if done else None
    fine = not done or (str(result.outcome), result.text) == ("completed", words)
    token = neighbour._conversation.link.family.token
    return [fine, result and repr(result)[:300], [p.pid for p in turncell.procs.marked(token)]]

def left_running():
    return [p.pid for p in main._conversation.link.family.left_running]

def judge(asked, over, bound, rung, sent, left, before_init):
    return violations(Evidence(
        name=r.turn_id, session_id=session_id, bound=bound, asked_at=asked, over_at=over, result=r,
        left=tuple(turncell.outcome.Survivor(p, c) for p, c in left), sent=sent,
        least_rung=rung and Rung(rung), withdrawn=before_init,
        after=after, after_text="echo: and then", slack=SLACK))
""".replace("SLACK", str(SLACK)).replace("WORDS_BESIDE", repr(BESIDE))


@dataclass(frozen=True)
class Throw:
    """One throw of the dice."""

    number: int
    agent: str
    moment: str
    route: str
    presses: int
    gap: float
    wait: float
    ack: float
    grace: float

    def __str__(self) -> str:
        times = f" x{self.presses} every {self.gap:.2f} s" if self.presses > 1 else ""
        return (
            f"{self.number}: {self.agent} / {self.moment} / {self.route}{times}, "
            f"{self.wait:.2f} s later, ack {self.ack} grace {self.grace}"
        )

    @property
    def bound(self) -> float:
        """The longest this stop may take, in seconds."""
        if self.route in ("unload", *DEATHS):
            return 2.0
        return self.ack + self.grace + 2.0 + 2.0 + 1.5

    @property
    def rung(self) -> str | None:
        """The rung that must do; None where the clock and the presses decide."""
        plain = self.presses == 1 and self.route not in ("unload", "%agent stop --now")
        expected = AGENTS[self.agent][1]
        if self.route == "%agent stop --now":
            return "kill"
        if not plain or "late" in self.agent:
            return None
        return expected and expected.value


def throws(seed: int) -> Iterator[Throw]:
    """The whole campaign of a seed, one throw after the other."""
    dice, number = random.Random(seed), 0
    while True:
        agent = dice.choice(["polite", *AGENTS])
        moment = dice.choice([m for m in MOMENTS if m != "starting" and words_for(agent, m)])
        route = dice.choices(list(ROUTES), list(ROUTES.values()))[0]
        yield Throw(
            number, agent, moment, route, dice.choice([1, 1, 1, 2, 3]),
            dice.choice([0.0, 0.1, 0.5, 0.8]), dice.choice([0.0, 0.0, 0.05, 0.3, 1.0]),
            dice.choice([1.0, 2.0]), dice.choice([1.0, 2.0]),
        )  # fmt: skip
        number += 1
