"""Models without a likelihood and their input: shapes that broadcast, and messages on what does not fit."""

import pytest
import torch

from mnemon.models.energy import EnergyModel
from mnemon.models.hopfield import CopyModel, HopfieldModel, ModernHopfieldModel, SlotMemory
from mnemon.nets.energy import GatedEnergy
from mnemon.nets.energy_conv import ConvEnergy, ResNetEnergy
from mnemon.nets.energy_reconstruction import ReconstructionEnergy

SHAPE = (1, 4, 4)
MODELS = {
    "ebmm": lambda: EnergyModel(GatedEnergy(SHAPE, hidden=7, dynamic_size=3, num_hops=2), write_steps=2, read_steps=2),
    "hebb": lambda: HopfieldModel(SHAPE, "hebb"),
    "storkey": lambda: HopfieldModel(SHAPE),
    "modern": lambda: ModernHopfieldModel(SHAPE),
    "slots": lambda: SlotMemory(SHAPE, 3 * 16),
    "copy": lambda: CopyModel(SHAPE),
}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(0)
    return MODELS[request.param]()


def images(*shape, seed=0):
    return torch.rand(*shape, *SHAPE, generator=torch.Generator().manual_seed(seed))


def test_one_memory_is_read_by_many_and_many_by_one_cue(model):
    x, cues = images(2, 3), images(2, 5, seed=1)
    states = model.write(x)
    for shared, memories, asked in ((0, states[0], cues), (1, states, cues[1])):
        read = model.read(memories, asked)
        assert read.shape == cues.shape
        one = model.read(states[shared], cues[shared])
        torch.testing.assert_close(read[shared], one)
    assert model.read(states, cues[:, :0]).shape == (2, 0, *SHAPE)


def test_reads_can_be_read_again(model):
    """No rounding leads out of [0, 1], whatever the share of each pattern: what is read is a cue for the next read."""
    for seed in range(10):
        x = images(11, seed=seed).round()
        state = model.write(x, generator=torch.Generator().manual_seed(seed))
        for cue in (images(50, seed=seed + 1), x):
            read = model.read(state, model.read(state, cue), steps=2)
            assert ((read >= 0) & (read <= 1)).all()


def test_floats_are_numbers_not_bytes(model):
    single, double = images(2, 3), images(2, 3).double()
    floats = model.memory_floats(model.write(single))
    assert model.double().memory_floats(model.write(double)) == floats


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (images(3) + 0.5, r"expected values in \[0, 1\], got 0\.\d+ to 1\.\d+; .*scale the images"),
        (torch.full((3, *SHAPE), float("nan")), "expected finite values .* got NaN or infinity"),
        (images(3).numpy(), "expected x as a Tensor, got ndarray; use torch.as_tensor"),
        (images(3) > 0.5, r"got torch.bool; convert with x.float\(\)"),
        ((255 * images(3)).byte(), "got torch.uint8; divide by 255"),
        (
            images(3).half(),
            r"expected images of .*torch.float32.*, got torch.float16; convert with x.to\(torch.float32\)",
        ),
        (images(3)[..., :3], "resize the images"),
        (images(), "add an item dimension"),
    ],
    ids=["range", "nan", "array", "bool", "bytes", "half", "size", "one"],
)
def test_images_that_do_not_fit(model, x, message):
    state = model.write(images(3))
    with pytest.raises(ValueError, match=f"write: .*{message}"):
        model.write(x)
    with pytest.raises(ValueError, match=f"read: .*{message}"):
        model.read(state, x)


def test_memories_that_do_not_fit(model):
    states, other = model.write(images(2, 3)), images(4, 3)
    with pytest.raises(ValueError, match=r"read: .*batch shapes that broadcast, got \(2,\) and \(4,\)"):
        model.read(states, other)
    with pytest.raises(ValueError, match=r"write: prior: .*batch shapes that broadcast, got \(2,\) and \(4,\)"):
        model.write(other, prior=states)
    with pytest.raises(ValueError, match=r"expected a memory of torch.float32 as the images, got torch.float64"):
        model.read(states.to(torch.float64), images(2, 3))


def test_observed_pixels_that_do_not_fit(model):
    state = model.write(images(3))
    with pytest.raises(
        ValueError, match=r"read: observed: expected a shape that broadcasts to \(3, 1, 4, 4\), got \(5,\)"
    ):
        model.read(state, images(3), observed=torch.ones(5, dtype=torch.bool))
    with pytest.raises(ValueError, match="read: observed: expected bools"):
        model.read(state, images(3), observed=torch.ones(4))


def test_storkey_writes_a_pattern_once():
    x, often = images(3), torch.tensor([1.0, 3.0, 1.0])
    model = HopfieldModel(SHAPE)
    assert torch.equal(model.write(x, weights=often).weights, model.write(x).weights)
    hebb = HopfieldModel(SHAPE, "hebb")
    torch.testing.assert_close(hebb.write(x, weights=often).weights, hebb.write(x[[0, 1, 1, 1, 2]]).weights)


def test_slots_are_filled_with_what_is_there():
    """Two episodes of five, of which one has two images only: no slot of it goes to an image that is not there."""
    model, x = SlotMemory(SHAPE, 2 * 16), images(2, 5)
    mask = torch.tensor([[True] * 5, [False, True, False, False, True]])
    for seed in range(5):
        state = model.write(x, mask=mask, generator=torch.Generator().manual_seed(seed))
        assert state.items.shape == (2, 2, 16)
        torch.testing.assert_close(model.read(state, x)[1, [1, 4]], x[1, [1, 4]])


def test_settings_that_do_not_fit():
    for beta in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="beta: expected a positive, finite number"):
            ModernHopfieldModel(SHAPE, beta)
    with pytest.raises(ValueError, match="rule: expected one of hebb, storkey, got 'hop'"):
        HopfieldModel(SHAPE, "hop")
    for net in (ResNetEnergy, ConvEnergy):
        with pytest.raises(ValueError, match="num_hops: expected a whole number"):
            net((1, 8, 8), num_hops=0)
        with pytest.raises(ValueError, match="channels: expected a whole number"):
            net((1, 8, 8), channels=0)
    for net in (ResNetEnergy, ConvEnergy, ReconstructionEnergy):
        with pytest.raises(ValueError, match=r"image_shape: expected \(channels, height, width\)"):
            net((128,))
