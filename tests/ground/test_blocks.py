"""Growing Markdown in blocks: nothing torn, nothing lost, linear in the length."""

from __future__ import annotations

import random
import time

import pytest
from markdown_it import MarkdownIt

from turncell.views.blocks import LIMIT, SIZE, Splitter, presentable

FENCE = "```python\n" + "x = 1  # $5\n" * 60 + "```\n\n"
TABLE = "| a | b |\n|---|---|\n" + "| one | two |\n" * 40 + "\n"
LIST = "".join(f"- item {i} with some words\n  and a second line\n" for i in range(20)) + "\n"
NUMBERED = "".join(f"{i}. step {i}\n\n   its paragraph\n\n" for i in range(1, 20))
FORMULA = "$$\n" + "x = y \\\\\n" * 30 + "\n" + "z = 1\n" * 30 + "$$\n\n"
QUOTE = "> quoted words\n> and more of them\n\n" * 3
PROSE = "Some words with **strong ones** and `code`. " * 8 + "\n\n"
PIECES = [FENCE, TABLE, LIST, NUMBERED, FORMULA, QUOTE, PROSE, "# Heading\n\n"]


def fed(text: str, step: int) -> tuple[list[str], str]:
    splitter = Splitter()
    blocks = [b for at in range(0, len(text), step) for b in splitter.feed(text[at : at + step])]
    return blocks, splitter.tail


def html(text: str) -> str:
    return MarkdownIt("commonmark", {"html": False}).enable("table").render(text)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("step", [1, 7, 100, 100_000])
def test_blocks_render_as_the_whole_does(seed: int, step: int) -> None:
    text = "".join(random.Random(seed).choices(PIECES, k=12))
    # Prose between, since two lists in a row are one list to a parser.
    text = "".join(part + PROSE for part in text.split(PROSE))
    blocks, tail = fed(text, step)
    assert "".join(blocks) + tail == text
    assert "".join(map(html, [*blocks, tail])) == html(text)
    assert len(blocks) > len(text) // (4 * SIZE)


@pytest.mark.parametrize("piece", [FENCE, TABLE, LIST, FORMULA])
@pytest.mark.parametrize("step", [1, 50])
def test_a_piece_is_never_torn(piece: str, step: int) -> None:
    blocks, tail = fed((piece + PROSE) * 6, step)
    assert all(block.count("```") % 2 == 0 for block in [*blocks, tail])
    assert all(block.count("$$") % 2 == 0 for block in [*blocks, tail])
    whole = [block.count(piece) for block in [*blocks, tail]]
    assert sum(whole) == 6


def test_blocks_are_about_two_thousand_characters() -> None:
    blocks, tail = fed(PROSE * 60, 20)
    assert all(SIZE // 2 < len(block) < 2 * SIZE for block in blocks)
    assert len(tail) < 2 * SIZE


def test_one_endless_paragraph_is_cut_between_words() -> None:
    text = "".join(f"w{i} " for i in range(4000))
    blocks, tail = fed(text, 4)
    assert "".join(blocks) + tail == text
    assert all(len(block) < 3 * SIZE and block.endswith(" ") for block in blocks)
    assert len(tail) < 3 * SIZE


def test_a_paragraph_is_cut_after_a_sentence_and_outside_its_marks() -> None:
    text = "A sentence here. **Strong words. And more. Of them.** `a. b. c` " * 100
    blocks, _ = fed(text, 30)
    assert blocks
    for block in blocks:
        assert block.count("**") % 2 == 0
        assert block.count("`") % 2 == 0
        assert block.rstrip()[-1] in ".*`"


def test_a_cut_never_makes_a_heading_or_a_list_of_prose() -> None:
    blocks, tail = fed("See this. # no heading. - no item. 2. no number. " * 200, 10)
    assert len(blocks) > 2
    assert all(html(block).startswith("<p>") for block in [*blocks, tail])


def test_a_long_list_is_cut_between_its_items() -> None:
    blocks, tail = fed("".join(f"- item {i}\n  second line\n" for i in range(1000)), 25)
    assert len(blocks) > 3
    assert all(block.startswith("- ") for block in [*blocks, tail])


def test_an_endless_fence_is_cut_at_the_limit_and_stays_code() -> None:
    text = "```python\n" + "".join(f"line {i}\n" for i in range(6000)) + "```\n\nend"
    blocks, tail = fed(text, 40)
    assert len(blocks) >= 3
    assert all(len(block) <= LIMIT + 20 for block in blocks)
    for block in [*blocks, tail]:
        assert html(block).startswith('<pre><code class="language-python">')
    lines = [line for b in [*blocks, tail] for line in b.split("\n") if line.startswith("line ")]
    assert lines == [f"line {i}" for i in range(6000)]


def test_one_endless_word_is_cut_at_the_limit() -> None:
    blocks, tail = fed("x" * 100_000, 1000)
    assert "".join(blocks) + tail == "x" * 100_000
    assert max(map(len, blocks)) <= LIMIT


@pytest.mark.parametrize("text", [PROSE, FENCE + PROSE, "w " * 100, LIST, "x" * 300])
def test_the_cost_is_linear(text: str) -> None:
    def cost(times: int) -> float:
        begin = time.process_time()
        fed(text * times, 20)
        return time.process_time() - begin

    unit = 40_000 // len(text)
    cost(unit)
    small = min(cost(unit) for _ in range(3))
    assert cost(unit * 8) < 8 * small * 2.5 + 0.05


def test_ten_megabytes_at_once() -> None:
    text = "Some words, a line.\n" * 500_000
    begin = time.process_time()
    blocks, tail = fed(text, len(text))
    assert "".join(blocks) + tail == text
    assert len(blocks) < 1000
    assert time.process_time() - begin < 3


def test_held_text_stays_in_the_tail() -> None:
    splitter = Splitter()
    splitter.feed("begin ")
    splitter.hold(PROSE * 20)
    assert splitter.tail == "begin " + PROSE * 20


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        ("```python\nx = 1", "```python\nx = 1\n```"),
        ("```\nx\n```\n", "```\nx\n```\n"),
        ("~~~\nx", "~~~\nx\n~~~"),
        ("some **strong", "some **strong**"),
        ("some `code", "some `code`"),
        ("done **strong** and `code`", "done **strong** and `code`"),
        ("a heading\n--", "a heading\n"),
        ("words\n``", "words\n"),
        ("", ""),
    ],
)
def test_the_tail_is_shown_closed(tail: str, shown: str) -> None:
    assert presentable(tail) == shown
