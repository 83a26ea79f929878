"""The benchmark's stored results are what its stored answers come to, under the protocol as it is."""

import itertools
import json
import math
import re
import statistics
import tarfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from safetensors.torch import load_file

from mnemon.evaluation.benchmark.cell import STEPS
from mnemon.evaluation.benchmark.grid import is_of_other_settings, plan, status
from mnemon.evaluation.benchmark.protocol import UNTRAINED, Protocol
from mnemon.evaluation.benchmark.store import UNDISTURBED, Answers, Cell, gather, stored_cells
from mnemon.evaluation.questions import BY_NAME, read_note
from mnemon.registry import MODELS

RESULTS = Path(__file__).parents[2] / "results"
PROTOCOL = Protocol.load()
DOCS = " ".join((RESULTS.parent / "docs" / "benchmark.md").read_text(encoding="utf-8").split())
ONE_SEED = ("glyphs", "fashion_mnist", "cifar10")
THREE_SEEDS = ("omniglot", "fixed_mnist")
TIMED = ("write_latency", "read_latency", "write_rate", "read_rate")
TRAINED_ON_CLASSES = ("omniglot", "glyphs")
TO_COME = "class_bounds"
HAS_TO_COME = {*MODELS} - {"ebmm", "vbm-categorical"}
"""What the next run has to ask: see docs/benchmark.md."""
MENDED = "vbm-categorical"
"""Asked again on a CPU when its write had changed: what it had answered before says nothing of these answers."""
ORTHOGONAL = ("kanerva-pp", "vae-tsm")
"""Models whose first weights depended on the number of threads when these cells were run."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return _unpacked("answers.tar.xz", tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """The same cells in another run."""
    return _unpacked("answers_again.tar.xz", tmp_path_factory.mktemp("again"))


def _unpacked(name, folder):
    with tarfile.open(RESULTS / "memory" / name) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("data", PROTOCOL.sets)
def test_results_are_those_of_the_answers(runs, data):
    assert gather(runs, data) == json.loads((RESULTS / f"memory_{data}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("data", PROTOCOL.sets)
def test_answers_are_of_the_protocol_as_it_is(runs, data):
    cells = stored_cells(runs, data)
    assert set(cells) == set(plan(PROTOCOL, data=[data]))
    for cell in cells:
        to_come = {TO_COME} if data in TRAINED_ON_CLASSES and cell.kind in HAS_TO_COME else set()
        assert set(Answers.open(cell.folder(runs)).parts) == {*STEPS} - to_come, str(cell)
    assert not [str(cell) for cell in cells if is_of_other_settings(cell, PROTOCOL, runs)]
    assert not [str(cell) for cell in cells if status(cell, PROTOCOL, runs).failed]


@pytest.mark.parametrize("data", PROTOCOL.sets)
def test_every_model_has_a_picture(data):
    cells = {cell.kind for cell in plan(PROTOCOL, data=[data])}
    without = {json.loads(line.rstrip(",\n"))["model"] for line in _lines(data) if "holds bits" in line}
    assert {path.stem for path in (RESULTS / "memory" / data).glob("*.png")} == cells - without


@pytest.mark.parametrize("data", PROTOCOL.sets)
def test_samples_were_judged_by_the_judge_that_is_stored(data):
    accuracy = float(load_file(RESULTS / "memory" / data / "judge.safetensors")["accuracy"])
    told = {found for line in _lines(data) for found in re.findall(r"judge=([0-9.]+)", line)}
    assert told == {f"{accuracy:.3g}"}


def test_the_docs_say_which_numbers_came_again(runs, again):
    """Cells of the sets of one seed, trained and asked twice by the same command."""
    counts = {one_thread: Counter() for one_thread in (True, False)}
    for cell in (cell for data in ONE_SEED for cell in stored_cells(again, data) if cell.kind != MENDED):
        count = counts[cell.data == "glyphs" or cell.kind not in ORTHOGONAL]
        count["cells"] += 1
        first, second = _records(cell, runs), _records(cell, again)
        assert first.keys() == second.keys()
        for name, record in first.items():
            apart = abs(record["value"] - second[name]["value"])
            count.update(numbers=1, same=apart == 0, inside=apart <= (record["interval"] or 0))
            if count is counts[True] and "judge" not in name[0]:
                _check_how_far(cell, name[0], apart / abs(record["value"]) if apart else 0.0)
    held, other = counts[True], counts[False]
    assert f"Of {held['numbers']:,} numbers of {held['cells']} cells {held['inside']:,} lie within" in DOCS
    assert f"{held['same']:,} are the same to the last of seven digits" in DOCS
    assert held["inside"] == held["numbers"]
    assert f"{other['inside']} of {other['numbers']} numbers of these {other['cells']} cells" in DOCS


def _check_how_far(cell, question, apart):
    """As the docs have it: samples that a CPU drew the first time, reads by descent, and sums in whatever order."""
    if cell.kind in UNTRAINED:
        assert apart == 0 or (question.startswith("sample") and 0.005 < apart < 0.035)
    else:
        assert apart < (0.004 if cell.kind == "ebmm" else 0.0002)


def test_the_docs_say_how_two_trainings_of_three_seeds_compare(runs, again):
    """The earlier one summed in whatever order, partly on a CPU."""
    inside = []
    for data in THREE_SEEDS:
        first, second = ({_asked(r): r for r in gather(folder, data) if _can_come_again(r)} for folder in (runs, again))
        assert first.keys() == second.keys()
        inside += [
            abs(record["value"] - second[asked]["value"]) <= (record["interval"] or 0)
            for asked, record in first.items()
        ]
    share = f"{100 * sum(inside) / len(inside):.1f}%"
    assert f"of {len(inside):,} numbers {sum(inside):,} ({share}) lie within the interval" in DOCS


def test_the_docs_say_which_third_seeds_came_again(runs, again):
    """Those that were trained by kernels that sum in one order both times."""
    came = {}
    for data, kind in itertools.product(THREE_SEEDS, ("ebmm", "gmn", "vae-tsm")):
        first, second = (_records(Cell(data, kind, 2), folder) for folder in (runs, again))
        pairs = [(first[name], second[name]) for name in first.keys() & second.keys()]
        came[data, kind] = [abs(a["value"] - b["value"]) <= (a["interval"] or 0) for a, b in pairs]
    lost = came.pop(("fixed_mnist", "ebmm"))
    assert all(all(found) for found in came.values())
    assert f"{len(came)} come again, with all of {sum(map(len, came.values()))} numbers" in DOCS
    assert f"{sum(lost)} of {len(lost)} numbers within" in DOCS


def test_the_docs_say_how_far_apart_costs_of_the_same_are(runs):
    """Four data sets have images of the same size, and what a model costs on them differs by the moment alone."""
    found = defaultdict(list)
    for data in (*THREE_SEEDS, "fashion_mnist", "glyphs"):
        for record in gather(runs, data):
            if record["metric"] in (*TIMED, "train_step", "peak_memory") and record["value"] is not None:
                found[record["metric"], record["model"]].append(record)
    apart = defaultdict(list)
    for (metric, _), records in found.items():
        values = [record["value"] for record in records]
        apart["times" if metric in TIMED else metric].append(max(values) / min(values))
    times = apart["times"]
    assert f"up to {max(times):.1f} times ({statistics.median(times):.1f} in the median)" in DOCS
    assert f"training steps by at most {100 * (max(apart['train_step']) - 1):.0f}%" in DOCS
    assert f"peaks of memory by at most {100 * (max(apart['peak_memory']) - 1):.0f}%" in DOCS
    pairs = [pair for (metric, _), same in found.items() if metric in TIMED for pair in itertools.combinations(same, 2)]
    covered = [abs(a["value"] - b["value"]) <= math.hypot(a["interval"], b["interval"]) for a, b in pairs]
    share = f"{100 * sum(covered) / len(covered):.1f}%"
    assert f"of {len(covered)} pairs of such numbers {sum(covered)} ({share}) differ by no more" in DOCS


def _records(cell, runs):
    """Those with a value that time does not change, by what was asked."""
    parts = Answers.open(cell.folder(runs)).parts
    records = [record for part in parts if part not in UNDISTURBED for record in parts[part]]
    return {_asked(record): record for record in records if record["value"] is not None}


def _asked(record):
    """What a number is of, whoever judged it."""
    names = ("model", "metric", "bound", "scored", "episode_length", "memory_floats")
    return re.sub(r"judge=[0-9.]+", "judge", record["note"]), *(record[name] for name in names)


def _can_come_again(record):
    """Numbers of trainings, and of questions that were asked both times; of what was mended those that are the same,
    since every slot had an item."""
    question = read_note(record["note"]).question
    few = question in ("fewshot", "distractors") or record["episode_length"] < 48
    return (
        record["value"] is not None
        and record["model"] not in UNTRAINED
        and BY_NAME[question].group != "cost"
        and not question.endswith("_classes")
        and not (record["model"] == MENDED and few)
    )


def _lines(data):
    return [line for line in (RESULTS / f"memory_{data}.json").read_text(encoding="utf-8").splitlines() if "{" in line]
