"""Rows: a list for a program, a table for a person, and nothing that acts."""

from __future__ import annotations

from turncell.rows import Rows


def test_a_table_and_a_list() -> None:
    rows = Rows([{"name": "main", "turns": 3, "id": None}, {"name": "x", "turns": 10, "id": "b"}])
    assert repr(rows).splitlines() == ["name  turns  id", "main  3", "x     10     b"]
    assert rows[1]["turns"] == 10
    assert "<td" in (rows._repr_html_() or "")


def test_none() -> None:
    assert repr(Rows()) == "(none)"
    assert Rows()._repr_html_() is None


def test_of_very_many_the_first_are_printed() -> None:
    rows = Rows({"n": number} for number in range(1000))
    assert len(repr(rows).splitlines()) == 42
    assert repr(rows).endswith("and 960 more: they are in this list")
    assert "960 more" in (rows._repr_html_() or "")


def test_what_a_prompt_says_is_text() -> None:
    rows = Rows([{"begins": "<script>alert(1)</script>\x1b[31mred\u202e"}])
    assert "<script>" not in (rows._repr_html_() or "")
    assert "\x1b" not in repr(rows)
    assert "\u202e" not in repr(rows)
