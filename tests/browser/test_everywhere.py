"""Answers that want to do harm, and the other front end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import nbformat
import pytest
from browser.lab import AS_MARKDOWN, Lab, Tab
from driver import VIEW
from nbconvert import HTMLExporter
from places import Place
from playwright.sync_api import BrowserContext, Locator, Page, expect

from turncell.modelserver import HttpError, Reply, Scenario, Script, Thinking, ToolUse, Words

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.cli]

# Hostile answers. `PIXEL` is the address of a server that must not be asked for anything.

HOSTILE = """
# Hostile

<script>window.pwned = 'script'; fetch('PIXEL/script')</script>

<img src="PIXEL/image" onerror="window.pwned='image'">

[press](javascript:window.pwned='link') [data](data:text/html,<script>1</script>)
<javascript:window.pwned='auto'>

</pre></code></div></div><b id="escaped">bold</b>

<iframe src="PIXEL/frame"></iframe> <object data="PIXEL/object"></object>

<svg onload="window.pwned='svg'"><script>window.pwned='svg'</script><image href="PIXEL/svg"/></svg>

<style>body{display:none} @import url(PIXEL/style);</style> <link rel="stylesheet" href="PIXEL/css">

<details open ontoggle="window.pwned='toggle'"><summary>x</summary></details>
<input autofocus onfocus="window.pwned='focus'">

