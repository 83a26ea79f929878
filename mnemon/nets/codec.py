"""A codec: images to Gaussian codes and back. Bring your own encoder and decoder, or use the papers'."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_images
from mnemon.core.episode import Codes
from mnemon.distributions.pixels import (
    BernoulliPixels,
    GaussianPixels,
    LinkedLogisticPixels,
    LogisticMixturePixels,
    NormalValues,
    PixelLikelihood,
)
from mnemon.nets.conv import ConvDecoder, ConvEncoder, GaussianHead
from mnemon.nets.deep_conv import DeepDecoder, DeepEncoder
from mnemon.nets.mlp import LinearHead, MLPDecoder, MLPEncoder
from mnemon.nets.pyramid import PyramidDecoder, PyramidEncoder
from mnemon.nets.residual import RESIDUAL_WIDTH, ResidualMLP

LIKELIHOODS: dict[str, PixelLikelihood] = {
    "bernoulli": BernoulliPixels(),
    "gaussian": GaussianPixels(),
    "logistic_mixture": LogisticMixturePixels(),
    "linked_logistic_mixture": LinkedLogisticPixels(),
    "normal": NormalValues(),
}
Architecture = Literal["basic", "improved", "padded", "pyramid", "mlp", "residual", "deep"]
RESIDUAL_UNITS = 4
"""Units of a "residual" layer for each of `num_filters`."""
BLOCK, CPU_BLOCK = 2048, 128
"""Images that go through a net at a time when it is only used. On a CPU few: memory for larger maps is fetched from the
system anew for every layer, which takes longer than the layer."""


def parts_of(num_samples: int, num_items: int) -> list[int]:
    """Samples of each of some items in parts, so many at a time that no more than a block of images is decoded."""
    most = max(1, BLOCK // max(1, num_items))
    return [min(most, num_samples - start) for start in range(0, num_samples, most)]


class ImageCodec(nn.Module):
    """What every codec has, whatever its nets are given: an image shape, a code size, a likelihood of the pixels."""

    code_var: float | None = None

    def __init__(self, image_shape: tuple[int, ...], code_dim: int, likelihood: PixelLikelihood) -> None:
        super().__init__()
        self.image_shape, self.code_dim, self.likelihood = tuple(image_shape), code_dim, likelihood

    def check(self, where: str, x: Tensor) -> None:
        """Refuse images of another shape or kind, with the remedy."""
        check_images(where, x, self.image_shape)
        own = next((parameter.dtype for parameter in self.parameters()), x.dtype)
        if {own, x.dtype} == {torch.float32, torch.float64}:
            raise ValueError(
                f"{where}: expected images of the model's own {own}, got {x.dtype}; convert them with x.to({own}), or "
                "the model"
            )

    def in_blocks(self, net: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """A net on many items, piece by piece where nothing is to be learned: large episodes fit into memory."""
        size = images_at_once(x)
        if self.training or torch.is_grad_enabled() or len(x) <= size:
            return net(x)
        return torch.cat([net(part) for part in x.split(size)])


def images_at_once(like: Tensor, copies: int = 1) -> int:
    """How many images go through a net at a time where `like` is, each of them in so many copies; at least one."""
    return max(1, (CPU_BLOCK if like.device.type == "cpu" else BLOCK) // max(1, copies))


def find_likelihood(name: str) -> PixelLikelihood:
    if name not in LIKELIHOODS:
        raise ValueError(f"likelihood: expected one of {', '.join(LIKELIHOODS)}, got {name!r}")
    return LIKELIHOODS[name]


class Codec(ImageCodec):
    """q(z | x) and p(x | z) for images of one shape, over any leading dimensions.

    encoder  maps (N, *X) to encodings (N, width)
    head     maps encodings to the mean and standard deviation of q(z | x), (N, C) each; None for models that
             make their own of the encodings (a head that nobody calls would have parameters without gradient)
    decoder  maps codes (N, C) to outputs of the likelihood
    code_var fixes the variance of q(z | x) when given; the head then only gives the mean
    encoding_dim  the encoder's width; some models without a head ask for it
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        code_dim: int,
        *,
        encoder: nn.Module,
        head: nn.Module | None,
        decoder: nn.Module,
        likelihood: PixelLikelihood,
        code_var: float | None = None,
        encoding_dim: int | None = None,
    ) -> None:
        super().__init__(image_shape, code_dim, likelihood)
        self.encoder, self.head, self.decoder = encoder, head, decoder
        self.code_var, self.encoding_dim = code_var, encoding_dim

    @classmethod
    def convolutional(
        cls,
        image_shape: tuple[int, int, int],
        code_dim: int,
        *,
        likelihood: str = "bernoulli",
        architecture: Architecture = "improved",
        num_filters: int = 32,
        code_var: float | None = None,
        head: bool = True,
        encoding_dim: int | None = None,
    ) -> Codec:
        """The VBM paper's nets, "basic" (F.1.1) or "improved" (F.2.1), or "padded": improved, but its encoder pads.
        Or those of the VMA paper: "pyramid" (4.2), and "mlp" (4.1), whose layers have sizes of their own. Or the
        fully connected ones of the thesis, "residual" (5.3.1), for vectors and small images. Or "deep", as the neural
        statistician has them for Omniglot: convolutions at full resolution, and more filters on smaller maps.

        Encodings have size 2 code_dim by default; those of the VMA paper's nets are their last hidden layer or map.
        """
        pixels = find_likelihood(likelihood)
        if architecture not in get_args(Architecture):
            raise ValueError(f"architecture: expected one of {', '.join(get_args(Architecture))}, got {architecture!r}")
        # encoder, head, decoder: in this order a seed gives its fresh weights
        encoder, width = _make_encoder(image_shape, code_dim, architecture, num_filters, encoding_dim)
        return cls(
            image_shape,
            code_dim,
            encoder=encoder,
            head=_make_head(width, code_dim, architecture) if head else None,
            decoder=_make_decoder(image_shape, code_dim, architecture, num_filters, pixels.num_outputs(image_shape[0])),
            likelihood=pixels,
            code_var=code_var,
            encoding_dim=width,
        )

    def encodings(self, x: Tensor) -> Tensor:
        """Shapes: (*B, T, *X) -> (*B, T, width)"""
        leading = x.shape[: x.ndim - len(self.image_shape)]
        return self.in_blocks(self.encoder, x.flatten(0, len(leading) - 1)).unflatten(0, leading)

    def encode(self, x: Tensor) -> Codes:
        """q(z | x). Shapes: (*B, T, *X) -> codes (*B, T, C)"""
        if self.head is None:
            raise ValueError(
                "encode: this codec has no head, so it gives encodings but no q(z | x); make it with a head"
            )
        mean, std = self.head(self.encodings(x))
        if self.code_var is not None:
            std = torch.full_like(mean, self.code_var**0.5)
        return Codes(mean, std)

    def decode(self, z: Tensor) -> Tensor:
        """Outputs of the likelihood, in float32 at least. Shapes: (*B, T, C) -> (*B, T, *outputs)"""
        leading = z.shape[:-1]
        outputs = self.in_blocks(self.decoder, z.flatten(0, len(leading) - 1)).unflatten(0, leading)
        return outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs

    def log_prob(self, z: Tensor, x: Tensor) -> Tensor:
        """log p(x | z). Shapes: (*B, T, C), (*B, T, *X) -> (*B, T)"""
        return self.likelihood.log_prob(self.decode(z), x)

    def image(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The mean image of each code, or with a generator a sample. Shapes: (*B, T, C) -> (*B, T, *X)"""
        outputs = self.decode(z)
        return self.likelihood.mean(outputs) if generator is None else self.likelihood.sample(outputs, generator)


def _make_encoder(
    image_shape: tuple[int, int, int], code_dim: int, architecture: str, num_filters: int, encoding_dim: int | None
) -> tuple[nn.Module, int]:
    """An encoder and the size of its encodings."""
    if architecture == "pyramid":
        pyramid = PyramidEncoder(image_shape, encoding_dim, num_filters=num_filters)
        return pyramid, pyramid.width
    if architecture == "mlp":
        plain = MLPEncoder(image_shape, encoding_dim)
        return plain, plain.width
    if architecture == "residual":
        wide = RESIDUAL_WIDTH if encoding_dim is None else encoding_dim
        hidden = RESIDUAL_UNITS * num_filters
        return nn.Sequential(nn.Flatten(), ResidualMLP(math.prod(image_shape), wide, hidden=hidden)), wide
    width = 2 * code_dim if encoding_dim is None else encoding_dim
    if architecture == "deep":
        return DeepEncoder(image_shape, width, num_filters=num_filters), width
    improved, padding = architecture != "basic", int(architecture == "padded")
    return ConvEncoder(image_shape, width, num_filters=num_filters, improved=improved, padding=padding), width


def _make_head(width: int, code_dim: int, architecture: str) -> nn.Module:
    if architecture == "mlp":
        return LinearHead(width, code_dim)
    return GaussianHead(width, code_dim, improved=architecture in ("improved", "padded", "deep"))


def _make_decoder(
    image_shape: tuple[int, int, int], code_dim: int, architecture: str, num_filters: int, num_outputs: int
) -> nn.Module:
    if architecture == "pyramid":
        return PyramidDecoder(image_shape, code_dim, num_outputs, num_filters=num_filters)
    if architecture == "mlp":
        return MLPDecoder(image_shape, code_dim, num_outputs)
    if architecture == "residual":
        shape = (num_outputs, *image_shape[1:])
        net = ResidualMLP(code_dim, math.prod(shape), hidden=RESIDUAL_UNITS * num_filters)
        return nn.Sequential(net, nn.Unflatten(1, shape))
    if architecture == "deep":
        return DeepDecoder(image_shape, code_dim, num_outputs, num_filters=num_filters)
    return ConvDecoder(image_shape, code_dim, num_outputs, num_filters=num_filters, improved=architecture != "basic")
