"""The first turn of a kernel: when something is seen, and the whole of it against the raw SDK's.

Both import the SDK and start the agent; ours loads the extension on top.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from common import RAW_CONNECT, RAW_TURN, Report, bench, shows

RAW = RAW_CONNECT + RAW_TURN.format(prompt="ping")


def main(pairs: int) -> int:
    report = Report("first turn")
    starting: list[float] = []
    button: list[float] = []
    ours: list[float] = []
    raw: list[float] = []
    with bench() as place:
        for _ in range(pairs):
            with place.one_kernel() as us:
                loading = us.timed("%load_ext turncell")[1]
                sent = time.time()
                cell = us.start("%%agent\nping")
                seen = us.seen(cell, lambda m: shows(m, "starting"))
                pressable = us.seen(cell, lambda m: shows(m, "widget-view"))
                us.wait(cell, 60)
                assert "pong" in cell.text, cell.text
                starting.append(seen - us.began(cell))
                button.append(pressable - us.began(cell))
                ours.append(loading + us.ended(cell) - sent)
            with place.one_kernel() as them:
                cell, seconds = them.timed(RAW)
                assert "pong" in cell.text, cell.text
                raw.append(seconds)
    report.times("'starting' is on screen", starting, 100)
    report.times("the Stop button is", button)
    report.times("load and first turn", ours)
    report.times("raw SDK's first turn, import included", raw)
    ratio = statistics.median(ours) / statistics.median(raw)
    report.row("ratio", ratio, 1.15, "x", f"best of each {min(ours) / min(raw):.2f}")
    return report.code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=6, help="pairs of fresh kernels")
    sys.exit(main(parser.parse_args().n))
