"""Runs the quickstart notebook for real, with a second client that presses Stop."""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from turncell.errors import SettingError
from turncell.modelserver import ModelServer, Script, loads
from turncell.outcome import RECORD_TYPE

__all__ = ["NOTEBOOK", "Account", "demo_script", "find_notebook", "run_notebook", "surroundings"]

NOTEBOOK = "01_first_turn.ipynb"
#: The cell that the second client stops, and how many of its words it waits for.
STOP_CELL = "story"
WORDS_BEFORE_STOP = 40
#: Seconds the second client waits for the button and the words before it gives up.
PATIENCE = 60.0


@dataclass
class Account:
    """What was seen from outside while the notebook ran; times in seconds."""

    pressed_after: float | None = None
    words_at_press: int = 0
    seen_after: float | None = None
    over_after: float | None = None
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    failed: str | None = None


def find_notebook() -> Path:
    """The quickstart notebook: from the package, or from the checkout of an editable install.

    Raises SettingError when neither has it.
    """
    package = Path(str(resources.files("turncell")))
    for place in (package / "notebooks", package.parent.parent / "notebooks"):
        if (place / NOTEBOOK).is_file():
            return place / NOTEBOOK
    raise SettingError(f"{NOTEBOOK} is missing from this installation. Install turncell again.")


def demo_script() -> Script:
    """What the scripted model says in the quickstart notebook."""
    text = (resources.files("turncell.demo") / "script.yaml").read_text(encoding="utf-8")
    return loads(text, "demo/script.yaml")


@contextmanager
def surroundings(directory: Path) -> Iterator[tuple[ModelServer, dict[str, str]]]:
    """A model server, and the environment for a kernel in `directory` that talks to it."""
    state = directory / ".agent"
    state.mkdir(parents=True, exist_ok=True)
    with ModelServer(demo_script()) as server:
        # Its sessions are gone with it: they are none of the user's.
        own = {"TURNCELL_STATE": str(state / "turncell")}
        yield server, {**os.environ, **server.env(state), **own}


def run_notebook(directory: Path, env: Mapping[str, str], watch: Callable[[str], None]) -> Account:
    """Execute the notebook in `directory` and write it there with its outputs.

    `watch` is told the id of each code cell before it runs. Raises SettingError when the
    kernel cannot be started.
    """
    import nbformat
    from nbclient import NotebookClient

    source = find_notebook()
    target = directory / NOTEBOOK
    if source.resolve() != target.resolve():
        shutil.copyfile(source, target)
    notebook = nbformat.read(target, as_version=4)
    client: Any = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(directory)}},
    )
    account = Account()
    # What the kernel writes to stderr are notes of its own, not part of the account.
    with client.setup_kernel(env=dict(env), stderr=subprocess.DEVNULL):
        client.kc.allow_stdin = True  # somebody is here: the cells get a Stop button
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                watch(cell.id)
                _run_cell(client, cell, index, account)
    nbformat.write(notebook, target)
    return account


def _run_cell(client: Any, cell: Any, index: int, account: Account) -> None:
    from nbclient.exceptions import CellExecutionError

    finger = None
    if cell.id == STOP_CELL:
        finger = _Finger(client.km.connection_file, account)
        finger.start()
    try:
        client.execute_cell(cell, index)
    except CellExecutionError as error:
        account.failed = f"cell {cell.id}: {error.ename}: {error.evalue}"
    finally:
        if finger is not None:
            finger.done(time.monotonic())
    for output in cell.outputs:
        record = output.get("data", {}).get(RECORD_TYPE)
        if record is not None:
            account.records[cell.id] = record
            account.texts[cell.id] = output["data"].get("text/plain", "")


class _Finger(threading.Thread):
    """A second front end on the same kernel: reads along, then clicks the real button."""

    def __init__(self, connection_file: str, account: Account) -> None:
        super().__init__(name="turncell-demo-finger", daemon=True)
        self._file = connection_file
        self._account = account
        self._button: str | None = None
        self._words = 0
        self._pressed_at: float | None = None
        self._stopping = threading.Event()
        self._ready = threading.Event()

    def start(self) -> None:
        """Start to read along; returns when the kernel's messages are heard."""
        super().start()
        self._ready.wait(PATIENCE)

    def run(self) -> None:
        """Wait for the button and enough words, press, and wait for the answer."""
        from jupyter_client import BlockingKernelClient

        client: Any = BlockingKernelClient(connection_file=self._file)
        client.load_connection_file()
        client.start_channels(hb=False)
        try:
            client.wait_for_ready(timeout=PATIENCE)
            self._ready.set()
            self._began = time.monotonic()
            while not self._stopping.is_set() and time.monotonic() < self._began + PATIENCE:
                self._listen(client)
        finally:
            client.stop_channels()

    def _listen(self, client: Any) -> None:
        try:
            message = client.get_iopub_msg(timeout=0.1)
        except queue.Empty:
            return
        kind, content = message["msg_type"], message["content"]
        if kind == "comm_open" and _state(content).get("_model_name") == "ButtonModel":
            self._button = content["comm_id"]
        elif kind in ("display_data", "update_display_data"):
            steps = re.findall(r"step (\d+)", content["data"].get("text/plain", ""))
            self._words = max([self._words, *map(int, steps)])
        elif kind == "comm_msg" and content["comm_id"] == self._button:
            self._answered(_state(content))
        if self._pressed_at is None and self._button and self._words >= WORDS_BEFORE_STOP:
            self._press(client)

    def _press(self, client: Any) -> None:
        click = {"method": "custom", "content": {"event": "click"}}
        message = client.session.msg("comm_msg", {"comm_id": self._button, "data": click})
        client.shell_channel.send(message)
        self._pressed_at = time.monotonic()
        self._account.pressed_after = self._pressed_at - self._began
        self._account.words_at_press = self._words

    def _answered(self, state: Mapping[str, Any]) -> None:
        label = str(state.get("description", ""))
        if self._pressed_at and label.startswith("Stopping") and self._account.seen_after is None:
            self._account.seen_after = time.monotonic() - self._pressed_at

    def done(self, at: float) -> None:
        """The cell is over."""
        if self._pressed_at is not None:
            self._account.over_after = at - self._pressed_at
        self._stopping.set()
        self.join(5.0)


def _state(content: Mapping[str, Any]) -> Mapping[str, Any]:
    state: Mapping[str, Any] = content.get("data", {}).get("state", {})
    return state
