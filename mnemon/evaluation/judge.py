"""An independent judge of what an image shows: a small classifier of every factor, trained on real images."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from mnemon.core.checks import check_size
from mnemon.core.random import stream
from mnemon.data.factors import check_factors
from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing
from mnemon.training.setup import one_order

JUDGE = 22
"""The random stream of this file."""
PASSES, LEAST_STEPS = 10, 1000
"""How often a judge in training sees each image, and how many steps it takes at least."""
PIXELS_A_SHIFT = 14
"""An image in training is moved by up to one in so many pixels of its side: two of 28, none of 8."""
PLACED = ("angle",)
"""Factors that also show in where an image lies. MNIST's digits are centred half a pixel beside the point they are
turned about, which alone tells at which of two opposite angles a 1 is: a judge of moved images has 84% of the angles
right, and 97% otherwise."""


class FactorJudge(nn.Module):
    """Three convolutions, then one linear layer for each factor. It shares nothing with the models it judges.

    Shapes: images (N, C, H, W) -> logits (N, classes) for each factor
    """

    def __init__(self, channels: int, num_values: tuple[int, ...], width: int = 32) -> None:
        super().__init__()
        sizes = (channels, width, 2 * width, 2 * width)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.GroupNorm(8, outputs), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(4 * width), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(4 * width, number) for number in num_values)
        self.num_values = num_values

    def forward(self, images: Tensor) -> list[Tensor]:
        features = self.body(images)
        return [head(features) for head in self.heads]

    @torch.no_grad()
    def log_probs(self, images: Tensor, block: int = 2048) -> list[Tensor]:
        """Of every value of each factor. Shapes: (*B, C, H, W) -> (*B, classes) for each factor"""
        parts = zip(*(self(part) for part in images.flatten(0, -4).split(block)), strict=True)
        return [torch.cat(logits).log_softmax(-1).unflatten(0, images.shape[:-3]) for logits in parts]

    def values(self, images: Tensor, block: int = 2048) -> Tensor:
        """The most likely value of every factor. Shapes: (*B, C, H, W) -> (*B, F)"""
        return torch.stack([log_probs.argmax(-1) for log_probs in self.log_probs(images, block)], -1)


def train_judge(
    data: ImageSet,
    preprocessing: Preprocessing,
    *,
    device: torch.device | str = "cpu",
    num_steps: int | None = None,
    batch_size: int = 128,
    seed: int = 0,
) -> FactorJudge:
    """Trained on real images by Adam, its rate falling to 0; the caller's random numbers are left as they were. The
    same seed gives the same judge, on a GPU too.

    num_steps: by default several passes over the images. Ten items of a set are judged alike only as often as the
    tenth power of the judge's accuracy says, so one pass (98% of black and white digits) is not enough, and batches are
    moved by a pixel or two (4,000 steps: 99.2%, and 99.0% without), unless a factor is `PLACED`.
    """
    if num_steps is None:
        num_steps = max(LEAST_STEPS, PASSES * len(data) // batch_size)
    check_size("num_steps", num_steps)
    factors = check_factors(data, "train_judge").to(device)
    num_values = tuple(int(column.max()) + 1 for column in factors.T)
    images = preprocessing.fix(data, train=True).images.to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, JUDGE).initial_seed())
        judge = FactorJudge(images.shape[1], num_values).to(device)
        judge(preprocessing(images[:2], stream(seed, JUDGE, device=device)))
    moves = not set(data.factor_names) & set(PLACED)
    optimizer = torch.optim.Adam(judge.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    with one_order(torch.device(device), deterministic=True):
        for step in range(num_steps):
            generator = stream(seed, JUDGE, step, device=device)
            index = torch.randint(len(images), (batch_size,), device=device, generator=generator)
            x = preprocessing(images[index], generator)
            logits = judge(_moved(x, step) if moves else x)
            targets = factors[index].unbind(-1)
            loss = sum(functional.cross_entropy(*pair) for pair in zip(logits, targets, strict=True))
            optimizer.zero_grad()
            torch.as_tensor(loss).backward()
            optimizer.step()
            schedule.step()
    return judge.eval()


def _moved(images: Tensor, step: int) -> Tensor:
    """Every place in turn, the same for a batch; edges go on as they are. Shapes: (N, C, H, W) -> (N, C, H, W)"""
    height, width = images.shape[-2:]
    most = min(height, width) // PIXELS_A_SHIFT
    if not most:
        return images
    down, right = divmod(step % (2 * most + 1) ** 2, 2 * most + 1)
    wide = functional.pad(images, (most,) * 4, mode="replicate")
    return wide[..., down : down + height, right : right + width]
