"""The longest stops: a frozen agent, more presses, and a tool with fifty processes."""

from __future__ import annotations

import argparse
import signal
import statistics
import sys

import psutil
from common import Cell, Report, TimedKernel, bench, rest, shows

FIFTY = "50 processes"


def main(stops: int) -> int:
    report = Report("the longest stops")
    with bench() as place:
        kernel = place.kernel(extension=True)
        kernel.timed("%%agent\nping")
        waits = [frozen(kernel, "--ack 2 --grace 2") for _ in range(stops)]
        row(report, "frozen agent, --ack 2 --grace 2: cell over", waits, 6.5)
        row(report, "frozen agent, defaults: cell over", [frozen(kernel, "")], 16.0)
        waits = [frozen(kernel, "", presses=2) for _ in range(stops)]
        row(report, "frozen agent, second press: over after that press", waits, 4.5)
        waits = [frozen(kernel, "", presses=3) for _ in range(stops)]
        row(report, "frozen agent, third press: over after that press", waits, 2.0)
        waits, receipts = zip(*(fifty(kernel) for _ in range(stops)), strict=True)
        row(report, "tool of 50 processes, polite stop: all gone", list(waits), 2.0)
        report.row("tool of 50 processes: survivors", sum(receipts), 0, "processes")
    return report.code


def row(report: Report, what: str, waits: list[float], limit: float) -> None:
    note = f"{min(waits):.2f} to {max(waits):.2f}, n = {len(waits)}"
    report.row(what, statistics.median(waits), limit, "s", note)


def frozen(kernel: TimedKernel, options: str, presses: int = 1) -> float:
    """Seconds from the last press to the end of the cell."""
    cell = streaming(kernel, options, "stream", "w9 ")
    for process in agents(kernel):
        process.send_signal(signal.SIGSTOP)
    for _ in range(presses):
        pressed = kernel.interrupt()
        kernel.listen(0.5)
    return over(kernel, cell) - pressed


def fifty(kernel: TimedKernel) -> tuple[float, int]:
    """Seconds from the press until none of the tool's processes is alive; survivors."""
    cell = streaming(kernel, "-o r --permission-mode bypassPermissions", FIFTY, "I fork")
    kernel.wait_for(lambda: len(tools(kernel)) >= 50, 60, "the processes")
    crowd = tools(kernel)
    pressed = kernel.interrupt()
    ended = over(kernel, cell)
    assert not [p for p in crowd if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    return ended - pressed, len(kernel.value("[s.pid for s in r.receipt.survivors]"))


def streaming(kernel: TimedKernel, options: str, prompt: str, word: str) -> Cell:
    rest(2)
    cell = kernel.start(f"%%agent {options}\n{prompt}")
    kernel.seen(cell, lambda m: shows(m, word))
    return cell


def over(kernel: TimedKernel, cell: Cell) -> float:
    kernel.wait(cell, 60)
    assert cell.error.startswith("TurnStopped"), cell.error
    return kernel.ended(cell)


def agents(kernel: TimedKernel) -> list[psutil.Process]:
    return [p for p in psutil.Process(kernel.pid).children() if p.name() == "claude"]


def tools(kernel: TimedKernel) -> list[psutil.Process]:
    family = psutil.Process(kernel.pid).children(recursive=True)
    return [p for p in family if p.name() == "tail"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="stops of each kind")
    sys.exit(main(parser.parse_args().n))
