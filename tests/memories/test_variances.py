import pytest
import torch

from mnemon import CategoricalMemory, GaussianMemory, KanervaMemory, MixtureMemory
from mnemon.memories.variances import choose_variances


def draw(T, C, K, noise_var, slot_var, seed=0):
    generator = torch.Generator().manual_seed(seed)
    M = slot_var**0.5 * torch.randn(K, C, dtype=torch.float64, generator=generator)
    noise = noise_var**0.5 * torch.randn(T, C, dtype=torch.float64, generator=generator)
    return torch.randn(T, K, dtype=torch.float64, generator=generator) @ M + noise


def bound(memory, codes):
    written = memory.write(codes, generator=torch.Generator().manual_seed(0))
    return memory.terms(codes, written).per_frame.mean().item()


def test_finds_the_variances_that_made_the_data():
    codes = draw(400, 20, 3, noise_var=0.3, slot_var=2.0)
    memory = choose_variances(GaussianMemory(20, 3, 5.0, 0.05), codes, num_steps=500)
    assert memory.noise_var == pytest.approx(0.3, rel=0.15)
    assert memory.slot_var == pytest.approx(2.0, rel=0.5)


@pytest.mark.parametrize(
    "memory",
    [
        GaussianMemory(6, 2),
        GaussianMemory(6, 2, shift=True),
        CategoricalMemory(6, 4),
        MixtureMemory(6, 2, num_clusters=3),
        KanervaMemory(6, 2),
    ],
    ids=lambda m: type(m).__name__,
)
def test_no_neighbour_on_a_finer_grid_is_better(memory):
    codes = draw(30, 6, 2, 0.3, 1.0) + 0.5
    chosen = choose_variances(memory, codes)
    best = bound(chosen, codes)
    assert best >= bound(memory, codes)
    for name in ("noise_var", "slot_var"):
        for factor in (0.5, 0.8, 1.25, 2.0):
            assert bound(chosen.replace(**{name: getattr(chosen, name) * factor}), codes) <= best + 1e-9


def test_other_variances_by_name():
    codes = draw(30, 6, 2, 0.3, 1.0) + 5.0
    memory = MixtureMemory(6, 2, num_clusters=2)
    chosen = choose_variances(memory, codes, names=("noise_var", "location_var"))
    assert chosen.location_var > 5  # the data stand about 5 from the prior's mean
    with pytest.raises(ValueError, match="has no variance 'address_var'"):
        choose_variances(memory, codes, names=("address_var",))
    with pytest.raises(ValueError, match="has no variance 'location_var'"):
        choose_variances(CategoricalMemory(6, 2), codes, names=("location_var",))


def test_it_is_deterministic_and_leaves_the_memory_alone():
    codes = draw(30, 6, 2, 0.3, 1.0)
    memory = MixtureMemory(6, 2, num_clusters=3)
    first, second = choose_variances(memory, codes), choose_variances(memory, codes)
    assert (first.noise_var, first.slot_var) == (second.noise_var, second.slot_var)
    assert memory.noise_var == 1.0


def test_codes_without_noise_stop_at_the_smallest_variance():
    chosen = choose_variances(CategoricalMemory(6, 2), torch.ones(9, 6, dtype=torch.float64))
    assert 1e-8 <= chosen.noise_var < 1e-6
