"""Under which conditions the benchmark's numbers of a data set were found, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from mnemon.evaluation.questions import BY_NAME, benchmark_records, question_of


def conditions(records: Sequence[Mapping[str, Any]], data: str) -> str:
    """Models, updates, pixels, seeds, and what the intervals are over."""
    mine = [record for record in benchmark_records(records) if record["data"] == data and record["value"] is not None]
    told = [f"{len({record['model'] for record in mine})} models"]
    for key, name in (("updates", "updates"), ("binarisation", "pixels")):
        values = list(dict.fromkeys(record[key] for record in mine if record[key] is not None))
        if len(values) == 1:
            told.append(f"{values[0]:,} {name}" if key == "updates" else f"{name}: {values[0]}")
        elif values and key == "updates":
            told.append(f"{min(values):,} to {max(values):,} {name}")
    numbers = sorted({record["num_seeds"] or 1 for record in mine if record["updates"] and not _is_asked_once(record)})
    if not any(record["updates"] for record in mine):
        return f"{'; '.join(told)}; nothing was trained. Intervals are over test episodes, of times over rounds."
    return f"{'; '.join(told)}; {_seeds(numbers or [1])}"


def _seeds(numbers: Sequence[int]) -> str:
    told = f"{' or '.join(map(str, numbers))} seed{'s' * (numbers[-1] > 1)}."
    if numbers[-1] > 1:
        told += (
            " The interval is over seeds, for the mean of their trainings; one training more falls into it with a "
            f"probability of {chance_of_another(numbers[-1]):.0%}. Of memories that are not trained it is over test "
            "episodes, and of times over rounds."
        )
    if 1 in numbers:
        whose = "Of models with one seed it" if len(numbers) > 1 else "The interval"
        told += (
            f" {whose} is over test episodes alone, of times over rounds: another training of the same model may fall "
            "outside it."
        )
    return told + (" Intervals over two seeds are very wide." if 2 in numbers else "")


def chance_of_another(number: int) -> float:
    """Of another value to lie in Student's 95% interval of the mean of so many, normal ones."""
    reach = stats.t.ppf(0.975, number - 1) / math.sqrt(number + 1)  # of its distance from the mean, in deviations
    return float(1 - 2 * stats.t.sf(reach, number - 1))


def _is_asked_once(record: Mapping[str, Any]) -> bool:
    """Whether it is measured with the first seed only, as times are."""
    return BY_NAME[question_of(record)].group == "cost"
