"""What the benchmarks share: a model server of its own process, kernels whose messages are
timed as a front end gets them, the raw SDK as a notebook user would write it, and a report.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "kernel"))

from driver import Cell, Kernel  # noqa: E402 - found by the line above

from turncell.modelserver import cli_env  # noqa: E402

__all__ = [
    "RAW_CONNECT", "RAW_TURN", "Bench", "Cell", "Message", "Report", "TimedKernel", "bench",
    "load", "rest", "shows", "used",
]  # fmt: skip

#: A notebook user's own client: no display, no Stop, no receipt.
RAW_CONNECT = """
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, StreamEvent
client = ClaudeSDKClient(ClaudeAgentOptions(include_partial_messages=True))
await client.connect()
"""
RAW_TURN = """
got = []
await client.query({prompt!r})
async for message in client.receive_response():
    if isinstance(message, StreamEvent):
        got.append((message.event.get("delta") or {{}}).get("text", ""))
print("".join(got)[-200:])
"""


@dataclass
class Message:
    """One message of a kernel as it arrived."""

    at: float  # seconds since the epoch, when it was here
    kind: str
    parent: str
    content: dict[str, Any]
    size: int


class TimedKernel(Kernel):
    """A kernel that notes when each of its messages arrived (and, if asked, its bytes)."""

    def __init__(self, env: dict[str, str], *, weigh: bool = False) -> None:
        self.arrivals: list[Message] = []
        self._weigh = weigh
        super().__init__(env=env)
        self.run("pass")  # the first cell of a kernel costs its own milliseconds

    def seen(self, cell: Cell, met: Callable[[Message], Any], since: float = 0.0) -> float:
        """When the first message that fits arrived for this cell since then, waiting for it."""
        looked = 0

        def look() -> float | None:
            nonlocal looked
            while looked < len(self.arrivals):
                message = self.arrivals[looked]
                looked += 1
                if message.at > since and message.parent == cell.msg_id and met(message):
                    return message.at
            return None

        return float(self.wait_for(look, 60, "a message"))

    def clicked(self, label: str) -> float:
        """Click the button of this label, waiting for it; returns when."""
        return self.click(self.wait_for(lambda: self.button(label), 30, label))[1]

    def timed(self, code: str, timeout: float = 120) -> tuple[Cell, float]:
        """Run a cell; the seconds from Shift-Enter to its end, as a front end sees them."""
        sent = time.time()
        cell = self.run(code, timeout)
        if cell.status != "ok":
            raise RuntimeError(f"{code!r} failed: {cell.error}")
        return cell, self.ended(cell) - sent

    def ended(self, cell: Cell) -> float:
        """When the front end knew that this cell is over (reply and idle are here)."""
        return max(m.at for m in self.arrivals if m.parent == cell.msg_id and _is_end(m))

    def began(self, cell: Cell) -> float:
        """When the cell began to run."""
        return next(
            m.at for m in self.arrivals if m.parent == cell.msg_id and m.kind == "execute_input"
        )

    def _handle(self, channel: str, message: dict[str, Any]) -> None:
        at = time.time()
        size = 0
        if self._weigh and channel == "iopub":
            parts = ("header", "parent_header", "metadata", "content")
            size = sum(len(self.client.session.pack(message[part])) for part in parts)
            size += sum(map(len, message["buffers"]))
        parent = message["parent_header"].get("msg_id", "")
        self.arrivals.append(Message(at, message["msg_type"], parent, message["content"], size))
        super()._handle(channel, message)


def _is_end(message: Message) -> bool:
    idle = message.kind == "status" and message.content["execution_state"] == "idle"
    return idle or message.kind == "execute_reply"


def shows(message: Message, word: str) -> bool:
    """Whether a message puts this word on the screen (displays and widget states alike)."""
    if message.kind not in ("display_data", "update_display_data", "comm_open", "comm_msg"):
        return False
    return word in str(message.content.get("data"))


@dataclass
class Bench:
    """A model server and the environment of kernels that use it; `kernel()` starts one."""

    env: dict[str, str]
    stack: ExitStack

    def kernel(self, *, extension: bool = False, weigh: bool = False) -> TimedKernel:
        """A fresh kernel, ended with the benchmark; `extension` loads ours."""
        kernel = TimedKernel(self.env, weigh=weigh)
        self.stack.enter_context(kernel)
        if extension:
            kernel.timed("%load_ext turncell")
        return kernel

    @contextmanager
    def one_kernel(self) -> Iterator[TimedKernel]:
        """A fresh kernel for a block."""
        with ExitStack() as stack:
            yield Bench(self.env, stack).kernel()


@contextmanager
def bench() -> Iterator[Bench]:
    """Start the server (`script.yaml`, in a process of its own) and a home for the agents."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        home = Path(name)
        script = str(HERE / "script.yaml")
        command = [sys.executable, "-m", "turncell.cli", "serve-model", "--script", script]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=home)
        stack.enter_context(server)
        stack.callback(server.terminate)
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        # Kernels would warn on stderr that they listen on TCP.
        (home / "profile_default").mkdir()
        config = home / "profile_default" / "ipython_kernel_config.py"
        config.write_text("get_config().IPKernelApp.log_level = 40\n")
        mine = {k: v for k, v in os.environ.items() if not k.startswith("TURNCELL_")}
        places = {f"JUPYTER_{kind}_DIR": name for kind in ("CONFIG", "RUNTIME", "DATA")}
        env = {**mine, **cli_env(url, home), **places, "HOME": name, "IPYTHONDIR": name}
        yield Bench(env, stack)


@dataclass
class Report:
    """Prints each figure beside its target; `code` is the exit code."""

    title: str
    missed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        print(f"# {self.title} (load {load()})", flush=True)

    def row(self, what: str, value: float, limit: float | None, unit: str, note: str = "") -> None:
        """One figure; `limit` None has no target."""
        good = limit is None or value <= limit
        target = "" if limit is None else f"<= {limit:g} {unit}"
        verdict = "" if limit is None else "ok" if good else "MISSED"
        print(f"| {what} | {value:.3g} {unit} | {target} | {verdict} | {note} |", flush=True)
        if not good:
            self.missed.append(what)

    def times(self, what: str, seconds: list[float], limit: float | None = None) -> float:
        """The median of some times in ms, with their range; returns it."""
        ms = [1000 * value for value in seconds]
        note = f"{min(ms):.1f} to {max(ms):.1f}, n = {len(ms)}"
        self.row(what, statistics.median(ms), limit, "ms", note)
        return statistics.median(ms)

    @property
    def code(self) -> int:
        """0 when every target was met; says the load once more."""
        print(f"# load now {load()}; {len(self.missed)} missed", flush=True)
        return 1 if self.missed else 0


def rest(limit: float = 20.0) -> None:
    """Until the machine has room, at most so long: what ran before us, or beside us, counts too."""
    end = time.monotonic() + limit
    while psutil.cpu_percent(0.5) > 25 and time.monotonic() < end:
        pass


def used(kernel: Kernel) -> float:
    """CPU seconds that the kernel process has used: hardly touched by what runs beside it."""
    return float(sum(psutil.Process(kernel.pid).cpu_times()[:2]))


def load() -> str:
    """The machine's load of the last minute: figures from a busy machine say little."""
    return f"{os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"
