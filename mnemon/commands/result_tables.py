"""What an evaluation found, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.table import Table


def result_tables(title: str, records: list[dict[str, Any]]) -> Iterator[Table]:
    """All results on one data set: those of few-shot memories, and of episodes of several lengths, as grids."""
    from mnemon.evaluation.capacity_pictures import is_capacity
    from mnemon.evaluation.cells import cell_of, is_fewshot

    others = [record for record in records if not is_fewshot(record) and not is_capacity(record)]
    if others:
        yield _table(title, others)
    yield from _capacity_grids(title, [record for record in records if is_capacity(record)])
    samples = max((record["num_samples"] or 1 for record in records), default=1)
    bound = f"bound by {samples} samples of unwritten images, nats"
    grids: list[tuple[Any, str, str, str]] = [
        ("table", f"{bound}; columns: examples of each class", "classes", "examples"),
        ("scaling", f"{bound}, as classes are added", "classes", "metric"),
        ("breakdown", "parts of the bound of unwritten images, nats", "examples", "metric"),
    ]
    for kind, about, row, column in grids:
        found = {}
        for record in records:
            if cell := cell_of(record, kind):
                places = {**cell._asdict(), "metric": record["metric"].replace("_", " ")}
                found[str(places[row]), str(places[column])] = record
        if found:
            yield _grid(f"{title}: {about}", row, found)


def _capacity_grids(title: str, records: list[dict[str, Any]]) -> Iterator[Table]:
    """A memory in each row, a number of written items in each column, for either error."""
    errors = {"wrong_pixels": "wrong pixels in per cent", "mse_recalled": "squared error per pixel in hundredths"}
    for metric, about in errors.items():
        mine = [record for record in records if record["metric"] == metric]
        found = {(str(record["model"]), str(record["episode_length"])): record for record in mine}
        if found:
            damage = str(mine[0]["note"]).removeprefix("capacity: ")
            yield _grid(f"{title}: {about}, {damage}; columns: written items", "memory", found, hundredths=True)


def _grid(title: str, corner: str, found: dict[tuple[str, str], dict[str, Any]], *, hundredths: bool = False) -> Table:
    """Values by row and column, and the widest interval below."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left", caption_justify="left")
    columns = list(dict.fromkeys(column for _, column in found))
    table.add_column(corner, justify="left" if hundredths else "right", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for row in dict.fromkeys(row for row, _ in found):
        values = [found[row, name]["value"] if (row, name) in found else None for name in columns]
        table.add_row(row, *("" if value is None else _shown(value, hundredths) for value in values))
    widest = max(record["interval"] or 0 for record in found.values())
    table.caption = f"± at most {100 * widest if hundredths else widest:.2g}"
    return table


def _shown(value: float, hundredths: bool) -> str:
    return f"{100 * value:.3g}" if hundredths else f"{value:.4g}"


def _table(title: str, records: list[dict[str, Any]]) -> Table:
    """Results on one data set, for a narrow terminal."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    rows = [_cells(record) for record in records]
    columns = ("what", "scored", "value", "±", "unit", "note")
    kept = [at for at, _ in enumerate(columns) if any(row[at] for row in rows)]
    for at in kept:
        numeric, folds = columns[at] in ("value", "±"), columns[at] == "note"
        table.add_column(columns[at], justify="right" if numeric else "left", no_wrap=not folds)
    before = ""
    for row in rows:
        note = '"' if row[-1] and row[-1] == before else row[-1]  # a ditto mark
        before = row[-1]
        table.add_row(*((*row[:-1], note)[at] for at in kept))
    samples = {record["num_samples"] for record in records if (record["num_samples"] or 1) > 1}
    if samples:
        shown = "; ".join(f"({number}): by {number} importance samples" for number in sorted(samples))
        table.caption, table.caption_justify = shown, "left"
    return table


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    what = str(record["metric"]).replace("_", " ")
    if record["bound"]:
        samples = f" ({record['num_samples']})" if (record["num_samples"] or 1) > 1 else ""
        what = f"{record['bound']} {what}{samples}"
    if record["model"] == "pixel nearest neighbour":
        what = f"{what}, pixels"
    interval = "" if record["interval"] is None else f"{record['interval']:.2g}"
    scored = str(record["scored"] or "").replace("_", " ")
    unit = "" if record["unit"] in (None, record["metric"]) else record["unit"]
    return what, scored, f"{record['value']:.4g}", interval, unit, record["note"] or ""
