"""Markdown to safe HTML, and Markdown that a front end cannot take for maths or HTML.

`$` is a dollar: in HTML the frame's class tells MathJax to look away, in Markdown each `$`
outside code is escaped. Raw HTML shows as text, images are not loaded, links lead to http,
https and mailto only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from turncell.views.code import code_html

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

__all__ = ["escape_markdown", "literal", "to_html"]

_SCHEMES = {"http", "https", "mailto"}
_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
# What the renderer makes, and no more.
_TAGS = {
    "a", "blockquote", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li",
    "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_STYLED = ("code", "div", "pre", "span", "td", "th")
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, **{tag: {"style"} for tag in _STYLED}}
_PROPERTIES = {
    "border-left", "color", "margin", "overflow-x", "padding", "text-align", "white-space",
}  # fmt: skip
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|$~&])")
# What a front end could take for maths, raw HTML, an image, or a link we do not know of.
_RISKY = re.compile(r"(\\*)(\$|<|!(?=\[)|\](?=[(:]))")

_CODE = (
    "border-left:3px solid var(--jp-border-color2,currentColor);padding:.2em .8em;"
    "margin:.5em 0;overflow-x:auto;white-space:pre"
)

_Span = tuple[int, int]


def to_html(text: str) -> str:
    """Render Markdown; nothing in it can run, load or leave its element."""
    import nh3  # not at import: loading the extension must be fast

    # The renderer lets no HTML of the text through; the sanitiser is there for its faults.
    html: str = nh3.clean(
        _renderer().render(text),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        filter_style_properties=_PROPERTIES,
    )
    return html


def literal(text: str) -> str:
    """Markdown that shows `text` as it is, on one line."""
    return _PUNCTUATION.sub(r"\\\1", text.replace("\n", " "))


def escape_markdown(text: str) -> str:
    """The same Markdown with `$` and HTML taken literally; code is left alone."""
    rows = [_Row(line) for line in text.split("\n")]
    for token in _tracer().parse(text):
        begin, end = token.map or (0, 0)
        if token.type in ("fence", "code_block"):
            for row in rows[begin:end]:
                row.keep()
        elif token.type == "inline":
            _escape_inline(rows[begin:end], token)
    return "\n".join(row.finished() for row in rows)


class _Row:
    """A source line of which the part up to `_at` is done."""

    def __init__(self, line: str) -> None:
        self._done, self._rest = "", line

    def keep(self) -> None:
        self._done, self._rest = self._done + self._rest, ""

    def replace(self, old: str, new: str) -> None:
        # The parser's text is the line without its block marks, or a table's next cell.
        before, found, after = self._rest.partition(old)
        if found:
            self._done, self._rest = self._done + before + new, after
        else:
            # It stands there in other words (an escaped pipe): rather too much than too little.
            self._done, self._rest = self._done + _escape(self._rest, []), ""

    def finished(self) -> str:
        return self._done + _escape(self._rest, [])


def _escape_inline(rows: list[_Row], token: Token) -> None:
    spans = [c.meta["span"] for c in token.children or [] if "span" in c.meta]
    new = _escape(token.content, spans).split("\n")
    for row, before, after in zip(rows, token.content.split("\n"), new, strict=False):
        if before:
            row.replace(before, after)


def _escape(text: str, spans: list[_Span]) -> str:
    def escaped(match: re.Match[str]) -> str:
        at = match.start(2)
        if len(match[1]) % 2 or any(begin <= at < end for begin, end in spans):
            return match[0]
        return f"{match[1]}\\{match[2]}"

    return _RISKY.sub(escaped, text)


def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # not at import: loading the extension must be fast

    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["table", "strikethrough"]).disable("image")
    parser.validateLink = lambda url: bool(_LINK.match(url))  # type: ignore[method-assign]
    return parser


@lru_cache(maxsize=1)
def _renderer() -> MarkdownIt:
    parser = _parser()
    rules = {"fence": _fence, "code_block": _fence}
    rules |= {"th_open": _cell_open, "td_open": _cell_open}
    rules |= {"table_open": _table_open, "table_close": _table_close}
    for kind, rule in rules.items():
        parser.add_render_rule(kind, rule)
    return parser


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


@lru_cache(maxsize=1)
def _tracer() -> MarkdownIt:
    """A parser that notes where code spans stand and where links are joined."""
    from markdown_it.rules_inline.backticks import backtick
    from markdown_it.rules_inline.link import link

    parser = _parser()
    parser.inline.ruler.at("backticks", _noting(backtick, _code_span))
    parser.inline.ruler.at("link", _noting(link, _link_joint))
    return parser


_Rule = Callable[["StateInline", bool], bool]


def _noting(rule: _Rule, span_of: Callable[[StateInline, int], _Span | None]) -> _Rule:
    def noting(state: StateInline, silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        matched = rule(state, silent)
        span = span_of(state, start) if matched and len(state.tokens) > count else None
        if span is not None:
            state.tokens[-1].meta["span"] = span
        return matched

    return noting


def _code_span(state: StateInline, start: int) -> _Span | None:
    return (start, state.pos) if state.tokens[-1].type == "code_inline" else None


def _link_joint(state: StateInline, start: int) -> _Span | None:
    """Where the `](` of a link stands."""
    end, state.pos = state.pos, start
    joint = state.md.helpers.parseLinkLabel(state, start, True)
    state.pos = end
    return (joint, joint + 1)
