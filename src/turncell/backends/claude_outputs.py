"""What came of a tool call, out of its result's two forms: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["change_of", "output_of", "shallow"]

_DEEPER = "[nested too deeply]"
_CHANGE = 20_000  # characters of a change that are kept


def output_of(content: Any, result: Any) -> str:
    """The text of a tool's result; other kinds of content are named. A sub-agent's report
    comes without the words around it, which are for the model."""
    report = result.get("content") if isinstance(result, Mapping) and "agentId" in result else None
    if isinstance(report, list) and report:
        content = report[-1:]
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(map(_words, blocks))


def _words(block: Any) -> str:
    # Nobody promises what these are.
    if not isinstance(block, Mapping):
        return "" if block is None else str(block)
    kind = block.get("type", "content")
    return str(block.get("text") or "") if kind == "text" else f"[{kind}]"


def change_of(result: Any) -> str:
    """The change of a file as lines with a sign each, "" where there was none."""
    hunks = result.get("structuredPatch") if isinstance(result, Mapping) else None
    lines = "\n".join(_lines(hunks)) if isinstance(hunks, list) else ""
    return lines if len(lines) <= _CHANGE else f"{lines[:_CHANGE]}\n[cut]"


def _lines(hunks: list[Any]) -> Iterator[str]:
    for hunk in hunks:
        if isinstance(hunk, Mapping) and isinstance(hunk.get("lines"), list):
            numbers = [hunk.get(n, 0) for n in ("oldStart", "oldLines", "newStart", "newLines")]
            yield "@@ -{},{} +{},{} @@".format(*numbers)
            yield from map(str, hunk["lines"])


def shallow(value: Any, levels: int = 40) -> Any:
    """The same data, what lies deeper than that left out: what writes or draws it recurses."""
    if isinstance(value, Mapping):
        return {key: shallow(v, levels - 1) for key, v in value.items()} if levels else _DEEPER
    if isinstance(value, list):
        return [shallow(v, levels - 1) for v in value] if levels else _DEEPER
    return value
