"""What log-weights, bounds, densities and samples say, against the same distributions written out another way.

Given w, cluster and segment, every memory here is a Gaussian over codes with M and b integrated out; w is put on a
Gauss-Hermite grid and clusters are enumerated, so that p(z | state) is a finite mixture of Gaussians. The decoder is
linear, so p(x | state) is one too.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from mnemon import CategoricalMemory, GaussianMemory, KanervaMemory, MixtureMemory, TreeMemory
from mnemon.memories.categorical import CategoricalState
from mnemon.memories.gaussian_sweeps import GaussianState
from mnemon.memories.kanerva import KanervaState
from mnemon.memories.mixture import MixtureState
from mnemon.memories.tree import TreeState
from mnemon.models import VAE, CountState, KanervaMachine, MemoryVAE, NeuralStatistician, StochasticRegulariser
from mnemon.models.codec_model import log_normal
from mnemon.models.statistician import ContextState
from mnemon.nets.codec import Codec
from tests.models.toys import PIXEL_VAR, Vectors, seeded, vector_codec, vectors

B, Q, C, X, S2 = 2, 3, 4, 5, 1.3
DRAWS = 40_000
ALWAYS = StochasticRegulariser(always=True)


@dataclass(frozen=True)
class Gaussians:
    """sum_i exp(log_prob_i) N(mean_i, diag(variance_i)). Shapes: (n), (n, C), (n, C)"""

    log_prob: Tensor
    mean: Tensor
    variance: Tensor

    def log_density(self, points, weight=None, bias=0.0, noise=0.0):
        """Of points that are `weight` times a draw, plus bias and noise. Shapes: (Q, X) -> (Q)"""
        eye = torch.eye(points.shape[-1], dtype=points.dtype)
        weight = eye if weight is None else weight
        covariance = (weight * self.variance[:, None, :]) @ weight.mT + noise * eye
        each = MultivariateNormal(self.mean @ weight.mT + bias, covariance).log_prob(points[:, None])
        return (self.log_prob + each).logsumexp(-1)

    def wave(self, direction):
        """E exp(i a'z), as its two parts. Shapes: (C) -> ()"""
        size = (self.log_prob - 0.5 * self.variance @ direction.square()).exp()
        angle = self.mean @ direction
        return (size * angle.cos()).sum(), (size * angle.sin()).sum()


def grid(dims, nodes=24):
    """Gauss-Hermite points of N(0, I) and their log-weights. Shapes: -> (n, dims), (n)"""
    points, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(nodes))
    index = torch.cartesian_prod(*[torch.arange(nodes)] * dims).reshape(-1, dims)
    return points[index], (weights / weights.sum()).log()[index].sum(-1)


def linear(R, U, mu_b, v_b, noise):
    """p(z) of one cluster, w on the grid."""
    w, log_prob = grid(R.shape[-2])
    variance = torch.einsum("nk,kl,nl->n", w, U, w) + v_b + noise
    return Gaussians(log_prob, w @ R + mu_b, variance[:, None].expand(-1, R.shape[-1]))


def mixed(parts, log_prob):
    """Gaussians drawn with the given log-probabilities."""
    moved = [part.log_prob + chance for part, chance in zip(parts, log_prob, strict=True)]
    return Gaussians(*(torch.cat(one) for one in (moved, [p.mean for p in parts], [p.variance for p in parts])))


def stacked(left, right):
    """Two independent codes, one behind the other."""
    i, j = torch.cartesian_prod(torch.arange(len(left.log_prob)), torch.arange(len(right.log_prob))).unbind(-1)
    mean, variance = (torch.cat((getattr(left, f)[i], getattr(right, f)[j]), -1) for f in ("mean", "variance"))
    return Gaussians(left.log_prob[i] + right.log_prob[j], mean, variance)


def exact(state, noise=S2, counted=False):
    """p(z | state) of one episode. `counted`: a tree's sequences by their counts, as it generates."""
    if isinstance(state, CategoricalState):
        K = len(state.R)
        variance = (state.U_diag + noise)[:, None].expand(state.R.shape)
        return Gaussians(torch.full((K,), -math.log(K), dtype=state.R.dtype), state.R, variance)
    if isinstance(state, GaussianState | KanervaState):
        shifted = state.mu_b is not None
        return linear(state.R, state.U, state.mu_b if shifted else 0.0, state.v_b if shifted else 0.0, noise)
    U, H = state.U, state.R.shape[-3]
    if isinstance(state, MixtureState):
        parts = [linear(state.R[h], U[h], state.mu_b[h], state.v_b[h], noise) for h in range(H)]
        return mixed(parts, [-math.log(H)] * H)
    parts = [linear(*(t.flatten(0, 1)[i] for t in (state.R, U, state.mu_b, state.v_b)), noise) for i in range(2 * H)]
    sequences = [stacked(parts[i], parts[H + j]) for i, j in itertools.product(range(H), repeat=2)]
    chance = state.counts / state.counts.sum() if counted else torch.full_like(state.counts, 1 / H**2)
    return mixed(sequences, chance.log())


