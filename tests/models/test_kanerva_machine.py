import math

import numpy as np
import pytest
import torch

from mnemon import GaussianMemory, KanervaMemory
from mnemon.models import KanervaMachine
from mnemon.nets.codec import Codec
from mnemon.nets.resnet_tsm import tsm_codec
from mnemon.objectives import Estimator
from tests.models.separation import check_unwritten_frames_stay_out
from tests.models.toys import PIXEL_VAR, seeded, vector_codec, vectors

C, K, S2 = 4, 3, 0.7


def machine(online=True, **options):
    memory = KanervaMemory(C, K, S2, address_var=0.2, online=online)
    return KanervaMachine(vector_codec(C), memory, **options).double()


def log_normal(x, mean, variance):
    return -0.5 * ((x - mean) ** 2 / variance + np.log(2 * np.pi * variance)).sum(-1)


def write_by_hand(R, z, online):
    """Section 6 of the design, in NumPy, from U0 = I."""
    U = np.eye(K)
    if not online:
        W = np.linalg.solve(R @ R.T + S2 * np.eye(K), R @ z.T).T
        U_new = np.linalg.inv(np.eye(K) + W.T @ W / S2)
        return U_new @ (R + W.T @ z / S2), U_new
    for item in z:
        w = np.linalg.solve(R @ R.T + S2 * np.eye(K), R @ item)
        c = U @ w / (w @ U @ w + S2)
        R, U = R + np.outer(c, item - R.T @ w), U - np.outer(c, U @ w)
    return R, U


@pytest.mark.parametrize("online", [True, False])
def test_terms_with_the_same_noise(online):
    model, x = machine(online), vectors(6, C)
    terms = model.terms(x, generator=seeded(2))
    generator = seeded(2)
    noise_M, noise_w = (torch.randn(*s, dtype=torch.float64, generator=generator).numpy() for s in ((K, C), (6, K)))
    R0, z = model.slot_mean.numpy(), x.numpy()
    R, U = write_by_hand(R0, z, online)
    M = R + np.linalg.cholesky(U) @ noise_M
    mean = np.linalg.solve(R @ R.T + S2 * np.eye(K), R @ z.T).T
    w = mean + math.sqrt(0.2) * noise_w
    memory_kl = 0.5 * (C * np.trace(U) + ((R - R0) ** 2).sum() - K * C - C * np.linalg.slogdet(U)[1])
    address_kl = 0.5 * (K * 0.2 + (mean**2).sum(-1) - K - K * math.log(0.2))
    for value, expected in (
        (terms.reconstruction, log_normal(z, w @ M, PIXEL_VAR)),
        (terms.address_kl, address_kl),
        (terms.memory_kl, memory_kl),
        (terms.code_kl, np.zeros(6)),
    ):
        np.testing.assert_allclose(value.detach().numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_importance_weights_are_unbiased(seed):
    """p(x | state) by quadrature over one weight, where M'w is Gaussian given w."""
    memory = KanervaMemory(2, 1, 0.5, address_var=0.4)
    model = KanervaMachine(vector_codec(2), memory, seed=seed).double()
    state, x = model.write(2 * vectors(4, 2, seed=seed)), vectors(2, seed=seed + 10)
    with torch.no_grad():
        grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None]
        std = (grid.square() * state.U[0, 0] + PIXEL_VAR).sqrt()
        given = torch.distributions.Normal(grid * state.R[0], std).log_prob(x).sum(-1)
        weight = -0.5 * grid[:, 0].square() - 0.5 * math.log(2 * math.pi) + math.log(16 / 4000)
        exact = (given + weight).logsumexp(0)
        draws = model.log_weights(state, x.expand(40_000, 2), generator=seeded(seed))[0]
    weights = (draws - exact).exp()
    assert abs(weights.mean() - 1) < 5 * weights.std() / 200
    assert draws.mean() < exact


def test_reading_and_generating_decode_what_the_memory_holds():
    model, x = machine(), vectors(5, C)
    state = model.write(x)
    torch.testing.assert_close(model.read(state, x), model._current().recall(state, x))
    many = model.read(state, x[:1].expand(20_000, C), sample_pixels=False, generator=seeded())
    error = many.std(0) / len(many) ** 0.5
    assert ((many.mean(0) - model.read(state, x[:1])[0]).abs() < 5 * error).all()
    samples = model.sample(state, 20_000, generator=seeded())
    second = samples.T @ samples / len(samples)
    expected = state.R.T @ state.R + torch.trace(state.U) * torch.eye(C)  # E[M'M], w ~ N(0, I)
    torch.testing.assert_close(second, expected, rtol=0.1, atol=0.1)


