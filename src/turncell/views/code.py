"""Source code with its comments, strings and keywords in the colours of the theme.

The colours are JupyterLab's own variables; another front end shows plain code. Only three
kinds are coloured: each span costs bytes, and these carry most of the reading. While a turn
runs, bare elements stand for them, which `LIVE_STYLE` colours.
"""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import Any

__all__ = ["LIVE_STYLE", "code_html"]

# pygments has no types: `Any` marks that border.

_LIMIT = 20_000  # characters; a longer one is data more often than code
_STYLES = {
    # The editor's comments are too pale to be read in the dark theme.
    "Comment": "color:var(--jp-ui-font-color2);font-style:italic",
    "Keyword": "color:var(--jp-mirror-editor-keyword-color)",
    "String": "color:var(--jp-mirror-editor-string-color)",
}
_BARE = {"Comment": "i", "Keyword": "b", "String": "span"}

#: The style sheet of code while a turn runs.
LIVE_STYLE = ".turncell .code b{font-weight:inherit}" + "".join(
    f".turncell .code {tag}{{{_STYLES[kind]}}}" for kind, tag in _BARE.items()
)


def code_html(code: str, language: str, *, live: bool = False) -> str:
    """The inside of a code element: escaped, and coloured if the language is known."""
    lexer = _lexer(language) if language and len(code) <= _LIMIT else None
    if lexer is None:
        return escape(code)
    return "".join(_coloured(kind, text, live) for kind, text in _runs(lexer, code))


def _lexer(language: str) -> Any:
    try:
        from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
        from pygments.util import ClassNotFound  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _runs(lexer: Any, code: str) -> list[tuple[str, str]]:
    pairs = ((_kind(token), text) for token, text in lexer.get_tokens(code))
    return [
        (kind, "".join(text for _, text in run))
        for kind, run in groupby(pairs, key=lambda pair: pair[0])
    ]


def _kind(token: Any) -> str:
    return next((name for name in reversed(token) if name in _STYLES), "")


def _coloured(kind: str, text: str, live: bool) -> str:
    if not kind or not text.strip():
        return escape(text)
    if live:
        return f"<{_BARE[kind]}>{escape(text)}</{_BARE[kind]}>"
    return f'<span style="{_STYLES[kind]}">{escape(text)}</span>'
