"""A training step of MemoryVAE against the VAE with the same nets, and where its time goes. On a GPU, also graphs."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.common import median_ms, report
from mnemon import GaussianMemory, MixtureMemory
from mnemon.core.episode import Codes
from mnemon.memories.graphs import WriteGraphs
from mnemon.models import VAE, MemoryVAE
from mnemon.nets.codec import Codec
from mnemon.pretrained import from_pretrained

B, T, C = 16, 64, 200
MEMORIES = {
    "gaussian, K = 32, 50 sweeps": (GaussianMemory(C, 32), 50),
    "mixture, H = 10, K = 6, 10 sweeps": (
        MixtureMemory(C, 6, 1.2, 0.4, num_clusters=10, location_var=2.4), 10,
    ),
}  # fmt: skip


def main() -> None:
    report("training", run())


def run(rounds: int = 15) -> dict[str, Any]:
    """Medians in milliseconds, and ratios from the same rounds."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        rounds = min(rounds, 3)
    torch.manual_seed(0)
    x = torch.rand(B, T, 3, 32, 32, device=device)
    vae = VAE(_codec()).to(device)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "B": B,
        "T": T,
        "C": C,
    }
    found["vae step ms"] = vae_ms = median_ms(lambda: _step(vae, x), rounds)
    found |= _latency(device, rounds)
    for name, (memory, steps) in MEMORIES.items():
        codes = torch.randn(B, T, C, device=device, requires_grad=True)
        found[f"write, {name}, ms"] = plain = median_ms(lambda m=memory, s=steps, c=codes: _write(m, c, s), rounds)
        model = MemoryVAE(_codec(), memory, num_steps=steps).to(device)
        if device == "cuda":
            graphs = WriteGraphs()
            replayed = median_ms(lambda m=memory, s=steps, c=codes, g=graphs: _write(m, c, s, g), rounds)
            found[f"write, {name}, graphs, ms"] = replayed
            found[f"write, {name}, plain / graphs"] = plain / replayed
            model.use_graphs()
        step = median_ms(lambda m=model: _step(m, x), rounds)
        found[f"step, {name}, ms"] = step
        found[f"step, {name}, / vae step"] = step / vae_ms
    return found


def _latency(device: str, rounds: int) -> dict[str, float]:
    """One episode of the shipped model: 64 characters written, 64 read."""
    model = from_pretrained("mixture-characters", device=device)
    x = (torch.rand(64, *model.codec.image_shape, device=device) < 0.2).float()
    with torch.no_grad():
        state = model.write(x)
        write = median_ms(lambda: model.write(x), rounds)
        read = median_ms(lambda: model.read(state, x), rounds)
    return {"write one episode of 64 ms": write, "read 64 cues ms": read}


def _codec() -> Codec:
    return Codec.convolutional((3, 32, 32), C, likelihood="gaussian", architecture="basic")


def _step(model: Any, x: torch.Tensor) -> None:
    model.zero_grad(set_to_none=True)
    (-model.terms(x).per_frame.mean()).backward()


def _write(memory: Any, codes: torch.Tensor, steps: int, graphs: WriteGraphs | None = None) -> None:
    codes.grad = None
    given = Codes(codes, torch.ones_like(codes))
    written = memory.write(given, num_steps=steps, graphs=graphs)
    memory.terms(given, written).joint.sum().backward()
