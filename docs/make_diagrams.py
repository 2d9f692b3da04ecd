"""Draws the stop ladder for the docs, from the table that the code runs on.

    python docs/make_diagrams.py

Everything between the two markers in stopping.md is replaced, the prose is left alone.
A test fails when the page is not what this script would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from turncell.ladder import ON_ENTRY, RUNGS, TABLE, Act, StopLadder, StopState, StopStimulus
from turncell.settings import StopPolicy, Strategy

PAGE = Path(__file__).with_name("stopping.md")
BEGIN = "<!-- made by docs/make_diagrams.py from here -->"
END = "<!-- made by docs/make_diagrams.py to here -->"

#: The ladder's acts, in words for a reader.
WORDS = {
    Act.REFUSE: "no new tools, open questions are cancelled",
    Act.INTERRUPT: "ask the agent to stop",
    Act.SWEEP: "end what its tools started, keep the agent",
    Act.SIGINT: "SIGINT to the agent",
    Act.TERMINATE: "close its input, SIGTERM to the agent",
    Act.KILL: "SIGKILL to all of it, then look what is left",
    Act.REAP: "end what the agent left behind, then look what is left",
    Act.GIVE_UP: "report that it still runs",
    Act.CONCLUDE: "report that it is over",
}

#: A move, and the strategy it needs (None: any that gets there).
Move = tuple[StopState, StopState, StopStimulus, Strategy | None]


def rendered(page: str) -> str:
    """The page with everything between the markers made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n\n".join([BEGIN, diagram(), rungs(), totals(), END])
    return f"{before}{made}{after}"


def diagram() -> str:
    """The states and the moves between them, as a mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> idle"]
    for state, acts in ON_ENTRY.items():
        if acts:
            lines.append(f"    {state.value} : {', '.join(act.value for act in acts)}")
    for (source, target), labels in _arrows().items():
        lines.append(f"    {source.value} --> {target.value} : {', '.join(labels)}")
    return "\n".join([*lines, "    ended --> [*]", "```"])


def rungs() -> str:
    """What each state does and how long it may take, with the default policy."""
    lines = ["| State | Rung | What happens | At most |", "|---|---|---|---|"]
    for state, acts in ON_ENTRY.items():
        if state is not StopState.ENDED:
            rung = RUNGS[state].value if state in RUNGS else ""
            words = "; ".join(WORDS[act] for act in acts) or "wait for the agent's own last message"
            lines.append(f"| {state.value} | {rung} | {words} | {_seconds(state)} |")
    return "\n".join(lines)


def totals() -> str:
    """The longest a stop can take under each strategy."""
    lines = ["| Strategy | The longest a stop can take |", "|---|---|"]
    for strategy in Strategy:
        lines.append(f"| `{strategy}` | {StopPolicy(strategy=strategy).total:g} s |")
    return "\n".join(lines)


def moves() -> Iterator[Move]:
    """Every move that leads elsewhere or demands something."""
    for state, row in TABLE.items():
        for stimulus in row:
            usual = _try(state, stimulus, Strategy.INTERRUPT_THEN_KILL)
            yield from _worth_drawing(state, usual, stimulus, None)
            for strategy in (Strategy.INTERRUPT, Strategy.KILL):
                other = _try(state, stimulus, strategy)
                if other != usual:
                    yield from _worth_drawing(state, other, stimulus, strategy)


def _try(
    state: StopState, stimulus: StopStimulus, strategy: Strategy
) -> tuple[StopState, list[Act]]:
    ladder = StopLadder(StopPolicy(strategy=strategy))
    ladder.state = state
    ladder.acks_in_flight = 2  # else SETTLE would go on by itself
    pressed = stimulus is StopStimulus.PRESS  # the strategy has a say in what a press means
    acts = ladder.press(1.0) if pressed else ladder.handle(stimulus, 1.0)
    return ladder.state, acts


def _worth_drawing(
    source: StopState,
    result: tuple[StopState, list[Act]],
    stimulus: StopStimulus,
    strategy: Strategy | None,
) -> Iterator[Move]:
    target, acts = result
    if target is not source or acts:
        yield source, target, stimulus, strategy


def _arrows() -> dict[tuple[StopState, StopState], list[str]]:
    arrows: dict[tuple[StopState, StopState], list[str]] = {}
    for source, target, stimulus, strategy in moves():
        label = stimulus.value + (f" (strategy {strategy})" if strategy else "")
        arrows.setdefault((source, target), []).append(label)
    return arrows


def _seconds(state: StopState) -> str:
    ladder = StopLadder(StopPolicy())
    ladder.state = state
    return f"{ladder.rung_ends():g} s" if ladder.deadline is not None else "no limit"


def main() -> None:
    """Write stopping.md anew."""
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
