"""The benchmark's stored results are what its stored answers come to, under the protocol as it is."""

import dataclasses
import json
import math
import re
import statistics
import tarfile
from pathlib import Path

import pytest
from safetensors.torch import load_file
from scipy import stats

from mnemon.evaluation.benchmark.cell import STEPS
from mnemon.evaluation.benchmark.grid import is_of_other_settings, plan, status
from mnemon.evaluation.benchmark.protocol import UNTRAINED, Protocol
from mnemon.evaluation.benchmark.store import UNDISTURBED, Answers, gather, stored_cells

RESULTS = Path(__file__).parents[2] / "results"
PROTOCOL = Protocol.load()
DOCS = " ".join((RESULTS.parent / "docs" / "benchmark.md").read_text(encoding="utf-8").split())
CPU = "1a91c14da8c0"
"""The commit at which ten cells of the third seed were run, on a CPU."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return _unpacked("answers.tar.xz", tmp_path_factory.mktemp("runs"))


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
        assert set(Answers.open(cell.folder(runs)).parts) == {*STEPS}, str(cell)
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


def test_the_docs_say_how_well_two_seeds_foretell_a_third(runs):
    """Third seeds of another machine, by their commit, in the 95% interval for one more of what two values come from:
    mean ± t s sqrt(1 + 1/2)."""
    half = stats.t.ppf(0.975, 1) * math.sqrt(1.5)
    inside = []
    for cell in stored_cells(runs, "omniglot") + stored_cells(runs, "fixed_mnist"):
        if cell.seed == 2 and _commit(cell, runs) == CPU:
            found = [_records(dataclasses.replace(cell, seed=seed), runs) for seed in range(3)]
            for asked in found[0].keys() & found[1].keys() & found[2].keys():
                first, second, third = (records[asked]["value"] for records in found)
                mean, spread = (first + second) / 2, abs(first - second) / math.sqrt(2)
                inside.append(abs(third - mean) <= half * spread + 1e-12)
    share = f"{100 * sum(inside) / len(inside):.1f}%"
    assert f"Of {len(inside):,} numbers of the ten cells of the CPU {sum(inside)} ({share})" in DOCS


def test_the_docs_say_which_numbers_came_again(runs, tmp_path):
    """Cells of glyphs, trained and asked twice by the same command, and judged by a classifier trained anew."""
    again = _unpacked("answers_again.tar.xz", tmp_path)
    same, inside, asked = ({"vma": 0, "others": 0} for _ in range(3))
    drawn_anew = []
    for cell in stored_cells(again, "glyphs"):
        kind = cell.kind if cell.kind in same else "others"
        first, second = _records(cell, runs), _records(cell, again)
        assert first.keys() == second.keys()
        for name, record in first.items():
            apart = abs(record["value"] - second[name]["value"])
            asked[kind] += 1
            same[kind] += apart == 0
            inside[kind] += apart <= (record["interval"] or 0)
            if kind == "others" and apart > 1e-4 * abs(record["value"]) and "judge" not in name[0]:
                assert cell.kind in UNTRAINED, name
                assert name[0].startswith("sample"), name
                drawn_anew.append(apart / record["value"])
    assert len(stored_cells(again, "glyphs")) == 21
    others = (
        f"of {asked['others']:,} numbers of the other 20 cells {inside['others']:,} lie within the stored intervals"
    )
    assert f"{others}, and {same['others']:,} are the same to the last of seven digits" in DOCS
    assert f"of its {asked['vma']} numbers {inside['vma']}" in DOCS
    assert len(drawn_anew) == 5
    assert "five are samples that a CPU drew the first time, and are 1 to 3% apart" in DOCS
    assert 0.005 < min(drawn_anew) < max(drawn_anew) < 0.035


def test_the_docs_say_how_far_apart_times_of_the_same_are(runs):
    """Four data sets have images of the same size, and the times of a model on them differ by the moment alone."""
    timed = ("write_latency", "read_latency", "write_rate", "read_rate", "train_step")
    times = {}
    for data in ("omniglot", "fixed_mnist", "fashion_mnist", "glyphs"):
        for record in gather(runs, data):
            if record["metric"] in timed and record["value"] is not None:
                times.setdefault((record["metric"], record["model"]), []).append(record["value"])
    apart = {asked: max(values) / min(values) for asked, values in times.items() if len(values) > 1}
    steps = [ratio for (metric, _), ratio in apart.items() if metric == "train_step"]
    others = [ratio for (metric, _), ratio in apart.items() if metric != "train_step"]
    assert f"up to {max(others):.1f} times ({statistics.median(others):.1f} in the median)" in DOCS
    assert f"there they differ by at most {100 * (max(steps) - 1):.0f}%" in DOCS


def _commit(cell, runs):
    return Answers.open(cell.folder(runs)).parts["bounds"][0]["commit"]


def _records(cell, runs):
    """Those with a value that time does not change, by what was asked."""
    names = ("metric", "bound", "scored", "episode_length", "memory_floats")
    parts = Answers.open(cell.folder(runs)).parts
    records = [record for part in parts if part not in UNDISTURBED for record in parts[part]]
    return {
        (re.sub(r"judge=[0-9.]+", "judge", r["note"]), *(r[name] for name in names)): r
        for r in records
        if r["value"] is not None
    }


def _lines(data):
    return [line for line in (RESULTS / f"memory_{data}.json").read_text(encoding="utf-8").splitlines() if "{" in line]
