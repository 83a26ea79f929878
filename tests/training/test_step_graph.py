"""Training steps replayed as CUDA graphs train as plain ones do, and what cannot be captured is taken plainly."""

import json

import pytest
import torch

from mnemon import presets
from mnemon.training.loop import train
from mnemon.training.step_graph import StepGraphs


def losses(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {(record["kind"], record["epoch"]): record["loss"] for record in records}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
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


class Uncaptured(StepGraphs):
    """As one is whose step waits for a value; trying to capture it takes a GPU."""

    def _capture(self, inputs, count):
        return None


def test_a_step_that_cannot_be_captured_is_the_plain_one():
    """With the draws of its seed, the numbers of the moment, and gradients that are written anew."""
    net = torch.nn.Linear(3, 2).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    inputs = (x, None, None, None, None)

    def step(given, generator, numbers):
        noise = torch.randn(5, 2, dtype=torch.float64, generator=generator)
        loss = (numbers[0] * net(given[0]) * noise).sum()
        return loss, torch.stack([loss.detach(), numbers[1].double()])

    graphs = Uncaptured(net, step, lambda loss: loss.backward())
    for seed, numbers in ((3, (0.5, 7.0)), (4, (2.0, 8.0))):
        noise = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        loss, given = graphs.run(inputs, seed, numbers)
        torch.testing.assert_close(loss, (numbers[0] * (x @ net.weight.T + net.bias) * noise).sum().detach())
        assert given == numbers[1]
        torch.testing.assert_close(net.weight.grad, numbers[0] * noise.T @ x)
