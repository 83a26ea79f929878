"""The pseudo-inverse memory between nets: its terms by hand, its bound against quadrature, what it refuses."""

import math

import numpy as np
import pytest
import torch

from mnemon.memories.pseudo_inverse import PseudoInverseMemory
from mnemon.models import PseudoInverseModel
from mnemon.registry import build_model
from mnemon.training.config import ModelConfig
from tests.models.toys import PIXEL_VAR, seeded, vector_codec, vectors

C, K, VAR = 4, 3, 0.2


def machine(code_dim=C, num_slots=K, **options):
    memory = PseudoInverseMemory(code_dim, num_slots, address_var=VAR, inverse_steps=None, **options)
    return PseudoInverseModel(vector_codec(code_dim), memory).double()


def log_normal(x, mean, variance):
    return -0.5 * ((x - mean) ** 2 / variance + np.log(2 * np.pi * variance)).sum(-1)


def by_hand(model, z):
    """M and the means of q(w) by NumPy's pseudo-inverses."""
    first = z @ np.linalg.pinv(model.slot_mean.detach().numpy())
    memory = np.linalg.pinv(first) @ z
    return memory, z @ np.linalg.pinv(memory)


def test_terms_with_the_same_noise():
    model, x = machine().eval(), vectors(6, C)
    terms = model.terms(x, generator=seeded(2))
    noise = torch.randn(6, K, dtype=torch.float64, generator=seeded(2)).numpy()
    memory, mean = by_hand(model, x.numpy())
    expected = log_normal(x.numpy(), (mean + math.sqrt(VAR) * noise) @ memory, PIXEL_VAR)
    np.testing.assert_allclose(terms.reconstruction.detach(), expected, rtol=1e-6)
    address_kl = 0.5 * (K * VAR + (mean**2).sum(-1) - K - K * math.log(VAR))
    np.testing.assert_allclose(terms.address_kl.detach(), address_kl, rtol=1e-6)
    assert terms.memory_kl is None
    assert not terms.code_kl.any()


def test_importance_weights_are_unbiased():
    """p(x | M) by quadrature over one weight."""
    model = machine(2, 1).eval()
    state, x = model.write(2 * vectors(4, 2)), vectors(2, seed=10)
    with torch.no_grad():
        grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None]
        given = torch.distributions.Normal(grid * state.R[0], PIXEL_VAR**0.5).log_prob(x).sum(-1)
        weight = -0.5 * grid[:, 0].square() - 0.5 * math.log(2 * math.pi) + math.log(16 / 4000)
        exact = (given + weight).logsumexp(0)
        draws = model.log_weights(state, x.expand(40_000, 2), generator=seeded())[0]
    weights = (draws - exact).exp()
    assert abs(weights.mean() - 1) < 5 * weights.std() / 200
    assert draws.mean() < exact


def test_shared_noise_is_one_number_for_an_episode():
    model, x = machine().eval(), vectors(2, 6, C)
    terms = model.shared_noise_terms(x, generator=seeded(2))
    noise = torch.randn(2, 1, 1, dtype=torch.float64, generator=seeded(2)).numpy()
    for episode in range(2):
        memory, mean = by_hand(model, x[episode].numpy())
        expected = log_normal(x[episode].numpy(), (mean + math.sqrt(VAR) * noise[episode]) @ memory, PIXEL_VAR)
        np.testing.assert_allclose(terms.reconstruction[episode], expected, rtol=1e-6)
    torch.testing.assert_close(terms.address_kl, model.terms(x).address_kl.detach())


def test_training_with_shared_noise_leaves_bounds_alone():
    memory = PseudoInverseMemory(C, K, address_var=VAR, inverse_steps=None)
    shared = PseudoInverseModel(vector_codec(C), memory, shared_noise=True).double()
    shared.load_state_dict(machine().state_dict())
    x = vectors(2, 6, C)
    for training in (True, False):
        found = shared.train(training).terms(x, generator=seeded(2)).reconstruction
        other = machine().train(training)
        other.load_state_dict(shared.state_dict())
        same = other.shared_noise_terms if training else other.terms
        torch.testing.assert_close(found, same(x, generator=seeded(2)).reconstruction)
    for training in (True, False):
        both = [model.train(training) for model in (shared, other)]
        assert torch.equal(*(model.log_weights(model.write(x), x, generator=seeded()) for model in both))


def test_as_many_slots_as_frames_hold_every_code():
    model, x = machine(C, C).eval(), vectors(C, C)
    torch.testing.assert_close(model.read(model.write(x), x), x)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model.write(x[order]).R, model.write(x).R)


def test_noise_on_codes_is_for_training_alone():
    model, x = machine(input_var=0.5), vectors(5, C)
    noisy = [model.train().write(x, generator=seeded(seed)).R for seed in range(2)]
    assert not torch.allclose(*noisy)
    assert torch.equal(*(model.eval().write(x, generator=seeded(seed)).R for seed in range(2)))


def test_the_slots_are_learned():
    model = machine()
    model.terms(vectors(2, 5, C), generator=seeded()).conditional.sum().backward()
    assert model.slot_mean.grad.abs().sum() > 0
    assert model.log_address_std.grad.abs() > 0


def test_refusals():
    with pytest.raises(ValueError, match="nothing is a bound"):
        machine(shared_noise=True)
    model, x = machine().eval(), vectors(5, C)
    with pytest.raises(ValueError, match="cannot be written on into"):
        model.write(x, prior=model.write(x))
    with pytest.raises(ValueError, match=r"use \.conditional"):
        model.terms(x).joint
    with pytest.raises(ValueError, match="TSMResNet"):
        PseudoInverseModel(vector_codec(C), PseudoInverseMemory(C, K), encode_together=True)


def test_the_published_size():
    made = build_model(ModelConfig(kind="pseudo-inverse", image_shape=(1, 28, 28), num_filters=4, code_dim=100))
    assert isinstance(made, PseudoInverseModel)
    with torch.no_grad():
        state = made.eval().write((torch.rand(2, 32, 1, 28, 28) < 0.2).float())
    assert state.R.shape == (2, 32, 100)
    with pytest.raises(ValueError, match="no use for it"):
        build_model(ModelConfig(kind="pseudo-inverse", image_shape=(1, 28, 28), slot_var=2.0))