def covariances(*shape, size=0.05):
    noise = vectors(*shape, shape[-1], seed=5)
    return size * (0.5 * torch.eye(shape[-1], dtype=torch.float64) + 0.5 * noise @ noise.mT / shape[-1])


H = 3
COUNTS = torch.tensor([[5.0, 0, 1, 0, 3, 0, 2, 0, 0], [0, 0, 0, 4, 1, 1, 0, 0, 2]])
SLOTS = {"R": 0.4 * vectors(B, 2, C), "U": covariances(B, 2)}
SHIFT = {"mu_b": 0.7 * vectors(B, C, seed=1), "v_b": torch.tensor([0.1, 0.3])}
CASES = {
    "gaussian": (GaussianMemory(C, 2, S2), GaussianState.from_moments(**SLOTS)),
    "shifted": (GaussianMemory(C, 2, S2, shift=True), GaussianState.from_moments(**SLOTS, **SHIFT)),
    "categorical": (
        CategoricalMemory(C, 4, S2),
        CategoricalState(0.7 * vectors(B, 4, C), 0.02 + 0.1 * vectors(B, 4, seed=1).square()),
    ),
    "mixture": (
        MixtureMemory(C, 2, S2, num_clusters=H),
        MixtureState.from_moments(
            R=0.4 * vectors(B, H, 2, C), U=covariances(B, H, 2), mu_b=0.7 * vectors(B, H, C, seed=1),
            v_b=0.1 * vectors(B, H, seed=2).square(),
        ),
    ),
    "tree": (
        TreeMemory(C, 1, S2, num_segments=2, num_clusters=H),
        TreeState.from_moments(
            R=0.5 * vectors(B, 2, H, 1, 2), U=covariances(B, 2, H, 1), mu_b=0.7 * vectors(B, 2, H, 2, seed=1),
            v_b=0.1 * vectors(B, 2, H, seed=2).square(), counts=COUNTS,
        ),
    ),
    "kanerva": (KanervaMemory(C, 2, S2, address_var=0.6), KanervaState.from_moments(**SLOTS)),
}  # fmt: skip
CASES = {name: (memory, state.to(torch.float64)) for name, (memory, state) in CASES.items()}
memories = pytest.mark.parametrize("name", CASES)


class FixedHead(nn.Module):
    def forward(self, encoding):
        return encoding, torch.full_like(encoding, 0.65)


def linear_codec(head=True):
    """x ~ N(W z + bias, PIXEL_VAR I) with orthonormal columns, and a ridge regression as encoder."""
    encoder, decoder = nn.Linear(X, C).double(), nn.Linear(C, X).double()
    with torch.no_grad():
        decoder.weight.copy_(torch.linalg.qr(vectors(X, C, seed=3))[0])
        decoder.bias.copy_(0.2 * vectors(X, seed=4))
        encoder.weight.copy_(decoder.weight.mT / (1 + PIXEL_VAR))
        encoder.bias.copy_(-encoder.weight @ decoder.bias)
    parts = {"encoder": encoder, "head": FixedHead() if head else None, "decoder": decoder}
    return Codec((X,), C, **parts, likelihood=Vectors(), encoding_dim=C)


@torch.no_grad()
def log_evidence(codec, codes, x):
    """log p(x) of episodes, their codes being mixtures of Gaussians. Shapes: (B, Q, X) -> (B, Q)"""
    weight, bias = codec.decoder.weight, codec.decoder.bias
    return torch.stack([p.log_density(q, weight, bias, PIXEL_VAR) for p, q in zip(codes, x, strict=True)])


IMAGES = linear_codec().image(0.6 * vectors(B, Q, C, seed=6)).detach()


