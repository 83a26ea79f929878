import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemon.data import catalog, derived
from mnemon.data.episodes import SetEpisodes
from mnemon.data.factors import (
    FactorEpisodes,
    black_and_white,
    rotate,
    rotated,
    split_classes,
    with_quarter_turns,
)
from mnemon.data.images import ImageSet
from mnemon.data.synthetic import FAMILIES, family_sets


def numbered(classes=6, each=4, side=5):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (classes * each, 1, side, side), dtype=torch.uint8, generator=generator)
    return ImageSet(images, torch.arange(classes).repeat_interleave(each), "numbered")


@settings(deadline=None, max_examples=20)
@given(constant=st.sampled_from(["one", "any"]), seed=st.integers(0, 1000), length=st.integers(2, 6))
def test_constant_factors_are_constant(constant, seed, length):
    data = rotated(numbered(), num_angles=4, copies=3)
    batches = FactorEpisodes(length, 3, constant).epoch(data, seed=seed, epoch=1)
    values = data.factors[batches.index]
    same = (values == values[..., :1, :]).all(-2)
    assert (same | ~batches.constant).all()
    assert batches.roles(0).constant.shape == (3, 2)
    if constant == "one":
        assert (batches.constant.sum(-1) == 1).all()


def test_varying_factors_vary_and_shares_count():
    data = black_and_white(numbered(10, 20))
    batches = FactorEpisodes(8, 5, shares=(4.0, 0.0)).epoch(data, seed=0, epoch=0)
    assert batches.constant[..., 0].all()
    backgrounds = data.factors[batches.index][..., 1].double().mean()
    assert abs(backgrounds - 0.5) < 5 * 0.5 / batches.index.numel() ** 0.5
    again = FactorEpisodes(8, 5, shares=(4.0, 0.0)).epoch(data, seed=0, epoch=0)
    assert torch.equal(batches.index, again.index)


def test_black_and_white():
    data = numbered()
    both = black_and_white(data)
    assert torch.equal(
        both.images[: len(data)].int() + both.images[len(data) :].int(), torch.full_like(data.images, 255).int()
    )
    assert both.factors[:, 1].tolist() == [0] * len(data) + [1] * len(data)
    assert both.subset([0, 30]).factors.tolist() == [[0, 0], [1, 1]]


def test_rotations():
    data = numbered()
    quarter = rotate(data.images, torch.full((len(data),), math.pi / 2))
    assert torch.equal(quarter, data.images.rot90(1, (-2, -1)))
    turned = rotated(data, num_angles=4, copies=2)
    for image, (label, angle), base in zip(
        turned.images, turned.factors.tolist(), data.images.repeat(2, 1, 1, 1), strict=True
    ):
        assert torch.equal(image, base.rot90(angle, (-2, -1)))
        assert 0 <= label < 6
    first, second = turned.factors[:, 1].chunk(2)
    assert (first != second).all()


def test_quarter_turns_are_classes_of_their_own():
    turned = with_quarter_turns(numbered())
    assert turned.num_classes == 24
    assert torch.equal(turned.images[turned.labels == 7], numbered().images[4:8].rot90(1, (-2, -1)))


def test_classes_are_split_without_overlap():
    data = numbered()
    parts = split_classes(data, (3, 2, 1))
    assert [part.num_classes for part in parts] == [3, 2, 1]
    seen = {tuple(image.flatten().tolist()) for part in parts for image in part.images}
    assert len(seen) == len(data)
    assert torch.equal(parts[0].images, split_classes(data, (3, 2, 1))[0].images)
    with pytest.raises(ValueError, match="expected 7 classes, got 6"):
        split_classes(data, (4, 3))


def test_every_set_comes_once():
    data = numbered()
    index = SetEpisodes(4, 2).epoch(data, seed=0, epoch=0).index
    labels = data.labels[index].flatten(0, 1)
    assert (labels == labels[:, :1]).all()
    assert sorted(labels[:, 0].tolist()) == list(range(6))
    fewer = SetEpisodes(3, 2).epoch(data, seed=0, epoch=0).index.flatten(0, 1)
    assert all(len(set(row)) == 3 for row in fewer.tolist())
    with pytest.raises(ValueError, match="at least batch_size = 7 sets of 4 items, got 6"):
        SetEpisodes(4, 7).epoch(data, seed=0, epoch=0)


