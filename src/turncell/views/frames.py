"""The HTML a turn is made of: text, one line for everything else, details folded.

Colours are the theme's own variables, with `inherit` where there is no theme. The class of
every frame keeps MathJax away: a dollar is a dollar.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import Any

from turncell.outcome import ToolCall
from turncell.transcript import Segment
from turncell.views.base import tool_line
from turncell.views.cleaning import clean
from turncell.views.markup import to_html

__all__ = [
    "closing_line",
    "frame",
    "line",
    "notice_line",
    "segments_html",
    "text_html",
    "thinking_line",
]

TOOL_OUTPUT_SHOWN = 2000  # characters; the rest is in the result's tools
THINKING_SHOWN = 20_000

_FRAME = 'class="turncell tex2jax_ignore mathjax_ignore" style="overflow-wrap:break-word"'
_FONT = "font-family:var(--jp-ui-font-family,inherit);font-size:var(--jp-ui-font-size1,inherit)"
_STYLES = {
    "dim": "color:var(--jp-ui-font-color2,inherit)",
    "info": "color:var(--jp-ui-font-color1,inherit)",
    "warning": "border-left:3px solid var(--jp-warn-color1,currentColor);padding-left:.5em",
    "error": "border-left:3px solid var(--jp-error-color1,currentColor);padding-left:.5em",
    # The one pair of fixed colours: red must be red, and readable, in every theme.
    "alarm": "background:#b00020;color:#fff;font-weight:600;padding:.1em .5em;margin:.2em 0",
}
_BOX = (
    "margin:.3em 0;padding:.4em .6em;max-height:20em;overflow:auto;white-space:pre-wrap;"
    "word-break:normal;overflow-wrap:anywhere;"
    "background:var(--jp-cell-editor-background,transparent);color:var(--jp-ui-font-color1,inherit);"
    "border:1px solid var(--jp-border-color2,currentColor)"
)


def frame(html: str, attributes: str = "") -> str:
    """Put HTML in the frame every output of a turn has."""
    return f"<div {_FRAME}{attributes}>{html}</div>"


def line(text: str, style: str = "dim", extra: str = "") -> str:
    """One line of plain words. `style` is dim, info, warning, error or alarm."""
    css = f"{_FONT};{_STYLES.get(style, _STYLES['info'])}{extra}"
    return f'<div style="{css}">{escape(text)}</div>'


def closing_line(text: str) -> str:
    """The facts of a finished turn; how it ended stands out."""
    outcome, dot, rest = text.partition(" · ")
    css = f"{_FONT};{_STYLES['dim']};margin-top:.4em"
    stands_out = f'<b style="{_STYLES["info"]}">{escape(outcome)}</b>'
    return f'<div style="{css}">{stands_out}{dot}{escape(rest)}</div>'


def text_html(text: str) -> str:
    """Assistant text (clean) as HTML."""
    return to_html(text)


def notice_line(notice: Segment) -> str:
    """The words of a notice; its level is said, not only coloured."""
    text = clean(notice.text)
    return text if notice.level == "info" else f"{notice.level}: {text}"


def thinking_line(thinking: Segment, *, over: bool) -> str:
    """Thinking is counted, not shown."""
    return f"{'thought' if over else 'thinking…'} {len(thinking.text):,} characters"


def segments_html(segments: Iterable[Segment]) -> str:
    """A finished turn in its own order: text in full, steps between folded."""
    parts = []
    for kind, run in groupby(segments, key=_family):
        parts.append(_FAMILIES[kind](list(run)))
    return "".join(parts)


def _family(segment: Segment) -> str:
    return segment.kind if segment.kind in ("text", "notice") else "step"


def _texts(run: list[Segment]) -> str:
    return "".join(text_html(clean(s.text)) for s in run)


def _notices(run: list[Segment]) -> str:
    return "".join(line(notice_line(s), s.level) for s in run)


def _steps(run: list[Segment]) -> str:
    if len(run) == 1:
        return _step(run[0])
    return _folded(_count(run), "".join(map(_step, run)))


_FAMILIES = {"text": _texts, "notice": _notices, "step": _steps}


def _step(segment: Segment) -> str:
    if segment.tool is None:
        body = _box(clean(segment.text), THINKING_SHOWN)
        return _folded(thinking_line(segment, over=True), body)
    tool = segment.tool
    summary, given = tool_line(tool), _input(tool.input)
    boxes = [] if given in summary else [_box(given, TOOL_OUTPUT_SHOWN)]
    boxes.append(_box(clean(tool.output), TOOL_OUTPUT_SHOWN))
    return _folded(summary, "".join(boxes))


def _input(given: dict[str, Any]) -> str:
    if len(given) == 1:
        (only,) = given.values()
        if isinstance(only, str):
            return clean(only)
    return clean(json.dumps(given, ensure_ascii=False, indent=1, default=str)) if given else ""


def _box(text: str, limit: int) -> str:
    if not text.strip():
        return ""
    cut = f"\n[{len(text) - limit:,} more characters]" if len(text) > limit else ""
    return f'<pre style="{_BOX}">{escape(text[:limit] + cut)}</pre>'


def _folded(summary: str, body: str) -> str:
    css = f"{_FONT};{_STYLES['dim']}"
    if not body:
        return line(summary)
    inner = f'<div style="padding-left:1em">{body}</div>'
    return f'<details style="{css}"><summary>{escape(summary)}</summary>{inner}</details>'


def _count(run: list[Segment]) -> str:
    tools = [s.tool for s in run if s.tool is not None]
    if not tools:
        return "thought"
    names = ", ".join(dict.fromkeys(tool.name for tool in tools))
    words = "1 tool call" if len(tools) == 1 else f"{len(tools)} tool calls"
    return clean(f"{words}: {names}{_troubles(tools)}")


def _troubles(tools: list[ToolCall]) -> str:
    bad = [t.status for t in tools if t.status not in ("done", None)]
    counts = [f"{bad.count(status)} {status}" for status in dict.fromkeys(bad)]
    return f" · {', '.join(counts)}" if counts else ""
