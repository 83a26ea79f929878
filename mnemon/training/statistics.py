"""Batch statistics that belong to the present weights.

Batch normalisation keeps running averages for evaluation, of weights that have changed since. (On CIFAR-10 at a
learning rate of 1e-3, validation bounds jumped by a hundred nats between epochs while training rose smoothly; we take
this for the reason, but have not measured it apart.) Before validating, they are averaged anew over a few training
batches. Training itself does not use them, so it stays the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

NUM_BATCHES = 8


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """The layers whose evaluation depends on statistics of batches."""
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]


@contextlib.contextmanager
def averaging(layers: list[_BatchNorm]) -> Iterator[None]:
    """While active, the layers forget what they gathered and average the batches they see, all alike."""
    before = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    try:
        yield
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum
