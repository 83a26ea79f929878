"""Random streams named by whole numbers, so that any draw can be made again without what came before it."""

from __future__ import annotations

import hashlib
import numbers as kinds

import torch


def stream(*numbers: int, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator that depends on the numbers alone: `stream(seed, epoch)` is the same in every process."""
    return torch.Generator(device).manual_seed(seed_of(*numbers))


def seed_of(*numbers: int) -> int:
    """The numbers hashed to a 63-bit seed, so that neighbouring seeds and epochs give unrelated draws."""
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, kinds.Integral):
            raise ValueError(f"stream: expected whole numbers, got {number!r}; pass a seed, an epoch, a step")
    text = ",".join(str(int(number)) for number in numbers)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
