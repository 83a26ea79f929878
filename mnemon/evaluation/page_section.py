"""A titled table of a results page, which Markdown and HTML pages are both made of; records in groups, and as text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


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
        cells = [[cell.replace("|", "\\|") for cell in row] for row in (self.heads, *self.cells)]
        cells.insert(1, ["---"] * len(self.heads))
        lines = [f"| {' | '.join(row)} |" for row in cells]
        return "\n".join([f"{'#' * level} {self.title}", "", self.note, "", *lines, ""])


def grouped(records: Iterable[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Records by their values of some keys, in the order in which they come."""
    return grouped_by(records, lambda record: tuple(record[key] for key in keys))


def grouped_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Anything by what a function says of it, in the order in which it comes."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def number(record: dict[str, Any] | None, digits: int = 1) -> str:
    """The value with its interval; nothing for no record."""
    if record is None:
        return ""
    interval = "" if record["interval"] is None else f" ± {record['interval']:.{digits}f}"
    return f"{record['value']:.{digits}f}{interval}"
