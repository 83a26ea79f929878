"""Write time per episode: all episodes in one batch, against NumPy, one episode at a time.

Both in float32 on the same cores, both vectorised over frames; the NumPy version inverts and multiplies as
the equations read, with BLAS on all cores.
"""

from __future__ import annotations

from statistics import median

import numpy as np
import torch

from benchmarks.common import alternate, store
from mnemon import GaussianMemory

B, T, K, C, SWEEPS = 64, 64, 32, 200, 50
ROUNDS = 15
SEED = 0


def numpy_write(Z: np.ndarray, R: np.ndarray, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    eye = np.eye(K, dtype=np.float32)
    for _ in range(SWEEPS):
        Sigma_w = np.linalg.inv(eye + R @ R.T + C * U)
        mu_w = Z @ (R.T @ Sigma_w)
        U = np.linalg.inv(eye + mu_w.T @ mu_w + T * Sigma_w)
        R = U @ (mu_w.T @ Z)
    return R, U


def main() -> None:
    generator = torch.Generator().manual_seed(SEED)
    slots = torch.randn(B, K, C, generator=generator)
    codes = torch.randn(B, T, K, generator=generator) @ slots + torch.randn(B, T, C, generator=generator)
    memory = GaussianMemory(C, K)
    init = memory.write(codes, num_steps=1, generator=generator).state
    arrays = codes.numpy(), init.R.numpy(), init.U.numpy()

    def batched() -> torch.Tensor:
        return memory.write(codes, init=init, num_steps=SWEEPS).state.R

    def one_by_one() -> np.ndarray:
        return np.stack([numpy_write(*(array[b] for array in arrays))[0] for b in range(B)])

    difference = float(np.abs(batched().numpy() - one_by_one()).max() / np.abs(one_by_one()).max())
    seconds = alternate({"mnemon": batched, "numpy": one_by_one}, ROUNDS)
    ratios = [slow / fast for slow, fast in zip(seconds["numpy"], seconds["mnemon"], strict=True)]
    per_episode = {name: 1e3 * median(times) / B for name, times in seconds.items()}
    print(f"write, (B, T, K, C) = ({B}, {T}, {K}, {C}), {SWEEPS} sweeps, float32, per episode:")
    print(f"  mnemon, batched {per_episode['mnemon']:.2f} ms; NumPy, one by one {per_episode['numpy']:.2f} ms")
    print(f"  ratio: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f} over {ROUNDS} rounds")
    store(
        "write",
        shape={"B": B, "T": T, "K": K, "C": C, "sweeps": SWEEPS, "dtype": "float32"},
        ms_per_episode=per_episode,
        ratio_median=median(ratios),
        ratio_range=[min(ratios), max(ratios)],
        rounds=ROUNDS,
        largest_relative_difference=difference,
        seed=SEED,
    )
