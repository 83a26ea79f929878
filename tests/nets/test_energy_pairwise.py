"""The pairwise energy: its sum by loops, its floats, its symmetries, and the Hopfield network that writing makes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemon.memories.fast_weights import FastWeightState
from mnemon.memories.hopfield import write_couplings
from mnemon.models.energy import EnergyModel
from mnemon.models.hopfield import HopfieldModel
from mnemon.nets.energy_pairwise import CEILING, CONFINEMENT, MARGIN, SHARPNESS, PairwiseEnergy

SHAPE, D = (1, 2, 3), 6
TINY = 1e-12


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def bits(*shape, seed=0):
    return torch.randint(2, shape, generator=torch.Generator().manual_seed(seed)).double()


def make(shape=SHAPE, **options):
    """Rates and steps that fit the size, without training: see the preset."""
    root = math.sqrt(math.prod(shape))
    options = {"write_steps": 15, "read_steps": 15, "write_rate": (0.2 * root, TINY, TINY), **options}
    return EnergyModel(PairwiseEnergy(shape), read_rate=0.05 / root, **options).double()


def matrix(weights, size):
    """Couplings pair by pair, row after row, and the thresholds that follow them."""
    W, place = torch.zeros(size, size, dtype=weights.dtype), 0
    for i in range(size):
        for j in range(i + 1, size):
            W[i, j] = W[j, i] = weights[place]
            place += 1
    return W, weights[place:]


def test_the_energy_unit_by_unit():
    net, weights, x = PairwiseEnergy(SHAPE).double(), draw(D * (D + 1) // 2), draw(3, *SHAPE, seed=1).sigmoid()
    W, b = matrix(weights, D)
    root = math.sqrt(D)
    beta, kappa, a, c = SHARPNESS / root, MARGIN * root, CEILING * root, CONFINEMENT * root
    expected = []
    for item in x:
        s = [2 * float(value) - 1 for value in item.flatten()]
        energy = 0.0
        for j in range(D):
            field = float(b[j]) + sum(float(W[i, j]) * s[i] for i in range(D) if i != j)
            agreement = s[j] * a * math.tanh(field / a)
            energy += math.log1p(math.exp(beta * (kappa - agreement))) / beta + c * s[j] ** 2 / 2
        expected.append(energy)
    found = net.with_memory(weights, x)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_it_has_the_floats_of_a_hopfield_network():
    shape = (1, 8, 16)
    model, hopfield = make(shape, write_steps=1).float(), HopfieldModel(shape)
    assert model.net.memory_layers() == [128 * 127 // 2, 128]
    floats = model.memory_floats(model.write(bits(3, *shape).float()))
    assert floats == hopfield.memory_floats(hopfield.prior_state()) == 8256
    with pytest.raises(ValueError, match="at least two pixels"):
        PairwiseEnergy((1, 1, 1))


def test_couplings_are_symmetric_without_a_diagonal():
    couplings = PairwiseEnergy(SHAPE).double().memory[0]
    with torch.no_grad():
        couplings.weight.copy_(draw(D * (D - 1) // 2))
    W = couplings.matrix()
    assert torch.equal(W, W.mT)
    assert torch.equal(W.diagonal(), torch.zeros(D, dtype=torch.float64))
    assert torch.equal(W, matrix(couplings.weight, D)[0])


def test_the_first_step_is_hebbs_rule():
    """With no couplings yet, every unit lacks the same: the step is Hebb's, times 2 rate sigmoid(beta kappa) D / T."""
    model, x = make(write_steps=1), bits(4, *SHAPE)
    W, b = matrix(model.write(x).weights.detach(), D)
    signs, rate = 2 * x.flatten(1) - 1, 0.2 * math.sqrt(D) / (1 + math.exp(-MARGIN * SHARPNESS))
    torch.testing.assert_close(W, 2 * rate * D / 4 * write_couplings(signs, "hebb"), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(b, rate * signs.mean(0), rtol=1e-6, atol=1e-8)


def test_the_gradient_norm_alone_is_the_projection_rule():
    """Fields that neither saturate nor reach the margin make the energy quadratic, with slopes c s - 2 W s - b: steps
    on their norm lead to couplings under which every pattern is a multiple of its own field."""
    model, x = make(write_steps=300, write_rate=(TINY, 2e-3, TINY)), bits(2, *SHAPE)
    with torch.no_grad():
        for name in ("ceiling", "margin"):
            model.net.raw[name].fill_(1e4)
        model.net.confinement.fill_(1.0)
        W, b = matrix(model.write(x).weights, D)
    s = 2 * x.flatten(1) - 1
    torch.testing.assert_close(2 * s @ W + b, math.sqrt(D) * s, rtol=1e-3, atol=1e-3)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), length=st.integers(1, 5))
