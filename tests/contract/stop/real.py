"""How the real agent is brought to misbehave: what the model says, and what the proxy in
front of the agent's binary (`rogue.py`) is told."""

from __future__ import annotations

from pathlib import Path

from agents import bash

from turncell.modelserver import HttpError, Pause, Reply, Scenario, Stall, Words
from turncell.outcome import Rung

ROGUE = Path(__file__).parents[2] / "cli" / "rogue.py"


WAIT = "tail -f /dev/null"
DEAF = "trap '' INT TERM HUP; while :; do sleep 0.11; done"
OWN_SESSION = f"setsid {WAIT} & {WAIT}"
GRANDCHILD = f"setsid -f {WAIT}; {WAIT}"
SLOW = Words(400, pace=0.05)
SCRIPT = (
    Scenario("stream", when="stream", replies=[Reply(SLOW)]),
    Scenario("flood", when="a flood", replies=[Reply(Words(60_000, pace=0.0001))]),
    Scenario("tool", when="use a tool", replies=[Reply("I look. ", bash(WAIT)), Reply("Done.")]),
    Scenario("deaf", when="a deaf tool", replies=[Reply("I look. ", bash(DEAF)), Reply("Done.")]),
    Scenario("own", when="setsid", replies=[Reply("I look. ", bash(OWN_SESSION)), Reply("Done.")]),
    Scenario("fork", when="fork", replies=[Reply("I look. ", bash(GRANDCHILD)), Reply("Done.")]),
    Scenario("background", when="background", replies=[
        Reply("I begin. ", bash(WAIT, run_in_background=True)), Reply(SLOW)]),
    Scenario("stall", when="stall", replies=[Reply(Words(5), Stall())]),
    Scenario("busy", when="busy", replies=[Reply(HttpError(529, "busy", retry_after=30))]),
    Scenario("end", when="to the end", replies=[Reply(Words(20), Pause(30.0))]),
)  # fmt: skip

#: The words that bring the model to each moment.
WORDS = {
    "starting": "stream",
    "before init": "stream",
    "first delta": "stream",
    "mid stream": "stream",
    "tool running": "use a tool",
    "API stalled": "stall",
    "API retrying": "busy",
    "before the result": "to the end",
}
#: agent -> (what the rogue agent is told, the politest rung it heeds, other words for a moment).
AGENTS: dict[str, tuple[str, Rung | None, dict[str, str]]] = {
    "polite": ("", Rung.INTERRUPT, WORDS),
    "never acks": ("never-acks", Rung.SIGINT, WORDS),
    "acks and runs on": ("acks-and-runs-on", Rung.SIGINT, WORDS),
    "acks late": ("acks-late 1.5", Rung.SIGINT, WORDS),
    "no terminal message": ("no-terminal", Rung.SIGINT, WORDS),
    "terminal message twice": ("terminal-twice", Rung.INTERRUPT, WORDS),
    "terminal message again in the next turn": ("terminal-again", Rung.INTERRUPT, WORDS),
    "dies before init": ("dies-before-init", Rung.INTERRUPT, {"before init": "stream"}),
    "dies mid ack": ("dies-mid-ack", Rung.INTERRUPT, WORDS),
    "dies mid line": ("dies-mid-line", Rung.INTERRUPT, WORDS),
    "frozen": ("", Rung.KILL, WORDS),
    "killed": ("", Rung.INTERRUPT, WORDS),
    "ignores signals": ("deaf", Rung.KILL, WORDS),
    "deaf tool": ("", Rung.INTERRUPT, {"tool running": "a deaf tool"}),
    "child in its own session": ("", Rung.INTERRUPT, {"tool running": "setsid"}),
    "double-forked grandchild": ("", Rung.INTERRUPT, {"tool running": "fork"}),
    "double-forked grandchild, deaf": ("deaf", Rung.KILL, {"tool running": "fork"}),
    "background task": ("", Rung.INTERRUPT, {"mid stream": "background"}),
    "floods": ("", None, {"mid stream": "a flood"}),  # an ack stands in line behind the flood
    "writes junk": ("junk", Rung.INTERRUPT, WORDS),
    "blocks its event loop": ("blocks 0.5", Rung.INTERRUPT, WORDS),
    "falls silent": ("half-then-silent 6", None, {"mid stream": "stream"}),
}

#: What `just_before` the stop is done to the agent's processes, by hand.
BY_HAND = {"frozen": "SIGSTOP", "killed": "SIGKILL"}


def words_for(agent: str, moment: str) -> str | None:
    """The prompt; None where this agent cannot be had at this moment."""
    directive, _, words = AGENTS[agent]
    if moment not in words or (moment == "starting" and agent != "polite"):
        return None
    return f"[rogue {directive}] {words[moment]}" if directive else words[moment]
