"""docs/results.md, made from results/*.json: our numbers, the papers' beside them, and what each number is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mnemon.evaluation.cells import cell_of, is_fewshot
from mnemon.evaluation.context_tables import contexts_section, factors_section
from mnemon.evaluation.memory_tables import conditional_section, denoising_section, is_length, lengths_section
from mnemon.evaluation.page_section import Section, grouped, number
from mnemon.evaluation.questions import EXPERIMENT
from mnemon.evaluation.results import KEYS
from mnemon.evaluation.which_memory import overview

REMARKS = "remarks.json"
HEAD = """# Results

Made by `mnemon results` from `{source}/*.json`; do not edit by hand. Every record there also holds the number of
updates, the commit and the command that regenerates it. "Written" frames are those the memory was written from: their
conditional bound can be made as good as one likes by a large enough memory, so it says what a memory holds, not how
it generalises; "same class" frames were not written. Values are means over test episodes, ± half of a 95% interval.
"""


def read_results(folder: Path) -> list[dict[str, Any]]:
    """All records of a folder's results files, in the order of the files' names. Benchmarks of speed are left out."""
    records: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: not readable as JSON ({error}); make it again, or take it away") from error
        if isinstance(content, list):
            found = [one for one in content if isinstance(one, dict) and one.get("experiment") and "metric" in one]
            for number, record in enumerate(found, 1):
                _check_record(f"{path}: record {number}", record)
            records += found
    return records


def _check_record(where: str, record: Mapping[str, Any]) -> None:
    if missing := [key for key in KEYS if key not in record]:
        raise ValueError(f"{where}: expected the keys {', '.join(KEYS)}, got none of {', '.join(missing)}; add null")
    for name in ("value", "interval", "paper_value"):
        value = record.get(name)
        if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
            raise ValueError(f"{where}: {name}: expected a number or null, got {value!r}; make the file again")


def read_remarks(folder: Path) -> dict[str, str]:
    """What was found on looking into a number, by experiment: remarks.json of a results folder, if there is one."""
    path = folder / REMARKS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def results_page(
    records: Sequence[dict[str, Any]], remarks: Mapping[str, str] = MappingProxyType({}), source: str = "results"
) -> str:
    """The whole page as Markdown. source: the folder that the records are of"""
    deep = of_experiments(records)
    parts = [HEAD.format(source=source), overview(records)]
    if deep:
        bounds, *others = (section.markdown() for section in experiment_sections(deep))
        parts += [bounds, remarks_section(deep, remarks), *others, commands_section(deep)]
    return "\n".join(part for part in parts if part)


def of_experiments(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of trained presets: not those of the benchmark of all memories, nor of inference alone. What settings
    were chosen on is told from test data by its name."""
    trained = [r for r in records if (r["command"] or "").startswith(("mnemon train", "mnemon eval"))]
    deep = [record for record in trained if record["experiment"] != EXPERIMENT]
    return [{**r, "data": f"{r['data']}, valid"} if r["split"] == "valid" else r for r in deep]


TRAINING = ("experiment", "data", "memory_floats", "updates", "seed")
"""What tells trainings of one preset apart."""


def experiment_sections(records: Sequence[dict[str, Any]]) -> list[Section]:
    """The tables of trained presets, the bounds first."""
    return [section(records) for section in SECTIONS]


