"""Source code with its comments, strings and keywords in the colours of the theme.

The colours are JupyterLab's own variables; another front end shows plain code. Only three
kinds are coloured: each span costs bytes, and these carry most of the reading.
"""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import Any

__all__ = ["code_html"]

# pygments has no types: `Any` marks that border.

_LIMIT = 20_000  # characters; a longer one is data more often than code
_COLOURS = {
    "Comment": "comment",
    "Keyword": "keyword",
    "String": "string",
}


def code_html(code: str, language: str) -> str:
    """The inside of a code element: escaped, and coloured if the language is known."""
    lexer = _lexer(language) if language and len(code) <= _LIMIT else None
    if lexer is None:
        return escape(code)
    return "".join(_coloured(colour, text) for colour, text in _runs(lexer, code))


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
    pairs = ((_colour(kind), text) for kind, text in lexer.get_tokens(code))
    return [
        (colour, "".join(text for _, text in run))
        for colour, run in groupby(pairs, key=lambda pair: pair[0])
    ]


def _colour(kind: Any) -> str:
    return next((_COLOURS[name] for name in reversed(kind) if name in _COLOURS), "")


def _coloured(colour: str, text: str) -> str:
    if not colour or not text.strip():
        return escape(text)
    style = f"color:var(--jp-mirror-editor-{colour}-color,inherit)"
    if colour == "comment":  # the editor's is too pale to be read in the dark theme
        style = "color:var(--jp-ui-font-color2,inherit);font-style:italic"
    return f'<span style="{style}">{escape(text)}</span>'
