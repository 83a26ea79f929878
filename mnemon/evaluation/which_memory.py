"""docs/which_memory.md, made from the benchmark's records: advice in plain words, then the tables it was read off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mnemon.evaluation.conditions import conditions
from mnemon.evaluation.gains import gain_sections, known_floors
from mnemon.evaluation.jobs import RULE, SHORT_NOTE, SUMMARY, advise, summary, without_answer
from mnemon.evaluation.leaderboard import (
    Column,
    answered,
    columns,
    data_sets,
    memory_text,
    own_choice,
    score_text,
    standing,
    unit_text,
    way_text,
    where_text,
)
from mnemon.evaluation.page_section import Section
from mnemon.evaluation.questions import GROUPS, QUICK, benchmark_records, is_quick
from mnemon.evaluation.who_is_who import who_is_who

HEAD = """# Which memory for which job

Made by `mnemon results` from `{source}/*.json`; do not edit by hand. What is trained was trained by one protocol
(`mnemon bench memory`): the same data, nets of equally many filters, one short budget of updates. Nets are not of one
size for that: how many weights each has is told under The models. What a model has of its own, and which memories are
not trained, is in [benchmark.md](benchmark.md).
"""
NOT_RUN = """The benchmark has not been run yet, so this page has no advice to give. `mnemon bench memory` runs it, and
`mnemon results` then makes this page again. What is measured so far is in [results.md](results.md).
"""
OVERVIEW = """## All memories, one protocol

A number for each of the main questions; all of them, and what they say about which memory to use, are in
[which_memory.md](which_memory.md), the protocol in [benchmark.md](benchmark.md), and `mnemon results --html` makes a
report with curves and samples. **best**: alone; *(best)*: cannot be told from the best.
"""
SHORT = (
    "joint", "conditional", "same_class", "recall", "capacity_recall", "novelty_same_class", "fewshot",
    "sample_fidelity", "state_bytes", "train_step",
)  # fmt: skip
"""The questions of an overview."""
MARKS = {"best": " **best**", "tied": " *(best)*", "behind": "", "none": ""}


def which_memory_page(
    records: Sequence[Mapping[str, Any]], holds_nothing: Callable[[str], bool], source: str = "results"
) -> str:
    """The whole page as Markdown. source: the folder that the records are of"""
    head = HEAD.format(source=source)
    sets = data_sets(records)
    if not sets:
        return "\n".join([head, NOT_RUN])
    tables = {data: columns(records, data) for data in sets}
    quick = any(map(is_quick, benchmark_records(records)))
    parts = [head, *([f"**{QUICK}**\n"] if quick else [])]
    found = advise(list(tables.values()), holds_nothing)
    parts.append(Section("In short", SHORT_NOTE, SUMMARY, summary(found)).markdown(2))
    parts += [f"{missing}\n"] if (missing := without_answer(found)) else []
    parts.append(f"{RULE}\n")
    gains, gains_by_data = gain_sections(tables, known_floors())
    parts += [gains.markdown(2), *(section.markdown(3) for section in gains_by_data)]
    parts.append(who_is_who(tables.values(), quick).markdown(2))
    for advice in found:
        parts += [
            f"## {advice.job.wish}\n",
            f"{advice.verdict}\n",
            "\n".join(f"- {line}" for line in advice.details) + "\n",
        ]
    parts.append("## The tables\n")
    parts.append(
        "**best**: alone; *(best)*: cannot be told from the best. ± half of a 95% interval; without "
        "±: counted, the same in every episode, or of one episode. n/a: not applicable, or not measured, for the "
        "reason of that number below the table. Floats: of the memory; +: it grows with the episode.\n"
    )
    parts.append("\n".join(f"- {data}: {conditions(records, data)}" for data in sets) + "\n")
    for data, table in tables.items():
        for group in GROUPS:
            mine = [column for column in table if column.question.group == group]
            if mine:
                parts.append(_board(f"{data}: {group}", mine))
    return "\n".join(parts)


def overview(records: Sequence[Mapping[str, Any]]) -> str:
    """A leaderboard for each data set, of the main questions at their headlines; empty before the benchmark was run."""
    parts: list[str] = []
    for data in data_sets(records):
        first: dict[str, Column] = {}
        for column in columns(records, data):
            first.setdefault(column.question.name, column)
        parts.append(_board(data, [first[name] for name in SHORT if name in first], explained=not parts))
    quick = any(map(is_quick, benchmark_records(records)))
    return "\n".join([OVERVIEW, *([f"**{QUICK}**\n"] if quick else []), *parts]) if parts else ""


def _board(title: str, table: Sequence[Column], explained: bool = True) -> str:
    """A table, with what its columns ask above it and the reasons of empty cells and columns below."""
    models = list(table[0].scores)
    table, missing = answered(table)
    without = [f"No answers here. {text}.  " for text in missing]
    if not table:
        return "\n".join([f"### {title}", "", *without, ""])
    reasons: dict[str, int] = {}
    rows = []
    for model in models:
        row = [f"`{model}`", memory_text(table, model)]
        for column in table:
            score = column.scores[model]
            if score.value is None:
                row.append(f"n/a ({reasons.setdefault(score.common_reason, len(reasons) + 1)})")
            else:
                own = own_choice(score)
                told = score_text(score, column.question) + (f" {own}" if own else "")
                row.append(told + MARKS[standing(column, model)])
        rows.append(row)
    heads = _heads(table)
    # what is asked in several columns, which their heads tell apart, is said once
    asked = dict.fromkeys(
        _asked(column, head == column.question.title) for head, column in zip(heads, table, strict=True)
    )
    section = Section(title, "\n".join(asked) if explained else "", ["model", "floats", *heads], rows).markdown(3)
    return "\n".join([section, *(f"({number}) {reason}  " for reason, number in reasons.items()), *without, ""])


def _heads(table: Sequence[Column]) -> list[str]:
    """The question, and where it was put if several columns have the same one."""
    titles = Counter(column.question.title for column in table)
    return [
        f"{title}: {where_text(column)}" if titles[title := column.question.title] > 1 else title for column in table
    ]


def _asked(column: Column, with_where: bool) -> str:
    """The question as it was put, and which way is better."""
    question = column.question
    answer = ", ".join(filter(None, (unit_text(question), way_text(question))))
    told = f"{where_text(column)}; {answer}" if with_where and where_text(column) else answer
    return f"- {question.title}: {question.asks} {told[0].upper()}{told[1:]}."
