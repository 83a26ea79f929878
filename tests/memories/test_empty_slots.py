"""Slots that nothing was written into: a categorical memory puts new items there, one at each."""

import itertools

import pytest
import torch
from torch.nn.functional import one_hot

from mnemon.memories import CategoricalMemory
from mnemon.memories.categorical import CategoricalAddress

SWEEPS = 200


def items(*shape, seed=0):
    return 2 * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def joint(memory, codes, **options):
    return memory.terms(codes, memory.write(codes, num_steps=SWEEPS, **options)).joint.item()


@pytest.mark.parametrize("start", ["random", "kmeans++"])
def test_fewer_items_than_slots_are_written_as_well_as_from_the_best_of_all_starts(start):
    """Sweeps from every way of giving three items to five slots."""
    memory = CategoricalMemory(8, 5, noise_var=0.7, slot_var=1.5)
    codes = items(3, 8)
    found = []
    for slots in itertools.product(range(5), repeat=3):
        given = one_hot(torch.tensor(slots), 5).double().clamp(min=1e-12).log()
        found.append(joint(memory, codes, init=memory.update(CategoricalAddress(given), codes)))
    assert max(found) - min(found) > 1  # where it starts does matter
    assert joint(memory, codes, init=start) == pytest.approx(max(found), abs=1e-6)


def test_an_item_in_a_large_memory_is_recalled_as_if_it_had_a_slot_to_itself():
    """Its slot has the mean slot_var / (slot_var + noise_var) z, and 47 empty slots draw nothing."""
    memory, code = CategoricalMemory(32, 48, noise_var=0.5, slot_var=2.0), items(1, 32)
    written = memory.write(code, num_steps=4)
    torch.testing.assert_close(memory.recall(written.state, code), 0.8 * code, rtol=1e-6, atol=1e-6)


def test_what_is_written_later_goes_to_empty_slots():
    memory, codes = CategoricalMemory(32, 8, noise_var=0.5, slot_var=2.0), items(4, 32)
    first = memory.write(codes[:2], num_steps=4).state
    both = memory.write(codes[2:], prior=first, num_steps=4).state
    torch.testing.assert_close(memory.recall(both, codes), 0.8 * codes, rtol=1e-6, atol=1e-6)


def test_slots_that_hold_items_keep_their_place():
    """A memory that is full starts where it was: the same item again goes to its own slot."""
    memory, codes = CategoricalMemory(32, 2, noise_var=0.5, slot_var=2.0), items(2, 32)
    first = memory.write(codes, num_steps=4).state
    again = memory.write(codes[:1], prior=first, num_steps=4).state
    changed = (again.R - first.R).norm(dim=-1) / first.R.norm(dim=-1)
    slot = (first.R @ codes[0]).argmax()
    assert changed[slot] == pytest.approx(8 / 9 / 0.8 - 1)  # two items of noise 0.5: 2 / (2 + 1/4)
    assert changed[1 - slot] < 1e-6


def test_masked_items_take_no_slot():
    memory, codes = CategoricalMemory(32, 6, noise_var=0.5, slot_var=2.0), items(2, 5, 32)
    mask = torch.tensor([[True, False, True, False, False], [True] * 5])
    written = memory.write(codes, mask=mask, num_steps=4).state
    held = 0.5 * (1 / written.U_diag - 1 / 2.0)
    torch.testing.assert_close(held.sum(-1), torch.tensor([2.0, 5.0], dtype=torch.float64))
    assert ((held < 0.5).sum(-1) == torch.tensor([4, 1])).all()
    torch.testing.assert_close(memory.recall(written, codes)[mask], 0.8 * codes[mask], rtol=1e-6, atol=1e-6)
