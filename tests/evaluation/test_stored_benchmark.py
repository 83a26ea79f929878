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

from mnemon.data.catalog import load
from mnemon.evaluation.benchmark.cell import STEPS
from mnemon.evaluation.benchmark.grid import is_of_other_settings, plan, status
from mnemon.evaluation.benchmark.protocol import UNTRAINED, Protocol
from mnemon.evaluation.benchmark.store import UNDISTURBED, Answers, gather, holds_several_image_sets, stored_cells
from mnemon.evaluation.questions import BY_NAME, read_note
from mnemon.registry import MODELS

RESULTS = Path(__file__).parents[2] / "results"
PROTOCOL = Protocol.load()
DOCS = " ".join((RESULTS.parent / "docs" / "benchmark.md").read_text(encoding="utf-8").split())
ALIKE = ("omniglot", "fixed_mnist", "fashion_mnist", "glyphs")
"""Data sets with images of the same size."""
TIMED = ("write_latency", "read_latency", "write_rate", "read_rate")
ON_A_CPU = "vbm-categorical"
"""Trained once on a GPU; its other run is of a CPU."""
UNASKED = {"joint_classes", "conditional_classes", "sample_fidelity: judge", "sample_diversity: judge"}
"""Not asked of all cells in the other run."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return _unpacked("answers.tar.xz", tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """Cells in another run: `same` with the same images, `other` with those of MNIST in another order."""
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
    assert set(cells) == set(plan(PROTOCOL, data=[data], kinds=(*MODELS, *UNTRAINED)))  # and not installed ones
    for cell in cells:
        assert set(Answers.open(cell.folder(runs)).parts) == {*STEPS}, str(cell)
    assert not [str(cell) for cell in cells if is_of_other_settings(cell, PROTOCOL, runs)]
    assert not [str(cell) for cell in cells if status(cell, PROTOCOL, runs).failed]
    assert not holds_several_image_sets(runs, data)


def test_the_answers_go_with_the_images_that_come_with_the_package(runs):
    images = {split: load("glyphs", split).fingerprint for split in ("train", "test")}
    assert all(Answers.open(cell.folder(runs)).images == images for cell in stored_cells(runs, "glyphs"))


@pytest.mark.parametrize("data", PROTOCOL.sets)
def test_every_model_has_a_picture(data):
    cells = {cell.kind for cell in plan(PROTOCOL, data=[data], kinds=(*MODELS, *UNTRAINED))}
    without = {json.loads(line.rstrip(",\n"))["model"] for line in _lines(data) if "holds bits" in line}
    assert {path.stem for path in (RESULTS / "memory" / data).glob("*.png")} == cells - without


@pytest.mark.parametrize("data", PROTOCOL.sets)
def test_samples_were_judged_by_the_judge_that_is_stored(data):
    accuracy = float(load_file(RESULTS / "memory" / data / "judge.safetensors")["accuracy"])
    told = {found for line in _lines(data) for found in re.findall(r"judge=([0-9.]+)", line)}
    assert told == {f"{accuracy:.3g}"}


def test_the_docs_say_which_numbers_came_again(runs, again):
    """Cells that were run twice by the same command, with the same images."""
    count = Counter()
    for cell in _cells(again / "same"):
        if cell.kind == ON_A_CPU:
            continue
        count["cells"] += 1
        first, second = _records(cell, runs), _records(cell, again / "same")
        assert {name[0] for name in first.keys() ^ second.keys()} <= UNASKED
        for name in second:
            apart = abs(first[name]["value"] - second[name]["value"])
            count.update(numbers=1, same=apart == 0, inside=apart <= (first[name]["interval"] or 0))
            if "judge" not in name[0]:
                _check_how_far(cell, name[0], apart / abs(first[name]["value"]) if apart else 0.0)
    assert f"Of {count['numbers']:,} numbers of {count['cells']} cells {count['inside']:,} lie within" in DOCS
    assert f"{count['same']:,} are the same to the last of seven digits" in DOCS
    assert count["inside"] == count["numbers"]
    training = " ".join((RESULTS.parent / "docs" / "training.md").read_text(encoding="utf-8").split())
    assert f"of {count['cells']} cells of the benchmark all did" in training


def _check_how_far(cell, question, apart):
    """As the docs have it: samples that a CPU drew the first time, reads by descent, and sums in whatever order."""
    if cell.kind in UNTRAINED:
        assert apart == 0 or (question.startswith("sample") and 0.005 < apart < 0.035)
    else:
        assert apart < (0.004 if cell.kind == "ebmm" else 0.001)


def test_the_docs_say_how_another_training_comes_out(runs, again):
    """Three seeds, with the images in another order, or on another kind of machine."""
    mnist = _inside(runs, again / "other", "fixed_mnist")
    inside, number = map(sum, zip(*mnist.values(), strict=True))
    assert f"of {number:,} numbers {inside:,} ({_share(inside, number)}) lie within" in DOCS
    assert "{} of {} of `ebmm`".format(*mnist.pop("ebmm")) in DOCS
    inside, number = map(sum, zip(*mnist.values(), strict=True))
    assert f"of the others {_share(inside, number)}" in DOCS
    omniglot = _inside(runs, again / "same", "omniglot")[ON_A_CPU]
    assert "{} of {} on MNIST and {} of {} on Omniglot".format(*mnist[ON_A_CPU], *omniglot) in DOCS


def _inside(runs, other, data):
    """By model: how many of another run's numbers lie within the interval over three seeds, of how many."""
    first, second = ({_asked(r): r for r in gather(folder, data) if _is_of_a_training(r)} for folder in (runs, other))
    found = defaultdict(list)
    for asked in first.keys() & second.keys():
        apart = abs(first[asked]["value"] - second[asked]["value"])
        found[first[asked]["model"]].append(apart <= (first[asked]["interval"] or 0))
    return {model: (sum(inside), len(inside)) for model, inside in found.items()}


