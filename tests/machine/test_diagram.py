"""The page about the ladder shows the ladder that the code runs on."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from turncell.ladder import TABLE, Act, StopState

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def diagrams() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_diagrams", DOCS / "make_diagrams.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page() -> str:
    return (DOCS / "stopping.md").read_text("utf-8")


def test_the_page_is_fresh(diagrams: ModuleType) -> None:
    assert page() == diagrams.rendered(page()), "run: python docs/make_diagrams.py"


def test_a_stale_page_is_noticed_and_the_prose_is_kept(diagrams: ModuleType) -> None:
    stale = page().replace("ask --> grace : ack", "ask --> ended : ack")
    assert stale != page()
    assert diagrams.rendered(stale) == page()
    assert diagrams.rendered(f"before {diagrams.BEGIN} old {diagrams.END} after").endswith(" after")


def test_every_state_is_drawn(diagrams: ModuleType) -> None:
    drawing = diagrams.diagram()
    assert all(f" {state.value} " in drawing for state in StopState)


def test_every_move_to_another_state_is_drawn(diagrams: ModuleType) -> None:
    drawn = {(source, stimulus, target) for source, target, stimulus, _ in diagrams.moves()}
    moves = {
        (state, stimulus, target)
        for state, row in TABLE.items()
        for stimulus, target in row.items()
        if isinstance(target, StopState) and target is not state
    }
    assert moves <= drawn


def test_every_act_has_words(diagrams: ModuleType) -> None:
    assert set(diagrams.WORDS) == set(Act)
