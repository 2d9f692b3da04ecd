"""A second turn on a warm agent: `%%agent` against the raw SDK, in turns."""

from __future__ import annotations

import argparse
import statistics
import sys

from common import RAW_CONNECT, RAW_TURN, Report, bench, rest

RAW = RAW_TURN.format(prompt="ping")
OURS = "%%agent\nping"


def main(pairs: int) -> int:
    report = Report("warm second turn")
    ours: list[float] = []
    raw: list[float] = []
    with bench() as place:
        us, them = place.kernel(extension=True), place.kernel()
        them.timed(RAW_CONNECT)
        us.timed(OURS)
        them.timed(RAW)
        for _ in range(pairs):
            rest(2)
            cell, seconds = us.timed(OURS)
            assert "pong" in cell.text, cell.text
            ours.append(seconds)
            cell, seconds = them.timed(RAW)
            assert "pong" in cell.text, cell.text
            raw.append(seconds)
    report.times("%%agent", ours)
    report.times("raw SDK", raw)
    more = [a - b for a, b in zip(ours, raw, strict=True)]
    report.times("more than the raw SDK", more, 30)
    report.row("ratio", statistics.median(ours) / statistics.median(raw), None, "x")
    return report.code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=30, help="pairs")
    sys.exit(main(parser.parse_args().n))