@torch.no_grad()
def assert_unbiased(model, state, codes):
    """Weights average to p(x), item by item: every item is asked about DRAWS times."""
    many = IMAGES.repeat_interleave(DRAWS, dim=1)
    log_weights = model.log_weights(state, many, num_samples=2, generator=seeded(9))
    log_weights = log_weights.unflatten(-1, (Q, DRAWS)).movedim(0, -2).flatten(-2)
    ratio = (log_weights - log_evidence(model.codec, codes, IMAGES)[..., None]).exp()
    error = ratio.std(-1) / ratio.shape[-1] ** 0.5
    assert error.max() < 0.01, f"the test is blunt: {error}"
    assert ((ratio.mean(-1) - 1).abs() < 4.5 * error).all(), (ratio.mean(-1), error)


@memories
@pytest.mark.parametrize("mode", ["plain", "always", "training"])
def test_weights_of_a_memory_vae_average_to_the_evidence(name, mode):
    """However the regulariser moves q(z), its mean or its draws, the weights correct for it."""
    memory, state = CASES[name]
    model = MemoryVAE(linear_codec(), memory, regulariser=None if mode == "plain" else ALWAYS)
    assert_unbiased(model.train(mode == "training"), state, [exact(state[i]) for i in range(B)])


def test_weights_of_the_other_models_average_to_the_evidence():
    one = torch.ones(1, C, dtype=torch.float64)
    prior = Gaussians(torch.zeros(1, dtype=torch.float64), 0 * one, one)
    assert_unbiased(VAE(linear_codec()), CountState(torch.zeros(B)), [prior] * B)
    machine = KanervaMachine(linear_codec(head=False), CASES["kanerva"][0]).double()
    state = CASES["kanerva"][1]
    state = state.replace(U_chol=torch.tensor([[0.2, 0.0], [0.7, 0.3]], dtype=torch.float64).expand(B, 2, 2))
    assert_unbiased(machine, state, [exact(state[i], noise=0.0) for i in range(B)])
    torch.manual_seed(0)
    statistician = NeuralStatistician(linear_codec(head=False), context_dim=2).double()
    mean, std = 0.5 * vectors(B, 2), 0.5 + vectors(B, 2, seed=1).square()
    c, log_prob = grid(2)
    with torch.no_grad():
        statistician.to_code[-1].weight.mul_(0.5)  # q(z | x, c) wide, so that the weights vary little
        statistician.to_code[-1].bias.fill_(-0.1)
        moments = [statistician.code_prior(mean[i] + std[i] * c) for i in range(B)]
    context = ContextState(mean, std, vectors(B, C), torch.ones(B))
    assert_unbiased(statistician, context, [Gaussians(log_prob, m, s.square()) for m, s in moments])


@torch.no_grad()
@memories
def test_more_samples_tighten_the_bound_towards_the_evidence(name):
    memory, state = CASES[name]
    model, gaps = MemoryVAE(linear_codec(), memory), []
    truth = log_evidence(model.codec, [exact(state[i]) for i in range(B)], IMAGES)
    many = IMAGES.repeat_interleave(2000, dim=1)
    for samples in (1, 4, 32):
        bound = model.log_likelihood(state, many, num_samples=samples, generator=seeded())
        assert (bound.kind, bound.num_samples) == ("elbo" if samples == 1 else "iwae", samples)
        draws = model.log_weights(state, many, num_samples=samples, generator=seeded())
        torch.testing.assert_close(bound.value, draws.exp().mean(0).log())
        gaps.append(truth - bound.value.unflatten(-1, (Q, 2000)).mean(-1))
    gaps = torch.stack(gaps)
    assert (gaps[:-1] > gaps[1:]).all()
    assert gaps[0].min() > 0.02
    assert gaps[2].min() > -0.01
    assert gaps[2].max() < 0.1


@memories
def test_densities_of_latent_memories(name):
    """`log_density` is exact for the mean memory; `log_likelihood` bounds the density with M and b integrated out."""
    memory, state = CASES[name]
    zeros = {field: torch.zeros_like(t) for field, t in state.tensors().items() if field in ("U_chol", "U_diag", "v_b")}
    certain, z = state.replace(**zeros), 1.5 * vectors(B, 8, C, seed=8)
    means = torch.stack([exact(certain[i]).log_density(z[i]) for i in range(B)])
    torch.testing.assert_close(memory.log_density(state, z), means, atol=1e-4, rtol=1e-4)
    truth = torch.stack([exact(state[i]).log_density(z[i]) for i in range(B)])
    bound = memory.log_likelihood(state, z)
    assert bound.kind == "elbo"
    assert (bound.value < truth).all()
    assert (truth - bound.value).median() < 1
    if name == "kanerva":  # whose q(w) has a variance of its own
        return
    torch.testing.assert_close(memory.log_likelihood(certain, z).value, memory.log_density(state, z))
    drawn = memory.explain(certain, z, generator=seeded())  # from the exact posterior: every weight is the evidence
    weight = drawn.log_ratio + log_normal(z, drawn.mean, drawn.variance)
    torch.testing.assert_close(weight, memory.log_density(state, z))


