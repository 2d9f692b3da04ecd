"""What watching costs: JupyterLab in Chromium under much text, and a terminal."""

from __future__ import annotations

import argparse
import hashlib
import re
import statistics
import sys
import time
from collections.abc import Callable

import psutil
from common import Report, rest
from watched import CHECK, LAST, SPARE, NeverShown, Watched, Watcher, place, watcher

# `watched` has put the tests on the path.
from test_terminal import terminal  # isort: skip

from turncell.modelserver import Reply, Scenario, Script, Text, ToolUse

SECTION = """
## Section {i}

The keeper of *lamp {i}* climbed the stairs and wrote **what the sea did** into the book, as on
every evening; see [the chart](https://example.org/{i}) and `lamp_{i}.log`.

- the wind came from the north-west
- the glass fell by {i} points
  - and rose again

| hour | wind | light |
|---|---:|---|
| 20:00 | {i} | red |
| 22:00 | 7 | white |

```python
def lamp_{i}(hour: int) -> str:
    return "red" if hour < 21 else "white"  # as the book says
```
"""
DIGEST = "import hashlib; print(hashlib.sha256(r.text.encode()).hexdigest(), len(r.text))"


def prose(size: int) -> str:
    """About so many characters of Markdown of all kinds, in sections with a number."""
    parts, length = ["# The book of lamps\n"], 0
    while length < size:
        parts.append(SECTION.format(i=len(parts)))
        length += len(parts[-1])
    return "".join([*parts, f"\n{LAST}"])


def streamed(text: str, chunk: int, pace: float = 0.0) -> Script:
    """A turn of this one text."""
    return Script(Scenario("turn", replies=[Reply(Text(text, chunk, pace))]))


def lag(report: Report, name: str, seen: Watched, limit: float | None) -> None:
    """How far the page was behind."""
    took = f"the turn took {seen.sent - seen.began:.1f} s"
    after = seen.shown - seen.said
    report.row(f"{name}: last words, after the model said them", after, limit, "s", took)
    whole = seen.whole - seen.said
    report.row(f"{name}: final picture, after the model said them", whole, None, "s")


def frames(report: Report, name: str, seen: Watched, *, p99: float | None = None) -> None:
    """Whether the page moved, while the turn ran and after it."""
    during = seen.gaps(seen.began, seen.shown)
    slow = statistics.quantiles(during, n=100, method="inclusive")[-1]
    note = f"longest {max(during):.0f} ms, {len(during)} frames"
    report.row(f"{name}: p99 gap between frames", slow, p99, "ms", note)
    after = max(seen.gaps(seen.sent, seen.whole + 3))
    report.row(f"{name}: longest gap, kernel's end to 3 s after", after, 1000, "ms")


def size(report: Report, name: str, seen: Watched, limit: float | None = None) -> None:
    """What came over the wire, and whether all of it was in sight."""
    report.row(f"{name}: over the websocket", seen.size / 1e6, limit, "MB")
    report.row(f"{name}: outputs folded away by the page", seen.hidden, 0, "")


def afterwards(report: Report, name: str, page: Watcher) -> None:
    """What a person does next."""
    report.row(f"{name}: click into another cell", 1000 * page.click(), 300, "ms")
    report.row(f"{name}: 1 + 1 answered", page.answer(SPARE), 2, "s")


def complete(report: Report, name: str, page: Watcher, text: str) -> None:
    """Whether anything is missing, in the page and in the kernel."""
    shown = " ".join(page.text().split())
    sections = re.findall(r"Section \d+\b", text)
    there = set(re.findall(r"Section \d+(?=\D)", shown))
    missing = len(set(sections) - there) + (LAST not in shown)
    report.row(f"{name}: sections missing in the page", missing, 0, "", f"of {len(sections)}")
    page.answer(CHECK)
    digest = hashlib.sha256(text.encode()).hexdigest()
    other = digest not in page.text(CHECK)
    report.row(f"{name}: r.text is not what was said", other, 0, "", f"{len(text):,} characters")


def prose_part(report: Report) -> None:
    """100 kB of Markdown in 25 s."""
    text = prose(100_000)
    with watcher() as page:
        seen = page.watch(streamed(text, 20, 0.0035), check=DIGEST)
        lag(report, "prose", seen, 0.5)
        frames(report, "prose", seen, p99=60)
        size(report, "prose", seen, 1.5)
        afterwards(report, "prose", page)
        complete(report, "prose", page, text)


def large_part(report: Report) -> None:
    """1 MB as fast as it comes."""
    text = prose(1_000_000)
    with watcher() as page:
        seen = page.watch(streamed(text, 200), check=DIGEST)
        lag(report, "large", seen, None)
        frames(report, "large", seen)
        size(report, "large", seen)
        afterwards(report, "large", page)
        complete(report, "large", page, text)


def tools_part(report: Report) -> None:
    """A turn with 200 tool calls."""
    uses = [Reply(ToolUse("Bash", {"command": f"true {i}"})) for i in range(200)]
    script = Script(Scenario("turn", replies=[*uses, Reply(LAST)]))
    with watcher() as page:
        seen = page.watch(script, "--tools Bash", "print(sum(t.status == 'done' for t in r.tools))")
        lag(report, "tools", seen, None)
        frames(report, "tools", seen, p99=200)
        size(report, "tools", seen, 5)
        afterwards(report, "tools", page)
        shown = page.text()
        missing = sum(not re.search(rf"true {i}\b", shown) for i in range(200))
        report.row("tools: calls missing in the page", missing, 0, "", "of 200")
        page.answer(CHECK)
        report.row("tools: not 200 done in r.tools", page.text(CHECK).strip() != "200", 0, "")


def block_part(report: Report) -> None:
    """10 MB in one block."""
    line = "the lamp was lit and the ships went by, one after the other, all night\n"
    text = line * (10_000_000 // len(line)) + LAST
    with watcher() as page:
        seen = page.watch(streamed(text, 100_000), check=DIGEST)
        lag(report, "block", seen, None)
        frames(report, "block", seen)
        size(report, "block", seen)
        afterwards(report, "block", page)
        complete(report, "block", page, text)


def terminal_part(report: Report) -> None:
    """100 kB in a terminal."""
    text = prose(100_000)
    with place() as made, terminal(made) as seat:
        seat.child.timeout = 120
        seat.run("%%agent", "warm")
        made.server.script = streamed(text, 20, 0.0035)
        rest()
        ipython = psutil.Process(seat.child.pid)
        before, began = sum(ipython.cpu_times()[:2]), time.monotonic()
        shown = seat.run("%%agent -o r", "go")
        cpu, took = sum(ipython.cpu_times()[:2]) - before, time.monotonic() - began
        report.row("terminal: CPU of IPython", cpu, 5, "s", f"the turn took {took:.1f} s")
        sections = set(re.findall(r"Section \d+\b", text))
        missing = len(sections - set(re.findall(r"Section \d+\b", shown))) + (LAST not in shown)
        report.row("terminal: sections missing", missing, 0, "", f"of {len(sections)}")


PARTS: dict[str, Callable[[Report], None]] = {
    "prose": prose_part,
    "large": large_part,
    "tools": tools_part,
    "block": block_part,
    "terminal": terminal_part,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"which of {', '.join(PARTS)}; all of them")
    chosen = parser.parse_args().parts or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no such part: {', '.join(unknown)}")
    report = Report("watching")
    for name in chosen:
        try:
            PARTS[name](report)
        except NeverShown:
            report.row(f"{name}: turns whose end the page never showed", 1, 0, "")
    sys.exit(report.code)
