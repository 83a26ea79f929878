"""The memory that a few-shot number belongs to: how many classes, and how many examples of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Table = Literal["table", "scaling", "breakdown"]
"""Bounds of small memories; bounds as classes are added; the parts of the bound as examples are."""
_NOTE = re.compile(r"(table|scaling|breakdown): memory of (\d+) class(?:es)? x (\d+)")


class Cell(NamedTuple):
    """A memory of `classes` classes with `examples` images of each."""

    classes: int
    examples: int

    def note(self, table: Table) -> str:
        """What a result record says of its memory."""
        return f"{table}: memory of {self.classes} class{'es' * (self.classes != 1)} x {self.examples}"


def cell_of(record: Mapping[str, Any], table: Table) -> Cell | None:
    """The memory of a result record, if it is one of this table."""
    found = _NOTE.fullmatch(record["note"] or "")
    return Cell(int(found[2]), int(found[3])) if found and found[1] == table else None


def is_fewshot(record: Mapping[str, Any]) -> bool:
    """Whether a result record is of one of the tables."""
    return _NOTE.fullmatch(record["note"] or "") is not None