def bounds_section(records: Sequence[dict[str, Any]]) -> Section:
    rows = []
    for key, group in grouped(records, *TRAINING).items():
        bounds = {r["bound"]: r for r in group if r["metric"] == "bound" and _is_episode(r)}
        if "joint" not in bounds:
            continue
        joint = bounds["joint"]
        bits = next((r["value"] for r in group if r["metric"] == "bits_per_dim" and r["bound"] == "joint"), None)
        paper = joint["paper_value"]
        rows.append([
            key[0], joint["model"], key[1], joint["binarisation"], number(joint),
            "" if paper is None else f"{paper:g} ({100 * (joint['value'] / paper - 1):+.1f}%)",
            number(bounds.get("conditional")), "" if bits is None else f"{bits:.3f}",
            joint["episode_length"], joint["memory_floats"], joint["updates"], joint["seed"],
        ])  # fmt: skip
    heads = ["experiment", "model", "data", "pixels", "joint", "paper's joint", "conditional", "bits/dim (joint)", "T",
             "memory floats", "updates", "seed"]  # fmt: skip
    note = "Test bound per frame, nats, of written frames in i.i.d. episodes; one sample of the codes."
    return Section("Bounds", note, heads, rows)


def groups_section(records: Sequence[dict[str, Any]]) -> Section:
    rows = []
    for (experiment, data), group in grouped(records, "experiment", "data").items():
        found = {(r["scored"], r["num_samples"]): r for r in group if r["metric"] == "bound" and _is_classes(r)}
        for samples in sorted({s for _, s in found}):
            cells = [number(found.get((scored, samples))) for scored in ("written", "same_class", "unseen")]
            some = next(r for (_, s), r in found.items() if s == samples)
            rows.append([experiment, data, samples, *cells, some["episode_length"], some["memory_floats"]])
    note = "Conditional bound per frame, nats; 1 sample is the ELBO, more are importance-weighted."
    heads = ["experiment", "data", "samples", "written", "same class", "unseen class", "T", "memory floats"]
    return Section("What the memory holds, and what it generalises", note, heads, rows)


def recall_section(records: Sequence[dict[str, Any]]) -> Section:
    rows = []
    for (experiment, data), group in grouped(records, "experiment", "data").items():
        plain = [r for r in group if "resized" not in (r["note"] or "")]
        rows += [[experiment, data, *row] for row in _recall_rows(plain)]
    note = "Mean squared error per pixel of the mean image; written test images, corrupted, then read 1 to 5 times."
    heads = ["experiment", "data", "corruption", "corrupted", "recalled (best)", "error removed"]
    return Section("Recall", note, heads, rows)


def novelty_section(records: Sequence[dict[str, Any]]) -> Section:
    rows = []
    for (experiment, data), group in grouped(records, "experiment", "data").items():
        scores = [r for r in group if r["metric"] == "auroc"]
        for model in dict.fromkeys(r["model"] for r in scores):
            of_model = {r["scored"]: r for r in scores if r["model"] == model}
            cells = [number(of_model.get(scored), 3) for scored in ("written", "same_class")]
            rows.append([experiment, data, model, *cells])
    note = "AUROC against frames of unseen classes, per episode. Score: log p(x | memory) - log p(x | prior)."
    return Section("Novelty", note, ["experiment", "data", "scorer", "written", "same class"], rows)


def resize_section(records: Sequence[dict[str, Any]]) -> Section:
    resized = [r for r in records if "resized" in (r["note"] or "")]
    rows = []
    for (experiment, data, length), group in grouped(resized, "experiment", "data", "episode_length").items():
        bounds = {r["bound"]: r for r in group if r["metric"] == "bound"}
        size = group[0]["note"].split(";")[0].removeprefix("resized to ")
        recalls = [f"{row[0]}: {row[3]}" for row in _recall_rows(group)]
        cells = [number(bounds.get(kind)) for kind in ("joint", "conditional")]
        rows.append([experiment, data, length, size, group[0]["memory_floats"], *cells, "; ".join(recalls)])
    note = "The same weights, longer episodes, more clusters. VBM, 4.4.3."
    heads = ["experiment", "data", "T", "memory", "memory floats", "joint", "conditional", "error removed by reading"]
    return Section("Resizing", note, heads, rows)


