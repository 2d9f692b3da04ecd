"""What the card of a tool call says: its line, what it was given, what came of it.

Pure words and their kinds; `frames` makes HTML of them. What is cut says how much is left.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from turncell.outcome import ToolCall
from turncell.picture import Todo
from turncell.plain import revealed
from turncell.questions import Choice, Question, choices_in
from turncell.views.cleaning import boundary, clean

__all__ = [
    "INPUT_SHOWN",
    "OUTPUT_SHOWN",
    "Block",
    "asked_for",
    "blocks",
    "cut_note",
    "diff",
    "given",
    "todos_in",
]

OUTPUT_SHOWN = 2000  # characters; the rest is folded, or in the result's tools
INPUT_SHOWN = 2000
_ASKED = 50_000  # characters that are shown of what a permission is asked for
#: The inputs of a tool that its card tells whole; what else there is stands below as values.
_TOLD = {
    "Bash": ("command",), "Edit": ("old_string", "new_string"), "Write": ("content",),
    "TodoWrite": ("todos",), "AskUserQuestion": ("questions",),
}  # fmt: skip
_DIFFED = 200_000  # characters; telling two longer texts apart takes too long
_FROM_ITS_END = frozenset({"Bash", "BashOutput", "Monitor"})  # whose last lines say most


class Block(NamedTuple):
    """One part of a card. `kind` is command, input, diff, todo, question or output; `text` is
    clean and has `left` more characters (before it when `tail`, else after it)."""

    kind: str
    text: str
    left: int = 0
    tail: bool = False


def blocks(tool: ToolCall, limit: int = OUTPUT_SHOWN) -> list[Block]:
    """What a card shows when it is opened; each text at most so many characters."""
    shown = given(tool.name, tool.input, min(limit, INPUT_SHOWN))
    if tool.change:
        shown = [_cut("diff", clean(tool.change), limit)]
    output = clean(tool.output).strip("\n")
    if output and not (tool.change and tool.status == "done"):  # the change says it better
        shown.append(_cut("output", output, limit, tail=tool.name in _FROM_ITS_END))
    return shown


def given(name: str, tool_input: Mapping[str, Any], limit: int = INPUT_SHOWN) -> list[Block]:
    """What a tool was given: a command, the change of a file, or its values."""
    told = _told(name, tool_input)
    if told is not None:
        return [_cut(told[0], told[1], limit)]
    if len(tool_input) == 1 and isinstance(only := next(iter(tool_input.values())), str):
        return [_cut("input", clean(only), limit)]
    return [_cut("input", _values(tool_input, limit), limit)] if tool_input else []


def asked_for(question: Question) -> list[Block]:
    """Everything that a permission is about; nobody may allow what could not be seen."""
    seen = revealed(question.input)
    said = {key: seen[key] for key in _TOLD.get(question.tool, ()) if key in seen}
    told = _told(question.tool, said)
    shown = [_cut(told[0], told[1], _ASKED)] if told is not None else []
    rest = {key: value for key, value in seen.items() if told is None or key not in said}
    return shown + ([_cut("input", _values(rest, _ASKED), _ASKED)] if rest else [])


def _told(name: str, tool_input: Mapping[str, Any]) -> tuple[str, str] | None:
    """The kind and the words of an input that can be told better than by its values."""
    if entries := todos_in(tool_input):
        return "todo", clean("\n".join(map(str, entries)))
    if asked := choices_in(name, tool_input):
        return "question", clean("\n".join(map(_offer, asked)))
    if changes := list(_changes(name, tool_input)):
        return "diff", "\n".join(changes)
    command = tool_input.get("command")
    return ("command", clean(command)) if isinstance(command, str) else None


def _values(tool_input: Mapping[str, Any], limit: int) -> str:
    # Only the head is looked at: a value can hold a whole file.
    short = {key: _short(value, limit) for key, value in tool_input.items()}
    return clean(json.dumps(short, ensure_ascii=False, indent=1, default=str))


def _short(value: Any, limit: int) -> Any:
    if isinstance(value, str) and len(value) > limit:
        return f"{value[:limit]}… [{len(value) - limit:,} more characters]"
    return value


def cut_note(block: Block) -> str:
    """That a block is not all, "" where it is."""
    where = "characters before" if block.tail else "more characters"
    return f"[{block.left:,} {where}]" if block.left else ""


def _cut(kind: str, text: str, limit: int, *, tail: bool = False) -> Block:
    left = len(text) - limit
    if left <= 0:
        return Block(kind, text)
    at = boundary(text, left if tail else limit)
    return Block(kind, text[at:] if tail else text[:at], at if tail else len(text) - at, tail)


def _changes(name: str, tool_input: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a change, each with its sign."""
    old, new = tool_input.get("old_string"), tool_input.get("new_string")
    if isinstance(old, str) and isinstance(new, str):
        yield from diff(old, new)
    edits = tool_input.get("edits")
    for edit in edits if isinstance(edits, list) else ():
        if isinstance(edit, dict):
            yield from diff(str(edit.get("old_string", "")), str(edit.get("new_string", "")))
    if name == "Write" and isinstance(content := tool_input.get("content"), str):
        yield from diff("", content)


def diff(old: str, new: str) -> list[str]:
    """The lines that were taken out, put in and left, with -, + or a blank before each."""
    before, after = clean(old).splitlines(), clean(new).splitlines()
    if not old or len(old) + len(new) > _DIFFED:
        return [f"-{line}" for line in before] + [f"+{line}" for line in after]
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))
    # The names of files that stand before the first place are ours to say.
    return lines[2:]


def todos_in(tool_input: Mapping[str, Any]) -> list[Todo]:
    """The entries of the agent's own list in the input of its tool, if that is one."""
    entries = tool_input.get("todos")
    return [
        Todo(str(each["content"]), str(each.get("status", "pending")))
        for each in (entries if isinstance(entries, (list, tuple)) else ())
        if isinstance(each, Mapping) and each.get("content")
    ]


def _offer(choice: Choice) -> str:
    return "\n".join([choice.text, *(f"  - {option.label}" for option in choice.options)])
