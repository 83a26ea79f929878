"""Tables of what memories hold: conditional bounds beside the papers', episodes of any length, and denoising."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mnemon.evaluation.denoising import READS, point_of
from mnemon.evaluation.page_section import Section, grouped, grouped_by, number

ENCODED = re.compile(r"encoded (together|alone)")
WRITTEN, NO_BOUND, TOGETHER = "the scored frames are those that were written", "NO BOUND", "frames encoded together"
PLAIN = (WRITTEN, NO_BOUND, TOGETHER)
"""How notes begin of what the parts "bounds" and "shared-noise" measure, where they are not empty."""
TRAINED = ("experiment", "episode_length", "updates", "seed")
MEASUREMENT = ("experiment", "data", "updates", "seed", "episode_length", "memory_floats", "num_samples", "scored")
"""Records that are alike in all of these are parts of one measurement."""


def is_length(record: dict[str, Any]) -> bool:
    """Whether a record is of the part "lengths"."""
    return (record["note"] or "").startswith("lengths: ")


def conditional_section(records: Sequence[dict[str, Any]]) -> Section:
    """Models with a published conditional number, and those that have no other bound."""
    rows = []
    for (experiment, data, *_), group in grouped(records, *MEASUREMENT).items():
        plain = {(r["metric"], r["bound"]): r for r in group if (r["note"] or WRITTEN).startswith(PLAIN)}
        bound = plain.get(("bound", "conditional"))
        bits = plain.get(("bits_per_dim", "conditional"))
        published = [r for r in (bound, bits) if r is not None and r["paper_value"] is not None]
        if bound is None or not (published or ("bound", "joint") not in plain):
            continue
        other = plain.get(("no_bound", None))
        paper = "; ".join(f"{abs(r['paper_value']):g} {r['unit'].split('/')[0]}" for r in published)
        parts = [number(plain.get((name, None))) for name in ("reconstruction", "code_kl", "address_kl")]
        rows.append([
            experiment, data, bound["episode_length"], bound["memory_floats"], _encoding(bound), number(bound),
            "" if bits is None else f"{bits['value']:.2f}", "" if other else paper, *parts, bound["updates"],
        ])  # fmt: skip
        if other:  # as the paper's number was made
            rows.append([experiment, data, other["episode_length"], other["memory_floats"], "shared noise: NO BOUND",
                         number(other), "", paper, "", "", "", other["updates"]])  # fmt: skip
    note = (
        "Conditional bound per written frame of i.i.d. episodes, nats, and what it is made of; one sample. Papers give "
        "negative bounds, without the length of episodes. The next table says how much of it is storage."
    )
    heads = ["experiment", "data", "T", "memory floats", "frames encoded", "conditional", "bits/dim", "paper",
             "reconstruction", "KL of codes", "KL of addresses", "updates"]  # fmt: skip
    return Section("Conditional bounds", note, heads, rows)


def lengths_section(records: Sequence[dict[str, Any]]) -> Section:
    """A row for each model and what is scored, a column for each number of frames."""
    found = [record for record in records if is_length(record) and record["metric"] == "bound"]
    lengths = sorted({record["episode_length"] for record in found})
    rows = []
    for key, group in grouped(found, "experiment", "data", "memory_floats", "updates", "seed").items():
        experiment, data, floats, updates, _ = key
        for (scored, encoded), values in grouped_by(group, lambda r: (r["scored"], _encoding(r))).items():
            by_length = {record["episode_length"]: number(record) for record in values}
            what = (scored.replace("_", " "), encoded)
            rows.append([experiment, data, updates, floats, *what, *map(by_length.get, lengths)])
    note = (
        "Conditional bound per frame, nats, of written frames and of their twins, other images of their classes that "
        "were not written; columns: frames written. Where both are alike, the memory holds nothing of its frames."
    )
    heads = ["experiment", "data", "updates", "memory floats", "scored", "frames encoded", *map(str, lengths)]
    return Section("Episodes of any length", note, heads, rows)


def denoising_section(records: Sequence[dict[str, Any]]) -> Section:
    """For each noise, levels from weak to strong: the noisy images, then what each model leaves."""
    found = [(point, record) for record in records if (point := point_of(record)) is not None]
    rows = []
    for (data, noise), group in grouped_by(found, lambda pair: (pair[1]["data"], pair[0].noise)).items():
        levels = sorted({point.level for point, _ in group})
        noisy = {point.level: record["value"] for point, record in group if point.reads == 0}
        name = noise.replace("_", " ")
        rows.append([data, name, "level of the noise", "", "", *(f"{level:g}" for level in levels)])
        before = (f"{noisy[level]:.4f}" if level in noisy else "" for level in levels)
        rows.append([data, name, "noisy", "", "", *before])
        after = [(point, record) for point, record in group if point.reads == READS]
        for key, values in grouped_by(after, lambda pair: tuple(pair[1][key] for key in TRAINED)).items():
            left = {point.level: record for point, record in values}
            rows.append([data, name, *key[:-1], *(number(left.get(level), 4) for level in levels)])
    width = max((len(row) for row in rows), default=5) - 5
    note = f"Squared error per pixel of noisy written images, and what {READS} reads leave of it. K++, 4.1."
    heads = ["data", "noise", "memory", "T", "updates", *(f"level {place + 1}" for place in range(width))]
    return Section("Denoising", note, heads, rows)


def _encoding(record: dict[str, Any]) -> str:
    found = ENCODED.search(record["note"] or "")
    return found[1] if found else "alone"