def items_section(records: Sequence[dict[str, Any]]) -> Section:
    rows = []
    stored = [record for record in records if (record["note"] or "").startswith("log |M|")]
    for key, group in grouped(stored, "experiment", "data", "command", "episode_length").items():
        experiment, data, _, length = key
        found = {(record["metric"], record["num_samples"] == 1): record for record in group}
        bounds = [number(found.get(("bound", single)), 2) for single in (True, False)]
        cells = [*bounds, number(found.get(("address_kl", True)), 2), f"{math.log(length):.2f}"]
        rows.append([experiment, data, group[0]["updates"], length, *cells])
    note = "The same weights with any number of items in memory, which are then asked for; nats per image. One that is"
    note += " always found costs log |M|. The second bound is by as many samples as the training's. VMA, 4.1."
    heads = ["experiment", "data", "updates", "items", "conditional bound", "by more samples", "KL of the address"]
    heads.append("log of the items")
    return Section("Stored items", note, heads, rows)


def prior_section(records: Sequence[dict[str, Any]]) -> Section:
    told = [r for r in records if r["metric"] == "address_kl" and _is_episode(r)]
    address = {key: group[-1] for key, group in grouped(told, *TRAINING).items()}
    rows = []
    for r in (record for record in records if record["bound"] == "prior"):
        keys = ("experiment", "model", "data", "memory_floats", "updates", "num_samples")
        kl = address.get(tuple(r[key] for key in TRAINING))
        rows.append([*(r[key] for key in keys), number(r, 2), number(kl, 2)])
    note = "Importance-weighted bound per image, nats, of test images with nothing written; of a learned memory also"
    note += " the KL of the address."
    heads = ["experiment", "model", "data", "memory floats", "updates", "samples", "bound", "KL of the address"]
    return Section("Without an episode", note, heads, rows)


def fewshot_section(records: Sequence[dict[str, Any]]) -> Section:
    """The layout of VMA, table 1: a row for each number of classes, a column for each number of examples."""
    cells = {id(r): cell for r in records if r["metric"] == "bound" and (cell := cell_of(r, "table"))}
    examples = sorted({cell.examples for cell in cells.values()})
    rows = []
    for key, group in grouped((r for r in records if id(r) in cells), "experiment", "data", "num_samples").items():
        for classes in sorted({cells[id(r)].classes for r in group}):
            found = {cells[id(r)].examples: r for r in group if cells[id(r)].classes == classes}
            rows.append([*key, classes, *(_beside_paper(found.get(number)) for number in examples)])
    note = (
        "Bound per image, nats, of unwritten images of the classes in memory; columns: examples of each class. "
        "The paper's in brackets."
    )
    return Section("Few-shot generation", note, ["experiment", "data", "samples", "classes", *map(str, examples)], rows)


def capacity_section(records: Sequence[dict[str, Any]]) -> Section:
    """A row for each memory, a column for each number of written patterns. Memories without training, measured beside
    every run on the same cues, have one row for each size."""
    found = [r for r in records if r["metric"] == "wrong_pixels" and (r["note"] or "").startswith("capacity: ")]
    lengths = sorted({r["episode_length"] for r in found})
    rows: list[list[Any]] = []
    for key, group in grouped(found, "experiment", "data", "model").items():
        by_length = {r["episode_length"]: _per_cent(r) for r in group}
        sizes = [r["memory_floats"] for r in group]  # different ones where the memory grows
        floats = sizes[0] if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        row = [*key, floats, *map(by_length.get, lengths)]
        if group[0]["updates"] is not None or row[1:] not in [shown[1:] for shown in rows]:
            rows.append(row)
    note = "Wrong pixels in per cent after one read of damaged cues; columns: patterns written."
    heads = ["experiment", "data", "memory", "memory floats", *map(str, lengths)]
    return Section("Capacity", note, heads, rows)


def _per_cent(record: dict[str, Any]) -> str:
    """A share and its interval, in per cent."""
    interval = f" ± {100 * record['interval']:.2g}" if record["interval"] else ""
    return f"{100 * record['value']:.3g}{interval}"


