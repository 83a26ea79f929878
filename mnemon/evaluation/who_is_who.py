"""Who the models of a results page are: what each is called, what its memory is, and where it comes from."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence

from mnemon.entry import Entry
from mnemon.evaluation.benchmark.protocol import UNTRAINED, Protocol
from mnemon.evaluation.leaderboard import Column
from mnemon.evaluation.page_section import Section
from mnemon.registry import SYMBOLS, entries
from mnemon.training.setup import fresh_model

TITLE = "The models"
HEADS = ("model", "what it is", "its memory", "weights", "from")
WORDS = (
    "A slot is a vector of the memory, an address says which slots an image is read from. Weights: how many numbers "
    "a training sets, on the data set where there are most; a model of more weights may owe them its place."
)


def who_is_who(tables: Iterable[Sequence[Column]], quick: bool) -> Section:
    """A row for each model of some tables; of one of a package that is not installed only the name is known. quick:
    whether they are tables of the quick form, whose nets are smaller."""
    models: dict[str, list[str]] = {}
    for column in itertools.chain.from_iterable(tables):
        for model, score in column.scores.items():
            measured = models.setdefault(model, [])  # where it failed, it may be that no such nets can be made
            measured += [column.data] if score.value is not None else []
    known = entries()
    rows = [
        [f"`{model}`", *_described(model, known.get(model), trained_weights(model, tuple(dict.fromkeys(data)), quick))]
        for model, data in models.items()
    ]
    letters = {letter for row in rows for letter in re.findall(r"\b[A-Z]\b", row[2])}
    told = [f"{letter}: {meaning}" for letter, meaning in SYMBOLS.items() if letter in letters]
    return Section(TITLE, f"{WORDS} {'; '.join(told)}." if told else WORDS, HEADS, rows)


@functools.cache
def trained_weights(model: str, data_sets: tuple[str, ...], quick: bool) -> int | None:
    """How many numbers the benchmark's training of a model sets, on the one of the data sets where there are most; None
    where it has no such training."""
    protocol = Protocol.load(quick)
    if model not in entries():
        return None
    configs = [protocol.config_by_catalogue(data, model, seed=0) for data in data_sets if data in protocol.sets]
    counts = [sum(p.numel() for p in fresh_model(config).parameters() if p.requires_grad) for config in configs]
    return max(counts, default=None)


def _described(model: str, entry: Entry | None, weights: int | None) -> tuple[str, str, str, str]:
    if model in UNTRAINED:
        baseline = UNTRAINED[model]
        return f"{baseline.title}; not trained", baseline.memory, "0", baseline.paper
    if entry is None:
        return "a model of another package", "", "", ""
    return entry.title, entry.memory, "" if weights is None else f"{weights:,}", entry.paper