def test_the_prior_is_drawn_once_by_seed():
    first, same, other = machine(), machine(), machine(seed=1)
    assert torch.equal(first.slot_mean, same.slot_mean)
    assert not torch.equal(first.slot_mean, other.slot_mean)
    assert "slot_mean" in first.state_dict()
    assert [name for name, _ in first.named_parameters()] == ["log_address_std"]
    torch.testing.assert_close(first.prior_state((2,)).R[1], first.slot_mean)
    assert first.log_address_std.exp().square().item() == pytest.approx(0.2)


def test_a_trained_prior_gets_a_gradient():
    model = machine(trainable_prior=True)
    model.terms(vectors(2, 5, C), generator=seeded()).joint.sum().backward()
    assert model.slot_mean.grad.abs().sum() > 0
    assert model.log_address_std.grad.abs() > 0


def test_the_autoencoder_term_is_apart_from_the_bound():
    model, x = machine(autoencoder_weight=2.0), vectors(2, 3, C)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    values = model.codec.log_prob(x, x)
    spoiled = torch.where(mask[..., None], x, torch.nan)
    expected = 2 * torch.stack([values[0, :2].mean(), values[1].mean()])
    torch.testing.assert_close(model.auxiliary(spoiled, mask=mask), expected)
    without = machine(autoencoder_weight=0.0)
    assert without.auxiliary(x) is None
    assert torch.equal(*(m.terms(x, generator=seeded()).joint for m in (model, without)))


def shifted():
    """The nets of Kanerva++, frames encoded together."""
    torch.manual_seed(0)
    codec = tsm_codec((1, 12, 10), C, num_filters=4, head=False, encoding_dim=C)
    return KanervaMachine(codec, KanervaMemory(C, K, S2), encode_together=True).double().eval()


def pictures(*shape, seed=0):
    return (torch.rand(*shape, 1, 12, 10, dtype=torch.float64, generator=seeded(seed)) < 0.3).double()


def test_frames_encoded_together_are_written_together_and_cued_alone():
    model, x = shifted(), pictures(5)
    codes = model.codec.encoder.encode_episodes(x)
    written = model.memory.replace(slot_mean=model.slot_mean).write(codes).state
    torch.testing.assert_close(model.write(x).R, written.R)
    alone = model.codec.encodings(x)
    assert (alone - codes).abs().max() > 1e-3
    torch.testing.assert_close(model._recall_codes(written, x, None), model._current().recall(written, alone))
    torch.testing.assert_close(model.read(written, x)[1:3], model.read(written, x[1:3]))


def test_what_is_not_written_does_not_reach_the_memory():
    """Not through the shift either."""
    check_unwritten_frames_stay_out(shifted(), pictures(6), pictures(6, seed=5), of=lambda state: state.R)


def test_bad_input():
    memory = KanervaMemory(6, 3)
    with pytest.raises(ValueError, match="codec without head"):
        KanervaMachine(Codec.convolutional((1, 28, 28), 6, num_filters=8), memory)
    with pytest.raises(ValueError, match="encoding_dim=12"):
        KanervaMachine(Codec.convolutional((1, 28, 28), 6, num_filters=8, head=False), memory)
    with pytest.raises(ValueError, match="expected a KanervaState"):
        machine().read(GaussianMemory(C, K).prior(), vectors(2, C))
    with pytest.raises(ValueError, match="takes images one by one"):
        machine(encode_together=True)


@pytest.mark.parametrize("masked", [False, True])
def test_training_encodes_an_episode_once_for_the_bound_and_for_what_is_added_to_it(masked):
    model, x = machine(), vectors(6, C)
    mask = torch.arange(6) < 4 if masked else None
    calls = []
    model.codec.encoder.register_forward_hook(lambda *_: calls.append(1))
    found = model.surrogate(x, Estimator("terms"), mask=mask, generator=seeded(2))
    assert len(calls) == 1
    terms = model.terms(x, mask=mask, generator=seeded(2))
    for name in ("reconstruction", "address_kl", "memory_kl"):
        torch.testing.assert_close(getattr(found.terms, name), getattr(terms, name))
    torch.testing.assert_close(found.extra, model.auxiliary(x, mask=mask))
