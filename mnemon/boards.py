"""Blocks of the results report: leaderboards whose empty cells say why, curves, and grids of samples."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from mnemon.evaluation.curves import Figure
from mnemon.evaluation.leaderboard import (
    Column,
    answered,
    memory_text,
    own_choice,
    score_text,
    standing,
    unit_text,
    way_text,
    where_text,
)
from mnemon.report import Html, heading, inline, paragraph
from mnemon.small_multiples import panels

STYLE = """
.board { border: 1px solid var(--line); border-radius: 0.5rem; padding: 0 0.8rem;
  background: linear-gradient(to left, var(--paper) 40%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--line), transparent) right / 1.2rem 100% no-repeat scroll; }
.board th, .board td { padding: 0.45rem 0.9rem 0.45rem 0; vertical-align: top; white-space: nowrap; width: auto; }
.board thead th { white-space: normal; min-width: 7.5rem; vertical-align: bottom; }
.board thead th:first-child { min-width: 0; }
.board tbody th, .board thead th:first-child { position: sticky; left: 0; background: var(--paper); z-index: 1; }
.board tr:last-child > * { border-bottom: 0; }
.board small { display: block; color: var(--soft); font-weight: 400; font-size: 0.8rem; line-height: 1.35; }
.board .best { font-weight: 650; color: var(--accent); }
.board .tied { color: var(--accent); }
.board .empty { color: var(--soft); }
.board sup { line-height: 0; }
.note { border-left: 4px solid var(--accent); padding: 0.5rem 0.9rem; background: var(--card); }
.notes { color: var(--soft); font-size: 0.85rem; line-height: 1.45; margin: -0.4rem 0 1.2rem; padding-left: 1.6rem; }
.notes li { margin: 0.1rem 0; }
p.notes { padding-left: 0; }
.advice { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 1rem; }
.advice article { background: var(--card); border-radius: 0.5rem; padding: 0.9rem 1rem; min-width: 0; }
.advice h3 { margin: 0 0 0.3rem; }
.advice p { margin: 0 0 0.4rem; }
.advice .asked { font-size: 0.88rem; color: var(--soft); }
.advice ul { margin: 0; padding-left: 1.1rem; font-size: 0.88rem; color: var(--soft); }
.advice li { overflow-wrap: anywhere; }
.advice details { padding: 0.4rem 0 0; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 0.4rem 0.8rem;
  margin: 0.3rem 0 1.2rem; }
.panel { width: 100%; height: auto; display: block; }
.axis { fill: none; stroke: var(--soft); stroke-width: 1; }
.other { fill: none; stroke: var(--line); stroke-width: 1.2; }
.own { fill: none; stroke: var(--accent); stroke-width: 2; }
.band { fill: var(--accent); opacity: 0.18; }
.marks { fill: var(--accent); }
.tick { font-size: 10px; fill: var(--soft); }
.name { font-size: 12px; font-weight: 600; fill: var(--ink); }
.grids { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); gap: 1.2rem; }
.grids figure { margin: 0; min-width: 0; }
.grids figcaption { margin: 0 0 0.3rem; font-weight: 600; color: var(--ink); }
.grids img { width: 100%; filter: none; border-radius: 0.3rem; }
.theirs { font-style: italic; }
.board .word { text-align: left; }
.board td.long { white-space: normal; min-width: 14rem; }
.fit table { table-layout: fixed; width: 100%; }
.fit.board th, .fit.board td, .fit.board td.long { white-space: normal; min-width: 0; overflow-wrap: anywhere; }
.fit.board thead th:first-child { width: 42%; }
details { border-top: 1px solid var(--line); padding: 0.6rem 0; }
summary { cursor: pointer; font-weight: 600; }
summary small { font-weight: 400; color: var(--soft); }
@media (min-width: 70rem) { header, main, footer { max-width: 78rem; } }
@media (max-width: 36rem) { .panels { grid-template-columns: 1fr 1fr; } .board { padding: 0 0.5rem; }
  .board thead th { min-width: 6.5rem; } .fit table { font-size: 0.78rem; }
  .fit.board thead th:first-child { width: 30%; } }
