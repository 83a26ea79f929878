"""EvoNorm-S0, the nets made with it, and dense layers of spectral norm one."""

import pytest
import torch

from mnemon.nets.evonorm import EvoDecoder, EvoNormS0, MapWriter, ReadEncoder
from mnemon.nets.spectral import GaussianDense, SpectralLinear, leading_vectors


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (4, 1), (6, 1), (8, 2), (9, 1), (256, 32)])
def test_evonorm_against_a_loop(channels, groups):
    torch.manual_seed(0)
    norm = EvoNormS0(channels).double()
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    assert norm.num_groups == groups
    x = torch.randn(3, channels, 4, 5, dtype=torch.float64)
    expected = torch.empty_like(x)
    size = channels // groups
    for n in range(3):
        for c in range(channels):
            group = x[n, c // size * size : (c // size + 1) * size]
            std = (group.var(correction=0) + 1e-5).sqrt()
            active = x[n, c] * torch.sigmoid(norm.slope[c] * x[n, c])
            expected[n, c] = active / std * norm.gain[c] + norm.shift[c]
    torch.testing.assert_close(norm(x), expected)


def test_evonorm_in_half_precision_is_near_that_in_full():
    """Also of values far from 0, whose deviation a difference of squares would lose."""
    torch.manual_seed(0)
    norm = EvoNormS0(8)
    x = (256 + 2 * torch.randn(3, 8, 4, 5)).bfloat16()
    found, exact = norm(x), norm(x.double().float())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=0.02, atol=0.0)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 22, 25)])
def test_decoder_sizes(shape):
    decoder = EvoDecoder(shape, 5, 2 * shape[0], num_filters=8)
    z = torch.randn(4, 5)
    outputs = decoder(z)
    assert outputs.shape == (4, 2 * shape[0], *shape[1:])
    torch.testing.assert_close(outputs[2:3], decoder(z[2:3]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 64, 64), (2, 9, 8), (1, 3, 4), (4, 5, 17)])
def test_map_is_linear_in_the_pooled_encoding(shape):
    torch.manual_seed(0)
    writer = MapWriter(shape, 6, num_filters=8).double()
    a, b = torch.randn(2, 1, 6, dtype=torch.float64)
    nothing = writer(torch.zeros_like(a))
    assert nothing.shape == (1, *shape)
    left, right = writer(a + 2 * b) - nothing, writer(a) - nothing + 2 * (writer(b) - nothing)
    torch.testing.assert_close(left, right)


def test_map_keeps_the_size_of_its_input_at_first():
    torch.manual_seed(0)
    written = MapWriter((3, 64, 64), 512)(torch.randn(20, 512))
    assert 0.2 < written.std() < 1.5


@pytest.mark.parametrize("side", [1, 4, 5, 32])
def test_reads_of_any_size(side):
    mean, std = ReadEncoder(6, side, 7, num_filters=4)(torch.randn(3, 6, side, side))
    assert mean.shape == std.shape == (3, 7)
    assert (std > 0).all()


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (9, 2), (1, 4), (64, 64)])
def test_spectral_norm_is_one(shape):
    torch.manual_seed(0)
    layer = SpectralLinear(*reversed(shape), bias=False).double()
    effective = layer(torch.eye(shape[1], dtype=torch.float64)).mT
    values = torch.linalg.svdvals(effective.detach())
    assert values[0] == pytest.approx(1.0, rel=2e-2)
    torch.testing.assert_close(effective / effective.norm(), layer.weight / layer.weight.norm())


def test_leading_vectors_against_the_decomposition():
    torch.manual_seed(0)
    weight = torch.randn(7, 5, dtype=torch.float64)
    weight = weight + 4 * torch.outer(torch.randn(7, dtype=torch.float64), torch.randn(5, dtype=torch.float64))
    left, right = leading_vectors(weight)
    U, S, Vh = torch.linalg.svd(weight)
    assert left @ weight @ right == pytest.approx(S[0].item())
    assert abs(left @ U[:, 0]) == pytest.approx(1.0)
    assert abs(right @ Vh[0]) == pytest.approx(1.0)


def test_spectral_gradient_is_that_of_the_largest_singular_value():
    torch.manual_seed(0)
    layer = SpectralLinear(4, 3, bias=False).double()
    layer.weight.data += 5 * torch.outer(torch.ones(3), torch.tensor([1.0, -1.0, 1.0, 1.0]))
    x = torch.randn(6, 4, dtype=torch.float64)
    (found,) = torch.autograd.grad(layer(x).sin().sum(), layer.weight)
    weight = layer.weight.detach().requires_grad_()
    exact = x @ (weight / torch.linalg.matrix_norm(weight, 2)).mT
    (expected,) = torch.autograd.grad(exact.sin().sum(), weight)
    torch.testing.assert_close(found, expected)


def test_calls_in_training_change_nothing():
    torch.manual_seed(0)
    dense, x = GaussianDense(6, 3, hidden=5).train(), torch.randn(4, 6)
    assert torch.equal(dense(x)[0], dense(x)[0])
    assert not list(dense.buffers())
    mean, std = dense(torch.randn(2, 4, 6))
    assert mean.shape == std.shape == (2, 4, 3)