def test_no_pattern_is_preferred(seed, length):
    """Turning the same pixels of all patterns and cues over turns what is read over, and leaves every energy."""
    model, turned = make(write_rate=(0.5, 1e-3, 1e-3)), bits(*SHAPE, seed=seed)
    x, cue = bits(length, *SHAPE, seed=seed + 1), draw(2, *SHAPE, seed=seed + 2).sigmoid()
    both = [(x - turned).abs(), (cue - turned).abs()]
    state, other = model.write(x), model.write(both[0])
    torch.testing.assert_close(model.energy(other, both[1]), model.energy(state, cue))
    torch.testing.assert_close(model.read(other, both[1]), (model.read(state, cue) - turned).abs())


def test_writing_learns_margins_as_a_perceptron_in_every_unit_would():
    """24 patterns of 64 bits: Hebb leaves units that turn away from their pattern. A perceptron, which adds Hebb's
    product for the units that lack the margin and nothing else, leaves none; nor does writing."""
    shape, size = (1, 8, 8), 64
    x = bits(24, *shape)
    s = 2 * x.flatten(1) - 1
    kept = s * (s @ write_couplings(s, "hebb"))
    assert kept.min() < 0
    W = torch.zeros(size, size, dtype=torch.float64)
    for _ in range(200):
        lacking = torch.where(s * (s @ W) < 1, s, 0.0)
        W = W + (lacking.mT @ s + s.mT @ lacking).fill_diagonal_(0) / (4 * size)
    assert (s * (s @ W)).min() > 0.99
    model = make(shape)
    with torch.no_grad():
        written, b = matrix(model.write(x, num_steps=100).weights, size)
        agreement = s * (s @ written + b) / math.sqrt(size)
        assert agreement.min() > 0.99 * MARGIN
        upper = torch.triu_indices(size, size, 1).unbind()
        assert torch.corrcoef(torch.stack((W[upper], written[upper])))[0, 1] > 0.95


@pytest.mark.parametrize(("patterns", "at_most"), [(4, 0.0), (16, 0.002), (24, 0.01)])
def test_it_corrects_flips_better_than_storkey(patterns, at_most):
    """Without any training, 64 units, a tenth of the bits flipped."""
    shape = (1, 8, 8)
    model, storkey = make(shape), HopfieldModel(shape, "storkey")
    x = bits(20, patterns, *shape)
    cue = torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.1, 1 - x, x)
    wrong = []
    with torch.no_grad():
        for each in (model, storkey):
            wrong.append(float(((each.read(each.write(x), cue) > 0.5) != (x > 0.5)).double().mean()))
    assert wrong[0] <= at_most
    assert wrong[0] <= wrong[1]


def test_a_given_memory_is_read_as_its_hopfield_network_would():
    """One stored pattern in couplings of any size, and a cue of a third of its bits wrong: both end at the pattern."""
    shape = (1, 4, 6)
    s = 2 * bits(24) - 1
    cue = s.clone()
    cue[:8] *= -1
    upper = torch.triu_indices(24, 24, 1).unbind()
    for scale in (0.3, 1.0, 30.0):
        weights = torch.cat((scale * torch.outer(s, s)[upper], torch.zeros(24, dtype=torch.float64)))
        read = make(shape).read(FastWeightState(weights), ((cue + 1) / 2).view(1, *shape))
        assert torch.equal(read.flatten() > 0.5, s > 0)
