"""The sets that have a name: what each is, where it comes from, and those that come with the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mnemon.core.random import stream
from mnemon.data.images import ImageShape


@dataclass(frozen=True)
class Entry:
    """A set that has a name. `renumbered`: test has other classes than train, also numbered from 0. `derived`: made of
    other sets, or drawn, by `mnemon.data.derived`."""

    about: str
    source: str
    image_shape: ImageShape
    classes: int | str
    embedded: Callable[[str], tuple[Tensor, Tensor | None]] | None = None
    renumbered: bool = False
    derived: bool = False


def _glyphs(split: str) -> tuple[Tensor, Tensor]:
    from mnemon.data.glyphs import load_glyphs

    images, labels, _ = load_glyphs(split)
    return torch.as_tensor(images).unsqueeze(1), torch.as_tensor(labels, dtype=torch.int64)


def _digits(split: str) -> tuple[Tensor, Tensor]:
    """8 x 8 digits enlarged to 28 x 28; a fifth of each class, always the same, is the test split."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    small = torch.as_tensor(bunch.images, dtype=torch.float64).unsqueeze(1) * (255 / 16)
    large = functional.interpolate(small, size=(28, 28), mode="bilinear", antialias=True, align_corners=False)
    images, labels = large.round().clamp(0, 255).to(torch.uint8), torch.as_tensor(bunch.target, dtype=torch.int64)
    in_test = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = (labels == label).nonzero().squeeze(-1)
        order = torch.randperm(len(members), generator=stream(0, int(label)))
        in_test[members[order[: round(0.2 * len(members))]]] = True
    return images[in_test == (split == "test")], labels[in_test == (split == "test")]


PATTERNS = {"train": 1 << 18, "test": 1 << 16}
PATTERN_SHAPE = (1, 8, 16)


def _patterns(split: str) -> tuple[Tensor, None]:
    """Fair bits, 128 to a pattern; the two splits share none but by chance."""
    generator = stream(0, *split.encode())
    packed = torch.randint(256, (PATTERNS[split], 16), dtype=torch.uint8, generator=generator)
    bits = packed[..., None].bitwise_right_shift(torch.arange(8, dtype=torch.uint8)).bitwise_and(1)
    return bits.mul(255).view(-1, *PATTERN_SHAPE), None


CATALOG: dict[str, Entry] = {
    "glyphs": Entry(
        "characters of many scripts, 12 drawings each, rendered from matplotlib's fonts; test has new characters",
        "comes with mnemon; DejaVu and STIX fonts, free licences",
        (1, 28, 28),
        "many, few images each",
        embedded=_glyphs,
        renumbered=True,
    ),
    "digits": Entry(
        "1,797 handwritten digits of 8x8 pixels, enlarged", "UCI, in scikit-learn; CC BY 4.0", (1, 28, 28), 10, _digits
    ),
    "patterns": Entry(
        "327,680 random patterns of 128 bits, for associative memories", "drawn here", PATTERN_SHAPE, "none", _patterns
    ),
    "mnist": Entry(
        "70,000 handwritten digits", "LeCun, Cortes, Burges; CC BY-SA 3.0 say its distributors", (1, 28, 28), 10
    ),
    "fixed_mnist": Entry(
        "MNIST binarised once (Larochelle and Murray 2011), for comparison with published likelihoods",
        "not downloadable here; give an .npz",
        (1, 28, 28),
        "none",
    ),
    "fashion_mnist": Entry("70,000 articles of clothing", "Zalando; MIT", (1, 28, 28), 10),
    "omniglot": Entry(
        "32,460 handwritten characters, 20 drawings each; test has new alphabets (30 train, 20 test)",
        "Lake et al. 2015; MIT",
        (1, 28, 28),
        "964 train, 659 test",
        renumbered=True,
    ),
    "omniglot26": Entry(
        "Omniglot by 4x4 max pooling, which leaves it binary; 45 alphabets to train, 5 to test (Rezende et al. 2016)",
        "Lake et al. 2015; MIT",
        (1, 26, 26),
        "1,479 train, 144 test",
        renumbered=True,
    ),
    "cifar10": Entry("60,000 small colour photographs", "Krizhevsky 2009; no licence stated", (3, 32, 32), 10),
    "celeba": Entry(
        "202,599 faces, the middle 108 pixels, resized",
        "Liu et al. 2015; non-commercial research only",
        (3, 32, 32),
        "10,177 persons",
    ),
    "celeba64": Entry("202,599 faces, whole pictures, resized", "as celeba", (3, 64, 64), "10,177 persons"),
    "imagenet32": Entry(
        "1,331,167 photographs of ImageNet, downsampled (Chrabaszcz et al. 2017); test is its validation part",
        "not downloadable here; the .npz edition from image-net.org",
        (3, 32, 32),
        1000,
    ),
    "dmlab": Entry(
        "views of DeepMind Lab mazes, made by a simulator (K++, 4)",
        "not downloadable; give an .npz",
        (3, 64, 64),
        "none",
    ),
    "omniglot1200": Entry(
        "Omniglot by characters: 1,200 and their quarter turns to train, 323 validation, 100 test",
        "made of omniglot; Edwards and Storkey 2017",
        (1, 28, 28),
        "4,800 train, 323 valid, 100 test",
        renumbered=True,
        derived=True,
    ),
    "families": Entry(
        "one-dimensional data sets of four families, 200 numbers each: 10,000 train, 1,000 test",
        "drawn; thesis, 5.3.1",
        (1, 1, 1),
        "one class a data set",
        renumbered=True,
        derived=True,
    ),
    "black_white_mnist": Entry(
        "MNIST, also white on black: factors digit and background", "made of mnist", (1, 28, 28), 10, derived=True
    ),
    "black_white_digits": Entry(
        "digits, also white on black: factors digit and background", "made of digits", (1, 28, 28), 10, derived=True
    ),
    "rotated_mnist": Entry(
        "MNIST at 2 of 8 angles each: factors digit and angle", "made of mnist", (1, 28, 28), 10, derived=True
    ),
    "rotated_digits": Entry(
        "digits at 2 of 8 angles each: factors digit and angle", "made of digits", (1, 28, 28), 10, derived=True
    ),
    "glyph_factors": Entry(
        "24 characters in 6 typefaces at 5 slants: three factors",
        "rendered from matplotlib's fonts, free licences",
        (1, 28, 28),
        24,
        derived=True,
    ),
}
