"""Markdown to safe HTML.

`$` is a dollar, for the frame's class tells MathJax to look away, unless maths was asked for.
Raw HTML shows as text, images are not loaded, links lead to http, https and mailto only.

What stays in a notebook has its styles inline, for no style sheet goes with it everywhere. What
is sent again and again while a turn runs is bare and has `LIVE_STYLE` beside it: that is half as
long. JupyterLab looks through all outputs for headings, again and again: with bare elements it is
done four times as fast, and headings that it does not know are not built into its outline.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from turncell.views.code import LIVE_STYLE as _CODE_STYLE
from turncell.views.code import code_html

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["LIVE_STYLE", "parser", "to_html"]

_SCHEMES = {"http", "https", "mailto"}
_LINKS = ("http://", "https://", "mailto:")
# What the renderer makes, and no more.
_TAGS = {
    "a", "b", "blockquote", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr",
    "i", "li", "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr",
    "ul",
}  # fmt: skip
_STYLED = ("code", "div", "pre", "span", "td", "th")
_ATTRIBUTES = {
    "a": {"href", "title"}, "ol": {"start"}, "p": {"role", "aria-level"},
    **{tag: {"style"} for tag in _STYLED},
}  # fmt: skip
_CLASSES = {"pre": {"code"}, "div": {"wide"}}
_PROPERTIES = {
    "border-left", "color", "font-style", "margin", "overflow-x", "padding", "text-align",
    "white-space",
}  # fmt: skip
_CODE = (
    "border-left:3px solid var(--jp-border-color2,currentColor);padding:.2em .8em;"
    "margin:.5em 0;overflow-x:auto;white-space:pre"
)
_STYLES = {
    "code": _CODE,
    "wide": "overflow-x:auto",  # a wide table scrolls by itself
}
_LIVE = "turncell: live"  # in the renderer's environment
# As JupyterLab draws its own, so that nothing moves when they take their place.
_HEADING = (
    "line-height:var(--jp-content-heading-line-height,1.2);"
    "font-weight:var(--jp-content-heading-font-weight,bold);"
    "margin:var(--jp-content-heading-margin-top,.8em) 0 "
    "var(--jp-content-heading-margin-bottom,.6em)"
)
_HEADINGS = f".turncell [aria-level]{{{_HEADING}}}" + "".join(
    f'.turncell [aria-level="{level}"]{{font-size:var(--jp-content-font-size{6 - level},{size}em)}}'
    for level, size in enumerate((2, 1.5, 1.2, 1, 0.9, 0.8), start=1)
)

#: The style sheet of what is rendered for a turn that runs.
LIVE_STYLE = (
    "".join(f".turncell .{name}{{{style}}}" for name, style in _STYLES.items())
    + ".turncell td,.turncell th{text-align:left}.turncell .code code{white-space:inherit}"
    + _HEADINGS
    + ".turncell [aria-level]:first-child"
    + "{margin-top:calc(.5*var(--jp-content-heading-margin-top,.8em))}"
    + _CODE_STYLE
)


def to_html(text: str, *, math: bool = False, live: bool = False) -> str:
    """Render Markdown; nothing in it can run, load or leave its element. `math` leaves what
    stands between dollars to the front end; `live` leaves the styles to `LIVE_STYLE`."""
    import nh3  # not at import: loading the extension must be fast

    # The renderer lets no HTML of the text through; the sanitiser is there for its faults.
    html: str = nh3.clean(
        _renderer(math=math).render(text, {_LIVE: live}),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes=_SCHEMES,
        url_relative="deny",
        link_rel="noreferrer nofollow",
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

        made.use(dollarmath_plugin, allow_space=False, allow_digits=False, allow_labels=False)
    return made


@lru_cache(maxsize=2)
def _renderer(*, math: bool) -> MarkdownIt:
    made = parser(math=math)
    rules = {"fence": _fence, "code_block": _fence}
    rules |= {"math_inline": _maths, "math_inline_double": _maths, "math_block": _maths}
    rules |= {"th_open": _cell_open, "td_open": _cell_open}
    rules |= {"heading_open": _heading_open, "heading_close": _heading_close}
    rules |= {"table_open": _table_open, "table_close": _table_close}
    for kind, rule in rules.items():
        made.add_render_rule(kind, rule)
    return made


def _maths(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    token = tokens[idx]
    words = escape(f"{token.markup}{token.content}{token.markup}")
    return f"<p>{words}</p>\n" if token.type == "math_block" else words


def _look(name: str, env: Any) -> str:
    return f'class="{name}"' if env[_LIVE] else f'style="{_STYLES[name]}"'


def _fence(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    code, words, live = tokens[idx].content, tokens[idx].info.split(), env[_LIVE]
    inner = code_html(code, words[0] if words else "", live=live)
    inherit = "" if live else ' style="white-space:inherit"'
    return f"<pre {_look('code', env)}><code{inherit}>{inner}</code></pre>\n"


def _heading_open(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    tag = tokens[idx].tag
    return f'<p role="heading" aria-level="{tag[1:]}">' if env[_LIVE] else f"<{tag}>"


def _heading_close(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    return "</p>\n" if env[_LIVE] else f"</{tokens[idx].tag}>\n"


def _table_open(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    return f"<div {_look('wide', env)}><table>\n"


def _table_close(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    return "</table></div>\n"


def _cell_open(self: Any, tokens: list[Token], idx: int, options: Any, env: Any) -> str:
    if not (env[_LIVE] or tokens[idx].attrGet("style")):
        tokens[idx].attrSet("style", "text-align:left")
    html: str = self.renderToken(tokens, idx, options, env)
    return html
