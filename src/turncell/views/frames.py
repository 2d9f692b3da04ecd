"""The HTML a turn is made of, from `templates/turn.html.jinja`: text, cards, lines.

What steps did is folded: their line tells whether there is a need to look. A card shows the
first (for a command the last) 2,000 characters, the rest is one click away as long as the
whole turn stays small enough to be saved with a notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from turncell.outcome import ToolCall
from turncell.picture import Segment
from turncell.plain import visible
from turncell.questions import Choice, Question
from turncell.views.cards import Block, asked_for, blocks, cut_note
from turncell.views.cleaning import clean
from turncell.views.markup import LIVE_STYLE, to_html
from turncell.views.templating import template
from turncell.views.words import question_call, question_line, tool_line

__all__ = [
    "LIVE", "Room", "card", "choice", "closing_line", "earlier", "flat", "frame", "group", "line",
    "notice_line", "permission", "plain_html", "segments_html", "status", "step", "style",
    "text_html", "thinking_line", "todo_list", "within",
]  # fmt: skip

# Templates have no types: `Any` marks that border.

THINKING_SHOWN = 20_000
_UNFOLDED = 5  # steps in a row that are shown one by one
_TROUBLE = {"failed": "error", "denied": "warning", "cancelled": "warning"}


def _html() -> Any:
    return template("turn.html.jinja").module


def _safe(html: str) -> Any:
    from markupsafe import Markup

    return Markup(html)


class Room:
    """How many characters a turn may still fold away for those who want to see all."""

    def __init__(self, characters: int) -> None:
        self.left = characters

    def take(self, characters: int) -> bool:
        """Whether so many are there; they are used up then."""
        fits = characters <= self.left
        self.left -= characters if fits else 0
        return fits


LIVE = Room(0)  #: what is drawn again and again shows only the beginnings


def frame(html: str, role: str = "", *, math: bool = False) -> str:
    """Put HTML in the frame every output of a turn has; with `math` one that the front end
    looks for maths in."""
    return str(_html().frame(_safe(html), role, math))


def line(text: str, style: str = "dim", *, wrap: bool = False) -> str:
    """One line of plain words. `style` is dim, info, warning, error or alarm."""
    return str(_html().line(text, style, wrap))


def status(text: str) -> str:
    """The status of a turn under way; its state stands out."""
    state, dot, rest = text.partition(" · ")
    return str(_html().status(state, dot + rest))


def closing_line(text: str) -> str:
    """The facts of a finished turn; how it ended stands out."""
    outcome, dot, rest = text.partition(" · ")
    return str(_html().closing(outcome, dot + rest))


def text_html(text: str, *, math: bool = False, live: bool = False) -> str:
    """Assistant text (clean) as HTML; `live` text needs the `style` beside it."""
    return to_html(text, math=math, live=live)


def style() -> str:
    """The style sheet of live text."""
    return f"<style>{LIVE_STYLE}</style>"


def plain_html(text: str) -> str:
    """Text (clean) as it is written, without a look at its Markdown."""
    return str(_html().plain(text))


def earlier(html: str, summary: str) -> str:
    """What is folded, for there is so much of it."""
    return str(_html().folded("", summary, _safe(html)))


def notice_line(notice: Segment) -> str:
    """The words of a notice; its level is said, not only coloured."""
    text = clean(notice.text)
    return text if notice.level == "info" else f"{notice.level}: {text}"


def thinking_line(thinking: Segment, *, over: bool) -> str:
    """Thinking is counted; what was thought is folded."""
    return f"{'thought' if over else 'thinking…'} {len(thinking.text):,} characters"


def permission(question: Question) -> str:
    """What a tool wants to do, for the person who may allow it."""
    call, scope = question_call(question), visible(question.scope)
    said = "".join(map(block_html, asked_for(question)))
    return frame(str(_html().permission(call, _safe(said), scope)), "group")


def choice(asked: Choice, number: int, count: int) -> str:
    """One of the agent's own questions, with all that it says about its answers."""
    described = [(clean(o.label), clean(o.description)) for o in asked.options]
    which = f"{number} of {count}: " if count > 1 else ""
    html = _html().choice(which + clean(asked.text), described, asked.several)
    return frame(str(html), "group")