def _share(part, whole):
    return f"{100 * part / whole:.1f}%"


def test_the_docs_say_how_far_apart_costs_of_the_same_are(runs):
    """Four data sets have images of the same size, and what a model costs on them differs by the moment alone."""
    found = defaultdict(list)
    for data in ALIKE:
        for record in gather(runs, data):
            if record["metric"] in (*TIMED, "train_step", "peak_memory") and record["value"] is not None:
                found[record["metric"], record["model"]].append(record)
    apart = defaultdict(list)
    for (metric, _), records in found.items():
        values = [record["value"] for record in records]
        apart["times" if metric in TIMED else metric].append(max(values) / min(values))
    times = apart["times"]
    assert f"up to {max(times):.1f} times ({statistics.median(times):.1f} in the median)" in DOCS
    assert f"training steps by less than {math.ceil(100 * (max(apart['train_step']) - 1))}%" in DOCS
    assert f"peaks of memory by less than {math.ceil(100 * (max(apart['peak_memory']) - 1))}%" in DOCS
    pairs = [pair for (metric, _), same in found.items() if metric in TIMED for pair in itertools.combinations(same, 2)]
    covered = [abs(a["value"] - b["value"]) <= math.hypot(a["interval"], b["interval"]) for a, b in pairs]
    told = f"of {len(covered)} pairs of such numbers {sum(covered)} ({_share(sum(covered), len(covered))}) differ"
    assert f"{told} by no more" in DOCS


def _records(cell, runs):
    """Those with a value that time does not change, by what was asked."""
    parts = Answers.open(cell.folder(runs)).parts
    records = [record for part in parts if part not in UNDISTURBED for record in parts[part]]
    return {_asked(record): record for record in records if record["value"] is not None}


def _asked(record):
    """What a number is of, whoever judged it."""
    names = ("model", "metric", "bound", "scored", "episode_length", "memory_floats")
    return re.sub(r"judge=[0-9.]+", "judge", record["note"]), *(record[name] for name in names)


def _is_of_a_training(record):
    """A number that a training decides, and time does not."""
    cost = BY_NAME[read_note(record["note"]).question].group == "cost"
    return record["value"] is not None and record["model"] not in UNTRAINED and not cost


def _cells(runs):
    return [cell for data in PROTOCOL.sets for cell in stored_cells(runs, data)]


def _lines(data):
    return [line for line in (RESULTS / f"memory_{data}.json").read_text(encoding="utf-8").splitlines() if "{" in line]
