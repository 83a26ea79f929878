"""The synthetic benchmark's reference values (equations, section 6), and float32 at its largest size."""

import pytest
import torch

from mnemon import GaussianMemory, KanervaMemory
from mnemon.data.synthetic import linear_gaussian_episode

REFERENCE = {  # joint per frame: VB with 50 sweeps, DKM online, DKM batched with 50 rounds
    (8, 50): (-108.676, -218.08, -190.82),
    (32, 200): (-654.746, -2352.48, -1700.79),
    (128, 400): (-1943.55, -15997.6, -15803.0),
}
DIGITS = {(8, 50): (3, 2, 2), (32, 200): (3, 2, 2), (128, 400): (2, 1, 1)}


@pytest.mark.parametrize("size", REFERENCE)
def test_reference_values(size):
    K, C = size
    episode = linear_gaussian_episode(num_slots=K, code_dim=C, num_items=32, seed=0)
    memories = [
        (GaussianMemory(C, K, slot_mean=episode.slot_mean), 50),
        (KanervaMemory(C, K, slot_mean=episode.slot_mean, address_var=0.3), 1),
        (KanervaMemory(C, K, slot_mean=episode.slot_mean, address_var=0.3, online=False), 50),
    ]
    for (memory, steps), expected, digits in zip(memories, REFERENCE[size], DIGITS[size], strict=True):
        written = memory.write(episode.codes, init="prior", num_steps=steps)
        value = memory.terms(episode.codes, written).per_frame.item()
        assert round(value, digits) == expected


def test_float32_holds_at_the_largest_size():
    episode = linear_gaussian_episode(num_slots=256, code_dim=800, num_items=32, seed=0)
    memory = GaussianMemory(800, 256, slot_mean=episode.slot_mean)
    joints = []
    for dtype in (torch.float32, torch.float64):
        codes = episode.codes.to(dtype)
        written = memory.write(codes, init="prior", num_steps=50, return_trace=True)
        joints.append((memory.terms(codes, written).joint.double(), written.trace[-1].double()))
    for single, double in zip(*joints, strict=True):
        assert abs(single - double) / abs(double) < 1e-3
