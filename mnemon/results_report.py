"""The results as one HTML page: which memory for which job, leaderboards, curves, samples, and the papers' numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mnemon import boards, report
from mnemon.evaluation.conditions import conditions
from mnemon.evaluation.curves import figures
from mnemon.evaluation.gains import gain_sections, known_floors
from mnemon.evaluation.jobs import RULE, SHORT_NOTE, SUMMARY, Advice, advise, holds_nothing, summary, without_answer
from mnemon.evaluation.leaderboard import Column, columns, data_sets, number_text
from mnemon.evaluation.page_section import Section
from mnemon.evaluation.questions import BY_NAME, GROUPS, QUICK, benchmark_records, is_quick
from mnemon.evaluation.tables import experiment_sections, of_experiments
from mnemon.evaluation.who_is_who import who_is_who
from mnemon.report import Html

PICTURES = "memory"
"""Folder of a results folder with a grid of samples for each data set and model."""
GROUP_TITLES = {
    "likelihood": "Likelihood: how well are images explained?",
    "recall": "Recall: what is left of the damage?",
    "capacity": "Capacity: how much fits in?",
    "classes": "Classes: telling them apart",
    "samples": "Samples: what is generated",
    "cost": "Cost: time and space",
}
SAMPLES = (
    "The same episode for all. written: ten of its frames; noisy: a tenth of the pixels black or white at random; "
    "read: the noisy ones after three reads; erased: the right half blank; filled: that half after three reads; "
    "samples: new images drawn from the memory. Good is what is read and filled like the row of written ones, and "
    "samples that look like frames of the episode."
)
NOT_RUN = (
    "The benchmark of all memories has not been run yet: `mnemon bench memory` trains and scores every model under one "
    "protocol, and this page then begins with its leaderboards. Below are the experiments of the papers."
)


def render(records: Sequence[dict[str, Any]], folder: Path) -> Html:
    """The whole page. `folder`: of the results, with the pictures of samples."""
    measured = [record for record in benchmark_records(records) if record["value"] is not None]
    quick = any(map(is_quick, measured))
    sets = data_sets(records)
    tables = {data: columns(records, data) for data in sets}
    sections: dict[str, tuple[str, list[Html]]] = {}
    if sets:
        sections["jobs"] = ("Which memory for which job", _jobs(advise(list(tables.values()), holds_nothing)))
        gains, by_data = gain_sections(tables, known_floors())
        if gains.rows:
            sections["gains"] = (gains.title, _gains(gains, by_data))
        sections["models"] = _models(who_is_who(tables.values(), quick))
        for data in sets:
            sections[_anchor(data)] = (f"Measured on {data}", _data(records, data, tables[data], folder))
    papers = [record for record in records if record["paper_value"] is not None]
    if papers:
        sections["papers"] = ("Beside the papers' own numbers", _papers(papers))
    deep = of_experiments(records)
    if deep:
        sections["experiments"] = ("The papers' experiments, run here", _experiments(experiment_sections(deep)))
    sections["again"] = ("Every number again", _commands(records))
    blocks = [report.section(title, *parts, anchor=anchor) for anchor, (title, parts) in sections.items()]
    lead = [
        *_lead(measured, tables, quick),
        report.contents({anchor: title for anchor, (title, _) in sections.items()}),
    ]
    footer = "Made by `mnemon results --html` from the records of a results folder; nothing on this page is typed in."
    return report.page("mnemon: memories compared", lead, blocks, footer=footer, style=boards.STYLE)


def _lead(measured: Sequence[Mapping[str, Any]], tables: Mapping[str, Sequence[Column]], quick: bool) -> list[Html]:
    what = (
        "A generative memory takes in a few images in one pass and then recalls, completes, generates and scores from "
        "what it wrote. This page says how well each kind of memory does that."
    )
    parts = [report.paragraph(what, lead=True)]
    if not tables:
        return [*parts, report.paragraph(NOT_RUN)]
    if quick:
        parts.append(boards.note(QUICK))
    cells = [score for table in tables.values() for column in table for score in column.scores.values()]
    filled = sum(score.value is not None for score in cells)
    models = {record["model"] for record in measured}
    questions = {column.question.name for table in tables.values() for column in table}
    parts.append(
        report.paragraph(
            "What is trained was trained by one protocol (`mnemon bench memory`): the same data, nets of equally many "
            "filters, one short budget of updates. Nets are not of one size for that: how many weights each has is "
            "told under The models. Each question has its own number, with a 95% interval. The papers' own numbers "
            "were found under other protocols and stand apart, marked as theirs."
        )
    )
    numbers = [
        (str(len(models)), "models"),
        (str(len(tables)), "data set" + "s" * (len(tables) > 1)),
        (str(len(questions)), "questions"),
        (f"{len(measured):,}", "numbers measured"),
        (f"{filled / len(cells):.0%}", f"of {len(cells):,} cells filled; the others say why not"),
    ]
    return [*parts, report.key_numbers(numbers)]


def _jobs(advice: Sequence[Advice]) -> list[Html]:
    cards = "".join(
        f"<article><h3>{report.inline(one.job.wish)}</h3>\n{report.paragraph(one.verdict)}"
        f'<p class="asked">{report.inline(BY_NAME[one.job.question].asks)}</p>\n{_numbers(one)}</article>\n'
        for one in advice
    )
    short = [boards.plain_board(SUMMARY, summary(advice), fit=True), report.paragraph(SHORT_NOTE)]
    if missing := without_answer(advice):
        short.append(report.paragraph(missing))
    short.append(boards.folded("How the best were told", "the rule", report.paragraph(RULE)))
    return [*short, Html(f'<div class="advice">\n{cards}</div>\n')]


def _gains(whole: Section, by_data: Sequence[Section]) -> list[Html]:
    """Counts in view, the numbers behind them when asked for."""
    tables = [
        boards.folded(one.title, "how much better or worse", report.paragraph(one.note), _table(one)) for one in by_data
    ]
    return [report.paragraph(whole.note), _table(whole), *tables]


def _table(section: Section) -> Html:
    return boards.plain_board(section.heads, section.cells)


def _numbers(advice: Advice) -> Html:
    lines = Html(f"<ul>{''.join(f'<li>{report.inline(detail)}</li>' for detail in advice.details)}</ul>")
    return boards.folded("The numbers", "on each data set", lines)


def _models(found: Section) -> tuple[str, list[Html]]:
    return found.title, [_table(found), report.paragraph(found.note)]


def _data(records: Sequence[dict[str, Any]], data: str, table: Sequence[Column], folder: Path) -> list[Html]:
    """Everything about one data set, with links to its parts: leaderboards by group of questions, curves, samples."""
    parts: dict[str, list[Html]] = {}
    for group in GROUPS:
        mine = [column for column in table if column.question.group == group]
        if mine:
            parts[GROUP_TITLES.get(group, group)] = [boards.board(mine)]
    if drawn := _curves(records, data):
        parts["Curves"] = drawn
    files = sorted((folder / PICTURES / data).glob("*.png"))
    if files:
        parts["Samples, side by side"] = [report.paragraph(SAMPLES), boards.grids(files, list(table[0].scores))]
    anchors = {f"{_anchor(data)}-{number}": title for number, title in enumerate(parts, start=1)}
    blocks = [report.paragraph(conditions(records, data)), report.paragraph(boards.LEGEND)]
    blocks.append(report.contents({anchor: title.partition(":")[0] for anchor, title in anchors.items()}, of=data))
    for anchor, title in anchors.items():
        blocks += [report.heading(title, anchor=anchor), *parts[title]]
    return blocks


def _curves(records: Sequence[dict[str, Any]], data: str) -> list[Html]:
    """The figures of a data set, the first of each question open to view."""
    every = enumerate(figures(records, data))
    drawn = {figure: boards.curves(figure, f"{_anchor(data)}-curve{number}") for number, figure in every}
    first = {(figure.along.question, figure.along.setting): figure for figure in reversed(drawn)}.values()
    shown = [drawn[figure] for figure in drawn if figure in first]
    others = [drawn[figure] for figure in drawn if figure not in first]
    if others:
        shown.append(boards.folded("The same curves for other kinds of damage", f"{len(others)} figures", *others))
    return shown


def _anchor(data: str) -> str:
    """A data set's name as links can hold it."""
    return "data-" + re.sub(r"\W+", "-", data)


