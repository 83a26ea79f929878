"""Nets that are given a memory's content: shapes for any image, what depends on what, and what is tied."""

import pytest
import torch
from torch import nn

from mnemon.nets.codec import Codec
from mnemon.nets.conditional import ConditionalCodec, embedding_net
from mnemon.nets.mlp import mlp
from mnemon.nets.pyramid import Ascent, Pyramid, pyramid_sizes

SHAPES = [(1, 28, 28), (1, 26, 26), (3, 32, 32), (2, 9, 22), (1, 1, 5)]
BOTH = ("pyramid", "mlp")


def codec(shape=(1, 9, 10), code_dim=4, **options):
    torch.manual_seed(0)
    return ConditionalCodec.of(shape, code_dim, num_filters=4, **options).double()


def numbers(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("architecture", BOTH)
@pytest.mark.parametrize("content_dim", [None, 7])
def test_any_image_size_and_channel_count(shape, architecture, content_dim):
    nets = codec(shape, architecture=architecture, content_dim=content_dim, likelihood="gaussian")
    m = numbers(2, 3, *(shape if content_dim is None else (content_dim,)))
    x = numbers(2, 3, *shape, seed=1)
    content = nets.content(m)
    q, p = nets.posterior(content, x), nets.prior(content)
    assert q.mean.shape == q.std.shape == p.mean.shape == p.std.shape == (2, 3, 4)
    assert nets.decode(q.mean, content).shape == (2, 3, 2 * shape[0], *shape[1:])
    assert nets.log_prob(q.mean, content, x).shape == (2, 3)
    assert nets.image(q.mean, content).shape == x.shape
    assert nets.image(q.mean, content, torch.Generator().manual_seed(0)).shape == x.shape


@pytest.mark.parametrize("architecture", BOTH)
def test_each_part_depends_on_what_it_should(architecture):
    nets, x, z = codec(architecture=architecture), numbers(2, 1, 9, 10), numbers(2, 4)
    one, other = (nets.content(numbers(2, 1, 9, 10, seed=s)) for s in (1, 2))
    assert not torch.equal(nets.prior(one).mean, nets.prior(other).mean)
    assert not torch.equal(nets.posterior(one, x).mean, nets.posterior(other, x).mean)
    assert not torch.equal(nets.posterior(one, x).mean, nets.posterior(one, 1 - x).mean)
    assert not torch.equal(nets.decode(z, one), nets.decode(z, other))
    assert not torch.equal(nets.decode(z, one), nets.decode(-z, one))
    # every item by itself
    torch.testing.assert_close(nets.decode(z[:1], one.map(lambda t: t[:1])), nets.decode(z, one)[:1])


def test_images_are_broadcast_to_the_draws():
    nets, x = codec(), numbers(3, 1, 9, 10)
    content = nets.content(numbers(5, 3, 1, 9, 10, seed=1))
    q = nets.posterior(content, x)
    assert q.mean.shape == (5, 3, 4)
    alone = nets.posterior(content.map(lambda t: t[2]), x)
    torch.testing.assert_close(q.mean[2], alone.mean)
    torch.testing.assert_close(
        nets.log_prob(q.mean, content, x)[2], nets.log_prob(alone.mean, content.map(lambda t: t[2]), x)
    )


@pytest.mark.parametrize("architecture", BOTH)
def test_what_soft_attention_needs(architecture):
    nets = codec(architecture=architecture, conditional_prior=False, conditional_posterior=False)
    content, x = nets.content(numbers(2, 1, 9, 10)), numbers(2, 1, 9, 10, seed=1)
    p = nets.prior(content)
    assert (p.mean == 0).all()
    assert (p.std == 1).all()
    torch.testing.assert_close(nets.posterior(None, x).mean, nets.posterior(content, x).mean)


def test_the_pyramid_is_the_papers():
    """VMA, 4.2: six layers of 3 x 3, every second of stride 2, 8 x 8 downsampling in all."""
    pyramid = Pyramid((2, 26, 26), num_filters=48)
    assert [layer.stride for layer in pyramid.layers] == [(1, 1), (2, 2)] * 3
    assert {layer.kernel_size for layer in pyramid.layers} == {(3, 3)}
    maps = pyramid(torch.rand(2, 2, 26, 26))
    assert [tuple(m.shape[1:]) for m in maps] == [(48, s, s) for s in (26, 13, 13, 7, 7, 4)]
    assert pyramid_sizes((26, 26))[1:] == [tuple(m.shape[2:]) for m in maps]
    assert pyramid.width == 48 * 16


def test_the_way_down_of_the_content_is_tied():
    """Prior and decoder share it, so each trains it; the posterior and the embeddings have their own."""
    nets = codec((1, 16, 16))
    content = nets.content(numbers(2, 1, 16, 16))
    weight = nets.content_net.pyramid.layers[0].weight
    for value in (nets.prior(content).mean.sum(), nets.decode(numbers(2, 4), content).sum()):
        assert torch.autograd.grad(value, weight, retain_graph=True)[0].abs().sum() > 0
    assert nets.posterior_net.pyramid.layers[0].weight.shape[1] == 2


def test_skips_carry_what_the_code_does_not():
    """With everything below the skips of full size cut off, the content still reaches the image."""
    torch.manual_seed(0)
    up, maps = Ascent((1, 12, 12), 3, 1, num_filters=4, skips=True), Pyramid((1, 12, 12), num_filters=4)
    one, other = (maps(torch.rand(2, 1, 12, 12)) for _ in range(2))
    vector = torch.zeros(2, 3)
    assert not torch.equal(up(vector, (other[0], *one[1:])), up(vector, one))
    with torch.no_grad():
        assert up(vector, one).std() < 10 * one[0].std()


def test_embeddings():
    for architecture in BOTH:
        assert embedding_net((1, 9, 10), 7, architecture=architecture, num_filters=4)(
            torch.rand(3, 1, 9, 10)
        ).shape == (3, 7)
    assert embedding_net((5,), 7)(torch.rand(3, 5)).shape == (3, 7)
    assert [layer.out_features for layer in mlp((3, 5, 2)) if hasattr(layer, "out_features")] == [5, 2]


@pytest.mark.parametrize("architecture", BOTH)
def test_a_codec_of_the_same_nets_without_content(architecture):
    nets = Codec.convolutional((1, 26, 26), 6, num_filters=4, architecture=architecture)
    x = torch.rand(2, 3, 1, 26, 26)
    codes = nets.encode(x)
    assert codes.mean.shape == (2, 3, 6)
    assert nets.image(codes.mean).shape == x.shape
    # the encoder is that of q(z | x) beside contents, layer by layer
    beside = ConditionalCodec.of(
        (1, 26, 26), 6, num_filters=4, architecture=architecture, conditional_prior=False, conditional_posterior=False
    ).posterior_net
    sizes = [sorted(p.numel() for p in net.parameters()) for net in (beside, nn.ModuleList((nets.encoder, nets.head)))]
    assert sizes[0] == sizes[1]


def test_bad_input():
    with pytest.raises(ValueError, match=r"architecture: expected pyramid or mlp .* got 'improved'"):
        codec(architecture="improved")
    with pytest.raises(ValueError, match="likelihood: expected one of bernoulli"):
        codec(likelihood="poisson")
    with pytest.raises(ValueError, match="resize the images"):
        codec().check("write", torch.rand(2, 1, 10, 10))
