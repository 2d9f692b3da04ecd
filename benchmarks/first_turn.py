"""The first turn of a kernel: when something is seen, and the whole of it against the raw SDK's.

Both import the SDK and start the agent; ours loads the extension on top.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from common import RAW_CONNECT, RAW_TURN, Bench, Report, bench, rest, shows, used

RAW = RAW_CONNECT + RAW_TURN.format(prompt="ping")


class Measured:
    """The seconds of all first turns."""

    def __init__(self) -> None:
        self.starting: list[float] = []
        self.button: list[float] = []
        self.ours: list[float] = []
        self.raw: list[float] = []
        self.our_cpu: list[float] = []
        self.raw_cpu: list[float] = []

    def us(self, place: Bench) -> None:
        with place.one_kernel() as kernel:
            before = used(kernel)
            loading = kernel.timed("%load_ext turncell")[1]
            sent = time.time()
            cell = kernel.start("%%agent\nping")
            seen = kernel.seen(cell, lambda m: shows(m, "starting"))
            pressable = kernel.seen(cell, lambda m: shows(m, "widget-view"))
            kernel.wait(cell, 60)
            assert "pong" in cell.text, cell.text
            self.our_cpu.append(used(kernel) - before)
            self.starting.append(seen - kernel.began(cell))
            self.button.append(pressable - kernel.began(cell))
            self.ours.append(loading + kernel.ended(cell) - sent)

    def them(self, place: Bench) -> None:
        with place.one_kernel() as kernel:
            before = used(kernel)
            cell, seconds = kernel.timed(RAW)
            self.raw_cpu.append(used(kernel) - before)
            assert "pong" in cell.text, cell.text
            self.raw.append(seconds)


def main(pairs: int) -> int:
    report, measured = Report("first turn"), Measured()
    with bench() as place:
        for pair in range(pairs):
            both = [measured.us, measured.them]
            for measure in both if pair % 2 else reversed(both):
                rest()
                measure(place)
    report.times("'starting' is on screen", measured.starting, 100)
    report.times("the Stop button is", measured.button)
    report.times("load and first turn", measured.ours)
    report.times("raw SDK's first turn, import included", measured.raw)
    ratio = statistics.median(measured.ours) / statistics.median(measured.raw)
    best = min(measured.ours) / min(measured.raw)
    cpu = statistics.median(measured.our_cpu) / statistics.median(measured.raw_cpu)
    report.row("ratio of the kernel's CPU seconds", cpu, None, "x", "what a busy machine leaves")
    report.row("ratio", ratio, 1.15, "x", f"of the best of each {best:.2f}")
    return report.code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10, help="pairs of fresh kernels")
    sys.exit(main(parser.parse_args().n))
