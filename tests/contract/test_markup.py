"""Whatever a text holds: nothing runs, nothing loads, a dollar is a dollar."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from screen import Script, on_screen, shown, streamed

from turncell import events as ev
from turncell.views.code import code_html
from turncell.views.escaping import escape_markdown
from turncell.views.markup import to_html

OURS = set(
    re.findall("[a-z]+", "a b p div pre code span ul li table thead tbody tr th td details summary")
)


class Tags(HTMLParser):
    """Collects what HTML would do."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


EVIL = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<div>\n\n<svg onload=alert(1)>\n",
    "[x](javascript:alert(1)) [y](java&#10;script:alert(1)) [z](vbscript:x) [d](data:text/html,x)",
    "![pixel](http://tracker/x.png)",
    "[r]: javascript:alert(1)\n\n[r]",
    "</pre><b>bold</b>",
    "| `a` | <img src=x onerror=y> |\n|---|---|\n| `<img src=x>\\|` | <img src=x onerror=y> |",
    '[t](http://a "\\" onclick=alert(1)")',
    "<iframe src=http://x></iframe>",
    "[a [b](javascript:alert(1)) c](http://ok)",
    "| a | b |\n|---|---|\n| x\\|y \\<img src=http://evil/x.png> \\\\<b>z | z |",
    "- costs\n\t\\$5 and \\$6 \\<img src=http://evil/x.png>",
]


@pytest.mark.parametrize("text", EVIL)
def test_nothing_in_a_text_can_run(text: str) -> None:
    script = Script()
    pictures = list(script.say(text))
    pictures.append(script.fold(ev.ToolStarted(tool_id="x", name=text, input={"a": text})))
    pictures.append(script.fold(ev.ToolEnded(tool_id="x", status="done", output=text)))
    pictures.append(script.fold(ev.Notice(text=text), ev.ThinkingDelta(text=text, block="t")))
    socket = shown([*pictures, script.end(error=text, session_id=text)])
    for message in socket.messages:
        html = message["content"].get("data", {}).get("text/html", "")
        for tag, attributes in Tags(html).seen:
            assert tag in OURS
            assert not any(name.startswith("on") for name in attributes)
            assert (attributes.get("href") or "http://").startswith("http://")
    # The Markdown, read by a front end that lets HTML through, does not run either.
    front_end = MarkdownIt("commonmark", {"html": True}).enable("table")
    for tag, attributes in Tags(front_end.render(escape_markdown(text))).seen:
        assert tag not in {"script", "img", "svg", "iframe", "b", "div"}
        assert (attributes.get("href") or "http://").startswith("http://")


def test_a_dollar_stays_a_dollar() -> None:
    text = "cost $5 and \\$6, `$x`, \\\\$7\n\n```\n$ cmd $y\n```\n\n> - $8 `$z`\n"
    escaped = escape_markdown(text)
    assert escaped == (
        "cost \\$5 and \\$6, `$x`, \\\\\\$7\n\n```\n$ cmd $y\n```\n\n> - \\$8 `$z`\n"
    )
    assert to_html(escaped) == to_html(text)
    (bundle,) = on_screen(streamed(text, 5).messages)
    assert bundle["text/plain"].startswith(text)
    assert bundle["text/html"].startswith('<div class="turncell tex2jax_ignore mathjax_ignore"')


def test_code_is_coloured_by_the_theme_and_complete() -> None:
    code = "def f(x):  # <b>\n    return '$5 & ' + x\n"
    html = code_html(code, "python")
    assert "--jp-mirror-editor-keyword-color" in html
    assert re.sub("<[^>]*>", "", html) == re.sub("<[^>]*>", "", code_html(code, "no-such"))


@pytest.mark.parametrize("text", ["[" * 20_000, "*a " * 20_000, "<" * 50_000, "`" * 20_001 + "x"])
def test_hostile_markdown_is_done_in_time(text: str) -> None:
    assert to_html(text)
    assert escape_markdown(text)


def test_maths_that_was_asked_for_is_left_to_the_front_end() -> None:
    text = "Let $x_1$ and $y_1$ be\n\n$$\na < b\n$$\n\nfor `$z$`, <b>bold</b>.\n"
    (bundle,) = on_screen(streamed(text, 5, math=True).messages)
    html, markdown = bundle["text/html"], bundle["text/markdown"]
    assert html.startswith('<div class="turncell" style')
    assert "$x_1$ and $y_1$" in html and "a &lt; b" in html and "<em>" not in html
    assert "&lt;b&gt;bold" in html
    assert "$x_1$ and $y_1$" in markdown and "`$z$`" in markdown
    # Only the answer: what stands around it holds dollars of other kinds.
    assert html.count("mathjax_ignore") == 1
    assert html.index("mathjax_ignore") < html.index("completed")
    (bundle,) = on_screen(streamed(text, 5).messages)
    assert bundle["text/markdown"].startswith("Let \\$x_1\\$ and \\$y_1\\$ be\n\n\\$\\$\n")


def test_a_label_of_a_formula_stays() -> None:
    html = to_html("$$\na = 1\n$$ (eq1)", math=True)
    assert "(eq1)" in html
    assert html.count("$$") == 2


def test_classes_are_ours_alone() -> None:
    html = to_html("```py\nx\n```\n\n| a |\n|---|\n| b |\n", live=True)
    assert set(re.findall('class="([^"]*)"', html)) == {"code", "wide"}
    assert "class" not in to_html("```py\nx\n```\n\n| a |\n|---|\n| b |\n")


def test_dollars_where_a_link_leads_are_no_maths() -> None:
    text = "[a](http://x/$y) and [b](http://x/$z) <http://x/y>"
    assert escape_markdown(text) == "[a](http://x/\\$y) and [b](http://x/\\$z) <http://x/y>"
    assert to_html(escape_markdown(text)) == to_html(text)