"""

COLOURS = 64
MARKS = {"best": " ★", "tied": " ☆", "behind": "", "none": ""}
LEGEND = (
    "★ best; ☆ cannot be told from the best; ± half of a 95% interval; no ±: "
    "counted, the same in every episode, or of one episode; under a model's name: the numbers its memory holds, + "
    "where it grows with the episode; n/a: not applicable, or not measured, for the reason of that number below the "
    "table."
)


def board(columns: Sequence[Column]) -> Html:
    """One table: models in the order of the first question, a column for each question that has an answer, notes on
    what is empty."""
    columns, missing = answered(columns)
    told = "".join(f'<p class="notes">No answers here. {inline(text)}.</p>\n' for text in missing)
    if not columns:
        return Html(told)
    models = _order(columns)
    reasons = dict.fromkeys(
        score.common_reason for model in models for column in columns if (score := column.scores[model]).value is None
    )
    numbers = {reason: number for number, reason in enumerate(reasons, start=1)}
    alone = len({column.question.name for column in columns}) == 1
    head = "".join(_head(column, alone) for column in columns)
    rows = "".join(
        f'<tr><th scope="row">{inline(model)}{_size(columns, model)}</th>'
        f"{''.join(_cell(column, model, numbers) for column in columns)}</tr>\n"
        for model in models
    )
    table = scrolling(f'<th scope="col">model<small>and its memory</small></th>{head}', rows)
    notes = "".join(f"<li>{inline(reason)}</li>" for reason in numbers)
    return Html(table + (f'<ol class="notes">{notes}</ol>\n' if notes else "") + told)


def scrolling(head: str, rows: str, fit: bool = False) -> Html:
    """A table, wide or narrow, that scrolls in a box of its own, or fits into it; from the cells of its head and its
    rows."""
    body = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>"
    return Html(f'<div class="table board{" fit" * fit}" tabindex="0">{body}</div>\n')


def plain_board(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, theirs: int | None = None, fit: bool = False
) -> Html:
    """A table of texts as they are, columns of words to the left; the column `theirs` holds what others report. fit:
    no wider than the page, its texts broken where they must be."""
    kinds = [_kind([row[place] for row in rows], place == theirs) for place in range(len(heads))]
    head = "".join(
        f'<th scope="col" class="{kind}">{inline(text)}</th>' for text, kind in zip(heads, kinds, strict=True)
    )
    marked = "".join(
        f'<tr><th scope="row">{inline(row[0])}</th>'
        + "".join(f'<td class="{kind}">{inline(cell)}</td>' for cell, kind in zip(row[1:], kinds[1:], strict=True))
        + "</tr>\n"
        for row in rows
    )
    return scrolling(head, marked, fit)


def _kind(cells: Sequence[str], theirs: bool) -> str:
    """The classes of a column: numbers, words or sentences, and whose."""
    numeric = all(re.match(r"[-+]?[\d.]", cell) for cell in cells if cell not in ("", "n/a"))
    length = max((len(cell) for cell in cells), default=0)
    kind = "number" if numeric else "word" if length < 30 else "word long"
    return f"{kind} theirs" if theirs else kind


def folded(title: str, about: str, *parts: Html) -> Html:
    """Parts that are there when asked for."""
    return Html(
        f"<details><summary>{inline(title)} <small>{inline(about)}</small></summary>\n{''.join(parts)}</details>\n"
    )


def _order(columns: Sequence[Column]) -> list[str]:
    """Models as they rank in the first column that ranks them, the others behind."""
    ranked = dict.fromkeys(score.model for column in columns for score in column.ranked)
    return list(ranked | dict.fromkeys(columns[0].scores))


def _head(column: Column, alone: bool) -> str:
    """The question and where it was put; only where, if all columns have the same question."""
    question = column.question
    unit = f"{unit_text(question)}, " if unit_text(question) else ""
    way = way_text(question) + ("" if not question.ranked else "\u00a0↑" if question.higher_is_better else "\u00a0↓")
    told = where_text(column)
    title = f"{told[0].upper()}{told[1:]}" if alone and told else question.title
    small = f"<small>{inline(told)}</small>" if told and title is question.title else ""
    return (
        f'<th scope="col" title="{html.escape(question.asks)}">{inline(title)}'
        f"{small}<small>{inline(unit)}{way}</small></th>"
    )


def _size(columns: Sequence[Column], model: str) -> str:
    told = memory_text(columns, model)
    return f"<small>{told} float{'s' * (told != '1')}</small>" if told else ""


def note(text: str) -> Html:
    """What a reader must not miss."""
    return Html(f'<p class="note">{inline(text)}</p>\n')


def _cell(column: Column, model: str, numbers: dict[str, int]) -> str:
    score, place = column.scores[model], standing(column, model)
    if score.value is None:
        number = numbers[score.common_reason]
        said = html.escape(score.why_not)
        return f'<td class="empty" title="{said}">n/a<sup aria-label="{said}">{number}</sup></td>'
    own = own_choice(score)
    small = f"<small>{inline(own)}</small>" if own else ""
    return f'<td class="{place}">{inline(score_text(score, column.question))}{MARKS[place]}{small}</td>'


def curves(figure: Figure, name: str) -> Html:
    """Small multiples with what they show."""
    question = figure.question
    at = f" ({figure.fixed})" if figure.fixed else ""
    what = unit_text(question) or question.metric.replace("_", " ")
    scale = ", on a logarithmic scale" if figure.along.logarithmic else ""
    both = ", on a scale that is logarithmic on both sides of 0" if figure.along.orders else ""
    told = (
        f"Across: {figure.along.label}{scale}. Up: {what}, {way_text(question)}{both}. "
        "Grey: the other models. Shaded: 95% interval."
    )
    title = f"{question.title.split(' against ')[0]} against {figure.along.label}{at}"
    drawn = panels(figure.lines, name=name, logarithmic=figure.along.logarithmic, orders=figure.along.orders)
    return Html(heading(title, level=4) + paragraph(told) + drawn)


def grids(files: Sequence[Path], models: Sequence[str]) -> Html:
    """Pictures side by side, each named by its file, in the order of the models."""
    order = {model: place for place, model in enumerate(models)}
    files = sorted(files, key=lambda path: order.get(path.stem, len(order)))
    shown = "".join(
        f"<figure><figcaption>{inline(path.stem)}</figcaption>"
        f'<img src="{_small(path)}" alt="Samples of {html.escape(path.stem)}"></figure>\n'
        for path in files
    )
    return Html(f'<div class="grids">\n{shown}</div>\n')


def _small(path: Path) -> str:
    """A picture with few colours: many of them stand on a page."""
    stream = io.BytesIO()
    Image.open(path).convert("RGB").quantize(COLOURS).save(stream, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
