"""Drives a real kernel as a front end does: cells, clicks, interrupts, and what is on screen.

One thread, and no sleeping to hope: everything waits on the sockets. Messages are read only
while something waits, so the times of a cell are those that the kernel wrote into its messages.
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
CHANNELS = ("iopub", "shell", "control", "stdin")


@dataclass
class Cell:
    """One execute_request: its outputs as they stand on screen now, and how it ended."""

    msg_id: str
    outputs: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)
    done: bool = False  # the kernel has said "idle" for it, so all its own output is here
    started: float | None = None
    ended: float | None = None
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
    """A running kernel (a context manager). `python` may have another ipykernel than ours."""

    def __init__(self, python: str = sys.executable, env: dict[str, str] | None = None) -> None:
        """Start it and wait until it answers; our `src` comes first on its path."""
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
        self.client = self.manager.client()
        self.client.start_channels(hb=False)
        self.client.wait_for_ready(timeout=60)
        self._names = {self._channel(name).socket: name for name in CHANNELS}
        self._poller = zmq.Poller()
        for socket in self._names:
            self._poller.register(socket, zmq.POLLIN)

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    @property
    def pid(self) -> int:
        """The process of the kernel."""
        return int(self.manager.provisioner.pid)

    def start(self, code: str, subshell: str | None = None, **request: Any) -> Cell:
        """Send a cell and return at once. `request`: fields of the execute_request."""
        content = {"code": code, "silent": False, "allow_stdin": True, "stop_on_error": True}
        cell = Cell(self.send("execute_request", {**content, **request}, subshell))
        self.cells[cell.msg_id] = cell
        return cell

    def run(self, code: str, timeout: float = 30, **request: Any) -> Cell:
        """Send a cell and wait for its end, whatever that is."""
        return self.wait(self.start(code, **request), timeout)

    def wait(self, cell: Cell, timeout: float = 30) -> Cell:
        """Wait for the end of a cell."""
        self.wait_for(lambda: cell.done and cell.reply, timeout, "the end of a cell")
        return cell

    def value(self, expression: str) -> Any:
        """The value of an expression in the (idle) kernel, as JSON can carry it."""
        wrapped = {"value": f"__import__('json').dumps({expression})"}
        cell = self.run("", user_expressions=wrapped, store_history=False)
        result = cell.reply["user_expressions"]["value"]
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
        data = {"method": "custom", "content": {"event": "click"}}
        now = time.time()
        return self.send("comm_msg", {"comm_id": comm_id, "data": data}, subshell), now

    def interrupt(self) -> float:
        """Press the interrupt button; returns the time."""
        now = time.time()
        self.manager.interrupt_kernel()
        return now

    def create_subshell(self) -> str | None:
        """Create a subshell, also while the kernel is busy; None where there are none."""
        request = self.send("create_subshell_request", {}, channel="control")
        self.wait_for(lambda: request in self.idle, 10, "a subshell")
        subshell: str | None = self.replies.get(request, {}).get("subshell_id")
        return subshell

    def send(
        self, kind: str, content: Any, subshell: str | None = None, channel: str = "shell"
    ) -> str:
        """Send any message; returns its id."""
        message = self.client.session.msg(kind, content)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self._channel(channel).send(message)
        return str(message["header"]["msg_id"])

    def wait_for(self, met: Callable[[], Any], timeout: float = 10, what: str = "it") -> Any:
        """Handle messages until `met()` is true; returns what it said."""
        end = time.monotonic() + timeout
        while not (value := met()):
            if time.monotonic() > end:
                shown = [cell.text[-300:] for cell in self.cells.values() if not cell.done]
                raise TimeoutError(f"waited {timeout} s for {what}; unfinished cells show {shown}")
            self.listen(0.005)
        return value

    def listen(self, seconds: float) -> None:
        """Handle the messages of so many seconds: the pace of a person."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for socket, _ in self._poller.poll(left * 1000):
                name = self._names[socket]
                self._handle(name, self._channel(name).get_msg(timeout=0))

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
        elif kind == "execute_input":
            cell.started = message["header"]["date"].timestamp()
        elif kind == "comm_close":
            self.widgets.pop(content["comm_id"], None)
        elif kind.startswith("comm_") and "state" in content["data"]:
            self.widgets.setdefault(content["comm_id"], {}).update(content["data"]["state"])
        elif kind == "update_display_data":
            self._redraw(content)
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

    def _redraw(self, new: dict[str, Any]) -> None:
        for out in (out for cell in self.cells.values() for out in cell.outputs):
            if out.get("transient", {}).get("display_id") == new["transient"]["display_id"]:
                out["data"] = new["data"]

    def _channel(self, name: str) -> Any:
        return getattr(self.client, f"{name}_channel")

    def _on_screen(self, comm_id: str) -> bool:
        outputs = (out for cell in self.cells.values() for out in cell.outputs)
        shown = {out.get("data", {}).get(VIEW, {}).get("model_id") for out in outputs}
        child = f"IPY_MODEL_{comm_id}"
        parents = [i for i, state in self.widgets.items() if child in state.get("children", ())]
        return comm_id in shown or any(map(self._on_screen, parents))
