"""Drives a real kernel as a front end does: cells, clicks, interrupts, and what is on screen.

One thread, no sleeping to hope: messages are read while something waits for them.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
VIEW = "application/vnd.jupyter.widget-view+json"


@dataclass
class Cell:
    """One execute_request: its outputs as they stand on screen now, and how it ended."""

    msg_id: str
    outputs: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)
    done: bool = False  # the kernel has said "idle" for it, so all its own output is here
    ended: float | None = None  # by the kernel's clock
    clear_next: bool = False

    @property
    def status(self) -> str:
        """`ok`, `error`, `aborted`, or `running`."""
        return str(self.reply.get("status", "running"))

    @property
    def error(self) -> str:
        """`Name: message` of the exception that ended it, or an empty string."""
        return "{ename}: {evalue}".format(**self.reply) if self.reply.get("ename") else ""

    @property
    def text(self) -> str:
        """All streams and the plain text of all displays, in order, updates applied."""
        datas = (out.get("data", {"text/plain": out.get("text", "")}) for out in self.outputs)
        return "".join(data.get("text/plain", "") for data in datas)


class Kernel:
    """A running kernel (a context manager), with our `src` first on its path."""

    def __init__(self, python: str = sys.executable, env: dict[str, str] | None = None) -> None:
        self.cells: dict[str, Cell] = {}
        self.replies: dict[str, dict[str, Any]] = {}  # shell and control, by request
        self.idle: set[str] = set()  # requests that the kernel has said "idle" for
        self.widgets: dict[str, dict[str, Any]] = {}  # open models: comm id -> state
        self.asked: list[str] = []  # prompts of input() calls: answer by client.input()
        self.traffic: Counter[str] = Counter()  # messages from the kernel, by type
        command = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        path = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")]))
        self.manager = KernelManager()
        self.manager._kernel_spec = KernelSpec(argv=[*command, "--HistoryManager.enabled=False"])
        self.manager.start_kernel(env={**os.environ, "PYTHONPATH": path, **(env or {})})
        self.pid = int(self.manager.provisioner.pid)
        self.client = self.manager.client()
        self.client.start_channels(hb=False)
        self.client.wait_for_ready(timeout=60)
        names = ("iopub", "shell", "control", "stdin")
        self._channels = {name: getattr(self.client, f"{name}_channel") for name in names}
        self._sockets = [channel.socket for channel in self._channels.values()]

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def start(self, code: str, subshell: str | None = None, **request: Any) -> Cell:
        """Send a cell and return at once. `request`: fields of the execute_request."""
        body = {"code": code, "silent": False, "allow_stdin": True, "stop_on_error": True}
        msg_id = self.send("execute_request", {**body, **request}, subshell)
        return self.cells.setdefault(msg_id, Cell(msg_id))

    def run(self, code: str, timeout: float = 30, **request: Any) -> Cell:
        """Send a cell and wait for its end, whatever that is."""
        return self.wait(self.start(code, **request), timeout)

    def wait(self, cell: Cell, timeout: float = 30) -> Cell:
        self.wait_for(lambda: cell.done and cell.reply, timeout, "the end of a cell")
        return cell

    def value(self, expression: str) -> Any:
        """The value of an expression in the (idle) kernel, as JSON can carry it."""
        asked = {"value": f"__import__('json').dumps({expression})"}
        result = self.run("", user_expressions=asked).reply["user_expressions"]["value"]
        if result["status"] != "ok":
            raise RuntimeError(f"{result['ename']}: {result['evalue']}")
        return json.loads(ast.literal_eval(result["data"]["text/plain"]))

    def button(self, description: str) -> str | None:
        """The comm id of the newest button on screen whose description begins so."""
        for comm_id, state in reversed(self.widgets.items()):
            named = str(state.get("description")).startswith(description)
            if named and state.get("_model_name") == "ButtonModel" and self._on_screen(comm_id):
                return comm_id
        return None

    def click(self, comm_id: str, subshell: str | None = None) -> tuple[str, float]:
        """Click a button as ipywidgets does; returns the message's id and the time."""
        data, now = {"method": "custom", "content": {"event": "click"}}, time.time()
        return self.send("comm_msg", {"comm_id": comm_id, "data": data}, subshell), now

    def interrupt(self) -> float:
        """Press the interrupt button; returns the time."""
        now = time.time()
        self.manager.interrupt_kernel()
        return now

    def create_subshell(self) -> str | None:
        """Create a subshell, also while the kernel is busy; None where there are none."""
        request = self.send("create_subshell_request", {}, via="control")
        self.wait_for(lambda: request in self.idle, 10, "a subshell")
        return self.replies.get(request, {}).get("subshell_id")

    def send(self, kind: str, body: Any, subshell: str | None = None, via: str = "shell") -> str:
        """Send any message; returns its id."""
        message = self.client.session.msg(kind, body)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self._channels[via].send(message)
        return str(message["header"]["msg_id"])

    def wait_for(self, met: Callable[[], Any], timeout: float = 10, what: str = "it") -> Any:
        """Handle messages until `met()` is true; returns what it said."""
        end = time.monotonic() + timeout
        while not (value := met()):
            if time.monotonic() > end:
                raise TimeoutError(f"{timeout} s are over: {what}; shown: {self._outputs()[-3:]}")
            self.listen(0.005)
        return value

    def listen(self, seconds: float) -> None:
        """Handle the messages of so many seconds: the pace of a person."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            zmq.select(self._sockets, [], [], left)
            for name, channel in self._channels.items():
                if channel.msg_ready():
                    self._handle(name, channel.get_msg(timeout=0))

    def _handle(self, channel: str, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        request = message["parent_header"].get("msg_id", "")
        cell = self.cells.get(request, Cell(""))  # the latter for what belongs to no cell of ours
        self.traffic[kind] += 1
        if channel in {"shell", "control"}:
            self.replies[request] = cell.reply = content
            cell.ended = message["header"]["date"].timestamp()
        elif kind == "input_request":
            self.asked.append(content["prompt"])
        elif kind == "status" and content["execution_state"] == "idle":
            self.idle.add(request)
            cell.done = True
        elif kind == "comm_close":
            self.widgets.pop(content["comm_id"], None)
        elif kind.startswith("comm_") and "state" in content["data"]:
            self.widgets.setdefault(content["comm_id"], {}).update(content["data"]["state"])
        elif kind == "update_display_data":
            for out in self._outputs():
                if out.get("transient", {}).get("display_id") == content["transient"]["display_id"]:
                    out["data"] = content["data"]
        elif kind in {"stream", "display_data", "execute_result", "error", "clear_output"}:
            self._draw(cell, kind, content)

    def _draw(self, cell: Cell, kind: str, content: dict[str, Any]) -> None:
        if cell.clear_next or (kind == "clear_output" and not content["wait"]):
            cell.outputs.clear()
        cell.clear_next = kind == "clear_output" and content["wait"]
        last = cell.outputs[-1] if cell.outputs else {}
        if kind == "stream" and last.get("name") == content["name"]:
            last["text"] += content["text"]
        elif kind != "clear_output":
            cell.outputs.append(dict(content))

    def _outputs(self) -> list[dict[str, Any]]:
        return [out for cell in self.cells.values() for out in cell.outputs]

    def _on_screen(self, comm_id: str) -> bool:
        views = [out.get("data", {}).get(VIEW, {}).get("model_id") for out in self._outputs()]
        child = f"IPY_MODEL_{comm_id}"
        parents = [i for i, state in self.widgets.items() if child in state.get("children", ())]
        return comm_id in views or any(map(self._on_screen, parents))
