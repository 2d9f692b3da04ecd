"""The same Markdown for a front end that knows more of it: maths, HTML, images.

A saved answer is read by many. What the agent wrote stays as it is, but for a backslash before
each character that one of them could take for the beginning of maths, of HTML, of an image, or
of a link that leads elsewhere. Where such a character stands as itself is what the parser says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from turncell.views.markup import parser

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

__all__ = ["escape_markdown", "literal"]

_NOTED = "turncell: risky"  # in the parser's environment: text -> places in it
_Rule = Callable[["StateInline", bool], bool]


def literal(text: str) -> str:
    """Markdown that shows `text` as it is, on one line."""
    from markdown_it.common.utils import isMdAsciiPunct  # not at import

    return "".join(f"\\{c}" if isMdAsciiPunct(ord(c)) else c for c in text.replace("\n", " "))


def escape_markdown(text: str, *, math: bool = False) -> str:
    """The same Markdown with HTML, and `$` unless `math`, taken literally; code is left alone."""
    rows = [_Row(line) for line in text.split("\n")]
    env: dict[str, Any] = {_NOTED: {}}
    for token in _tracer(math=math).parse(text, env):
        if token.type == "fence" and token.map:
            rows[token.map[0]].swap(token.info, "".join(filter(_in_language, token.info)))
        elif token.type == "inline" and token.map:
            places = env[_NOTED].get(token.content, set())
            _escape(rows[token.map[0] : token.map[1]], token.content, places)
    return "\n".join(row.finished() for row in rows)


class _Row:
    """A source line of which the part up to `_at` is done."""

    def __init__(self, line: str) -> None:
        self._done, self._rest = "", line

    def escape(self, part: str, places: list[int]) -> None:
        """Put a backslash before these places of a part of the line."""
        # The parser's text is the line without its block marks, or a table's next cell.
        before, found, after = self._rest.partition(part)
        if found:
            self._done, self._rest = self._done + before + _with_backslashes(part, places), after
        else:
            # It stands there in other words (an escaped pipe): rather too much than too little.
            everywhere = _unescaped(self._rest)
            self._done, self._rest = self._done + _with_backslashes(self._rest, everywhere), ""

    def swap(self, part: str, other: str) -> None:
        """Put other words in the place of the last of these."""
        if part and part in self._rest:
            before, _, after = self._rest.rpartition(part)
            self._rest = before + other + after

    def finished(self) -> str:
        return self._done + self._rest


def _in_language(character: str) -> bool:
    # One front end puts the line of a fence into its page as it is.
    return character.isalnum() or character in "_+#.- "


def _escape(rows: list[_Row], content: str, places: set[int]) -> None:
    begin = 0
    for row, line in zip(rows, content.split("\n"), strict=False):
        end = begin + len(line)
        if line:
            row.escape(line, sorted(at - begin for at in places if begin <= at < end))
        begin = end + 1


def _unescaped(text: str) -> list[int]:
    """Where risky characters stand that have no backslash (or two) before them."""
    places, backslashes = [], 0
    for at, character in enumerate(text):
        if character in "$<!]" and backslashes % 2 == 0:
            places.append(at)
        backslashes = backslashes + 1 if character == "\\" else 0
    return places


def _with_backslashes(text: str, places: list[int]) -> str:
    parts, last = [], 0
    for place in places:
        parts += [text[last:place], "\\"]
        last = place
    return "".join([*parts, text[last:]])


@lru_cache(maxsize=2)
def _tracer(*, math: bool) -> MarkdownIt:
    """A parser that notes which risky characters stand for themselves."""
    from markdown_it.rules_inline.link import link

    made = parser(math=math)
    made.inline.ruler.at("link", _noting_link(link))
    # Last of all: what no other rule took is a character of the text.
    made.inline.ruler.push("risky", _note_risky)
    return made


def _note_risky(state: StateInline, silent: bool) -> bool:
    here, after = state.src[state.pos], state.src[state.pos + 1 : state.pos + 2]
    image, link = here == "!" and after == "[", here == "]" and after in ("(", ":")
    if not silent and (here in "$<" or image or (link and after)):
        _note(state, state.pos)
    return False


def _note(state: StateInline, place: int) -> None:
    state.env[_NOTED].setdefault(state.src, set()).add(place)


def _noting_link(rule: _Rule) -> _Rule:
    """The rule for links, which also notes the dollars in where they lead."""

    def noting(state: StateInline, silent: bool) -> bool:
        start = state.pos
        if not rule(state, silent):
            return False
        end, state.pos = state.pos, start
        joint = state.md.helpers.parseLinkLabel(state, start, True)
        state.pos = end
        for place in range(joint, end) if not silent else ():
            if state.src[place] == "$" and state.src[place - 1] != "\\":
                _note(state, place)
        return True

    return noting
