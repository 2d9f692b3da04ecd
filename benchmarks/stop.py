"""A stop in mid stream: how soon it is answered on screen, how soon the cell is over."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable

from common import Report, TimedKernel, bench, rest, shows

OURS = "%%agent\nstream"


def main(stops: int) -> int:
    report = Report("stop in mid stream")
    with bench() as place:
        kernel = place.kernel(extension=True)
        kernel.timed("%%agent\nping")
        for how, press in (("click", click), ("kernel interrupt", interrupt)):
            seen, over = many(kernel, press, stops)
            report.times(f"{how}: answered on screen", seen, 50)
            report.times(f"{how}: cell over", over, 200)
    return report.code


def click(kernel: TimedKernel) -> float:
    return kernel.clicked("Stop")


def interrupt(kernel: TimedKernel) -> float:
    return kernel.interrupt()


def many(
    kernel: TimedKernel, press: Callable[[TimedKernel], float], stops: int
) -> tuple[list[float], list[float]]:
    """Seconds to the answer and to the end of so many stops, each at a moment of its own."""
    moments = random.Random(20)
    seen: list[float] = []
    over: list[float] = []
    for _ in range(stops):
        rest(2)
        cell = kernel.start(OURS)
        kernel.seen(cell, lambda m: shows(m, "w9 "))
        kernel.listen(moments.uniform(0.05, 0.5))
        at = press(kernel)
        answered = kernel.seen(cell, lambda m: shows(m, "Stopping "), since=at)
        kernel.wait(cell, 30)
        assert cell.error.startswith("TurnStopped"), cell.error
        seen.append(answered - at)
        over.append(kernel.ended(cell) - at)
    return seen, over


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=20, help="stops of each kind")
    sys.exit(main(parser.parse_args().n))
