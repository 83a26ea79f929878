"""Letters and digits by character, typeface and slant: three known factors, rendered from matplotlib's fonts."""

from __future__ import annotations

import numpy as np
import torch

from mnemon.data.glyphs import MARGIN, _draw, _fit
from mnemon.data.images import ImageSet

CHARACTERS = tuple("ABDEGHKMNPRSTUXYZ2345679")
TYPEFACES = ("DejaVuSans", "DejaVuSerif", "STIXGeneral", "DejaVuSansMono-Bold", "DejaVuSerif-Bold", "STIXGeneralBol")
SLANTS = (-0.5, -0.25, 0.0, 0.25, 0.5)
VARIATIONS = {"train": 12, "test": 4}
"""Drawings of each combination: slightly turned, widened, shifted and scaled, which is no factor."""


def glyph_factors(split: str) -> ImageSet:
    """All combinations, each in several drawings; test has other drawings of the same ones.

    Shapes: images uint8 (24 x 6 x 5 x drawings, 1, 28, 28)
    """
    number = VARIATIONS[split]
    stream = np.random.RandomState(sum(split.encode()))
    images, factors = [], []
    for i, character in enumerate(CHARACTERS):
        for j, face in enumerate(TYPEFACES):
            ink = _draw(character, face)
            for k, slant in enumerate(SLANTS):
                for _ in range(number):
                    images.append(_fit(
                        ink,
                        angle=np.deg2rad(stream.uniform(-3, 3)),
                        slant=slant + stream.uniform(-0.04, 0.04),
                        width=np.exp(stream.uniform(-0.06, 0.06)),
                        margin=MARGIN + stream.uniform(0, 1),
                        shift=stream.uniform(-0.7, 0.7, 2),
                    ))  # fmt: skip
                    factors.append((i, j, k))
    known = torch.tensor(factors)
    return ImageSet(
        torch.from_numpy(np.stack(images))[:, None], known[:, 0].clone(), "glyph_factors", split, factors=known,
        factor_names=("character", "typeface", "slant"),
    )  # fmt: skip
