"""Training steps replayed as CUDA graphs train as plain ones do. Needs a GPU."""

import json

import pytest
import torch

from mnemon import presets
from mnemon.training.loop import train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


def losses(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {(record["kind"], record["epoch"]): record["loss"] for record in records}


@pytest.mark.parametrize("preset", ["digits-gaussian", "glyphs-mixture", "glyphs-vma"])
def test_a_replayed_training_is_the_plain_one(preset, tmp_path):
    found = {}
    for graphs in ("none", "steps"):
        settings = [f'training.graphs="{graphs}"', "stages.0.epochs=1", "training.validation_batches=1"]
        train(presets.load(preset).with_settings(settings), tmp_path / graphs, quiet=True)
        found[graphs] = losses(tmp_path / graphs)
    assert ("train", 1) in found["none"]
    # the same draws in the same order: sums in another order are all that tells them apart, until one of them draws
    # another address; so what is compared after the epoch may be further apart than what is averaged over it
    assert found["steps"]["train", 1] == pytest.approx(found["none"]["train", 1], rel=1e-2)
    assert found["steps"]["validation", 1] == pytest.approx(found["none"]["validation", 1], rel=5e-2)
