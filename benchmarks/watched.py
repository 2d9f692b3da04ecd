"""A turn watched in JupyterLab, in Chromium: what the page saw, when, and what it cost.

All is real but the model, which is played in this process. The page is asked by its own clock:
a meter in it notes every animation frame and when given words were first there.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from common import HERE, rest

sys.path.insert(0, str(HERE.parent / "tests"))

from browser.lab import NUMBER, Lab, Tab, browser  # noqa: E402 - found by the line above
from places import SCRIPT, Place  # noqa: E402
from playwright.sync_api import (  # noqa: E402
    BrowserContext,
    TimeoutError,
    WebSocket,
    expect,
)

from turncell.modelserver import ModelServer, Script  # noqa: E402
from turncell.outcome import RECORD_TYPE  # noqa: E402

__all__ = ["LAST", "NeverShown", "Watched", "Watcher", "place", "watcher"]

LAST = "These are the last words."
ENDED = "completed · "
LONG = 600_000  # ms that a turn may take at most
LATE = 30_000  # ms after its end in which the page must show it
LOAD, SPARE, TURN, CHECK = range(4)  # the cells of the notebook
METER = """
window.meter = {frames: [], at: {}, words: [], hidden: 0};
const epoch = () => (performance.timeOrigin + performance.now()) / 1000;
const tick = () => { meter.frames.push(epoch()); requestAnimationFrame(tick); };
requestAnimationFrame(tick);
const look = node => {
  if (node.querySelector && node.querySelector('.jp-TrimmedOutputs')) meter.hidden = 1;
  const left = meter.words.filter(word => !(word in meter.at));
  const text = left.length ? node.textContent : '';
  for (const word of left) {
    if (!text.includes(word)) continue;
    meter.at[word] = 0;
    requestAnimationFrame(() => { meter.at[word] = epoch(); });
  }
};
new MutationObserver(changes => {
  for (const change of changes)
    (change.type === 'characterData' ? [change.target] : change.addedNodes).forEach(look);
}).observe(document, {subtree: true, childList: true, characterData: true});
window.addEventListener('mousedown', event => {
  const began = event.timeStamp, over = () => { meter.click = performance.now() - began; };
  requestAnimationFrame(() => requestAnimationFrame(over));
}, true);
"""


class NeverShown(Exception):
    """The cell is over, and the page does not show how the turn ended."""


@dataclass
class Watched:
    """What was seen of one turn; times are seconds since the epoch."""

    began: float
    said: float = 0.0  # when the model had said its last word
    sent: float = 0.0  # when the kernel sent the final picture, by its own clock
    shown: float = 0.0  # when the last words were first in the page
    whole: float = 0.0  # when the page showed how the turn ended
    size: int = 0  # bytes over the page's websockets
    hidden: bool = False  # whether JupyterLab folded outputs away ("Show more outputs")
    frames: list[float] = field(default_factory=list)

    def gaps(self, begin: float, end: float) -> list[float]:
        """Milliseconds between the frames of a time."""
        pairs = zip(self.frames, self.frames[1:], strict=False)
        return [1000 * (b - a) for a, b in pairs if b >= begin and a <= end]


class Watcher:
    """A notebook in a page with a meter, for one turn."""

    def __init__(self, lab: Lab, chrome: BrowserContext) -> None:
        self.lab, self.page = lab, chrome.new_page()
        self.tab = Tab(self.page, lab, lab.root / f"{secrets.token_hex(4)}.ipynb", watch=False)
        self._received: list[tuple[int, float]] = []  # bytes; when a final picture was sent
        self.page.add_init_script(METER)
        self.page.on("websocket", self._listen)

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._receive)

    def _receive(self, payload: str | bytes) -> None:
        data = payload.encode() if isinstance(payload, str) else payload
        date = re.search(rb'"date": *"([^"]+)"', data) if RECORD_TYPE.encode() in data else None
        sent = datetime.fromisoformat(date[1].decode().replace("Z", "+00:00")) if date else None
        self._received.append((len(data), sent.timestamp() if sent else 0.0))

    def watch(self, script: Script, options: str = "", check: str = "") -> Watched:
        """Run a turn on a warm agent, which the scenario "turn" answers, to its end."""
        server, page, tab = self.lab.place.server, self.page, self.tab
        turn = f"%%agent -o r {options}\n"
        load = f"%load_ext turncell\nget_ipython().run_cell_magic('agent', {options!r}, 'warm')"
        server.script = SCRIPT
        self.lab.write(tab.path.name, load, "1 + 1", f"{turn}go", check)
        tab.open().finish(LOAD)
        server.script = script
        server.reset()
        rest()
        page.evaluate(f"meter.words = {json.dumps([LAST, ENDED])}; meter.at = {{}}")
        self._received.clear()
        page.evaluate("meter.frames = []")
        seen = Watched(time.time())
        tab.run(TURN)
        expect(tab.prompt(TURN)).to_have_text(NUMBER, timeout=LONG)
        try:
            page.wait_for_function("meter.words.every(word => meter.at[word])", timeout=LATE)
        except TimeoutError as error:
            raise NeverShown from error
        seen.size = sum(size for size, _ in self._received)
        page.wait_for_timeout(3000)  # what the page still does after the end
        at, seen.frames, seen.hidden = page.evaluate("[meter.at, meter.frames, !!meter.hidden]")
        seen.shown, seen.whole = at[LAST], at[ENDED]
        seen.sent = max(sent for _, sent in self._received)
        ended = [r.ended_at for r in server.requests if r.scenario == "turn" and r.ended_at]
        seen.said = max(ended) - time.monotonic() + time.time()
        return seen

    def click(self) -> float:
        """Seconds from a click into the cell above until the page has drawn its answer."""
        editor = self.tab.cell(SPARE).locator(".cm-content")
        box = editor.bounding_box()
        assert box is not None
        self.page.evaluate("meter.click = 0")
        self.page.mouse.click(box["x"] + 5, box["y"] + 5)
        self.page.wait_for_function("meter.click > 0", timeout=LONG)
        expect(editor).to_be_focused()
        return float(self.page.evaluate("meter.click")) / 1000

    def answer(self, index: int) -> float:
        """Seconds until a cell is answered, on screen."""
        self.tab.cell(index).locator(".cm-content").click()
        began = time.time()
        self.page.keyboard.press("Control+Enter")
        expect(self.tab.prompt(index)).to_have_text(NUMBER, timeout=LONG)
        return time.time() - began

    def text(self, index: int = TURN) -> str:
        """All words that stand below a cell."""
        return str(self.tab.output(index).evaluate("area => area.textContent"))


@contextmanager
def place() -> Iterator[Place]:
    """A home, and a model server in this process."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = Path(name)
        (home / "work").mkdir()
        with ModelServer(SCRIPT, home=home) as server:
            yield Place(home, server, secrets.token_hex(8))


@contextmanager
def watcher() -> Iterator[Watcher]:
    """A server, a browser and a page of its own."""
    with place() as made, Lab(made).running() as lab, browser(made.home / "profile") as chrome:
        yield Watcher(lab, chrome)
