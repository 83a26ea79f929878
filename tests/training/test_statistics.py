"""Batch statistics are those of the present weights, and training does not notice."""

import torch

from mnemon.nets.conv import ConvEncoder
from mnemon.training.statistics import averaging, batch_norms
from tests.training.cases import SHAPE, fit, of_kind, records


def test_averages_of_the_batches_seen():
    torch.manual_seed(0)
    net = ConvEncoder(SHAPE, 4, num_filters=4, improved=False).train()
    (first, *_) = layers = batch_norms(net)
    seen = []
    first.register_forward_hook(lambda _layer, given, _output: seen.append(given[0].mean((0, 2, 3))))
    net(torch.rand(5, *SHAPE))  # forgotten
    with torch.no_grad(), averaging(layers):
        for _ in range(3):
            net(torch.rand(5, *SHAPE))
    torch.testing.assert_close(first.running_mean, torch.stack(seen[1:]).mean(0))
    assert first.momentum == 0.1
    assert batch_norms(ConvEncoder(SHAPE, 4, num_filters=4)) == []


def test_weights_do_not_depend_on_them(tmp_path):
    """Two trainings whose validation differs in length walk the same way."""
    curves = []
    for batches in (1, 2):
        settings = of_kind("vae", model={"architecture": "basic"}, training={"seed": 3, "validation_batches": batches})
        fit(settings, tmp_path / str(batches))
        curves.append([line["loss"] for line in records(tmp_path / str(batches), "train")])
    assert curves[0] == curves[1]
    assert curves[0][-1] < curves[0][0]
