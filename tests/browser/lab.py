"""JupyterLab in Chromium, as a person uses it: a server, a browser, a notebook in a tab."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest
from places import Place
from playwright.sync_api import BrowserContext, Locator, Page, expect, sync_playwright

NUMBER = re.compile(r"^\[\d+\]:$")
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
}
EXPOSE = "--expose-app-in-browser"  # as window.jupyterapp
KERNEL = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"
#: Shows the result `r` as a front end does that prefers Markdown to HTML.
AS_MARKDOWN = """from IPython.display import Markdown
Markdown(r._repr_mimebundle_()["text/markdown"])"""
#: Records what stands on every button with the prompt of its cell, whenever either changes.
WATCH = """
window.seen = [];
new MutationObserver(() => {
  for (const button of document.querySelectorAll('.jp-OutputArea button')) {
    const cell = button.closest('.jp-CodeCell');
    const prompt = cell && cell.querySelector('.jp-InputPrompt');
    const pair = [button.innerText, prompt ? prompt.innerText : ''];
    const last = window.seen[window.seen.length - 1];
    if (!last || last[0] !== pair[0] || last[1] !== pair[1]) window.seen.push(pair);
  }
}).observe(document, {subtree: true, childList: true, characterData: true});
"""


def chromium() -> str:
    """The browser; without one the tests fail, for nothing can replace them."""
    for name in (os.environ.get("TURNCELL_CHROMIUM", ""), *NAMES):
        if name and (path := shutil.which(name)):
            return path
    pytest.fail("no Chromium: install it, or name it in TURNCELL_CHROMIUM", pytrace=False)


class Lab:
    """A JupyterLab (or Notebook 7) server whose kernels run in `place`."""

    def __init__(self, place: Place, app: str = "lab") -> None:
        self.place, self.app = place, app
        self.root = place.cwd
        self._token = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @contextmanager
    def running(self) -> Iterator[Lab]:
        """Serve until the end of the block."""
        for name, values in SETTINGS.items():
            self.settings(name, values)
        places = {f"JUPYTERLAB_{k}_DIR": str(self.place.home / k.lower()) for k in
                  ("SETTINGS", "WORKSPACES")}  # fmt: skip
        command = [sys.executable, "-m", "jupyter", self.app, "--no-browser", "--allow-root"]
        command += [f"--ServerApp.root_dir={self.root}", f"--IdentityProvider.token={self._token}"]
        command += ["--ip=127.0.0.1", f"--port={self._port}", "--ServerApp.port_retries=0", EXPOSE]
        log = self.place.home / "server.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env={**self.place.env, **places}, stdout=out, stderr=out,
                cwd=self.root, start_new_session=True,
            )  # fmt: skip
        try:
            self._wait_until_up(process, log)
            yield self
        finally:
            with suppress(OSError):
                self.stop_kernels()
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait(5)

    def _wait_until_up(self, process: subprocess.Popen[bytes], log: Path) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            with suppress(OSError):
                self.ask("api/status")
                return
            time.sleep(0.1)
        pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}", pytrace=False)

    def settings(self, name: str, values: dict[str, Any]) -> None:
        """Set what a page that is opened from now on finds as the user's settings."""
        path = self.place.home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))

    def ask(self, path: str, method: str = "GET") -> Any:
        """Call the server's REST interface."""
        headers, url = {"Authorization": f"token {self._token}"}, f"{self.url}/{path}"
        request = urllib.request.Request(url, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=15) as answer:
            return json.loads(answer.read() or b"null")

    def stop_kernels(self) -> None:
        """Shut every kernel down."""
        for kernel in self.ask("api/kernels"):
            self.ask(f"api/kernels/{kernel['id']}", "DELETE")

    def write(self, name: str, *sources: str, kernel: str = "python3") -> Path:
        """Make a notebook of these code cells."""
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        spec = {"name": kernel, "display_name": kernel, "language": "python"}
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})
        path = self.root / name
        nbformat.write(notebook, path)
        return path

    def address(self, name: str) -> str:
        """Where a notebook opens in a fresh workspace."""
        folder = {"lab": "lab/tree", "notebook": "notebooks"}[self.app]
        return f"{self.url}/{folder}/{name}?token={self._token}&reset"


@contextmanager
def browser(profile: Path) -> Iterator[BrowserContext]:
    """A browser with a fresh profile."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=chromium(), headless=True, args=list(FLAGS),
            viewport={"width": 1100, "height": 900},
        )  # fmt: skip
        context.set_default_timeout(30_000)
        expect.set_options(timeout=30_000)
        yield context
        context.close()


class Tab:
    """One notebook in a tab."""

    def __init__(self, page: Page, lab: Lab, path: Path, *, watch: bool = True) -> None:
        self.page, self.lab, self.path = page, lab, path
        if watch:  # it costs the page something at every change
            page.add_init_script(WATCH)

    def open(self, *, kernel: bool = True) -> Tab:
        """Load the page; wait for its kernel, or go without one."""
        self.page.goto(self.lab.address(self.path.name), wait_until="domcontentloaded")
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=60_000)
        if kernel:
            self.idle()
        else:
            self.page.locator(".jp-Dialog select").select_option(label="No Kernel")
            self.page.locator(".jp-Dialog .jp-mod-accept").click()
        return self

    def begin(self, *sources: str, load: str = "") -> Tab:
        """Write a notebook, open it, and run its first cell: the extension is loaded."""
        self.lab.write(self.path.name, f"{load}%load_ext turncell", *sources)
        self.open().finish(0)
        return self

    def idle(self) -> None:
        """Wait until the page says that the kernel is idle."""
        # The circle beside the kernel's name is "idle" before there is a kernel at all.
        self.page.wait_for_function(f"{KERNEL}?.status == 'idle'", timeout=60_000)

    def cell(self, index: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index)

    def output(self, index: int) -> Locator:
        """What a cell shows below its code."""
        return self.cell(index).locator(".jp-OutputArea").first

    def prompt(self, index: int) -> Locator:
        """`[*]:` while the cell runs or waits, then its number."""
        return self.cell(index).locator(".jp-InputPrompt")

    def button(self, index: int) -> Locator:
        """The Stop button of a cell."""
        return self.output(index).locator("button", has_text="Stop")

    def run(self, index: int) -> None:
        """Click into a cell and press Ctrl-Enter."""
        self.cell(index).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")

    def finish(self, index: int) -> None:
        """Run a cell and wait for its end."""
        self.run(index)
        self.ended(index)

    def ended(self, index: int) -> None:
        """Wait until a cell that was run has its number."""
        expect(self.prompt(index)).to_have_text(NUMBER)

    def interrupt(self) -> None:
        """Press the toolbar's square."""
        self.page.locator(".jp-Toolbar [data-command='notebook:interrupt-kernel']").click()

    def reload(self) -> None:
        """Press F5, and wait until the page has found its kernel again, busy or not."""
        self.page.reload(wait_until="domcontentloaded")
        self.page.wait_for_function(f"{KERNEL} != null", timeout=60_000)

    def seen(self) -> list[list[str]]:
        """What the buttons said, each with the prompt that stood beside the cell then."""
        seen: list[list[str]] = self.page.evaluate("() => window.seen")
        return seen

    def save(self) -> Any:
        """Press Ctrl-S and return the notebook as it then is on disk."""
        before = self.path.stat().st_mtime_ns
        self.page.keyboard.press("Control+s")
        end = time.monotonic() + 15
        while time.monotonic() < end:
            self.page.wait_for_timeout(50)
            if self.path.stat().st_mtime_ns != before:
                with suppress(nbformat.reader.NotJSONError):  # half written
                    return nbformat.read(self.path, as_version=4)
        raise TimeoutError("not saved")

    def picture(self, name: str, cell: int = 1) -> None:
        """Keep a picture of a cell for the docs, where TURNCELL_PICTURES names a directory."""
        if directory := os.environ.get("TURNCELL_PICTURES"):
            self.page.mouse.move(5, 5)
            self.cell(cell).screenshot(path=Path(directory) / f"{name}.png")
        self.shot(name)

    def shot(self, name: str) -> None:
        """Keep a picture for a person to look at, where TURNCELL_SHOTS names a directory."""
        if directory := os.environ.get("TURNCELL_SHOTS"):
            self.page.screenshot(path=Path(directory) / f"{name}.png")
