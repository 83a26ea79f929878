"""A codec without nets: encodings are the vectors themselves, p(x | z) = N(z, 0.5 I); and a short training."""

import pytest
import torch
from torch import nn

from mnemon.distributions.gaussian import LOG_2PI
from mnemon.nets.codec import Codec

PIXEL_VAR = 0.5


class Vectors:
    """N(outputs, PIXEL_VAR I)."""

    is_density = True

    def num_outputs(self, channels):
        return channels

    def log_prob(self, outputs, x):
        gap = (x - outputs).square() / PIXEL_VAR
        return -0.5 * (gap + LOG_2PI + torch.tensor(PIXEL_VAR).log()).sum(-1)

    def mean(self, outputs):
        return outputs

    def sample(self, outputs, generator=None):
        noise = torch.randn(outputs.shape, dtype=outputs.dtype, generator=generator)
        return outputs + PIXEL_VAR**0.5 * noise


def vector_codec(dim):
    return Codec(
        (dim,),
        dim,
        encoder=nn.Identity(),
        head=None,
        decoder=nn.Identity(),
        likelihood=Vectors(),
        encoding_dim=dim,
    )


def vectors(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def refuses_items_of_another_size(model, x, other):
    """Whatever is asked with a memory `other`, of three items of three numbers, by a model of two."""
    for call in (
        lambda: model.write(x, prior=other),
        lambda: model.log_weights(other, x),
        lambda: model.sample(other),
        lambda: model.read(other, x),
    ):
        with pytest.raises(ValueError, match=r"items \(\*B, M, 2\), got \(3, 3\); items of another size"):
            call()


def learned(model, x, steps, rate):
    """The conditional bound per frame before each of some steps of Adam on one batch. Shapes: x (B, T, *X)"""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    values = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        loss = -model.terms(x, generator=generator).conditional.mean() / x.shape[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(-loss.item())
    return values