def scaling_section(records: Sequence[dict[str, Any]]) -> Section:
    rows = []
    for (experiment, data, samples), group in grouped(records, "experiment", "data", "num_samples").items():
        found: dict[Any, dict[str, dict[str, Any]]] = {}
        for record in group:
            if cell := cell_of(record, "scaling"):
                found.setdefault(cell, {})[record["metric"]] = record
        for cell, both in found.items():
            numbers = (number(both.get("bound")), number(both.get("short_of_optimal"), 2))
            rows.append([experiment, data, samples, cell.classes, cell.examples, *numbers])
    note = (
        "Bound per image, nats, as classes are added to memory. A perfect model loses log C with C classes; the last "
        "column is what is lost beyond that, image by image. VMA, figure 5A."
    )
    heads = ["experiment", "data", "samples", "classes", "examples of each", "bound", "short of optimal"]
    return Section("Many classes in memory", note, heads, rows)


def classification_section(records: Sequence[dict[str, Any]]) -> Section:
    accuracies = [r for r in records if r["metric"] == "accuracy"]
    tasks = list(dict.fromkeys(r["note"].split(", ")[0] for r in accuracies))
    rows = []
    for (experiment, data, model), group in grouped(accuracies, "experiment", "data", "model").items():
        for scorer in dict.fromkeys(r["note"].rsplit("by ", 1)[-1] for r in group):
            found = {r["note"].split(", ")[0]: r for r in group if r["note"].endswith(f"by {scorer}")}
            rows.append([experiment, data, model, scorer, *(_beside_paper(found.get(task), 3) for task in tasks)])
    note = "Share of unwritten images given to their own class, without training. The paper's in brackets."
    heads = ["experiment", "data", "model", "scorer", *tasks]
    return Section("Few-shot classification", note, heads, rows)


def remarks_section(records: Sequence[dict[str, Any]], remarks: Mapping[str, str]) -> str:
    shown = dict.fromkeys(record["experiment"] for record in records)
    return "\n".join([*(f"- `{name}`: {remarks[name]}" for name in shown if name in remarks), ""]) if remarks else ""


def commands_section(records: Sequence[dict[str, Any]]) -> str:
    lines = []
    for record in records:
        line = f"- `{record['experiment']}` on {record['data']}, commit {record['commit']}: `{record['command']}`"
        if line not in lines:
            lines.append(line)
    return "\n".join(["## Commands", "", *lines, ""])


def _recall_rows(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    corrupted = {r["note"]: r for r in records if r["metric"] == "mse_corrupted"}
    removed = {r["note"]: r["value"] for r in records if r["metric"] == "error_removed"}
    rows = []
    for what, before in corrupted.items():
        after = next(r for r in records if r["metric"] == "mse_recalled" and r["note"].startswith(what + ";"))
        told = what.split("; ")[-1]
        reads = after["note"].rsplit(": ", 1)[-1]
        rows.append(
            [
                told,
                number(before, 4),
                f"{number(after, 4)} ({reads} read{'s' * (reads != '1')})",
                f"{removed[what]:.0%}",
            ]
        )
    return rows


def _is_episode(record: dict[str, Any]) -> bool:
    others = (_is_classes, is_fewshot, is_length)
    return "resized" not in (record["note"] or "") and not any(is_other(record) for is_other in others)


def _is_classes(record: dict[str, Any]) -> bool:
    return (record["note"] or "").startswith("episodes of")


def _beside_paper(record: dict[str, Any] | None, digits: int = 1) -> str:
    paper = None if record is None else record["paper_value"]
    return number(record, digits) + ("" if paper is None else f" ({paper:g})")


SECTIONS = (
    bounds_section, conditional_section, groups_section, lengths_section, recall_section, denoising_section,
    novelty_section, prior_section, resize_section, items_section, contexts_section, factors_section, fewshot_section,
    scaling_section, classification_section, capacity_section,
)  # fmt: skip
