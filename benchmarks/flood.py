"""A flood: 20,000 deltas in one burst against the raw SDK, and Stop in ten times as many."""

from __future__ import annotations

import argparse
import statistics
import sys

from common import RAW_CONNECT, RAW_TURN, Report, TimedKernel, bench, rest, shows

DELTAS = 20_000
TEXT = "".join(f"w{i} " for i in range(DELTAS))
PROMPT = f"flood {DELTAS}"
RAW = RAW_TURN.format(prompt=PROMPT)
OURS = f"%%agent -o flooded\n{PROMPT}"


def whole(kernel: TimedKernel, expression: str) -> bool:
    """Whether the text arrived to its last letter (compared in the kernel)."""
    return bool(kernel.value(f"{expression} == ''.join(f'w{{i}} ' for i in range({DELTAS}))"))


def main(pairs: int, stops: int) -> int:
    report = Report("flood")
    ours: list[float] = []
    raw: list[float] = []
    after: list[float] = []
    with bench() as place:
        us, them = place.kernel(extension=True), place.kernel()
        us.timed("%%agent\nping")
        them.timed(RAW_CONNECT + RAW_TURN.format(prompt="ping"))
        lost = 0
        for _ in range(pairs):
            rest()
            cell, seconds = us.timed(OURS)
            ours.append(seconds)
            after.append(us.timed("1 + 1")[1])
            lost += not whole(us, "flooded.text.strip()+' '") or TEXT.strip() not in cell.text
            raw.append(them.timed(RAW)[1])
            lost += not whole(them, "''.join(got)")
        seen, over = stop_in_floods(us, stops)
        after.append(us.timed("1 + 1")[1])
    report.row("turns that lost text", lost, 0, "turns", f"of {2 * pairs}")
    report.times(f"%%agent, {DELTAS:,} deltas", ours)
    report.times(f"raw SDK, {DELTAS:,} deltas", raw)
    ratio = statistics.median(ours) / statistics.median(raw)
    pairwise = [a / b for a, b in zip(ours, raw, strict=True)]
    report.row("ratio", ratio, 2, "x", f"{min(pairwise):.2f} to {max(pairwise):.2f}")
    report.times("1 + 1 right afterwards", after, 100)
    report.times("Stop in a flood of 200,000 is answered", seen, 500)
    report.times("and its cell over", over)
    return report.code


def stop_in_floods(kernel: TimedKernel, times: int) -> tuple[list[float], list[float]]:
    """Seconds from clicks on Stop in the middle of a flood to the answer and to the end."""
    seen: list[float] = []
    over: list[float] = []
    for _ in range(times):
        cell = kernel.start("%%agent\nflood 200000")
        kernel.seen(cell, lambda m: shows(m, "w99 "))
        kernel.listen(0.3)
        clicked = kernel.clicked("Stop")
        answered = kernel.seen(cell, lambda m: shows(m, "Stopping "), since=clicked)
        kernel.wait(cell, 60)
        assert cell.error.startswith("TurnStopped"), cell.error or cell.text[-200:]
        seen.append(answered - clicked)
        over.append(kernel.ended(cell) - clicked)
    return seen, over


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=7, help="pairs")
    parser.add_argument("--stops", type=int, default=5, help="stops in a flood")
    options = parser.parse_args()
    sys.exit(main(options.n, options.stops))
