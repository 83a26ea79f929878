"""Time and peak memory of a mixture write as the number of codes grows to a million, in chunks.

Each size runs in a process of its own, so that its peak memory is its own. Peak memory is counted above the
process before the write; the codes themselves are there already.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import torch

from benchmarks.common import store
from mnemon import MixtureMemory

C, H, K, SWEEPS, CHUNK = 64, 32, 4, 10, 16_384
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
SEED = 0


def make_codes(num_items: int) -> torch.Tensor:
    """Drawn piece by piece: drawing must not set the peak that the write is measured against."""
    generator = torch.Generator().manual_seed(SEED)
    centres = 3 * torch.randn(H, C, generator=generator)
    codes = torch.empty(num_items, C)
    for piece in codes.split(10_000):
        piece.normal_(generator=generator)
        piece += centres[torch.randint(H, (len(piece),), generator=generator)]
    return codes


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(num_items: int) -> None:
    """One size, printed as JSON (called in a process of its own)."""
    memory = MixtureMemory(C, K, 1.0, 0.5, num_clusters=H, location_var=9.0)
    memory.write(make_codes(5_000), num_steps=1, chunk_size=CHUNK)  # warm up
    codes = make_codes(num_items)
    before = peak_mb()
    generator = torch.Generator().manual_seed(SEED)
    began = time.perf_counter()
    written = memory.write(codes, num_steps=SWEEPS, chunk_size=CHUNK, generator=generator)
    seconds = time.perf_counter() - began
    result = {"num_items": num_items, "seconds": seconds, "peak_mb_above_codes": peak_mb() - before}
    result["codes_mb"] = codes.nbytes / 2**20
    if num_items <= 100_000:
        generator = torch.Generator().manual_seed(SEED)
        whole = memory.write(codes, num_steps=SWEEPS, generator=generator)
        gap = (whole.state.R - written.state.R).abs().max() / whole.state.R.abs().max()
        result["largest_relative_difference_to_one_piece"] = float(gap)
    print(json.dumps(result))


def main() -> None:
    rows = []
    print(f"mixture write, C = {C}, H = {H}, K = {K}, {SWEEPS} sweeps, chunks of {CHUNK}, float32:")
    for size in SIZES:
        call = [sys.executable, "-c", f"from benchmarks.growth import measure; measure({size})"]
        done = subprocess.run(call, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(
            "  {num_items:>9,} codes ({codes_mb:6.1f} MB): {seconds:6.2f} s, {peak_mb_above_codes:6.1f} MB more".format(
                **rows[-1]
            )
        )
    by_size = {row["num_items"]: row for row in rows}
    ratio = by_size[1_000_000]["seconds"] / by_size[100_000]["seconds"]
    print(f"  a million over a hundred thousand: {ratio:.1f} times the time")
    store(
        "growth",
        shape={"C": C, "H": H, "K": K, "sweeps": SWEEPS, "chunk_size": CHUNK, "dtype": "float32"},
        rows=rows,
        time_ratio_1000000_to_100000=ratio,
        seed=SEED,
    )