def segments_html(segments: Iterable[Segment], room: Room = LIVE, *, math: bool = False) -> str:
    """A turn in its own order: text in full, steps between folded. With `math` only the text
    may hold any."""
    parts = []
    for kind, run in groupby(segments, key=_family):
        if kind == "text":
            parts += [text_html(clean(s.text), math=math) for s in run]
        else:
            html = _FAMILIES[kind](list(run), room)
            parts.append(frame(html) if math else html)
    return "".join(parts)


def _family(segment: Segment) -> str:
    return segment.kind if segment.kind in ("text", "notice", "todos") else "step"


def _notices(run: list[Segment], room: Room) -> str:
    return "".join(line(notice_line(s), s.level) for s in run)


def _steps(run: list[Segment], room: Room) -> str:
    mine = {s.tool.tool_id for s in run if s.tool is not None}
    heads = [s for s in run if not (s.tool is not None and s.tool.parent in mine)]
    cards = "".join(step(s, run, room) for s in heads)
    return cards if len(heads) <= _UNFOLDED else group(run, cards)


def _todos(run: list[Segment], room: Room) -> str:
    return "".join(todo_list(s.text) for s in run)


_FAMILIES = {"notice": _notices, "step": _steps, "todos": _todos}


def group(run: Sequence[Segment], cards: str) -> str:
    """The cards of many steps, folded under one line."""
    return str(_html().folded("", _count(run), _safe(cards)))


def step(segment: Segment, run: Sequence[Segment] = (), room: Room = LIVE) -> str:
    """One step; the calls of a sub-agent (in `run`) stand in the card of the call that it is."""
    if segment.tool is not None:
        tool_id = segment.tool.tool_id
        inner = [s for s in run if s.tool is not None and s.tool.parent == tool_id]
        below = "".join(step(s, run, room) for s in inner)
        return card(segment.tool, within(below) if below else "", room)
    if segment.question is not None:
        return flat(question_line(segment.question))
    text = clean(segment.text)
    shown = Block("output", text[:THINKING_SHOWN], max(0, len(text) - THINKING_SHOWN))
    return str(_html().folded("", thinking_line(segment, over=True), _safe(block_html(shown))))


def flat(text: str, style: str = "dim") -> str:
    """A step in one line, with nothing to fold."""
    return str(_html().flat("", text, style))


def todo_list(text: str) -> str:
    """The agent's own list of what it has to do."""
    return str(_html().todos(clean(text).split("\n"))) if text else ""


def card(tool: ToolCall, below: str = "", room: Room = LIVE, *, said: str = "") -> str:
    """A tool call: its line, and folded what it was given and what came of it. `below` is the
    HTML of what it did; `said` is its line, where that is another than of a call that is over."""
    words, style = said or tool_line(tool), _TROUBLE.get(tool.status or "", "dim")
    name = clean(tool.name)
    shown = blocks(tool)
    came = [block_html(block) for block in shown if block.kind == "output"]
    asked = [block_html(block) for block in shown if block.kind != "output"]
    own, all_of_it = sum(map(len, [*asked, *came])), _all_of_it(tool, room)
    body = "".join([*asked, below, *came, all_of_it])
    rest = words[len(name) :]
    if not body or not (room is LIVE or room.take(own)):
        return str(_html().flat(name, rest, style))
    # The last lines of what still runs are what a person waits for.
    watched = tool.status is None and bool(tool.output)
    return str(_html().folded(name, rest, _safe(body), style, watched))


def within(html: str) -> str:
    """What a sub-agent did, set in."""
    return str(_html().within(_safe(html)))


def _all_of_it(tool: ToolCall, room: Room) -> str:
    """The whole output of a call whose card shows a part of it."""
    output = clean(tool.output)
    if not any(block.left and block.kind == "output" for block in blocks(tool)):
        return ""
    if not room.take(len(output)):
        return line("the whole output is in the result's tools")
    return str(_html().folded("", "the whole output", _safe(_html().box(output))))


def block_html(block: Block) -> str:
    """One part of a card."""
    note = cut_note(block)
    if block.kind == "diff":
        lines = [(text[:1], text + "\n") for text in block.text.split("\n")]
        lines += [(" ", note)] * bool(block.left)
        return str(_html().change(lines))
    if not block.left:
        return str(_html().box(block.text))
    pair = (note, block.text) if block.tail else (block.text, note)
    return str(_html().box("\n".join(pair)))


def _count(run: Sequence[Segment]) -> str:
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
