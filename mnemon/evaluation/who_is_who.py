"""Who the models of a results page are: what each is called, what its memory is, and where it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mnemon.entry import Entry
from mnemon.evaluation.benchmark.protocol import UNTRAINED
from mnemon.evaluation.leaderboard import Column
from mnemon.evaluation.page_section import Section
from mnemon.registry import SYMBOLS, entries

TITLE = "The models"
HEADS = ("model", "what it is", "its memory", "from")
WORDS = "A slot is a vector of the memory, an address says which slots an image is read from."


def who_is_who(tables: Iterable[Sequence[Column]]) -> Section:
    """A row for each model of some tables; of one of a package that is not installed only the name is known."""
    models = dict.fromkeys(model for table in tables for column in table for model in column.scores)
    known = entries()
    rows = [[f"`{model}`", *_described(model, known.get(model))] for model in models]
    letters = {letter for row in rows for letter in re.findall(r"\b[A-Z]\b", row[2])}
    told = [f"{letter}: {meaning}" for letter, meaning in SYMBOLS.items() if letter in letters]
    return Section(TITLE, f"{WORDS} {'; '.join(told)}." if told else WORDS, HEADS, rows)


def _described(model: str, entry: Entry | None) -> tuple[str, str, str]:
    if model in UNTRAINED:
        baseline = UNTRAINED[model]
        return f"{baseline.title}; not trained", baseline.memory, baseline.paper
    return ("a model of another package", "", "") if entry is None else (entry.title, entry.memory, entry.paper)
