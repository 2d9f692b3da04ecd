"""`%load_ext turncell` in fresh kernels: its time, what it imports, and that no thread stays."""

from __future__ import annotations

import argparse
import sys

from common import Report, bench, rest

HEAVY = (
    "claude_agent_sdk", "mcp", "rich", "anyio", "numpy", "ipywidgets", "markdown_it", "pydantic",
    "starlette", "uvicorn", "yaml", "nbclient", "nbformat",
)  # fmt: skip
NOTE = "before = ({m.split('.')[0] for m in __import__('sys').modules}, threads())"
THREADS = "def threads(): return sorted(t.name for t in __import__('threading').enumerate())"
NOW = "[sorted({m.split('.')[0] for m in __import__('sys').modules} - before[0]), threads()]"


def main(kernels: int) -> int:
    report = Report("load")
    whole: list[float] = []
    inside: list[float] = []
    heavy: set[str] = set()
    new_threads: set[str] = set()
    with bench() as place:
        for _ in range(kernels):
            rest()
            with place.one_kernel() as kernel:
                kernel.timed(f"{THREADS}\n{NOTE}")
                cell, seconds = kernel.timed("%load_ext turncell")
                whole.append(seconds)
                inside.append(kernel.ended(cell) - kernel.began(cell))
                imported, threads = kernel.value(NOW)
                heavy |= set(imported) & set(HEAVY)
                new_threads |= set(threads) - set(kernel.value("before[1]"))
    report.times("%load_ext turncell, Shift-Enter to the end", whole, 30)
    report.times("the cell alone", inside, 30)
    report.row("heavy packages imported", len(heavy), 0, "packages", " ".join(sorted(heavy)))
    report.row("threads started", len(new_threads), 0, "threads", " ".join(sorted(new_threads)))
    return report.code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10, help="fresh kernels")
    sys.exit(main(parser.parse_args().n))
