"""Two gradients of one bound: with the written memory held fixed, and through the sweeps that wrote it.

The joint bound is at a maximum over the memory once sweeps have converged, so there the two agree. Training stops
after some ten sweeps; how large, and how much a matter of chance (k-means++ seeds, first slots), is the difference?
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.common import store
from mnemon import GaussianMemory, MixtureMemory
from mnemon.data import catalog
from mnemon.models import MemoryVAE
from mnemon.nets.codec import Codec

B, T, C, DRAWS, SEED = 4, 32, 32, 12, 0
MEMORIES = {
    "mixture": (lambda: MixtureMemory(C, 3, 0.6, 0.4, num_clusters=10, location_var=1.2), 10),
    "gaussian": (lambda: GaussianMemory(C, 32), 20),
}


def main() -> None:
    images = catalog.load("glyphs", "train").images
    index = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))[: B * T]
    x = (images[index] > 127).float().unflatten(0, (B, T))
    found: dict[str, Any] = {"B": B, "T": T, "C": C, "draws": DRAWS, "seed": SEED, "data": "glyphs, untrained nets"}
    for name, (memory, steps) in MEMORIES.items():
        for kind in ("fixed", "through"):
            norm, signal = _gradient(x, memory(), steps, kind)
            found[f"{name}, {steps} sweeps, {kind}"] = {"norm": norm, "share that is the same in every draw": signal}
            print(f"{name}, {steps} sweeps, {kind}: norm {norm:.1f}, of which common to all draws {signal:.0%}")
    store("gradient", **found)


def _gradient(x: torch.Tensor, memory: Any, steps: int, kind: Any) -> tuple[float, float]:
    """Mean norm of the encoder's gradient, and |mean|^2 / mean |.|^2 over draws of the start and the codes."""
    torch.manual_seed(SEED)
    codec = Codec.convolutional((1, 28, 28), C, num_filters=16)
    model = MemoryVAE(codec, memory, num_steps=steps, write_gradient=kind)
    draws = []
    for seed in range(DRAWS):
        model.zero_grad()
        (-model.terms(x, generator=torch.Generator().manual_seed(seed)).per_frame.mean()).backward()
        draws.append(torch.cat([p.grad.flatten() for p in codec.encoder.parameters()]))
    gradients = torch.stack(draws)
    power = gradients.square().sum(-1).mean()
    return float(gradients.norm(dim=-1).mean()), float(gradients.mean(0).square().sum() / power)


if __name__ == "__main__":
    main()
