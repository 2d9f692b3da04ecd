"""CPU of the kernel process while a turn waits for a model that says nothing."""

from __future__ import annotations

import argparse
import sys

from common import Report, TimedKernel, bench, used


def main(seconds: float) -> int:
    report = Report("idle cost")
    with bench() as place:
        kernel = place.kernel()
        before = busy(kernel, seconds)
        kernel.timed("%load_ext turncell")
        loaded = busy(kernel, seconds)
        kernel.timed("%%agent\nping")
        warm = busy(kernel, seconds)
        cell = kernel.start("%%agent\nsilent")
        kernel.listen(2)
        waiting = busy(kernel, seconds)
        kernel.clicked("Stop")
        kernel.wait(cell)
    report.row("a kernel without turncell", before, None, "% of a core")
    report.row("with the extension loaded, more", loaded - before, 0.2, "% of a core")
    report.row("with a warm agent, more", warm - before, 0.2, "% of a core")
    report.row("while a turn waits for a silent model", waiting, 1, "% of a core")
    return report.code


def busy(kernel: TimedKernel, seconds: float) -> float:
    """Per cent of a core that the kernel process uses, over so many seconds."""
    before = used(kernel)
    kernel.listen(seconds)
    return 100 * (used(kernel) - before) / seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    sys.exit(main(parser.parse_args().seconds))
