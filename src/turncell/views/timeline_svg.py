"""A timeline drawn: as an SVG, and as a table in words that says the same.

What a lane is called and what is said of it is made here; how it looks is the template's.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from unicodedata import east_asian_width

from turncell.timeline import Lane, Timeline
from turncell.views.cleaning import clean
from turncell.views.templating import template
from turncell.views.words import near

__all__ = ["bundle", "svg", "words"]

_COLUMNS = 80
_MOST_LANES = 12  # more tool calls than these share a lane a name
_LABEL, _STATUS = 24, 17  # columns of a lane's name and of its state
_LEFT, _RIGHT = 184, 516  # where the turn begins and ends in the picture
_MARKS = {
    **{"asked": "░", "thinking": "▒", "failed": "×", "denied": "×", "cancelled": "▒"},
    **{"interrupt": "░", "sigint": "▒", "terminate": "▓"},
}
_STEPS = (
    *(digit * 10.0**power for power in (-4, -3, -2, -1, 0) for digit in (1, 2, 5)),
    *(10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400),
)
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (0, "s"))

_Path = tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    """A lane as both show it."""

    lane: Lane
    name: str
    detail: str
    depth: int
    start: str
    took: str
    status: str


def bundle(timeline: Timeline) -> dict[str, str]:
    """The timeline for a front end: only words where there is nothing to draw."""
    drawn = {"image/svg+xml": svg(timeline)} if timeline.lanes else {}
    return {"text/plain": words(timeline), **drawn}


def words(timeline: Timeline) -> str:
    """The timeline as a table of at most 80 columns."""
    rows = _rows(timeline)
    if not rows:
        return timeline.note or f"{_title(timeline)}: {_ending(timeline)}"
    named = [(row, ("  " * row.depth + f"{row.name} {row.detail}").rstrip()) for row in rows]
    columns = zip(*((row.start, each, row.took, row.status) for row, each in named), strict=True)
    start, name, took, status = (max(map(_cells, column)) for column in columns)
    width = min(max(_COLUMNS - start - name - took - status - 8, 10), 40)
    lines = [f"{_title(timeline)}: {_ending(timeline)}"]
    for row, label in named:
        bar = _bar(row.lane, timeline.duration, width)
        label += " " * (name - _cells(label))
        lines.append(f"{row.start:>{start}}  {bar}  {label}  {row.took:>{took}}  {row.status}")
    for what, shares in _legend(rows):
        lines.append(f"{what}: " + ", ".join(f"{_mark(word)} {said}" for word, said in shares))
    return "\n".join(_cut(line.rstrip(), _COLUMNS) for line in lines)


def svg(timeline: Timeline) -> str:
    """The timeline as an SVG document, 720 wide."""
    rows = _rows(timeline)
    scale = _scale(timeline.duration, _RIGHT - _LEFT)
    said = [f"{row.name} {row.detail} from {row.start} for {row.took} {row.status}" for row in rows]
    return template("timeline.svg.jinja").render(
        id="".join(each for each in timeline.turn_id if each.isascii() and each.isalnum())[:8],
        title=_title(timeline),
        ending=_ending(timeline),
        said="; ".join(" ".join(each.split()) for each in said),
        legend=_legend(rows),
        rows=[(row, _shapes(row.lane, scale)) for row in rows],
        ticks=[(_LEFT + time * scale, label) for time, label in _ticks(timeline.duration)],
        left=_LEFT,
        right=_RIGHT,
        scale=scale,
    )


def _shapes(lane: Lane, scale: float) -> dict[str, str]:
    """The bars of a lane as a path a word; those that overlap are one."""
    bars: dict[str, list[tuple[float, float]]] = {}
    for span in lane.spans:
        left = min(_LEFT + span.start * scale, _RIGHT - 2)
        right = max(_LEFT + span.end * scale, left + 2)
        found = bars.setdefault(span.word, [])
        if found and left < found[-1][1]:
            left, right = found[-1][0], max(right, found.pop()[1])
        found.append((left, right))
    # An outline of 2 is drawn around it, which rounds the corners.
    return {
        word: "".join(f"M{a + 1:.1f} 6H{b - 1:.1f}v10H{a + 1:.1f}z" for a, b in found)
        for word, found in bars.items()
    }


def _ticks(duration: float) -> list[tuple[float, str]]:
    days = 86400 * 10.0 ** math.ceil(math.log10(max(duration / 6 / 86400, 1)))
    step = next((step for step in _STEPS if duration <= 6 * step), days)
    size, unit = next((size, unit) for size, unit in _UNITS if step >= size)
    times = [step * number for number in range(int(duration / step + 1e-9) + 1)]
    return [(time, f"{time / (size or 1):g} {unit}" if time else "0") for time in times]


def _bar(lane: Lane, duration: float, width: int) -> str:
    cells, scale = ["·"] * width, _scale(duration, width)
    # What says most is drawn last, over the rest.
    for span in sorted(lane.spans, key=lambda span: "░▒▓█×".index(_mark(span.word))):
        first = min(int(span.start * scale), width - 1)
        last = min(max(math.ceil(span.end * scale - 1e-9), first + 1), width)
        cells[first:last] = _mark(span.word) * (last - first)
    return "".join(cells)


def _scale(duration: float, width: int) -> float:
    return width / duration if duration > 1e-6 else 0.0


def _mark(word: str) -> str:
    return _MARKS.get(word, "█")


def _title(timeline: Timeline) -> str:
    return f"Turn {_plain(timeline.turn_id)[:8]} of {_cut(_plain(timeline.session), _LABEL)}"


def _ending(timeline: Timeline) -> str:
    why = f" ({timeline.reason})" if timeline.reason else ""
    joint = {"completed": "in", "running": "for"}.get(timeline.outcome, "after")
    return f"{timeline.outcome}{why} {joint} {_took(timeline.duration)}"


def _rows(timeline: Timeline) -> list[_Row]:
    tools = [lane for lane in timeline.lanes if lane.kind == "tool"]
    rows = [_row(lane) for lane in timeline.lanes if lane.kind != "tool"]
    first = sum(row.lane.kind in ("starting", "model", "retry") for row in rows)
    tools = _gathered(tools) if len(tools) > _MOST_LANES else tools
    return [*rows[:first], *map(_row, tools), *rows[first:]]


def _row(lane: Lane) -> _Row:
    depth, calls = min(len(lane.above), 3), len(lane.spans)
    count = f" ×{calls}" if lane.kind == "tool" and calls > 1 else ""
    room = _LABEL - 2 * depth
    name = _cut(_plain(lane.name), room - len(count), 0.4) + count
    room -= _cells(name) + 1
    detail = _cut(_plain(near(lane.detail)), room) if room > 4 else ""
    start, took = _took(lane.spans[0].start), _took(lane.seconds)
    return _Row(lane, name, detail, depth, start, took, _cut(_status(lane), _STATUS))


def _gathered(tools: list[Lane]) -> list[Lane]:
    """A lane for the calls of a name (below those of their parents), one for the rarest."""
    shared, order = dict[_Path, list[Lane]](), dict[_Path, int]()
    for lane in tools:
        path = (*lane.above, lane.name)
        shared.setdefault(path, []).append(lane)
        for length in range(1, len(path) + 1):
            order.setdefault(path[:length], len(order))
    paths = sorted(shared, key=lambda path: -len(shared[path]))
    most = _MOST_LANES if len(paths) <= _MOST_LANES else _MOST_LANES - 1
    rest = [lane for path in paths[most:] for lane in shared[path]]
    kept = sorted(paths[:most], key=lambda path: [order[path[: n + 1]] for n in range(len(path))])
    lanes = [_together(path[-1], shared[path], path[:-1]) for path in kept]
    return [*lanes, _together("other tools", rest)] if rest else lanes


def _together(name: str, lanes: list[Lane], above: _Path = ()) -> Lane:
    spans = sorted(span for lane in lanes for span in lane.spans)
    return Lane("tool", name, tuple(spans), lanes[0].detail if len(lanes) == 1 else "", above)


def _status(lane: Lane) -> str:
    if lane.kind in ("model", "stop"):
        return lane.spans[-1].word if lane.kind == "stop" else ""
    found = Counter(_plain(span.word) for span in lane.spans).most_common()
    if len(lane.spans) == 1:
        return found[0][0]
    said = ", ".join(f"{count} {word}" for word, count in found)
    short = f"{found[0][1]} {found[0][0]}, {len(lane.spans) - found[0][1]} not"
    return said if _cells(said) <= _STATUS else short


def _legend(rows: list[_Row]) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the bars of a kind of lane mean, with their seconds, where they are not alike."""
    legend = []
    for kind in ("model", "tool", "stop"):
        lanes, spent = [row.lane for row in rows if row.lane.kind == kind], dict[str, float]()
        for span in (span for lane in lanes for span in lane.spans):
            spent[span.word] = spent.get(span.word, 0.0) + span.end - span.start
        if spent and (kind == "model" or any(len({s.word for s in x.spans}) > 1 for x in lanes)):
            shares = [(word, f"{_plain(word)} {_took(each)}") for word, each in spent.items()]
            legend.append((kind, shares))
    return legend


def _took(seconds: float) -> str:
    if seconds < 59.5:
        return f"{seconds:.{2 if seconds < 0.995 else 1 if seconds < 9.95 else 0}f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _plain(text: str) -> str:
    """One line that can be shown anywhere: what XML does not take is not printable, either."""
    line = " ".join(clean(text[:1000]).split())
    return "".join(each for each in line if each.isprintable())


def _cells(text: str) -> int:
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def _cut(text: str, room: int, head: float = 1.0) -> str:
    """`text` in so many columns; `head` is how much of them its beginning gets."""
    if _cells(text) <= room:
        return text
    part = int(room * head)
    front, back = text[:part], text[part:] if head < 1 else ""
    while _cells(front + back) >= room:
        front, back = (front, back[1:]) if back else (front[:-1], "")
    return f"{front}…{back}"
