"""Training steps replayed as CUDA graphs train as plain ones do. Needs a GPU."""

import pytest
import torch

from mnemon import presets
from mnemon.training.loop import train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


@pytest.mark.parametrize("preset", ["digits-gaussian", "glyphs-mixture", "glyphs-vma"])
def test_a_replayed_training_is_the_plain_one(preset, tmp_path):
    weights = {}
    for graphs in ("none", "steps"):
        settings = [f'training.graphs="{graphs}"', "stages.0.epochs=1", "training.validation_batches=1"]
        config = presets.load(preset).with_settings(settings)
        train(config, tmp_path / graphs, quiet=True)
        weights[graphs] = torch.load(tmp_path / graphs / "state.ckpt", weights_only=False)["model"]
    for name, plain in weights["none"].items():
        torch.testing.assert_close(weights["steps"][name], plain, rtol=1e-2, atol=1e-3)
