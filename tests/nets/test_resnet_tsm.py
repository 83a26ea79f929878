"""The temporal shift against a loop, and which frames an encoding depends on."""

import pytest
import torch
from torch.nn import functional as F

from mnemon.models import VAE
from mnemon.nets.resnet_tsm import TSMResNet, temporal_shift, tsm_codec

SHAPE = (2, 9, 11)


def net(**options):
    torch.manual_seed(0)
    made = TSMResNet(SHAPE, num_filters=4, **options).double()
    made(torch.rand(20, *SHAPE, dtype=torch.float64))  # running statistics
    return made.eval()


def images(*shape, seed=0):
    return torch.rand(*shape, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def shift_by_hand(frames):
    """One episode (T, F, H, W), channel by channel."""
    shifted = torch.zeros_like(frames)
    length, channels = frames.shape[:2]
    share = max(1, channels // 8)
    for t in range(length):
        for c in range(channels):
            source = t - 1 if c < share else t + 1 if c < 2 * share else t
            if 0 <= source < length:
                shifted[t, c] = frames[source, c]
    return shifted


@pytest.mark.parametrize("channels", [2, 3, 8, 17, 24])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_shift_against_a_loop(channels, length):
    x = torch.randn(3, length, channels, 2, 3, dtype=torch.float64)
    assert torch.equal(temporal_shift(x), torch.stack([shift_by_hand(episode) for episode in x]))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_shift_keeps_the_layout_of_maps_and_its_derivative_brings_back_what_was_shifted(layout):
    x = torch.randn(6, 9, 2, 2, dtype=torch.float64).to(memory_format=layout).requires_grad_()
    shifted = temporal_shift(x.unflatten(0, (2, 3)))
    assert shifted.flatten(0, 1).is_contiguous(memory_format=layout)
    weight = torch.randn(shifted.shape, dtype=torch.float64)
    found = torch.autograd.grad((shifted * weight).sum(), x)[0]
    by_hand = torch.stack([shift_by_hand(episode) for episode in x.unflatten(0, (2, 3))])
    torch.testing.assert_close(found, torch.autograd.grad((by_hand * weight).sum(), x)[0])
    assert torch.autograd.gradgradcheck(lambda x: temporal_shift(x.unflatten(0, (2, 3))).square().sum(), x)


def test_nothing_comes_from_absent_frames():
    x = torch.randn(1, 4, 8, 2, 2, dtype=torch.float64)
    present = torch.tensor([[True, False, True, True]])
    blanked = torch.where(present[..., None, None, None], x, 0.0)
    left, right = temporal_shift(x, present), temporal_shift(blanked)
    assert torch.equal(left[present], right[present])


def test_one_channel_cannot_be_shifted_both_ways():
    with pytest.raises(ValueError, match="at least 2 channels, got 1"):
        temporal_shift(torch.zeros(1, 2, 1, 3, 3))


@pytest.mark.parametrize("stem", ["small", "large"])
def test_the_net_against_a_loop(stem):
    """Blocks as torchvision has them, but for what their first convolution sees."""
    model, x = net(stem=stem), images(5)
    maps = model.stem(2 * x - 1)
    for layer in model.blocks:
        block = layer.block
        branch = F.relu(block.bn1(block.conv1(shift_by_hand(maps))))
        shortcut = maps if block.downsample is None else block.downsample(maps)
        maps = F.relu(block.bn2(block.conv2(branch)) + shortcut)
    norm = model.standard
    pooled = (maps.mean((-2, -1)) - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    torch.testing.assert_close(model.encode_episodes(x), pooled)


def test_size_of_resnet_18():
    """torchvision's ResNet-18 has 11,176,512 parameters before its classifier; a 3 x 3 stem has fewer."""
    model = TSMResNet((3, 64, 64), stem="large")
    assert sum(p.numel() for p in model.parameters()) == 11_176_512
    assert model.width == 512


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_shapes(batch):
    model, x = net(), images(*batch, 4)
    encodings = model.encode_episodes(x)
    assert encodings.shape == (*batch, 4, model.width)
    if batch:
        torch.testing.assert_close(encodings[-1], model.encode_episodes(x[-1]))
    present = torch.ones(*batch, 4, dtype=torch.bool)
    torch.testing.assert_close(model.encode_episodes(x, present), encodings)


def test_an_image_alone_is_an_episode_of_one():
    model, x = net(), images(3)
    alone = model(x)
    torch.testing.assert_close(alone, model.encode_episodes(x[:, None])[:, 0])
    torch.testing.assert_close(alone[1:], model(x[1:]))
    assert not torch.allclose(alone, model.encode_episodes(x))


def test_masked_frames_are_absent():
    """Those on either side become neighbours; what the masked ones hold, also NaN, does not matter."""
    model, x = net(), images(2, 5)
    present = torch.tensor([[True, False, True, True, False], [False, True, True, True, True]])
    spoiled = torch.where(present[..., None, None, None], x, torch.nan)
    encodings = model.encode_episodes(spoiled, present)
    for row in range(2):
        expected = model.encode_episodes(x[row, present[row]])
        torch.testing.assert_close(encodings[row, present[row]], expected)
    with pytest.raises(ValueError, match=r"expected present of shape \(2, 5\)"):
        model.encode_episodes(x, present[:, :3])


def test_blocks_of_episodes_without_gradient(monkeypatch):
    model, x = net(), images(5, 3)
    present = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)) < 0.7
    whole = model.encode_episodes(x, present)
    monkeypatch.setattr("mnemon.nets.resnet_tsm.BLOCK", 7)  # two episodes at a time
    with torch.no_grad():
        torch.testing.assert_close(model.encode_episodes(x, present), whole)
        torch.testing.assert_close(model.encode_episodes(x), net().encode_episodes(x))


def test_neighbours_reach_as_far_as_there_are_blocks():
    """Eight blocks, a frame further each."""
    model, x = net(), images(12)
    changed = x.clone()
    changed[0] = 1 - changed[0]
    moved = (model.encode_episodes(x) - model.encode_episodes(changed)).abs().amax(-1) > 0
    assert moved.nonzero().amax() <= 8
    assert moved[0]
    assert moved[1]


def test_any_model_of_codes_can_use_the_nets():
    torch.manual_seed(0)
    vae = VAE(tsm_codec((1, 12, 10), 3, likelihood="logistic_mixture", num_filters=2, hidden=4)).double().eval()
    x = torch.rand(2, 4, 1, 12, 10, dtype=torch.float64)
    terms = vae.terms(x, generator=torch.Generator().manual_seed(0))
    assert terms.joint.isfinite().all()
    assert vae.sample(vae.write(x), 2).shape == (2, 2, 1, 12, 10)


def test_the_shift_goes_along_with_tangents():
    """It is linear, so its derivative along a direction is the shift of that direction."""
    x, direction = torch.rand(2, 2, 3, 8, 4, 4, dtype=torch.float64)
    value, moved = torch.func.jvp(temporal_shift, (x,), (direction,))
    torch.testing.assert_close(value, temporal_shift(x))
    torch.testing.assert_close(moved, temporal_shift(direction))


def test_an_unknown_stem():
    with pytest.raises(ValueError, match="expected small or large, got 'middle'"):
        TSMResNet(SHAPE, stem="middle")
