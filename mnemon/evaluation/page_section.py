"""A titled table of a results page, which Markdown and HTML pages are both made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """A title, what the table shows, and the table; cells are texts, numbers or None."""

    title: str
    note: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def cells(self) -> list[list[str]]:
        return [["" if cell is None else str(cell) for cell in row] for row in self.rows]

    def markdown(self, level: int = 2) -> str:
        """Nothing where the table has no rows."""
        if not self.rows:
            return ""
        lines = [f"| {' | '.join(row)} |" for row in (self.heads, ["---"] * len(self.heads), *self.cells)]
        return "\n".join([f"{'#' * level} {self.title}", "", self.note, "", *lines, ""])