def test_families_have_the_moments_and_shapes_that_they_say():
    sets = family_sets(400, 4000, seed=3)
    gap = (sets.values.double().mean(1) - sets.mean) / (sets.variance / 4000).sqrt()
    assert gap.abs().max() < 5
    standard = (sets.values.double() - sets.mean[:, None]) / sets.variance.sqrt()[:, None]
    skew = {name: standard[sets.family == at].pow(3).mean().item() for at, name in enumerate(FAMILIES)}
    kurtosis = {name: standard[sets.family == at].pow(4).mean().item() for at, name in enumerate(FAMILIES)}
    # of an exponential 2 and 9, of a Laplace 0 and 6; of the mixture 0 and d^4 + 6 d^2 s^2 + 3 s^4 with d = 0.9
    d, s = 0.81, 0.19
    assert skew == pytest.approx(dict(zip(FAMILIES, (0, 0, 2, -2), strict=True)), abs=0.1)
    expected = (d**2 + 6 * d * s + 3 * s**2, 6, 9, 9)
    assert kurtosis == pytest.approx(dict(zip(FAMILIES, expected, strict=True)), rel=0.1)


def test_derived_sets_of_the_catalog():
    families = catalog.load("families", "test")
    assert (families.images.dtype, families.num_classes, families.num_groups) == (torch.float32, 1000, 4)
    digits = catalog.load("black_white_digits", "test")
    assert (digits.name, digits.factor_names) == ("black_white_digits", ("digit", "background"))
    with pytest.raises(ValueError, match="has no split 'valid'"):
        catalog.load("rotated_digits", "valid")
    records = {record["name"]: record["here"] for record in catalog.describe("/nowhere")}
    assert (records["families"], records["rotated_mnist"]) == ("embedded", "missing")


def test_bad_input():
    with pytest.raises(ValueError, match="at least 2 items, got 1"):
        FactorEpisodes(1, 2)
    with pytest.raises(ValueError, match="images of known factors, but numbered has none"):
        FactorEpisodes(2, 2).epoch(numbered(), seed=0, epoch=0)
    with pytest.raises(ValueError, match=r"expected 2 shares of at least 0, .*got \(1.0,\)"):
        FactorEpisodes(2, 2, shares=(1.0,)).epoch(black_and_white(numbered()), seed=0, epoch=0)
    with pytest.raises(ValueError, match="a column for each of factor_names"):
        ImageSet(numbered().images, factors=torch.zeros(24, 2).long(), factor_names=("one",))


def test_characters_for_few_shot_classification_are_split_and_turned():
    """Published sizes: 1,200 characters and their quarter turns to train, 323 to validate, 100 to test."""
    characters = torch.arange(1623).repeat_interleave(2)
    pixels = torch.stack((characters // 256, characters % 256), -1).to(torch.uint8)  # each shows its number
    images = torch.cat((pixels, torch.zeros_like(pixels)), -1).view(-1, 1, 2, 2)
    whole = ImageSet(images, characters, "omniglot", "all", groups=characters // 40)
    parts = {
        split: derived.make("omniglot1200", split, lambda name, split: whole) for split in ("train", "valid", "test")
    }
    assert {split: part.num_classes for split, part in parts.items()} == {"train": 4800, "valid": 323, "test": 100}
    upright = parts["train"].images[:2400]
    shown = [part.flatten(1)[:, :2].int() @ torch.tensor([256, 1], dtype=torch.int32)
             for part in (upright, parts["valid"].images, parts["test"].images)]  # fmt: skip
    sets = [set(numbers.tolist()) for numbers in shown]
    assert [len(some) for some in sets] == [1200, 323, 100]
    assert len(set.union(*sets)) == 1623
    for turns in range(4):
        assert torch.equal(parts["train"].images[2400 * turns : 2400 * (turns + 1)], upright.rot90(turns, (-2, -1)))
        assert torch.equal(
            parts["train"].labels[2400 * turns : 2400 * (turns + 1)], parts["train"].labels[:2400] + 1200 * turns
        )
