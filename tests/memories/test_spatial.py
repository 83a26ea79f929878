"""Windows of a map against direct indexing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemon import State
from mnemon.memories.spatial import SpatialState, corner_keys, read_windows, windows_of

HEIGHT, WIDTH = 12, 12


def state_of(*batch, shape=(3, HEIGHT, WIDTH), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return SpatialState(torch.randn(*batch, *shape, dtype=torch.float64, generator=generator))


def window_at(row, column, size, side=HEIGHT):
    """The window that covers `size` pixels from a row and a column."""
    return torch.tensor([size / side, (2 * column + size) / side - 1, (2 * row + size) / side - 1], dtype=torch.float64)


@pytest.mark.parametrize(
    ("row", "column", "size"), [(0, 0, 4), (3, 5, 4), (8, 8, 4), (0, 0, 12), (11, 0, 1), (2, 7, 5)]
)
def test_whole_pixels_against_indexing(row, column, size):
    state = state_of()
    found = read_windows(state, window_at(row, column, size)[None], size)
    torch.testing.assert_close(found[0], state.memory[:, row : row + size, column : column + size])


def test_keys_are_windows_after_tanh():
    state = state_of()
    keys = window_at(3, 5, 4).atanh()
    torch.testing.assert_close(read_windows(state, windows_of(keys[None]), 4)[0], state.memory[:, 3:7, 5:9])


def test_a_negative_scale_turns_the_window():
    state = state_of()
    window = window_at(3, 5, 4) * torch.tensor([-1.0, 1.0, 1.0])
    torch.testing.assert_close(read_windows(state, window[None], 4)[0], state.memory[:, 3:7, 5:9].flip((-2, -1)))


@pytest.mark.parametrize(("row", "column"), [(-2, 0), (0, 9), (10, -3), (-4, -4), (12, 12), (30, 2)])
def test_windows_outside_the_map_see_zeros(row, column):
    state, size = state_of(), 4
    padded = torch.nn.functional.pad(state.memory, (40, 40, 40, 40))
    found = read_windows(state, window_at(row, column, size)[None], size)
    expected = padded[:, 40 + row : 40 + row + size, 40 + column : 40 + column + size]
    torch.testing.assert_close(found[0], expected)


@given(row=st.integers(-14, 14), column=st.integers(-14, 14), size=st.integers(1, 14))
@settings(max_examples=40, deadline=None)
def test_any_whole_window(row, column, size):
    state = state_of()
    padded = torch.nn.functional.pad(state.memory, (40, 40, 40, 40))
    found = read_windows(state, window_at(row, column, size)[None], size)
    expected = padded[:, 40 + row : 40 + row + size, 40 + column : 40 + column + size]
    torch.testing.assert_close(found[0], expected, atol=1e-9, rtol=1e-9)


def test_between_pixels_it_is_interpolated():
    state = state_of()
    half = (window_at(3, 5, 4) + window_at(3, 6, 4)) / 2
    pixels = state.memory[:, 3:7]
    expected = (pixels[..., 5:9] + pixels[..., 6:10]) / 2
    torch.testing.assert_close(read_windows(state, half[None], 4)[0], expected)


def test_any_window_against_a_sampled_grid():
    """Of a map that is not square, by torch's own sampling, which goes from pixel to pixel."""
    state, windows = state_of(shape=(3, 7, 10)), windows_of(1.5 * torch.randn(50, 3, dtype=torch.float64))
    zero = torch.zeros(50, dtype=torch.float64)
    scale, across, down = windows.unbind(-1)
    turns = torch.stack((scale, zero, across, zero, scale, down), -1).view(50, 2, 3)
    grid = torch.nn.functional.affine_grid(turns, [50, 1, 6, 6], align_corners=False)
    sampled = torch.nn.functional.grid_sample(state.memory.expand(50, -1, -1, -1), grid, align_corners=False)
    torch.testing.assert_close(read_windows(state, windows, 6), sampled)


def test_windows_on_whole_pixels_have_a_slope():
    """The whole map of a ramp that rises by 1 a pixel: a move by 1, half a side of 8, is one of 4 pixels."""
    ramp = SpatialState(torch.arange(8, dtype=torch.float64).expand(1, 8, 8).contiguous())
    window = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    read_windows(ramp, window, 8)[0, 0, 4, 4].backward()
    assert window.grad[0, 1] == pytest.approx(4.0)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_each_map_has_its_own_windows(batch):
    state = state_of(*batch, shape=(2, 6, 9))
    keys = torch.randn(*batch, 4, 2, 3, dtype=torch.float64)
    reads = read_windows(state, windows_of(keys), 5)
    assert reads.shape == (*batch, 4, 2, 2, 5, 5)
    for index in torch.cartesian_prod(*(torch.arange(n) for n in (*batch, 4, 2))):
        place = tuple(index.tolist())
        alone = read_windows(state[place[: len(batch)]], windows_of(keys[place][None]), 5)
        torch.testing.assert_close(reads[place], alone[0])


def test_gradients_reach_keys_and_map():
    memory = torch.randn(1, 4, 5, dtype=torch.float64, requires_grad=True)
    keys = 0.3 * torch.randn(2, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda memory, keys: read_windows(SpatialState(memory), windows_of(keys), 3), (memory, keys.requires_grad_())
    )


def test_corner_keys_have_the_moments_of_the_prior():
    keys = corner_keys(torch.zeros(0, dtype=torch.float64))
    assert keys.shape == (8, 3)
    torch.testing.assert_close(keys.mean(0), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(keys.mT @ keys / 8, torch.eye(3, dtype=torch.float64))


def test_bad_windows():
    with pytest.raises(ValueError, match=r"expected windows \(\*B, N, 3\) with \*B = \(2,\), got \(2, 4\)"):
        read_windows(state_of(2), torch.zeros(2, 4), 3)
    with pytest.raises(ValueError, match="read_size"):
        read_windows(state_of(), torch.zeros(1, 3, dtype=torch.float64), 0)


def test_save_and_load(tmp_path):
    state = state_of(2)
    state.save(tmp_path / "map.safetensors")
    loaded = State.load(tmp_path / "map.safetensors")
    assert isinstance(loaded, SpatialState)
    assert torch.equal(loaded.memory, state.memory)
    assert loaded.batch_shape == (2,)


def test_windows_of_another_batch_and_none_at_all():
    with pytest.raises(
        ValueError, match=r"read_windows: .*batch shapes that broadcast, got \(2,\) and \(3,\); index the memory"
    ):
        read_windows(state_of(2), torch.zeros(3, 4, 3, dtype=torch.float64), 5)
    assert read_windows(state_of(2), torch.zeros(2, 0, 3, dtype=torch.float64), 5).shape == (2, 0, 3, 5, 5)
    assert read_windows(state_of(0), torch.zeros(0, 4, 3, dtype=torch.float64), 5).shape == (0, 4, 3, 5, 5)
