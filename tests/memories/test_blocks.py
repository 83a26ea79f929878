"""Blocks of a map against direct indexing, and a heap written as a list."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemon import State
from mnemon.memories.blocks import BlockGrid, BlockState

GRID = BlockGrid((2, 9, 8), 3)  # 3 rows and 2 columns; two columns of pixels are left over


def vectors(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def empty(*batch):
    return GRID.empty(torch.zeros(0, dtype=torch.float64), batch)


def test_blocks_lie_row_by_row():
    memory = vectors(4, 2, 9, 8)
    contents = GRID.contents(BlockState(memory, torch.zeros(4)))
    assert (GRID.num_blocks, GRID.block_floats) == (6, 18)
    for row in range(3):
        for column in range(2):
            expected = memory[:, :, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3].flatten(1)
            assert torch.equal(contents[:, 2 * row + column], expected)


def test_what_is_written_is_read_back_and_the_rest_is_zero():
    values = vectors(3, 4, 15)
    state = GRID.write(empty(3), values)
    contents = GRID.contents(state)
    assert torch.equal(contents[:, :4, :15], values)
    assert contents[:, :4, 15:].abs().sum() == contents[:, 4:].abs().sum() == state.memory[..., 6:].abs().sum() == 0
    assert torch.equal(GRID.taken(state), torch.tensor([True] * 4 + [False] * 2).expand(3, 6))


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=16), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_the_oldest_give_way(writes):
    """Against a list that is filled in a circle, write after write, some vectors being absent."""
    state, expected, count = empty(), torch.zeros(6, 18, dtype=torch.float64), 0
    for number, present in enumerate(writes):
        values = vectors(len(present), 18, seed=number)
        state = GRID.write(state, values, torch.tensor(present))
        for vector, there in zip(values, present, strict=True):
            if there:
                expected[count % 6] = vector
                count += 1
    assert torch.equal(GRID.contents(state), expected)
    assert state.written == count
    assert GRID.taken(state).sum() == min(count, 6)


def test_each_map_has_its_own_blocks():
    values, present = vectors(2, 3, 5, 18), torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    state = GRID.write(empty(2, 3), values, present)
    for i in range(2):
        for j in range(3):
            alone = GRID.write(empty(), values[i, j], present[i, j])
            assert torch.equal(state[i, j].memory, alone.memory)
            assert state.written[i, j] == alone.written


def test_gradients_reach_what_is_kept():
    values = vectors(8, 18).requires_grad_()
    (GRID.write(empty(), values).memory ** 2).sum().backward()
    torch.testing.assert_close(values.grad[2:], 2 * values.detach()[2:])
    assert values.grad[:2].abs().sum() == 0


def test_keys_name_all_blocks_and_none_with_equal_probability():
    """Under N(0, I): counted on a grid of keys of equal probability, finer than the blocks."""
    axis = torch.special.ndtri((torch.arange(42, dtype=torch.float64) + 0.5) / 42)
    named = GRID.named(torch.cartesian_prod(axis, axis, axis))
    assert torch.equal(named.bincount(), torch.full((7,), 42**3 // 7))
    assert GRID.named(torch.tensor([[9.0, 40.0, 40.0], [9.0, -40.0, -40.0]])).tolist() == [5, 0]


def test_the_place_within_a_block_does_not_matter():
    column, row = torch.special.ndtri(torch.tensor([[0.51, 0.99], [0.34, 0.66]], dtype=torch.float64))
    keys = torch.stack((torch.zeros(2, dtype=torch.float64), column, row), -1)
    assert GRID.named(keys).tolist() == [3, 3]


def test_refusals():
    with pytest.raises(ValueError, match="no block fits"):
        BlockGrid((2, 9, 8), 9)
    with pytest.raises(ValueError, match="map_shape"):
        BlockGrid((2, 9), 3)
    with pytest.raises(ValueError, match="block_size"):
        BlockGrid((2, 9, 8), 0)


def test_save_and_load(tmp_path):
    state = GRID.write(empty(2), vectors(2, 4, 18))
    state.save(tmp_path / "map.safetensors")
    loaded = State.load(tmp_path / "map.safetensors")
    assert isinstance(loaded, BlockState)
    assert torch.equal(loaded.memory, state.memory)
    assert torch.equal(loaded.written, state.written)
