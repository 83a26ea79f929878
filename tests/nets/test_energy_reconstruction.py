"""The reconstruction energy: its sum written out, its frequencies, and what it recalls before any training."""

import math

import pytest
import torch

from mnemon.models.energy import EnergyModel
from mnemon.nets.energy_reconstruction import ReconstructionEnergy, low_frequencies

SHAPE = (1, 6, 6)
TINY = 1e-12


def draw(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_energy_written_out():
    torch.manual_seed(0)
    net = ReconstructionEnergy((2, 5, 7), dynamic_size=4, key_size=3, hidden=6, channels=2).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.4)
    weights, x = draw(12, seed=1), draw(2, 2, 5, 7, seed=2)
    s = 2 * x - 1
    keys = torch.tanh(net.key(s)) / math.sqrt(3)
    codes = torch.stack([weights.view(4, 3) @ key for key in keys])
    recall = torch.tanh(codes @ net.linear.weight.T + net.decoder(2 * codes)).view(x.shape)
    maps = net.local(torch.cat((s, recall), 1))
    expected = [
        0.5 * net.scale * sum((s[i] - recall[i]).flatten() ** 2)
        + sum(net.local_weight[c] * maps[i, c].sum() for c in range(2))
        for i in range(2)
    ]
    torch.testing.assert_close(net.with_memory(weights, x), torch.stack(expected))
    assert net.memory_layers() == [12]


@pytest.mark.parametrize("shape", [(1, 4, 6), (2, 3, 3), (3, 4, 4)])
def test_frequencies_are_orthonormal_and_begin_with_the_mean(shape):
    basis = low_frequencies(shape, math.prod(shape)).double()
    torch.testing.assert_close(basis @ basis.T, torch.eye(len(basis)).double(), atol=1e-5, rtol=0)
    first = basis[0].view(shape)
    assert torch.allclose(first[0], first[0, 0, 0])
    assert torch.equal(low_frequencies(shape, 3), low_frequencies(shape, math.prod(shape))[:3])


def test_writing_stores_at_once_and_reading_finds_it():
    """Before training: the memory is a delta rule on codes of all frequencies, so what is recalled of a written image
    comes near to it, and a read from a damaged cue ends nearer to it than it began."""
    torch.manual_seed(0)
    net = ReconstructionEnergy(SHAPE, dynamic_size=36, key_size=24, hidden=48, channels=8)
    rates = {"write_rate": (24.0 / 36, TINY, TINY), "read_rate": 0.05, "read_momentum": 0.1}
    model = EnergyModel(net, write_steps=40, **rates).double()
    x = (draw(3, *SHAPE) < 0.5).double()
    state = model.write(x)
    assert (model.energy(state, x) < 0.2 * model.energy(model.prior_state(), x)).all()
    cue = torch.where(draw(3, *SHAPE, seed=1) < 0.1, 1 - x, x)
    before, after = ((image - x).square().mean() for image in (cue, model.read(state, cue)))
    assert after < 0.5 * before


def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="dynamic_size: expected at most the 36 numbers of an image, got 37"):
        ReconstructionEnergy(SHAPE, dynamic_size=37)
    with pytest.raises(ValueError, match="read_momentum: expected a number between 0 and 1, got 1"):
        EnergyModel(ReconstructionEnergy(SHAPE, dynamic_size=3), read_momentum=1)
