"""A residual net whose blocks also look at the frames beside each image: ResNet-18 with the temporal shift.

Before each residual branch an eighth of the channels comes from the frame before, another eighth from the frame after;
at the ends of an episode zeros come in. The shift has no parameters and costs no products. K++, 3.3 and appendix E.

Frames of an episode are given together, so an image's encoding depends on its neighbours and so on their order. An
image alone is an episode of one: nothing is shifted in, whatever else goes through the net with it.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemon.core.checks import check_item_shape, check_size
from mnemon.nets.codec import BLOCK, Codec, find_likelihood
from mnemon.nets.evonorm import EvoDecoder
from mnemon.nets.spectral import GaussianDense

Stem = Literal["small", "large"]
NUM_STAGES, BLOCKS_PER_STAGE = 4, 2
SHARE = 8
"""One of so many channels is shifted each way."""


def temporal_shift(x: Tensor, present: Tensor | None = None) -> Tensor:
    """The first eighth of the channels from the frame before, the second from the frame after (one channel at least).

    present: False where there is no frame; zeros come from there, as from beyond the ends

    Shapes: x (N, T, F, H, W), present (N, T) -> (N, T, F, H, W)
    """
    width = max(1, x.shape[2] // SHARE)
    if x.shape[2] < 2 * width:
        raise ValueError(f"temporal_shift: expected at least 2 channels, got {x.shape[2]}; take more filters")
    if present is not None:
        # frames in one dimension: maps of four dimensions keep their channels innermost through a concatenation
        moved, others = x.flatten(0, 1).split((2 * width, x.shape[2] - 2 * width), dim=1)
        moved = torch.where(present.flatten()[:, None, None, None], moved, 0.0)
        x = torch.cat((moved, others), 1).unflatten(0, x.shape[:2])
    shifted: Tensor = _Shift.apply(x, width, 1)
    return shifted


class _Shift(torch.autograd.Function):
    """The first `width` channels moved on by one frame, or back where `step` is -1; the second so many the other way.

    Its derivative is the shift the other way round. Shapes: (N, T, F, H, W) -> (N, T, F, H, W)
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, width: int, step: int) -> Tensor:
        shifted = x.clone()  # maps keep their channels innermost where they have them so
        first, second = slice(None, width), slice(width, 2 * width)
        later, sooner = (first, second) if step > 0 else (second, first)
        shifted[:, 1:, later] = x[:, :-1, later]
        shifted[:, :-1, sooner] = x[:, 1:, sooner]
        shifted[:, 0, later] = 0.0
        shifted[:, -1, sooner] = 0.0
        return shifted

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        _, ctx.width, ctx.step = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Shift.apply(gradient, ctx.width, -ctx.step), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        shifted: Tensor = _Shift.apply(tangent, ctx.width, ctx.step)
        return shifted