![x](PIXEL/markdown.png) and ![y][ref] and [![z](PIXEL/nested.png)](https://example.org)

[ref]: PIXEL/reference.png

| <img src="PIXEL/cell"> | `<img src="PIXEL/code">` |
|---|---|
| ![x](PIXEL/cell.png) | <b id="escaped">bold</b> |

```html"><img src="PIXEL/info">
</code></pre><img src="PIXEL/fence" onerror="window.pwned='fence'">
```

"""
FORBIDDEN = "script, img, iframe, object, svg, style, link, input, video, form, #escaped"
#: What an answer must leave as words.
LITERAL = ("<script>window.pwned = 'script'", '<b id="escaped">bold</b>', "body{display:none}")


class Pixel:
    """A server that gives everybody nothing, and knows who asked for what."""

    def __init__(self) -> None:
        asked = self.asked = list[str]()

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(unquote(self.path))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[Pixel]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def only_asked_for(self, page: Page, name: str) -> None:
        """Nobody has asked, until this page is made to: so it would have been seen."""
        assert self.asked == []
        load = "url => new Promise(done => { const one = new Image(); one.onerror = done;"
        page.evaluate(f"{load} one.src = url; }})", f"{self.url}/{name}")
        assert self.asked == [f"/{name}"]
        self.asked.clear()


@pytest.fixture
def pixel() -> Iterator[Pixel]:
    with Pixel().running() as server:
        yield server


def harmless(page: Page, area: Locator, where: str = ".turncell") -> None:
    """What is in this place is words, and the page is as it was."""
    for words in LITERAL:
        expect(area).to_contain_text(words)
    ours = area.locator(where)
    assert ours.count() > 0
    expect(ours.locator(FORBIDDEN)).to_have_count(0)
    links = ours.locator("a[href]").evaluate_all("all => all.map(one => one.href)")
    assert [link for link in links if not link.startswith(("http", "file:"))] == []
    assert page.evaluate("getComputedStyle(document.body).display") != "none"
    assert page.evaluate("window.pwned") is None


@pytest.fixture
def hostile(tab: Tab, pixel: Pixel) -> Tab:
    """A model that means ill: in thought, word, deed and error."""
    text = HOSTILE.replace("PIXEL", pixel.url)
    printed = ToolUse("Bash", {"command": f"cat <<'END'\n{text}\nEND", "description": text})
    tab.lab.place.server.script = Script(
        Scenario("fail", when="fail", replies=[Reply(HttpError(400, text))]),
        Scenario("brief", when="brief", replies=[Reply(text)]),
        Scenario("bad", replies=[Reply(Thinking(text), text, printed),
                                 Reply(text, Words(2000, pace=0.05))]),
    )  # fmt: skip
    return tab


def test_a_hostile_answer_does_nothing(hostile: Tab, pixel: Pixel, chrome: BrowserContext) -> None:
    tab, page = hostile.begin("%%agent --tools Bash -o r\ngo", "%agent show"), hostile.page
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w3 ")
    tab.shot("hostile-running")
    harmless(page, tab.output(1))
    tab.button(1).click()
    tab.ended(1)
    tab.output(1).evaluate("area => area.querySelectorAll('details').forEach(d => d.open = true)")
    tab.shot("hostile-ended")
    harmless(page, tab.output(1))
    tab.finish(2)
    harmless(page, tab.output(2))
    pixel.only_asked_for(page, "live")
    afterwards(tab, pixel, chrome)


def test_a_hostile_error_does_nothing(hostile: Tab, pixel: Pixel) -> None:
    tab = hostile.begin("%%agent\nfail")
    tab.finish(1)
    shown = tab.output(1).locator(".jp-OutputArea-output")
    expect(tab.output(1)).to_contain_text("API Error: 400")
    expect(shown.locator(FORBIDDEN)).to_have_count(0)
    pixel.only_asked_for(tab.page, "error")


def test_a_hostile_answer_where_its_markdown_form_is_shown(hostile: Tab, pixel: Pixel) -> None:
    tab = hostile.begin("%%agent -o r\nbrief", AS_MARKDOWN)
    tab.finish(1)
    tab.finish(2)
    harmless(tab.page, tab.output(2), ".jp-RenderedMarkdown")
    tab.shot("hostile-markdown")
    pixel.only_asked_for(tab.page, "markdown")


def afterwards(tab: Tab, pixel: Pixel, chrome: BrowserContext) -> None:
    """Saved and opened again, by who trusts it and who does not; and as a page of HTML."""
    notebook = tab.save()
    tab.reload()
    harmless(tab.page, tab.output(1))
    pixel.only_asked_for(tab.page, "again")
    stranger = tab.path.with_name("stranger.ipynb")
    stranger.write_text(json.dumps(notebook).replace("%agent show", "%agent  show"))
    other = Tab(chrome.new_page(), tab.lab, stranger).open()
    exported = tab.path.with_suffix(".html")
    exported.write_text(HTMLExporter().from_notebook_node(notebook)[0])
    try:
        harmless(other.page, other.output(1), ".jp-RenderedHTML")
        pixel.only_asked_for(other.page, "stranger")
        other.page.route("https://**", lambda route: route.abort())  # the template's own scripts
        other.page.goto(exported.as_uri())
        cell = other.page.locator(".jp-CodeCell").nth(1)
        harmless(other.page, cell.locator(".jp-OutputArea").first)
        pixel.only_asked_for(other.page, "exported")
    finally:
        other.page.close()


# Notebook 7.


@pytest.fixture
def classic(new_place: Callable[[], Place], chrome: BrowserContext) -> Iterator[Tab]:
    with Lab(new_place(), "notebook").running() as server:
        page = chrome.new_page()
        yield Tab(page, server, server.root / "classic.ipynb")
        page.close()


def test_notebook_7_runs_and_stops(classic: Tab) -> None:
    tab = classic
    tab.begin("%%agent -o r\ncount", "%%agent\nand on", "str(r.outcome)")
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w9 ")
    expect(tab.prompt(1)).to_have_text("[*]:")
    tab.shot("notebook7-running")
    tab.button(1).click()
    tab.ended(1)
    assert any(label.startswith("Stopping") and prompt == "[*]:" for label, prompt in tab.seen())
    expect(tab.output(1)).to_contain_text("stopped by you")
    expect(tab.output(1)).to_contain_text("w9 ")
    expect(tab.output(1).locator("button, .jupyter-widgets")).to_have_count(0)
    tab.shot("notebook7-stopped")
    tab.finish(2)
    expect(tab.output(2)).to_contain_text("echo: and on")
    tab.finish(3)
    expect(tab.output(3)).to_contain_text("interrupted")
    saved = tab.save()
    nbformat.validate(saved)
    assert VIEW not in json.dumps(saved)
