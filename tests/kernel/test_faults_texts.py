"""Words that are not only words: reported faults of what a notebook keeps, see docs/faults.md."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from driver import Cell
from markdown_it import MarkdownIt
from nbconvert import HTMLExporter, MarkdownExporter
from pages import Page
from places import AgentKernel

from turncell.modelserver import Reply, Scenario, Script, ToolUse

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

#: No output may hold these: C0 without tab and newline, C1, and what turns words round.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CODES = (
    "\x1b[31m <b>red</b> \x1b[0m\x1b[2J\x1b[1A\x1b]8;;http://evil.example/\x07link\x1b]8;;\x07"
    " ab\b\bcd\n10%\r50%\r100%\nnul\0nul \u202eabc\u202c end"
)
#: The same from a shell.
PRINTF = (
    r"printf '\033[31m <b>red</b> \033[0m\033[2J\033[1A\033]8;;http://evil.example/\007link"
    r"\033]8;;\007 ab\b\bcd\n10%%\r50%%\r100%%\nnul\000nul \342\200\256abc\342\200\254 end\n'"
)
SCRIPTS = """<script>alert(1)</script> <img src="http://evil.example/x.png" onerror="alert(1)">
[a](javascript:alert(1)) <a href="javascript:alert(1)">b</a> </pre><b>bold</b> </div>
<iframe src="http://evil.example/"></iframe> ![c](http://evil.example/c.png)
<svg onload="alert(1)"><script>alert(1)</script></svg> <style>body{display:none}</style>
[d]: javascript:alert(1)
"""
DOLLARS = r"""It cost $5 and $6, or \$5 and \$6; $x$ and \(a\), \[b\] and $$y$$.

```sh
$ echo one
$ echo two
```

| $a | b$ |
|---|---|
| `$c` | $d$ |
"""
SCRIPT = Script(
    Scenario("codes", when="codes", replies=[
        Reply(CODES + "\n\n", ToolUse("Bash", {"command": PRINTF, "description": CODES})),
        Reply(ToolUse("Read", {"file_path": "/none/" + CODES}), ToolUse(CODES, {CODES: CODES})),
        Reply(CODES),
    ]),
    Scenario("ask", when="ask", replies=[
        Reply(ToolUse("Write", {"file_path": "new", "content": CODES + SCRIPTS})), Reply("Ok."),
    ]),
    Scenario("scripts", when="scripts", replies=[
        Reply(SCRIPTS, ToolUse("Bash", {"command": f"cat <<'END'\n{SCRIPTS}\nEND"})),
        Reply(ToolUse("Read", {"file_path": SCRIPTS}), ToolUse("Nothing", {SCRIPTS: SCRIPTS})),
        Reply("The end."),
    ]),
    Scenario("dollars", when="dollars", replies=[
        Reply(DOLLARS, ToolUse("Bash", {"command": "echo '$x$ and $5'"})), Reply("The end."),
    ]),
)  # fmt: skip
#: An agent that ends at once with these words.
REFUSES = f"""#!/bin/sh
[ "$1" = --version ] && echo '2.1.332 (Claude Code)' && exit
{PRINTF} >&2
exit 1
"""
LINES = ["status", "sessions", "last", "show", "timeline", "log", "config", "doctor"]


@pytest.fixture
def kernel(agent_kernel: AgentKernel) -> AgentKernel:
    agent_kernel.server.script = SCRIPT
    return agent_kernel


def controls(value: Any) -> list[str]:
    """The texts in it that a notebook should not keep."""
    if isinstance(value, dict):
        return [t for pair in value.items() for each in pair for t in controls(each)]
    if isinstance(value, list):
        return [t for each in value for t in controls(each)]
    return [value] if isinstance(value, str) and CONTROL.search(value) else []


def ran(kernel: AgentKernel, code: str) -> Cell:
    cell = kernel.run(code, timeout=60)
    assert cell.outputs
    return cell


# OUT-G5: escapes, control characters, and angle brackets.


def test_out_g5_no_control_character_is_kept_and_brackets_are_brackets(
    kernel: AgentKernel,
) -> None:
    cell = ran(kernel, "%%agent -o r --tools Bash\ncodes")
    raw = kernel.value("r.text + ''.join(t.output for t in r.tools)")
    assert CONTROL.search(raw)  # they were there
    assert kernel.value("[t.status for t in r.tools]")[0] == "done"
    (output,) = cell.outputs
    data = output["data"]
    assert controls(output) == []
    for text in (data["text/plain"], Page(data["text/html"]).text):
        assert text.count("<b>red</b>") >= 2 and "link" in text
        assert "10%50%" not in text  # progress is read step by step
        assert re.search(r"10%\s50%\s100%", text)
    assert "10%\n50%\n100%" in data["text/plain"]
    assert data["text/html"].count("10%\n50%\n100%") >= 2  # in the answer and in the tool's output
    assert "<b>red" not in data["text/html"]
    assert "evil.example" not in Page(MarkdownIt().render(data["text/markdown"])).links
    for line in LINES:
        assert controls(ran(kernel, f"%agent {line}").outputs) == [], line


def test_out_g5_an_error_keeps_none_either(kernel: AgentKernel, tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_text(REFUSES)
    agent.chmod(0o755)
    kernel.run(f"%config AgentMagics.cli = {str(agent)!r}")
    cell = ran(kernel, "%%agent -s refused -o r\nhello")
    kernel.run("%config AgentMagics.cli = ''")
    assert cell.reply["ename"] == "TurnFailed" and "<b>red</b>" in cell.error
    assert "error" in cell.text and "<b>red</b>" in cell.text
    assert controls([cell.outputs, cell.reply]) == []
    assert controls(ran(kernel, "r").outputs) == []


def test_out_g5_a_question_has_none_and_shows_all(kernel: AgentKernel) -> None:
    cell = kernel.start("%%agent -s asks --permission-mode default\nask")
    kernel.wait_for(lambda: kernel.button("Deny"), 30, "the question")
    (question,) = (
        str(s["value"]) for s in kernel.widgets.values() if "May the agent use" in str(s)
    )
    texts = controls([kernel.widgets, cell.outputs])
    kernel.click(kernel.button("Deny"))
    kernel.wait(cell)
    assert texts == [] and controls(cell.outputs) == []
    for words in ("<b>red</b>", "100%", "<script>alert(1)</script>", "</pre><b>bold</b>"):
        assert words in Page(question).text
    assert harm(question) == []


# OUT-G3: what would run or load.


class _Harm(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "img", "svg", "style", "object", "embed", "form", "base"):
            self.found.append(tag)
        for name, value in attrs:
            address = "".join((value or "").split()).lower()
            if name.startswith("on") or address.startswith(("javascript:", "data:", "vbscript:")):
                self.found.append(f"{name}={value}")


def harm(html: str) -> list[str]:
    """What of this HTML would run or load something."""
    return _Harm(html).found


def saved(cell: Cell, source: str) -> nbformat.NotebookNode:
    (output,) = json.loads(json.dumps(cell.outputs))
    kept = nbformat.v4.new_output("display_data", data=output["data"])
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source, outputs=[kept])])
    nbformat.validate(notebook)
    return notebook


def test_out_g3_nothing_runs_in_what_is_saved(kernel: AgentKernel) -> None:
    assert len(harm(SCRIPTS)) > 5  # it would be seen
    notebook = saved(ran(kernel, "%%agent --tools Bash\nscripts"), "%%agent\nscripts")
    data = notebook.cells[0].outputs[0].data
    page = HTMLExporter().from_notebook_node(notebook)[0]
    notebook.cells[0].outputs = []
    bare = HTMLExporter().from_notebook_node(notebook)[0]
    assert harm(page) == harm(bare)  # the page's own
    assert Page(page).loads == Page(bare).loads
    assert harm(data["text/html"]) == []
    careless = MarkdownIt("commonmark", {"html": True}).render(data["text/markdown"])
    assert harm(careless) == [] and Page(careless).loads == set()
    for html in (page, careless):
        text = Page(html).text
        for words in ("<script>alert(1)</script>", "</pre><b>bold</b>", "<iframe src", "The end."):
            assert words in text


# OUT-G2: a dollar is a dollar.


class _Maths(HTMLParser):
    """The words in which MathJax would look for formulas."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.looked_at, self._skipped = "", 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        skips = tag in ("pre", "code", "script", "style", "textarea")
        skips = skips or "mathjax_ignore" in (dict(attrs).get("class") or "").split()
        if tag not in ("br", "img", "meta", "link", "hr", "input"):
            self._skipped += bool(skips or self._skipped)

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= bool(self._skipped)

    def handle_data(self, data: str) -> None:
        self.looked_at += data if not self._skipped else ""


def test_out_g2_dollars_are_no_maths_in_what_is_saved(kernel: AgentKernel) -> None:
    notebook = saved(ran(kernel, "%%agent --tools Bash\ndollars"), "%%agent\nhow much")
    data = notebook.cells[0].outputs[0].data
    page = HTMLExporter().from_notebook_node(notebook)[0]
    assert "$" in _Maths("<p>$x$</p><pre>$</pre>").looked_at  # it would be seen
    assert "$" not in _Maths(page).looked_at and "\\(" not in _Maths(page).looked_at
    markdown = MarkdownExporter().from_notebook_node(notebook)[0]
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", data["text/markdown"], flags=re.DOTALL)
    assert "$" in outside and not re.search(r"(?<!\\)\$", outside)
    read = MarkdownIt("commonmark").enable("table").render(data["text/markdown"])
    for html in (page, read, MarkdownIt("commonmark").enable("table").render(markdown)):
        text = Page(html).text
        for words in ("It cost $5 and $6, or $5 and $6; $x$ and", "$$y$$", "$ echo one $ echo two"):
            assert words in text