class ShiftedBlock(nn.Module):
    """A basic residual block, x + f(shifted x): the image's own features stay whole on the way round the branch.

    Shapes: (N T, F, H, W) -> (N T, F', H', W')
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        # not above: importing it takes a while
        from torchvision.models.resnet import BasicBlock  # type: ignore[import-untyped]

        shortcut: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.block = BasicBlock(inputs, outputs, stride, shortcut)

    def forward(self, x: Tensor, num_frames: int, present: Tensor | None) -> Tensor:
        block = self.block
        shifted = temporal_shift(x.unflatten(0, (-1, num_frames)), present).flatten(0, 1)
        branch = block.bn2(block.conv2(F.relu(block.bn1(block.conv1(shifted)))))
        return F.relu(branch + (x if block.downsample is None else block.downsample(x)))


class TSMResNet(nn.Module):
    """ResNet-18 with the temporal shift, up to the mean over the last map. K++, appendix E.

    num_filters  of the first stage (64 in the paper); each of the other three has twice those of the one before
    stem         "small": one 3 x 3 convolution, for images of 28 or 32 pixels; "large": 7 x 7 of stride 2, then the
                 maximum over 3 x 3, of stride 2 again
    width        of the encodings: by a linear layer on that mean; None: the mean itself

    Differs from paper: that mean is standardised, once more by the batch's statistics. What images have in common is
    most of it otherwise, and all that is left of an episode when its frames are pooled.

    Called as a plain net, every image is an episode of one; `encode_episodes` takes frames together. Normalisation is
    by the batch's statistics in training, as in the paper, and by the running ones otherwise.

    Shapes: (N, C, H, W) -> (N, width)
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        *,
        num_filters: int = 64,
        stem: Stem = "small",
        width: int | None = None,
    ) -> None:
        super().__init__()
        check_size("num_filters", num_filters)
        if stem not in get_args(Stem):
            raise ValueError(f"stem: expected small or large, got {stem!r}")
        pooled = num_filters * 2 ** (NUM_STAGES - 1)
        self.width = pooled if width is None else width
        size, stride = (3, 1) if stem == "small" else (7, 2)
        first = nn.Conv2d(image_shape[0], num_filters, size, stride, padding=size // 2, bias=False)
        layers: list[nn.Module] = [first, nn.BatchNorm2d(num_filters), nn.ReLU()]
        self.stem = nn.Sequential(*layers, *([nn.MaxPool2d(3, 2, padding=1)] if stem == "large" else []))
        blocks: list[nn.Module] = []
        inputs = num_filters
        for stage in range(NUM_STAGES):
            outputs = num_filters * 2**stage
            for number in range(BLOCKS_PER_STAGE):
                blocks.append(ShiftedBlock(inputs, outputs, 2 if stage and not number else 1))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        self.standard = nn.BatchNorm1d(pooled, affine=False)
        self.projection = nn.Identity() if width is None else nn.Linear(pooled, width)

    def forward(self, x: Tensor) -> Tensor:
        return self._run(x[:, None], None)[:, 0]

    def encode_episodes(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """Encode the frames of each episode together.

        Frames that are not present are blanked, and left out of the shift: their neighbours are neighbours of each
        other. What they encode to means nothing. (In training they still count in the batch's statistics.)

        Shapes: x (*B, T, *X), present (*B, T) -> (*B, T, width)
        """
        leading = x.shape[:-3]
        if not leading.numel():
            raise ValueError(f"encode_episodes: expected at least one frame, got {tuple(x.shape)}; drop empty episodes")
        frames = x.reshape(-1, *x.shape[-4:])
        if present is None:
            return self._in_blocks(frames, None).reshape(*leading, -1)
        check_item_shape("encode_episodes", "present", present, leading)
        present = present.reshape(-1, leading[-1])
        frames = torch.where(present[..., None, None, None], frames, 0.0)
        order = present.int().argsort(dim=-1, descending=True, stable=True)  # those that are there first, as they came
        frames = frames.gather(1, order[..., None, None, None].expand_as(frames))
        encodings = self._in_blocks(frames, present.gather(-1, order))
        back = order.argsort(-1)[..., None].expand_as(encodings)
        return encodings.gather(1, back).reshape(*leading, -1)

    def _in_blocks(self, frames: Tensor, present: Tensor | None) -> Tensor:
        """Some episodes at a time where nothing is to be learned. Shapes: (N, T, *X) -> (N, T, width)"""
        size = max(1, BLOCK // frames.shape[1])
        if self.training or torch.is_grad_enabled() or len(frames) <= size:
            return self._run(frames, present)
        parts = [None] * -(-len(frames) // size) if present is None else list(present.split(size))
        return torch.cat([self._run(*part) for part in zip(frames.split(size), parts, strict=True)])

    def _run(self, frames: Tensor, present: Tensor | None) -> Tensor:
        """Shapes: (N, T, *X), (N, T) -> (N, T, width)"""
        num_frames = frames.shape[1]
        maps = self.stem(2 * frames.flatten(0, 1) - 1)
        for block in self.blocks:
            maps = block(maps, num_frames, present)
        pooled = maps.mean((-2, -1), dtype=torch.promote_types(maps.dtype, torch.float32))  # small differences matter
        return self.projection(self.standard(pooled)).unflatten(0, (-1, num_frames))


def tsm_codec(
    image_shape: tuple[int, int, int],
    code_dim: int,
    *,
    likelihood: str = "bernoulli",
    num_filters: int = 64,
    hidden: int = 512,
    stem: Stem = "small",
    head: bool = True,
    encoding_dim: int | None = None,
) -> Codec:
    """The nets of Kanerva++ as a codec: residual encoder, dense q(z | x), EvoNorm decoder. K++, appendix E.

    head, encoding_dim  as of `Codec.convolutional`: models that make codes of encodings go without a head

    Its `encode` takes each image alone, so any model of codes can use it.
    """
    pixels = find_likelihood(likelihood)
    encoder = TSMResNet(image_shape, num_filters=num_filters, stem=stem, width=encoding_dim)
    return Codec(
        image_shape,
        code_dim,
        encoder=encoder,
        head=GaussianDense(encoder.width, code_dim, hidden=hidden) if head else None,
        decoder=EvoDecoder(image_shape, code_dim, pixels.num_outputs(image_shape[0]), num_filters=4 * num_filters),
        likelihood=pixels,
        encoding_dim=encoder.width,
    )