@pytest.mark.parametrize("name", ["gaussian", "shifted", "kanerva"])
def test_one_slot_one_dimension_by_quadrature_over_the_memory_itself(name):
    """K = C = 1: M, b and w all on a grid, nothing integrated by algebra."""
    state = CASES[name][1][0]
    state = state.replace(R=state.R[:1, :1].abs(), U_chol=state.U_chol[:1, :1] + 0.3)
    points, log_prob = grid(3, nodes=48)
    m, w, b = points.unbind(-1)
    mean = (state.R[0, 0] + state.U_chol[0, 0] * m) * w
    if name == "shifted":
        state = state.replace(mu_b=state.mu_b[:1])
        mean = mean + state.mu_b + state.v_b.sqrt() * b
    z = torch.linspace(-3, 3, 13, dtype=torch.float64)[:, None]
    truth = (log_prob - 0.5 * ((z - mean).square() / S2 + math.log(2 * math.pi * S2))).logsumexp(-1)
    torch.testing.assert_close(exact(state).log_density(z), truth, atol=1e-3, rtol=0)
    gap = truth - CASES[name][0].replace(code_dim=1, num_slots=1).log_likelihood(state, z).value
    assert gap.min() > -1e-3
    assert gap.max() < 2


@memories
def test_samples_follow_the_density(name):
    memory, state = CASES[name]
    for noise in (S2, 0.0):
        z = memory.sample(state, 100_000, noise=noise > 0, generator=seeded(3))
        for i in range(B):
            expected = exact(state[i], noise=noise, counted=True)
            for direction in (*torch.eye(C, dtype=torch.float64), *vectors(6, C, seed=4), *2 * vectors(6, C, seed=5)):
                angle = z[i] @ direction
                for part, truth in zip((angle.cos(), angle.sin()), expected.wave(direction), strict=True):
                    assert (part.mean() - truth).abs() < 4.5 * part.std() / len(part) ** 0.5 + 1e-6


@pytest.mark.parametrize("name", ["categorical", "mixture", "tree"])
def test_every_cluster_is_drawn_as_often_as_it_should(name):
    """Locations far apart tell which cluster made a sample. A tree draws the sequences that it counted."""
    memory, state = CASES[name]
    far = "R" if name == "categorical" else "mu_b"
    state = state.replace(**{far: 100 * getattr(state, far)})
    for counts in (state.counts, 0 * state.counts) if name == "tree" else (torch.zeros(1),):
        given = state.replace(counts=counts) if name == "tree" else state
        z = memory.sample(given, 20_000, generator=seeded(2))
        if name == "tree":
            own = [torch.cdist(z[..., 2 * g : 2 * g + 2], state.mu_b[:, g]).argmin(-1) for g in range(2)]
            cluster, number = own[0] * H + own[1], H * H
        else:
            cluster, number = torch.cdist(z, getattr(state, far)).argmin(-1), getattr(state, far).shape[-2]
        share = nn.functional.one_hot(cluster, number).double().mean(-2)
        truth = counts / counts.sum(-1, keepdim=True) if counts.any() else torch.full_like(share, 1 / number)
        assert ((share - truth).abs() <= 4.5 * (truth * (1 - truth) / 20_000).sqrt()).all()
        assert torch.equal(share > 0, truth > 0)


def test_images_are_encoded_once_for_all_samples_and_drawn_as_if_for_each():
    model, x = KanervaMachine(vector_codec(C), KanervaMemory(C, 3, S2)).double(), vectors(B, Q, C)
    state = model.write(x)
    calls = []
    model.codec.encoder.register_forward_hook(lambda *_: calls.append(1))
    together = model.log_weights(state, x, num_samples=3, generator=seeded(5))
    assert len(calls) == 1
    generator = seeded(5)
    for sample in together:
        assert torch.equal(sample, model.log_weights(state, x, generator=generator)[0])
