"""Tables of what memories hold: conditional bounds beside the papers', episodes of any length, and denoising."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mnemon.evaluation.denoising import READS, point_of
from mnemon.evaluation.page_section import Section, grouped, grouped_by, number

ENCODED = re.compile(r"encoded (together|alone)")


def is_length(record: dict[str, Any]) -> bool:
    """Whether a record is of the part "lengths"."""
    return (record["note"] or "").startswith("lengths: ")


def conditional_section(records: Sequence[dict[str, Any]]) -> Section:
    """Models with a published conditional number, and those that have no other bound."""
    rows = []
    for (experiment, data, _), group in grouped(records, "experiment", "data", "updates").items():
        plain = {(r["metric"], r["bound"]): r for r in group if not is_length(r) and r["scored"] == "written"
                 and not (r["note"] or "").startswith("episodes of")}  # fmt: skip
        bound = plain.get(("bound", "conditional"))
        bits = plain.get(("bits_per_dim", "conditional"))
        published = [r for r in (bound, bits) if r is not None and r["paper_value"] is not None]
        if bound is None or not (published or ("bound", "joint") not in plain):
            continue
        paper = "; ".join(f"{abs(r['paper_value']):g} {r['unit'].split('/')[0]}" for r in published)
        parts = [number(plain.get((name, None))) for name in ("reconstruction", "code_kl", "address_kl")]
        rows.append([
            experiment, data, bound["episode_length"], bound["memory_floats"], _encoding(bound), number(bound),
            "" if bits is None else f"{bits['value']:.2f}", paper, *parts, bound["updates"],
        ])  # fmt: skip
        if (other := plain.get(("no_bound", None))) is not None:
            rows.append([experiment, data, other["episode_length"], other["memory_floats"], "shared noise: NO BOUND",
                         number(other), "", "", "", "", "", other["updates"]])  # fmt: skip
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
    for (experiment, data, floats), group in grouped(found, "experiment", "data", "memory_floats").items():
        for (scored, encoded), values in grouped_by(group, lambda r: (r["scored"], _encoding(r))).items():
            by_length = {record["episode_length"]: number(record) for record in values}
            rows.append([experiment, data, floats, scored.replace("_", " "), encoded, *map(by_length.get, lengths)])
    note = (
        "Conditional bound per frame, nats, of written frames and of their twins, other images of their classes that "
        "were not written; columns: frames written. Where both are alike, the memory holds nothing of its frames."
    )
    heads = ["experiment", "data", "memory floats", "scored", "frames encoded", *map(str, lengths)]
    return Section("Episodes of any length", note, heads, rows)


def denoising_section(records: Sequence[dict[str, Any]]) -> Section:
    """For each noise, levels from weak to strong: the noisy images, then what each model leaves."""
    found = [(point, record) for record in records if (point := point_of(record)) is not None]
    rows = []
    for (data, noise), group in grouped_by(found, lambda pair: (pair[1]["data"], pair[0].noise)).items():
        levels = sorted({point.level for point, _ in group})
        noisy = {point.level: record["value"] for point, record in group if point.reads == 0}
        name = noise.replace("_", " ")
        rows.append([data, name, "level of the noise", *(f"{level:g}" for level in levels)])
        rows.append([data, name, "noisy", *(f"{noisy[level]:.4f}" for level in levels)])
        after = [(point, record) for point, record in group if point.reads == READS]
        for experiment, values in grouped_by(after, lambda pair: pair[1]["experiment"]).items():
            left = {point.level: record for point, record in values}
            rows.append([data, name, experiment, *(number(left.get(level), 4) for level in levels)])
    width = max((len(row) for row in rows), default=3) - 3
    note = f"Squared error per pixel of noisy written images, and what {READS} reads leave of it. K++, 4.1."
    heads = ["data", "noise", "memory", *(f"level {place + 1}" for place in range(width))]
    return Section("Denoising", note, heads, rows)


def _encoding(record: dict[str, Any]) -> str:
    found = ENCODED.search(record["note"] or "")
    return found[1] if found else "alone"
