"""Markdown to safe HTML.

`$` is a dollar, for the frame's class tells MathJax to look away, unless maths was asked for.
Raw HTML shows as text, images are not loaded, links lead to http, https and mailto only.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from turncell.views.code import code_html

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["parser", "to_html"]

_SCHEMES = {"http", "https", "mailto"}
_LINKS = ("http://", "https://", "mailto:")
# What the renderer makes, and no more.
_TAGS = {
    "a", "blockquote", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li",
    "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_STYLED = ("code", "div", "pre", "span", "td", "th")
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, **{tag: {"style"} for tag in _STYLED}}
_PROPERTIES = {
    "border-left", "color", "font-style", "margin", "overflow-x", "padding", "text-align",
    "white-space",
}  # fmt: skip
_CODE = (
    "border-left:3px solid var(--jp-border-color2,currentColor);padding:.2em .8em;"
    "margin:.5em 0;overflow-x:auto;white-space:pre"
)


def to_html(text: str, *, math: bool = False) -> str:
    """Render Markdown; nothing in it can run, load or leave its element. `math` leaves what
    stands between dollars to the front end."""
    import nh3  # not at import: loading the extension must be fast

    # The renderer lets no HTML of the text through; the sanitiser is there for its faults.
    html: str = nh3.clean(
        _renderer(math=math).render(text),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        filter_style_properties=_PROPERTIES,
    )
    return html


def parser(*, math: bool = False) -> MarkdownIt:
    """What reads the Markdown of an answer: CommonMark, tables, strikethrough, and maths if it
    was asked for."""
    from markdown_it import MarkdownIt  # not at import: loading the extension must be fast

    made = MarkdownIt("commonmark", {"html": False})
    made.enable(["table", "strikethrough"]).disable("image")
    made.validateLink = lambda url: url.lower().startswith(_LINKS)  # type: ignore[method-assign]
    if math:
        from mdit_py_plugins.dollarmath import dollarmath_plugin

        made.use(dollarmath_plugin, allow_space=False, allow_digits=False)
    return made


@lru_cache(maxsize=2)
def _renderer(*, math: bool) -> MarkdownIt:
    made = parser(math=math)
    rules = {"fence": _fence, "code_block": _fence}
    rules |= {"math_inline": _maths, "math_inline_double": _maths, "math_block": _maths}
    rules |= {"th_open": _cell_open, "td_open": _cell_open}
    rules |= {"table_open": _table_open, "table_close": _table_close}
    for kind, rule in rules.items():
        made.add_render_rule(kind, rule)
    return made


def _maths(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    token = tokens[idx]
    words = escape(f"{token.markup}{token.content}{token.markup}")
    return f"<p>{words}</p>\n" if token.type == "math_block" else words


def _fence(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    code, words = tokens[idx].content, tokens[idx].info.split()
    inner = code_html(code, words[0] if words else "")
    return f'<pre style="{_CODE}"><code style="white-space:inherit">{inner}</code></pre>\n'


def _table_open(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    return '<div style="overflow-x:auto"><table>\n'  # a wide one scrolls by itself


def _table_close(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    return "</table></div>\n"


def _cell_open(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    if not tokens[idx].attrGet("style"):
        tokens[idx].attrSet("style", "text-align:left")
    html: str = self.renderToken(tokens, idx, options, env)
    return html
