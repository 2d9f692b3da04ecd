"""Stops the real agent over and over: who, when, by which way in and how often, by the dice.

    python benchmarks/chaos.py --stops 500            # prints its seed
    python benchmarks/chaos.py --seed 7 --only 123    # number 123 of that campaign again

One kernel, the real SDK and agent binary behind a proxy that makes it misbehave, and a turn of
another session beside it. After each stop the promises are checked (1 and 5 where there is a
screen to look at), and the next turn must be exact and know what came before. Prints each
violation with what replays it; exits with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from chaos_dice import DEATHS, NEIGHBOUR, SET_UP, SLACK, Throw, throws
from driver import Cell
from places import AgentKernel, Place
from real import BY_HAND, ROGUE, SCRIPT, WAIT, words_for

from turncell.backends.claude_launch import find_cli
from turncell.modelserver import ModelServer, Script


@dataclass
class Campaign:
    """The place, the present kernel, and what was found."""

    place: Place
    kernel: AgentKernel | None = None
    session: str = ""
    old: frozenset[int] = frozenset()
    answers: list[float] = field(default_factory=list)
    ends: dict[str, list[float]] = field(default_factory=dict)
    rungs: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def fresh_kernel(self) -> AgentKernel:
        """A kernel that is ready; it goes on with the conversation there is."""
        kernel = self.kernel = AgentKernel(
            self.place, TURNCELL_CLI=str(ROGUE), ROGUE_CLI=find_cli(None),
            ROGUE_LOG=str(self.place.home / "rogue.log"), CLAUDE_CODE_MAX_RETRIES="3",
            TURNCELL_PERMISSION_MODE="bypassPermissions",
        )  # fmt: skip
        assert kernel.run(SET_UP).status == "ok"
        if self.session:
            kernel.run(f"%agent resume {self.session}")
        else:
            kernel.run("%%agent\nremember this")
        self.session = str(kernel.value("main.session_id"))
        return kernel

    # One stop.

    def run(self, throw: Throw) -> list[str]:
        """Do it, and say what was wrong."""
        kernel = self.kernel or self.fresh_kernel()
        if kernel.run("%%agent\nhello").status != "ok":
            return ["no turn before the stop"]
        kernel.run(f"session_id = {self.session!r}\nneighbour_turn({find_cli(None)!r})")
        prompt = words_for(throw.agent, throw.moment)
        assert prompt is not None
        prompts = self.prompts()
        calls = len(self.place.server.requests)
        cell = self.begin(kernel, throw, prompt)
        self.reach(kernel, cell, throw, calls)
        kernel.listen(throw.wait)
        if throw.agent in BY_HAND:
            for process in self.agents():
                process.send_signal(signal.Signals[BY_HAND[throw.agent]])
        if throw.route in DEATHS:
            return self.die(kernel, throw)
        shown = _words(cell.text)
        wrong, asked, over = getattr(self, _METHODS[throw.route])(kernel, cell, throw)
        fine, what, pids = kernel.value("beside()")
        if not fine and throw.route != "unload":  # which ends every turn
            wrong.append(f"8 contained: the other session's turn: {what}")
        outcome, receipt = kernel.value("[str(r.outcome), r.receipt is not None]")
        if not receipt:  # the agent was quicker: it died, or it was done
            return wrong + self.too_late(kernel, throw, outcome)
        reason, kept, warm = kernel.value("[str(r.reason), r.text, r.receipt.connection == 'warm']")
        if reason not in _REASONS[throw.route]:
            wrong.append(f"10 deliberate: the reason is {reason}")
        lost = set(shown) - set(kept.split())
        gone = set(shown) - set(_words(cell.text)) if throw.route != "unload" else ()
        if lost or gone:
            wrong.append(f"5 nothing shown is lost: not kept {lost}, not on screen {gone}")
        left = self.left(kernel, warm, pids)
        sent = self.prompts() - prompts
        return wrong + self.go_on(kernel, throw, asked, over, sent, left)

    def begin(self, kernel: AgentKernel, throw: Throw, prompt: str) -> Cell:
        """Run the cell that is to be stopped."""
        background = throw.route.startswith("%agent") or throw.route in ("unload", *DEATHS)
        options = f"-o r --ack {throw.ack} --grace {throw.grace}" + " --bg" * background
        if throw.route == "timeout":
            options += " --timeout 1.5"
        elif throw.route == "API":
            kernel.run(f"stop_later({throw.presses}, {throw.gap})")
        return kernel.start(f"%%agent {options}\n{prompt}")

    def reach(self, kernel: AgentKernel, cell: Cell, throw: Throw, calls: int) -> None:
        """Until the turn is at the moment, as far as one can see it from here."""
        if throw.moment == "before init" or throw.route in ("timeout", "API"):
            return
        if throw.moment == "tool running":
            met: Callable[[], Any] = lambda: self.tools() or cell.error  # noqa: E731
        elif throw.moment == "API retrying":
            met = lambda: len(self.place.server.requests) > calls  # noqa: E731
        elif throw.moment == "first delta":
            met = lambda: "w0" in cell.text or cell.error  # noqa: E731
        elif throw.moment == "before the result":
            met = lambda: "w19" in cell.text or cell.error  # noqa: E731
        else:
            met = lambda: "w3" in cell.text or cell.error  # noqa: E731
        kernel.wait_for(met, 45, f"the moment of {throw}")

    def go_on(
        self, kernel: AgentKernel, throw: Throw, asked: float, over: float, sent: int, left: Any
    ) -> list[str]:
        """The next turn, and the judgement of it all."""
        after = kernel.run("%%agent -o after\nand then", 60)
        if after.status != "ok":
            return [f"6 resumable: the next cell failed: {after.error}"]
        history = self.history()
        facts = [asked, over, throw.bound, throw.rung, sent, left, throw.moment == "before init"]
        wrong = list(kernel.value(f"judge(*__import__('json').loads({json.dumps(facts)!r}))"))
        if "remember this" not in history:
            wrong.append("6 resumable: the conversation before is forgotten")
        receipt = kernel.value("r.receipt.to_json()")
        self.rungs[receipt["rung"]] += 1
        self.ends.setdefault(receipt["rung"], []).append(receipt["reaped_after"] or 99.0)
        self.old = frozenset(kernel.value("left_running()"))
        return wrong

    def die(self, kernel: AgentKernel, throw: Throw) -> list[str]:
        """The kernel ends under the turn: nothing is left, and the next one goes on."""
        wrong = []
        if throw.route == "shutdown":
            kernel.client.shutdown()
        else:
            os.kill(kernel.pid, signal.SIGKILL)
        began = time.monotonic()
        while self.place.processes(kernel.pid) and time.monotonic() < began + 8:
            time.sleep(0.05)
        took = time.monotonic() - began
        if took > 5.0 + SLACK:
            wrong.append(f"4 proved: after {took:.1f} s alive: {self.place.processes(kernel.pid)}")
        self.ends.setdefault(throw.route, []).append(took)
        calls = len(self.place.server.requests)
        kernel.__exit__()
        kernel = self.fresh_kernel()
        if len(self.place.server.requests) != calls:
            wrong.append("10 deliberate: the model was called after the kernel had died")
        after = kernel.run("%%agent -o after\nand then", 60)
        if after.status != "ok" or kernel.value("after.text") != "echo: and then":
            wrong.append(f"6 resumable: the next kernel: {after.error}")
        elif "remember this" not in self.history():
            wrong.append("6 resumable: the next kernel does not remember")
        self.old = frozenset()
        return wrong

    def too_late(self, kernel: AgentKernel, throw: Throw, outcome: str) -> list[str]:
        """The turn was over before the stop came: the stop must have done nothing."""
        self.ends.setdefault("nothing: the turn was over", []).append(0.0)
        after = kernel.run("%%agent -o after\nand then", 60)
        good = after.status == "ok" and kernel.value("after.text") == "echo: and then"
        expected = outcome == "lost" and ("dies" in throw.agent or throw.agent == "killed")
        wrong = [] if good else [f"9 exact: the next cell: {after.error}"]
        return wrong + ([] if expected else [f"10 deliberate: {outcome}, and no receipt"])

    # The ways in.

    def button(self, kernel: AgentKernel, cell: Cell, throw: Throw) -> Any:
        """Clicks."""
        comm = kernel.wait_for(lambda: kernel.button("Stop") or cell.done, 20, "the button")

        def press() -> None:
            if isinstance(comm, str) and comm in kernel.widgets:
                kernel.click(comm)

        return self.press(kernel, cell, throw, comm, press)

    def interrupt(self, kernel: AgentKernel, cell: Cell, throw: Throw) -> Any:
        """Kernel interrupts, while the cell runs."""
        comm = kernel.wait_for(lambda: kernel.button("Stop") or cell.done, 20, "the button")

        def press() -> None:
            if not cell.done:
                kernel.interrupt()

        return self.press(kernel, cell, throw, comm, press)

    def press(
        self, kernel: AgentKernel, cell: Cell, throw: Throw, comm: Any, press: Callable[[], None]
    ) -> Any:
        """All the presses, the answer on screen, and the end of the cell."""

        def answer() -> bool:
            return cell.done or str(kernel.widgets.get(comm, {}).get("description")) != "Stop"

        asked = time.monotonic()
        press()
        kernel.wait_for(answer, 10, "an answer")
        took = time.monotonic() - asked
        for _ in range(throw.presses - 1):
            kernel.listen(max(0.0, asked + throw.gap - time.monotonic()))
            press()
        self.answers.append(took)
        kernel.wait(cell, 40)
        wrong = [] if took < 0.5 + SLACK else [f"1 seen: the answer took {took:.2f} s"]
        return wrong, asked, time.monotonic()

    def time_limit(self, kernel: AgentKernel, cell: Cell, throw: Throw) -> Any:
        """The turn's own limit, or a thread that calls `Session.stop`."""
        kernel.wait(cell, 60)
        said = "r.receipt.requested_at if r.receipt else 0"
        asked = kernel.value("asked" if throw.route == "API" else said)
        return [], asked, time.monotonic()

    def line(self, kernel: AgentKernel, cell: Cell, throw: Throw) -> Any:
        """`%agent stop` in another cell, or unloading."""
        words = "%unload_ext turncell" if throw.route == "unload" else throw.route
        asked, over = time.monotonic(), 0.0
        for _ in range(throw.presses if throw.route == "%agent stop" else 1):
            kernel.run(words)
            kernel.listen(throw.gap if throw.presses > 1 else 0)
        if throw.route == "unload":  # it returns when all is over
            over = time.monotonic()
            kernel.run("%load_ext turncell")
        kernel.run("%agent wait", 60)
        return [], asked, over or time.monotonic()

    # Looks.

    def history(self) -> str:
        """What the model was told with the last turn after a stop."""
        calls = [r for r in self.place.server.requests if r.prompt == "and then"]
        return json.dumps(calls[-1].history)

    def agents(self) -> list[psutil.Process]:
        """The proxy and the agent binary."""
        found = [p for p in self.place.processes() if "rogue.py" in " ".join(_command(p)[:3])]
        return [q for p in found for q in (p, *p.children())]

    def tools(self) -> list[psutil.Process]:
        """The processes of tools of the present turn."""
        words = (WAIT, "sleep 0.11")
        return [p for p in self.place.processes() if " ".join(_command(p)) in words]

    def left(self, kernel: AgentKernel, warm: bool, beside: list[int]) -> list[tuple[int, str]]:
        """What of the turn is alive; an agent that is kept warm is not the turn's."""
        agents = {p.pid for p in self.agents()} if warm else set()
        guard = {p.pid for p in self.place.processes() if "guard_process" in " ".join(_command(p))}
        found = self.place.processes(kernel.pid, *agents, *guard, *beside, *self.old)
        return [(p.pid, " ".join(_command(p))[:80]) for p in found]

    def prompts(self) -> int:
        """How many prompts agents were given so far."""
        log = self.place.home / "rogue.log"
        return log.read_text().split().count("prompt") if log.exists() else 0