def _papers(records: Sequence[dict[str, Any]]) -> list[Html]:
    note = (
        "Numbers in italics are the papers' own, as they report them, under the protocol in the last column. They were "
        "not measured here, and differ in data, nets or bound; the numbers beside them are ours."
    )
    rows = [
        [
            record["experiment"],
            record["data"],
            _what(record),
            number_text(record["value"], record["unit"], interval=record["interval"]),
            f"{record['paper_value']:g} (theirs)",
            record["paper_protocol"] or "",
        ]
        for record in records
        if record["value"] is not None
    ]
    heads = ("experiment", "data", "what", "ours", "the paper's", "the paper's protocol")
    return [report.paragraph(note), boards.plain_board(heads, rows, theirs=heads.index("the paper's"))]


def _what(record: Mapping[str, Any]) -> str:
    words = [record["bound"] or "", str(record["metric"]).replace("_", " "), record["unit"] or ""]
    named = " ".join(word for word in dict.fromkeys(words) if word)
    return f"{named}; {record['note']}" if record["note"] else named


def _experiments(sections: Sequence[Section]) -> list[Html]:
    note = (
        "Each preset trains one published experiment, by its own paper's protocol: rows of different data or nets do "
        "not compare."
    )
    parts = [report.paragraph(note)]
    for section in sections:
        if section.rows:
            parts.append(
                boards.folded(
                    section.title, f"{len(section.rows)} rows", report.paragraph(section.note), _table(section)
                )
            )
    return parts


def _commands(records: Sequence[Mapping[str, Any]]) -> list[Html]:
    note = (
        "The commands that make the numbers, each with the commit it was run at. Which numbers of the benchmark were "
        "made again, and how near they came, is counted in docs/benchmark.md."
    )
    found = dict.fromkeys((record["command"], record["commit"]) for record in records if record["command"])
    lines = "\n".join(f"{command}    # {commit}" for command, commit in found)
    return [report.paragraph(note), boards.folded("Commands", f"{len(found)} of them", report.code(lines))]
