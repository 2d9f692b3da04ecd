"""Random Markdown in random chunks: the same text comes back, and no half of anything shows."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from screen import Script, Socket, on_screen, shell_of

from turncell import events as ev
from turncell.picture import Snapshot
from turncell.views.cleaning import Cleaner, boundary, clean
from turncell.views.notebook import NotebookView
from turncell.views.saved import plain_text

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAGS = "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7"
THUMB = "\U0001f44d\U0001f3fd"
HEART = "\u2764\ufe0f"
FRAGMENTS = st.one_of(
    st.sampled_from([
        "# Heading\n\n", "- item\n", "  - inner\n", "1. one\n", "> quote\n", "\n\n", "\n", "   ",
        "```_\nx = 1  # $5\n", "```\n", "~~~\n", "| a | b |\n|---|---|\n", "| 1 | 2 |\n",
        "**strong", "**", "`code", "`", "$$\nx^2\n$$\n\n", "cost $5 and $6 ", "$", "[link](http://a)",
        "![image](http://b/c.png)", "<script>x</script>", "<b>", "&amp;", "\\$", "\\", "---\n",
        "\x1b[31mred\x1b[0m", "\x1b]8;;http://a\x07", "\u202eevil\u202c", "\r\n", "a\rb", "\x00",
        FAMILY, FLAGS, THUMB, HEART, "e\u0301", "\u0e01\u0e47", "\U0001f600",
    ]),
    st.text(max_size=40),
    st.text("abc def. ", min_size=1, max_size=400),
)  # fmt: skip
TEXTS = st.lists(FRAGMENTS, max_size=25).map("".join)


def chunks(text: str, seed: int) -> Iterator[str]:
    dice, at = random.Random(seed), 0
    while at < len(text):
        size = dice.choice([1, 2, 3, 10, 50, 400, 5000])
        yield text[at : at + size]
        at += size


def streamed(text: str, seed: int, *, settles: bool = True) -> Iterator[Snapshot]:
    script = Script()
    for piece in chunks(text, seed):
        yield script.fold(ev.TextDelta(text=piece, block="b"))
    if settles:
        yield script.fold(ev.TextSettled(text=text, block="b"))
    yield script.end()


def readable(text: str) -> str:
    """What a front end can carry of a text: no lone surrogates (and none of our escapes)."""
    return clean(text)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(0, 1000), st.booleans())
@example(FAMILY * 5 + FLAGS * 3 + THUMB, 3, True)
@example("```\n" + "x" * 20_000, 1, False)
def test_the_same_text_comes_back(text: str, seed: int, settles: bool) -> None:
    socket = Socket()
    view = NotebookView(shell_of(socket), None, live=True)
    view.open()
    for picture in streamed(text, seed, settles=settles):
        view.show(picture)
        if picture.phase != "ended":
            assert words(text).startswith(words(live_text(socket)))
    (bundle,) = on_screen(socket.messages)
    assert picture.text == text
    assert bundle["text/plain"] == plain_text(picture)
    assert bundle["text/plain"].startswith(readable(text))


def words(text: str) -> str:
    """A text without the marks that close, for display, what is still open."""
    return re.sub(r"[`~*_\s]", "", readable(text))


def live_text(socket: Socket) -> str:
    """The text of the moving picture; a later tail has no plain form before it is a block."""
    _status, *blocks = on_screen(socket.messages)
    return "".join(block.get("text/plain", "") for block in blocks)


@pytest.mark.parametrize("text", [FAMILY, FLAGS, THUMB, HEART, f"a {FAMILY}{THUMB} b {FLAGS}"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_an_emoji_is_never_shown_in_halves(text: str, size: int) -> None:
    whole = regex.findall(r"\X", text)
    cleaner, shown = Cleaner(), ""
    for at in range(0, len(text), size):
        shown += cleaner.feed(text[at : at + size])
        assert regex.findall(r"\X", shown) == whole[: len(regex.findall(r"\X", shown))]
    assert shown + cleaner.feed("", last=True) == text


def test_a_surrogate_pair_that_comes_in_halves() -> None:
    cleaner = Cleaner()
    assert cleaner.feed("a \ud83d") == "a "
    assert cleaner.feed("\ude00") + cleaner.feed(" b", last=True) == "\U0001f600 b"


def test_a_cut_tears_no_character() -> None:
    text = FAMILY * 10
    for at in range(1, len(text)):
        assert boundary(text, at) % len(FAMILY) == 0


@pytest.mark.parametrize("length", [300_001, 2_100_000])
def test_a_very_long_text_folds_its_beginning(length: int) -> None:
    """The page is given little to lay out, the saved cell has every word as plain text."""
    text = ("Some words of prose, and more. " * (length // 31 + 1))[:length]
    socket = Socket()
    view = NotebookView(shell_of(socket), None, live=True)
    view.open()
    script = Script()
    for at in range(0, len(text), 50_000):
        view.show(script.fold(ev.TextDelta(text=text[at : at + 50_000], block="b")))
    live = on_screen(socket.messages)
    open_text = [b["text/plain"] for b in live if "<details" not in b.get("text/html", "")]
    assert sum(map(len, open_text)) < 450_000
    assert len(live) <= 41  # a front end shows no more than 50
    view.show(script.end())
    (bundle,) = on_screen(socket.messages)
    assert bundle["text/plain"].startswith(text)
    assert MarkdownIt().parse(bundle["text/markdown"])
    assert len(bundle["text/markdown"]) < 120_000
    whole = length < 2_000_000
    assert (len(bundle["text/html"]) > length) == whole
    said = "earlier: " if whole else "before this are in the result"
    assert said in bundle["text/html"]
