import math

import pytest
import torch

from mnemon.models import ContextState, NeuralStatistician
from mnemon.nets.codec import Codec
from tests.models.toys import PIXEL_VAR, seeded, vector_codec, vectors


def model(dim=3, context_dim=5, **options):
    torch.manual_seed(0)
    return NeuralStatistician(vector_codec(dim), context_dim, **options).double()


def assert_equal(left, right):
    for name, tensor in left.tensors().items():
        torch.testing.assert_close(tensor, getattr(right, name), msg=lambda m, n=name: f"{n}: {m}")


def test_writing_in_two_parts_is_writing_at_once():
    ns, x = model(), vectors(2, 7, 3)
    whole = ns.write(x)
    assert_equal(ns.write(x[:, 3:], prior=ns.write(x[:, :3])), whole)
    assert_equal(ns.write(x, prior=ns.prior_state()), whole)
    mask = torch.tensor([True, False, True, True])
    assert_equal(
        ns.write(x[:, 3:], prior=ns.write(x[:, :3]), mask=mask.expand(2, 4)), ns.write(x[:, [0, 1, 2, 3, 5, 6]])
    )


def test_weights_are_multiplicities():
    ns, x = model(), vectors(4, 3)
    weights = torch.tensor([1, 2, 0, 1])
    assert_equal(ns.write(x, weights=weights), ns.write(x[[0, 1, 1, 3]]))


def test_the_context_is_pooled_as_written_down():
    ns, x = model(hidden=4), vectors(6, 3)
    state = ns.write(x)
    first, _, second = ns.statistic
    pooled = (torch.relu(x @ first.weight.T + first.bias) @ second.weight.T + second.bias).mean(0)
    outputs = torch.relu(pooled) @ ns.context[1].weight.T + ns.context[1].bias
    torch.testing.assert_close(state.pooled, pooled)
    torch.testing.assert_close(state.mean, outputs[:5])
    torch.testing.assert_close(state.std, outputs[5:].exp())
    assert state.count == 6


def test_terms_with_the_same_noise():
    ns, x = model(), vectors(4, 3)
    terms = ns.terms(x, generator=seeded(2))
    generator = seeded(2)
    state = ns.write(x)
    c = state.mean + state.std * torch.randn(5, dtype=torch.float64, generator=generator)
    hidden = torch.relu(ns.from_encoding(x) + c @ ns.from_context.weight.T)
    mean, log_std = ns.to_code[1](hidden).chunk(2, -1)
    z = mean + log_std.exp() * torch.randn(4, 3, dtype=torch.float64, generator=generator)
    q, p = torch.distributions.Normal(mean, log_std.exp()), torch.distributions.Normal(*ns.code_prior(c))
    torch.testing.assert_close(terms.code_kl, torch.distributions.kl_divergence(q, p).sum(-1))
    reconstruction = torch.distributions.Normal(z, PIXEL_VAR**0.5).log_prob(x).sum(-1)
    torch.testing.assert_close(terms.reconstruction, reconstruction, rtol=1e-6, atol=1e-6)
    q_c, p_c = torch.distributions.Normal(state.mean, state.std), torch.distributions.Normal(0.0, 1.0)
    torch.testing.assert_close(terms.memory_kl, torch.distributions.kl_divergence(q_c, p_c).sum(-1))
    assert (terms.address_kl == 0).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_importance_weights_are_unbiased_and_their_bounds_are_bounds(seed):
    """p(x | state) by quadrature over a context of size 1, where z is Gaussian given c."""
    torch.manual_seed(seed)
    ns = NeuralStatistician(vector_codec(1), 1).double()
    state, x = ns.write(vectors(5, 1, seed=seed)), vectors(1, seed=seed + 10)
    with torch.no_grad():
        grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None]
        p_z = ns._code_prior(state.mean + state.std * grid)
        given = torch.distributions.Normal(p_z.mean, (p_z.std.square() + PIXEL_VAR).sqrt()).log_prob(x)
        weight = -0.5 * grid.square() - 0.5 * math.log(2 * math.pi) + math.log(16 / 4000)
        exact = (given + weight).logsumexp(0)[0]
        draws = ns.log_weights(state, x.expand(40_000, 1), generator=seeded(seed))[0]
    weights = (draws - exact).exp()
    assert abs(weights.mean() - 1) < 5 * weights.std() / 200
    assert draws.mean() < exact
    groups = draws.view(-1, 10).logsumexp(1) - math.log(10)
    assert draws.mean() < groups.mean() < exact + 5 * groups.std() / len(groups) ** 0.5


def test_a_fixed_code_variance_is_kept():
    codec = vector_codec(3)
    codec.code_var = 0.36
    ns = NeuralStatistician(codec, 5).double()
    assert torch.allclose(ns._posterior(vectors(4, 3), vectors(1, 5)).std, torch.tensor(0.6, dtype=torch.float64))


def test_its_default_size_is_the_papers():
    ns = NeuralStatistician(Codec.convolutional((3, 32, 32), 200, architecture="basic", head=False))
    state = ns.prior_state()
    assert (state.mean.shape, state.pooled.shape) == ((6400,), (400,))


def test_bad_input():
    with pytest.raises(ValueError, match="codec without head"):
        NeuralStatistician(Codec.convolutional((1, 28, 28), 6, num_filters=8))
    ns = model()
    with pytest.raises(ValueError, match="has no head"):
        ns.codec.encode(vectors(2, 3))
    with pytest.raises(ValueError, match=r"write: prior: expected a ContextState with mean \(\*B, 5\)"):
        ns.write(vectors(2, 3), prior=model(context_dim=4).prior_state())
    with pytest.raises(ValueError, match="all masked"):
        ns.write(vectors(2, 3), mask=torch.zeros(2, dtype=torch.bool))
    assert isinstance(ns.prior_state((2,)), ContextState)
