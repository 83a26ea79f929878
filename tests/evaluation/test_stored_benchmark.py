"""The benchmark's stored results are what its stored answers come to, under the protocol as it is."""

import dataclasses
import json
import math
import re
import tarfile
from pathlib import Path

import pytest
from safetensors.torch import load_file
from scipy import stats

from mnemon.evaluation.benchmark.cell import STEPS
from mnemon.evaluation.benchmark.grid import is_of_other_settings, plan, status
from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.evaluation.benchmark.store import UNDISTURBED, Answers, Cell, gather, stored_cells

RESULTS = Path(__file__).parents[2] / "results"
PROTOCOL = Protocol.load()
TO_COME = {Cell(data, kind, 2) for data in ("omniglot", "fixed_mnist") for kind in ("gmn", "vae-tsm", "ebmm")}
"""Third seeds that have not been run; docs/benchmark.md says so."""
CPU = "1a91c14da8c0"
"""The commit at which ten of the others were run, on a CPU."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with tarfile.open(RESULTS / "memory" / "answers.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("data", PROTOCOL.sets)
def test_results_are_those_of_the_answers(runs, data):
    assert gather(runs, data) == json.loads((RESULTS / f"memory_{data}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("data", PROTOCOL.sets)
def test_answers_are_of_the_protocol_as_it_is(runs, data):
    cells = stored_cells(runs, data)
    planned = set(plan(PROTOCOL, data=[data]))
    assert planned.difference(cells) == TO_COME & planned
    assert planned.issuperset(cells)
    for cell in cells:
        assert {*STEPS} - {*Answers.open(cell.folder(runs)).parts} <= {"training"}, str(cell)
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
            first, second, third = (_numbers(dataclasses.replace(cell, seed=seed), runs) for seed in range(3))
            for asked in first.keys() & second.keys() & third.keys():
                mean, spread = (first[asked] + second[asked]) / 2, abs(first[asked] - second[asked]) / math.sqrt(2)
                inside.append(abs(third[asked] - mean) <= half * spread + 1e-12)
    told = (
        f"of {len(inside):,} numbers of the ten cells of the CPU {sum(inside)} ({100 * sum(inside) / len(inside):.1f}%)"
    )
    assert told in (RESULTS.parent / "docs" / "benchmark.md").read_text(encoding="utf-8")


def _commit(cell, runs):
    return Answers.open(cell.folder(runs)).parts["bounds"][0]["commit"]


def _numbers(cell, runs):
    names = ("note", "metric", "bound", "scored", "episode_length")
    parts = Answers.open(cell.folder(runs)).parts
    records = [record for part in parts if part not in UNDISTURBED for record in parts[part]]
    return {tuple(r[name] for name in names): r["value"] for r in records if r["value"] is not None}


def _lines(data):
    return [line for line in (RESULTS / f"memory_{data}.json").read_text(encoding="utf-8").splitlines() if "{" in line]
