"""Rows for a program that print as a table for a person."""

from __future__ import annotations

from html import escape
from typing import Any

from turncell.views.cleaning import clean

__all__ = ["Rows"]

#: Rows that are printed; the others are there for a program.
_PRINTED = 40


class Rows(list[dict[str, Any]]):
    """Rows for a program that print as a table for a person."""

    def __repr__(self) -> str:
        if not self:
            return "(none)"
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
        return "\n".join([*(line.rstrip() for line in lines), *self._more()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str | None:
        if not self:
            return None
        head, *body = self._cells()
        rows = [_row("th", head), *(_row("td", row) for row in body)]
        return f"<table>{''.join(rows)}</table>{''.join(map(escape, self._more()))}"

    def _cells(self) -> list[list[str]]:
        names = list(self[0])
        return [names, *([_cell(row[name]) for name in names] for row in self[:_PRINTED])]

    def _more(self) -> list[str]:
        more = len(self) - _PRINTED
        return [f"and {more:,} more: they are in this list"] if more > 0 else []


def _row(tag: str, cells: list[str]) -> str:
    style = ' style="text-align: left"'
    return f"<tr>{''.join(f'<{tag}{style}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _cell(value: Any) -> str:
    return "" if value is None else clean(str(value))
