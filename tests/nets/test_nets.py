import pytest
import torch

from mnemon.nets.codec import BLOCK, CPU_BLOCK, Codec, images_at_once
from mnemon.nets.conv import ConvDecoder, ConvEncoder


@pytest.mark.parametrize("improved", [True, False])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 26, 26), (3, 40, 64), (2, 22, 22)])
def test_any_image_size_and_channel_count(improved, shape):
    encoder = ConvEncoder(shape, 10, num_filters=8, improved=improved)
    decoder = ConvDecoder(shape, 5, 2 * shape[0], num_filters=8, improved=improved)
    assert encoder(torch.rand(2, *shape)).shape == (2, 10)
    assert decoder(torch.randn(2, 5)).shape == (2, 2 * shape[0], *shape[1:])


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 7, 13)])
def test_deep_nets_of_any_size_treat_every_image_on_its_own(shape):
    codec = Codec.convolutional(shape, 5, num_filters=8, architecture="deep").double()
    x = torch.rand(3, *shape, dtype=torch.float64)
    torch.testing.assert_close(codec.encode(x).mean[:1], codec.encode(x[:1]).mean)
    z = torch.randn(3, 5, dtype=torch.float64)
    assert codec.decode(z).shape == (3, *shape)
    torch.testing.assert_close(codec.decode(z)[:1], codec.decode(z[:1]))
    filters = [layer.out_channels for layer in codec.encoder.body if isinstance(layer, torch.nn.Conv2d)]
    assert filters == [8] * 3 + [16] * 3 + [32] * 3


@pytest.mark.parametrize("num_filters", [1, 7, 50])
def test_deep_nets_of_any_width(num_filters):
    codec = Codec.convolutional((1, 8, 8), 2, num_filters=num_filters, architecture="deep")
    assert codec.decode(codec.encode(torch.rand(2, 1, 8, 8)).mean).shape == (2, 1, 8, 8)


def test_padding_leaves_a_map_of_small_images():
    padded = Codec.convolutional((1, 28, 28), 6, num_filters=8, architecture="padded").encoder
    assert padded.head.in_features == 8 * 3 * 3
    assert Codec.convolutional((1, 28, 28), 6, num_filters=8).encoder.head.in_features == 8
    assert padded(torch.rand(2, 1, 28, 28)).shape == (2, 12)


@pytest.mark.parametrize(("padding", "least"), [(0, 22), (1, 8)])
def test_too_small_images(padding, least):
    ConvEncoder((1, least, least), 4, padding=padding)(torch.rand(1, 1, least, least))
    with pytest.raises(ValueError, match=f"at least {least} x {least}"):
        ConvEncoder((1, least - 1, least - 1), 4, padding=padding)


def test_improved_nets_treat_every_image_on_its_own():
    codec = Codec.convolutional((1, 28, 28), 6, num_filters=8).double()
    x = torch.rand(4, 1, 28, 28, dtype=torch.float64)
    together = codec.encode(x)
    alone = codec.encode(x[:1])
    torch.testing.assert_close(together.mean[:1], alone.mean)
    z = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(codec.decode(z)[:1], codec.decode(z[:1]))


def test_codec_over_leading_dimensions():
    codec = Codec.convolutional((1, 28, 28), 6, num_filters=8, likelihood="gaussian")
    x = torch.rand(2, 3, 4, 1, 28, 28)
    codes = codec.encode(x)
    assert codes.mean.shape == codes.std.shape == (2, 3, 4, 6)
    assert (codes.std > 0).all()
    assert codec.log_prob(codes.mean, x).shape == (2, 3, 4)
    assert codec.image(codes.mean).shape == x.shape


def test_fixed_code_variance():
    codec = Codec.convolutional((1, 28, 28), 6, num_filters=8, code_var=0.36)
    assert torch.allclose(codec.encode(torch.rand(2, 1, 28, 28)).std, torch.tensor(0.6))


def test_bad_input():
    codec = Codec.convolutional((1, 28, 28), 6, num_filters=8)
    with pytest.raises(ValueError, match=r"expected x \(\*B, T, 1, 28, 28\), got \(1, 28, 28\); add an item dimension"):
        codec.check("write", torch.rand(1, 28, 28))
    with pytest.raises(ValueError, match="resize the images"):
        codec.check("write", torch.rand(5, 1, 32, 32))
    with pytest.raises(ValueError, match=r"floats in \[0, 1\]"):
        codec.check("write", torch.zeros(5, 1, 28, 28, dtype=torch.uint8))
    with pytest.raises(ValueError, match="likelihood: expected one of bernoulli"):
        Codec.convolutional((1, 28, 28), 6, likelihood="poisson")
    with pytest.raises(ValueError, match="architecture"):
        Codec.convolutional((1, 28, 28), 6, architecture="best")


def test_many_images_go_through_in_blocks():
    torch.manual_seed(0)
    codec = Codec.convolutional((1, 22, 22), 3, num_filters=4, architecture="basic").double().eval()
    x = torch.rand(CPU_BLOCK + 5, 1, 22, 22, dtype=torch.float64)
    whole = codec.encode(x)  # with gradients: all at once
    with torch.no_grad():
        torch.testing.assert_close(codec.encode(x).mean, whole.mean)
        torch.testing.assert_close(codec.decode(whole.mean[-7:]), codec.decode(whole.mean)[-7:])
        seen = []
        codec.encoder.register_forward_hook(lambda net, inputs, _: seen.append(len(inputs[0])))
        codec.encode(x)
        assert seen == [CPU_BLOCK, 5]


def test_how_many_images_are_a_block():
    assert [images_at_once(torch.zeros(1), copies) for copies in (0, 1, 3, 500)] == [128, 128, 42, 1]
    assert images_at_once(torch.zeros(1, device="meta")) == BLOCK
