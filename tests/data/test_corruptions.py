import pytest
import torch

from mnemon.data.corruptions import (
    CORRUPTIONS,
    SIDES,
    block,
    corrupt,
    gaussian,
    half,
    poisson,
    salt_and_pepper,
    speckle,
)

LEVELS = {"flip": 0.3, "salt_and_pepper": 0.3, "speckle": 0.2, "poisson": 0.05, "gaussian": 0.1, "block": 4, "half": 2}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def grey(value, number=200, dtype=torch.float64):
    return torch.full((number, 3, 16, 16), value, dtype=dtype)


def assert_moments(sample, mean, variance):
    """Mean and variance within five standard errors, for noise that is nearly normal."""
    number = sample.numel()
    assert sample.mean().item() == pytest.approx(mean, abs=5 * (variance / number) ** 0.5)
    assert sample.var().item() == pytest.approx(variance, rel=5 * (4 / number) ** 0.5)


def test_salt_and_pepper_rates_and_channels():
    noisy = salt_and_pepper(grey(0.5), 0.3, seeded())
    assert (noisy == noisy[:, :1]).all()
    pixels = noisy[:, 0]
    for value, rate in ((0.0, 0.15), (1.0, 0.15), (0.5, 0.7)):
        error = (rate * (1 - rate) / pixels.numel()) ** 0.5
        assert (pixels == value).double().mean().item() == pytest.approx(rate, abs=5 * error)


def test_noise_has_the_variance_it_says():
    assert_moments(gaussian(grey(0.5), 0.05, seeded()), 0.5, 0.05**2)
    assert_moments(speckle(grey(0.5), 0.1, seeded()), 0.5, 0.05**2)
    assert_moments(speckle(grey(0.25), 0.1, seeded()), 0.25, 0.025**2)
    assert_moments(poisson(grey(0.5), 0.01, seeded()), 0.5, 0.01 * 0.5)


def test_poisson_counts_photons():
    counts = poisson(grey(0.5), 0.125, seeded()) / 0.125
    assert torch.allclose(counts, counts.round())
    dark = (counts == 0).double().mean().item()
    assert dark == pytest.approx(torch.tensor(-4.0).exp().item(), abs=5 * (0.0183 / counts.numel()) ** 0.5)


@pytest.mark.parametrize("name", ["salt_and_pepper", "speckle", "poisson", "gaussian"])
def test_no_noise_at_level_zero(name):
    x = torch.rand(5, 1, 8, 8, generator=seeded())
    noisy, observed = corrupt(name, x, 0.0, seeded(1))
    assert torch.equal(noisy, x)
    assert observed is None


def test_block_erases_one_square_per_image_anywhere():
    x = torch.ones(4000, 1, 7, 9)
    damaged, observed = block(x, 3, seeded())
    assert observed.shape == (4000, 1, 7, 9)
    assert torch.equal(damaged, observed.float())
    missing = ~observed[:, 0]
    assert (missing.sum((-1, -2)) == 9).all()
    assert (missing.any(-1).sum(-1) == 3).all()
    assert (missing.any(-2).sum(-1) == 3).all()
    first = missing.any(-1).int().argmax(-1) * 7 + missing.any(-2).int().argmax(-1)  # 5 x 7 places
    frequency = torch.bincount(first, minlength=35) / 4000
    assert (frequency - 1 / 35).abs().max() < 5 * (1 / 35 / 4000) ** 0.5


@pytest.mark.parametrize(("side", "line"), [("left", 0), ("right", -1), ("top", 0), ("bottom", -1)])
def test_half_erases_its_side(side, line):
    damaged, observed = half(torch.ones(2, 3, 6, 7), side)
    assert observed.shape == (1, 6, 7)
    assert torch.equal(damaged, observed.float().expand(2, 3, 6, 7))
    erased = ~observed[0]
    assert erased.sum() == (3 * 6 if side in ("left", "right") else 3 * 7)
    assert (erased[:, line] if side in ("left", "right") else erased[line]).all()
    level = SIDES.index(side)
    assert torch.equal(corrupt("half", torch.ones(2, 3, 6, 7), level)[0], damaged)


@pytest.mark.parametrize("name", CORRUPTIONS)
class TestEveryCorruption:
    @pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
    def test_leading_dimensions(self, name, lead):
        x = torch.rand(*lead, 3, 8, 8, generator=seeded())
        before = x.clone()
        damaged, observed = corrupt(name, x, LEVELS[name], seeded(1))
        assert damaged.shape == x.shape
        assert damaged.dtype == x.dtype
        assert damaged.min() >= 0
        assert damaged.max() <= 1
        assert not torch.equal(damaged, x)
        assert torch.equal(x, before)
        assert observed is None or observed.expand(x.shape).dtype == torch.bool

    def test_generator_decides(self, name):
        x = torch.rand(6, 1, 8, 8, generator=seeded())
        one, same, other = (corrupt(name, x, LEVELS[name], seeded(s))[0] for s in (1, 1, 2))
        assert torch.equal(one, same)
        assert name == "half" or not torch.equal(one, other)

    def test_bad_input(self, name):
        with pytest.raises(ValueError, match=r"in \[0, 1\], got 0 to 255; divide"):
            corrupt(name, torch.linspace(0, 255, 64).view(1, 8, 8), LEVELS[name])
        with pytest.raises(ValueError, match="expected float images"):
            corrupt(name, torch.zeros(1, 8, 8, dtype=torch.uint8), LEVELS[name])
        with pytest.raises(ValueError, match="nan"):
            corrupt(name, torch.full((1, 8, 8), torch.nan), LEVELS[name])
        with pytest.raises(ValueError, match="level"):
            corrupt(name, torch.zeros(1, 8, 8), -1.0)


def test_messages():
    x = torch.zeros(1, 8, 8)
    with pytest.raises(ValueError, match="did you mean 'salt_and_pepper'"):
        corrupt("salt_pepper", x, 0.1)
    with pytest.raises(ValueError, match="probability"):
        corrupt("salt_and_pepper", x, 1.5)
    with pytest.raises(ValueError, match="at most 8"):
        corrupt("block", x, 9)
    with pytest.raises(ValueError, match="whole number"):
        corrupt("block", x, 2.5)
    with pytest.raises(ValueError, match="left, right, top, bottom"):
        half(x, "middle")