_REASONS = {
    "button": ["user"], "kernel interrupt": ["kernel_interrupt"], "timeout": ["timeout"],
    "API": ["api"], "%agent stop": ["user"], "%agent stop --now": ["user"],
    "unload": ["shutdown"],
}  # fmt: skip
_METHODS = {
    "button": "button", "kernel interrupt": "interrupt", "timeout": "time_limit",
    "API": "time_limit", "%agent stop": "line", "%agent stop --now": "line", "unload": "line",
}  # fmt: skip


def _words(text: str) -> list[str]:
    return re.findall(r"\bw\d+\b", text)


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def summary(campaign: Campaign, seed: int, count: int) -> list[str]:
    """The campaign in a few lines of Markdown."""
    answers = sorted(campaign.answers) or [0.0]
    lines = [
        f"{count} stops of seed {seed}: {len(campaign.broken)} violations.",
        "",
        f"Answer on screen (clicks and interrupts, n = {len(answers)}): median "
        f"{1000 * statistics.median(answers):.0f} ms, worst {1000 * answers[-1]:.0f} ms.",
        "",
        "| Ended by | Stops | Seconds to the end, median | worst |",
        "|---|---|---|---|",
    ]
    for rung, ends in sorted(campaign.ends.items()):
        row = f"{len(ends)} | {statistics.median(ends):.2f} | {max(ends):.2f}"
        lines.append(f"| {rung} | {row} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--stops", type=int, default=500, help="how many (500)")
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(10_000), help="of a campaign to replay"
    )
    parser.add_argument("--only", type=int, nargs="*", help="only these numbers of the campaign")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = Path(name)
        (home / "work").mkdir()
        # Kernels would warn on stderr that they listen on TCP.
        config = home / "ipython" / "profile_default" / "ipython_kernel_config.py"
        config.parent.mkdir(parents=True)
        config.write_text("get_config().IPKernelApp.log_level = 40\n")
        with ModelServer(Script(NEIGHBOUR, *SCRIPT), home=home) as server:
            campaign = Campaign(Place(home, server, secrets.token_hex(8)))
            count = 0
            try:
                for throw in throws(options.seed):
                    if count >= options.stops or (
                        options.only and throw.number > max(options.only)
                    ):
                        break
                    if options.only and throw.number not in options.only:
                        continue
                    count += 1
                    attempt(campaign, throw, options.seed)
            finally:
                if campaign.kernel is not None:
                    campaign.kernel.__exit__()
    print("\n".join(summary(campaign, options.seed, count)))
    return 1 if campaign.broken else 0


def attempt(campaign: Campaign, throw: Throw, seed: int) -> None:
    """One stop; a kernel that cannot go on is replaced."""
    began = time.monotonic()
    try:
        wrong = campaign.run(throw)
    except (TimeoutError, RuntimeError, AssertionError) as error:
        wrong = [f"it could not be judged: {type(error).__name__}: {str(error)[:300]}"]
        if campaign.kernel is not None:
            campaign.kernel.__exit__()
            campaign.kernel = None
    mark = "BROKEN" if wrong else "all kept"
    print(f"{mark} {time.monotonic() - began:.1f} s  {throw}", flush=True)
    for line in wrong:
        print(f"    {line}  (--seed {seed} --only {throw.number})", flush=True)
        campaign.broken.append(f"{throw}: {line}")


if __name__ == "__main__":
    sys.exit(main())
