"""Several processes train as one does: the same numbers but for the order of sums."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mnemon.data.corruptions import corrupt
from mnemon.training.loop import train
from mnemon.training.streams import EpisodeShard
from tests.training.cases import FEW_SHOT, RECALL, SIZES, config, fit, of_kind, records, store

ROOT = Path(__file__).parent.parent.parent
ALL_DRAWS = {
    "data": {"binarise": "dynamic", "duplicate": 2},
    "objective": {"write_fraction": 0.5, "recall_weight": 0.5, "corruption": "gaussian", "level": 0.2},
}
RAGGED = {"data": {"binarise": "dynamic", "episodes": "ragged", "min_length": 3}}
DOUBLE = {"training": {"precision": "64-true"}, "stages": [{"epochs": 2, "learning_rate": 5e-3, "patience": 0}]}

BATCH_NORMALISED = dict.fromkeys(
    ("kanerva-pp", "dkm-tsm", "pseudo-inverse", "vae-tsm"),
    "each process normalises by the statistics of its own images",
)


def cases():
    """Settings by name, in float64, where the order of sums hardly matters."""
    regulariser = {"regulariser": {"gamma": 0.5}}
    found = {kind: of_kind(kind, **ALL_DRAWS, **DOUBLE) for kind in SIZES if kind not in BATCH_NORMALISED}
    found["regularised"] = config(model=regulariser, **ALL_DRAWS, **DOUBLE)
    found["regularised-ragged"] = config(model=regulariser, objective=ALL_DRAWS["objective"], **RAGGED, **DOUBLE)
    found["sampled-block"] = config(
        model={"sampled_terms": True}, objective={"recall_weight": 1.0, "corruption": "block", "level": 5.0}, **DOUBLE
    )
    recall = {"recall_weight": 0.5, "corruption": "gaussian", "level": 0.2}
    for episodes in (FEW_SHOT, RECALL):
        data = {**episodes, "binarise": "dynamic", "duplicate": 2, "batch_size": 2}
        name = episodes["episodes"]
        found[f"vma-{name}"] = of_kind("vma", data=data, objective={"estimator": "gumbel", **recall}, **DOUBLE)
        found[f"gaussian-{name}"] = of_kind("vbm-gaussian", data=data, objective=recall, **DOUBLE)
    learned = {"num_slots": 5, "content_dim": 3, "architecture": "mlp", "similarity": "cosine"}
    found["vma-learned"] = of_kind("vma", model=learned, objective={"num_samples": 2}, **DOUBLE)
    found["odd-validation"] = config(data={"validation": 0.15, "batch_size": 6, "episode_length": 5}, **DOUBLE)
    return found


def assert_same_curve(one, other, tolerance):
    for first, second in zip(records(one), records(other), strict=True):
        first.pop("frames_per_second", None), second.pop("frames_per_second", None)
        assert first.keys() == second.keys()
        for key, value in first.items():
            assert second[key] == (value if isinstance(value, str) else pytest.approx(value, rel=tolerance)), key


def launch(*command, **environment):
    threads = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **threads}, timeout=300
    )


def test_two_processes_of_torchrun_train_as_one(tmp_path):
    """Every model, with every draw there is."""
    script = tmp_path / "both.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom tests.training.cases import fit\n"
        "from tests.training.test_processes import cases\n"
        "for name, settings in cases().items():\n    fit(settings, Path(sys.argv[1]) / name)\n"
    )
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = launch(*torchrun, str(script), str(tmp_path / "two"))
    assert done.returncode == 0, done.stderr
    for name, settings in cases().items():
        fit(settings, tmp_path / "one" / name)
        assert_same_curve(tmp_path / "two" / name, tmp_path / "one" / name, 2e-6)
        assert len(records(tmp_path / "two" / name)) == 5


def test_two_processes_of_the_command_line(tmp_path):
    """mnemon train --devices 2: as one, in float32, and what is printed is printed once, without a launcher's talk."""
    data = store(tmp_path)
    objective = ALL_DRAWS["objective"]
    settings = config(data={"name": str(data)}, model={"regulariser": {"gamma": 0.5}}, objective=objective)
    preset = tmp_path / "tiny.json"
    preset.write_text(json.dumps(settings.as_dict()))
    options = ("-m", "mnemon", "train", str(preset), "--accelerator", "cpu", "--json")
    done = launch(*options, "--devices", "2", "--out", str(tmp_path / "two"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    summary = json.loads(done.stdout)
    assert (summary["epochs"], summary["improved"]) == (3, True)
    train(settings, tmp_path / "one", accelerator="cpu", quiet=True)
    assert_same_curve(tmp_path / "two", tmp_path / "one", 1e-3)


@pytest.mark.parametrize(
    ("name", "level"), [("salt_and_pepper", 0.3), ("gaussian", 0.3), ("speckle", 0.3), ("block", 5)]
)
def test_corruptions_are_dealt_out(name, level):
    images = torch.linspace(0, 1, 4 * 3 * 64).view(4, 3, 1, 8, 8)
    whole, _ = corrupt(name, images, level, torch.Generator().manual_seed(5))
    for rank in range(2):
        generator, mine = torch.Generator().manual_seed(5), slice(2 * rank, 2 * rank + 2)
        with EpisodeShard(generator, 2, rank, 2):
            assert torch.equal(corrupt(name, images[mine], level, generator)[0], whole[mine])


def test_a_corruption_that_cannot_be_dealt_out():
    generator = torch.Generator().manual_seed(5)
    with EpisodeShard(generator, 2, 0, 2), pytest.raises(ValueError, match="poisson noise cannot be dealt out"):
        corrupt("poisson", torch.rand(2, 3, 1, 8, 8), 0.2, generator)


def test_a_batch_that_cannot_be_dealt_out(tmp_path):
    with pytest.raises(ValueError, match=r"batch_size x duplicate \(4\) to be divisible by the 3 processes"):
        fit(config(), tmp_path, devices=3)
    assert not list(tmp_path.iterdir())
