"""Splits growing Markdown into blocks that are done and a tail that still grows.

A block ends where Markdown ends one, so no fence, table, list item or formula is torn; the
parser's own tokens say where that is. A long paragraph is cut at the end of a sentence, a
long list between items, anything else only when it is longer than `LIMIT`. Only the tail is
ever parsed, so the cost of a whole answer is linear in its length.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from turncell.views.cleaning import boundary

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["LIMIT", "PLAIN_AFTER", "SIZE", "Splitter", "presentable"]

SIZE = 2700  # characters after which a block is due; 100,000 are less than 40 of them
LIMIT = 16_384  # characters after which it is cut wherever it is
PLAIN_AFTER = 300_000  # characters after which a text is cut at line ends, unparsed

_SENTENCE = re.compile(r"[.!?:;]\s+|\n")
_SPACE = re.compile(r"\s+")
_TRIES = 6  # places that are tried for a cut inside a paragraph
_MARKERS = frozenset("-=*_#`~|+> ")


class _Cut(NamedTuple):
    at: int  # 0: no cut
    close: str = ""  # what closes an open fence at the end of the block
    reopen: str = ""  # and opens it again before the rest


class _Block(NamedTuple):
    kind: str
    start: int
    token: Token


class Splitter:
    """Takes clean text piece by piece, gives back blocks; `tail` is what is left."""

    def __init__(self, size: int = SIZE, limit: int = LIMIT) -> None:
        self.tail = ""
        self.total = 0
        self._size, self._limit = size, limit
        self._next_try = 0

    def hold(self, piece: str) -> None:
        """Take text in without giving any block back."""
        self.tail += piece
        self.total += len(piece)

    def feed(self, piece: str) -> list[str]:
        """Take text in and return the blocks that are done now."""
        self.hold(piece)
        if len(self.tail) <= max(self._size, self._next_try):
            return []
        blocks: list[str] = []
        at, opening = 0, ""
        while len(self.tail) - at > self._size:
            cut, text = self._first_cut(opening, at)
            if not cut.at:
                break
            blocks.append(text[: cut.at] + cut.close)
            at, opening = at + cut.at - len(opening), cut.reopen
        self.tail = opening + self.tail[at:]
        # What could not be cut is not looked at again before it has grown by a quarter.
        self._next_try = len(self.tail) * 5 // 4
        return blocks

    def _first_cut(self, opening: str, at: int) -> tuple[_Cut, str]:
        if self.total > PLAIN_AFTER:
            # Ever larger pieces, so that their number stays small.
            size = max(4 * self._size, self.total // 32)
            return _line_cut(self.tail[at : at + 2 * size], size), self.tail[at : at + 2 * size]
        cut, text = _Cut(0), ""
        for reach in (4 * self._size, 2 * self._limit):
            text = opening + self.tail[at : at + reach]
            cut = _find_cut(text, self._size, self._limit)
            if cut.at or at + reach >= len(self.tail):
                break
        return cut, text


@lru_cache(maxsize=2)
def _parser(*, inline: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt  # not at import: loading the extension must be fast

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    if not inline:
        parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _offsets(text: str) -> list[int]:
    ends = [m.end() for m in re.finditer("\n", text)]
    return [0, *ends]


def _at_level(text: str, tokens: list[Token], level: int) -> list[_Block]:
    offsets = _offsets(text)
    opening = (t for t in tokens if t.level == level and t.nesting >= 0 and t.map)
    return [_Block(t.type, offsets[t.map[0]], t) for t in opening if t.map]


def _find_cut(text: str, size: int, limit: int) -> _Cut:
    tokens = _parser(inline=False).parse(text)
    blocks = _at_level(text, tokens, 0)
    last_line = text.rfind("\n") + 1  # it still grows: what it begins is not certain
    starts = [s for s in _outside_formula(text, blocks) if s < last_line]
    if starts:
        return _Cut(next((s for s in starts if s >= size), starts[-1]))
    at = 0
    if len(blocks) == 1:
        at = _inner_cut(text, blocks[0].kind, tokens, size, last_line)
    return _Cut(at) if at or len(text) <= limit else _hard_cut(text, blocks, limit)


def _outside_formula(text: str, blocks: list[_Block]) -> list[int]:
    """Where blocks begin (but the first), leaving out what a `$$` pair encloses."""
    starts, inside = [], False
    for block, after in pairwise(blocks):
        if block.kind not in ("fence", "code_block"):
            inside ^= text.count("$$", block.start, after.start) % 2 == 1
        if not inside:
            starts.append(after.start)
    return starts


def _inner_cut(text: str, kind: str, tokens: list[Token], size: int, last_line: int) -> int:
    if kind == "paragraph_open" and "$$" not in text:
        return _sentence_cut(text, size)
    if kind.endswith("list_open") and len(text) > 3 * size // 2:
        items = [b.start for b in _at_level(text, tokens, 1) if 0 < b.start < last_line]
        return next((s for s in items if s >= size), 0)
    return 0


def _sentence_cut(text: str, size: int) -> int:
    """A place in a paragraph where both halves read as they did together, or 0."""
    places = [m.end() for m in _SENTENCE.finditer(text, size // 2, size * 5 // 4)][-_TRIES:]
    if len(text) > 2 * size:
        places = [m.end() for m in _SPACE.finditer(text, size, size * 5 // 4)][-_TRIES:] + places
    whole = _shape(_parser(inline=True).parse(text))
    return next((at for at in reversed(places) if _parts_well(text, at, whole)), 0)


def _parts_well(text: str, at: int, whole: list[str]) -> bool:
    if not re.match(r"\S+\s+\S", text[at:]):
        return False  # what the right half begins with is not certain yet
    halves = [_parser(inline=True).parse(half) for half in (text[:at], text[at:])]
    left, right = map(_shape, halves)
    alike = left[0] == right[0] == whole[0] and left + right[1:] == whole
    return alike and not _open_mark(halves[0])


def _shape(tokens: list[Token]) -> list[str]:
    """What a text is made of, words left out: its blocks, then its inline marks."""
    marks = [c for t in tokens for c in t.children or [] if c.type not in ("text", "softbreak")]
    return [" ".join(t.type for t in tokens), *(f"{c.type} {c.markup}" for c in marks)]


def _line_cut(text: str, size: int) -> _Cut:
    if len(text) <= size:
        return _Cut(0)
    newline, space = text.rfind("\n", 0, size), text.rfind(" ", 0, size)
    at = newline if newline > size // 2 else space
    return _Cut(at + 1 if at > size // 2 else boundary(text, size))


def _hard_cut(text: str, blocks: list[_Block], limit: int) -> _Cut:
    at = _line_cut(text, limit).at
    fence = next((b.token for b in reversed(blocks) if b.start < at), None)
    if fence is None or fence.type != "fence":
        return _Cut(at)
    newline = "" if text[at - 1] == "\n" else "\n"
    return _Cut(at, f"{newline}{fence.markup}\n", f"{fence.markup}{fence.info[:40]}\n")


def presentable(tail: str) -> str:
    """The tail as it is shown: half-open marks closed."""
    head, newline, line = tail.rpartition("\n")
    # A line of marks may become a rule, a fence, a heading: which one, the next words tell.
    text = head + newline if line and set(line) <= _MARKERS else tail
    return text + _closing(text)


def _closing(text: str) -> str:
    """What closes the fence, code span or strong text that the tail leaves open."""
    if not any(mark in text for mark in ("`", "~~~", "**")):
        return ""
    tokens = _parser(inline=True).parse(text)
    if tokens and tokens[-1].type == "fence":
        markup, lines = tokens[-1].markup, text.rstrip("\n").split("\n")
        return "" if len(lines) > 1 and lines[-1].strip() == markup else f"\n{markup}"
    return "" if text.endswith(("*", "`", " ", "\n")) else _open_mark(tokens)


def _open_mark(tokens: list[Token]) -> str:
    """The mark of code or strong text that the last paragraph leaves open."""
    inline = [t for t in tokens if t.type == "inline"]
    children = (inline[-1].children if inline else None) or []
    words = "".join(c.content for c in children if c.type == "text")
    return next((mark for mark in ("`", "**") if words.count(mark) % 2), "")
