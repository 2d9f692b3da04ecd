"""Rows for a program that print as a table for a person."""

from __future__ import annotations

from typing import Any

__all__ = ["Rows"]

#: Rows that are printed; the others are there for a program.
_PRINTED = 40


class Rows(list[dict[str, Any]]):
    """Rows for a program that print as a table for a person."""

    def __repr__(self) -> str:
        if not self:
            return "(none)"
        names = list(self[0])
        cells = [names, *([_cell(row[name]) for name in names] for row in self[:_PRINTED])]
        widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
        more = [f"and {len(self) - _PRINTED:,} more: they are in this list"]
        return "\n".join([*(line.rstrip() for line in lines), *more * (len(self) > _PRINTED)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
