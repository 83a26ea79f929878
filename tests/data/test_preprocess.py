import pytest
import torch

from mnemon.data import preprocess
from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing


@pytest.fixture
def data():
    """Every level from 0 to 255, 400 images of each pixel."""
    return ImageSet(torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(400, 1, 1, 1))


def assert_bernoulli(draws, levels):
    """Each pixel's frequency is x / 255 within five standard errors."""
    probability = levels.double() / 255
    error = (probability * (1 - probability) / len(draws)).sqrt()
    assert ((draws.double().mean(0) - probability).abs() <= 5 * error).all()


def test_plain_pixels_are_scaled(data):
    plain = Preprocessing()
    assert plain.fix(data, train=True) is data
    assert plain(data.images).equal(data.images.float() / 255)
    assert plain(data.images).dtype == torch.float32


def test_static_threshold(data):
    static = Preprocessing("static", threshold=95)
    fixed = static.fix(data, train=True)
    assert fixed.images.equal((data.images > 95).to(torch.uint8) * 255)
    assert static(fixed.images).equal((data.images > 95).float())
    assert static(data.images).equal(static(fixed.images))


def test_dynamic_draws_anew_in_training_and_once_at_test(data):
    dynamic = Preprocessing("dynamic")
    assert dynamic.fix(data, train=True) is data
    generator = torch.Generator().manual_seed(1)
    first, second = dynamic(data.images, generator), dynamic(data.images, generator)
    assert set(first.unique().tolist()) == {0.0, 1.0}
    assert not first.equal(second)
    assert_bernoulli(first, data.images[0])
    fixed = dynamic.fix(data, train=False)
    assert dynamic(fixed.images).equal(fixed.images.float() / 255)


def test_fixed_is_one_seeded_draw(data):
    fixed = Preprocessing("fixed")
    once, again, other = (fixed.fix(data, train=True, seed=s).images for s in (1, 1, 2))
    assert once.equal(again)
    assert not once.equal(other)
    assert set(once.unique().tolist()) == {0, 255}
    assert_bernoulli(once // 255, data.images[0])
    assert fixed(once).equal((once > 0).float())


def test_fixed_does_not_depend_on_what_follows(data, monkeypatch):
    monkeypatch.setattr(preprocess, "CHUNK", 100)
    whole = Preprocessing("fixed").fix(data, train=True).images
    part = Preprocessing("fixed").fix(data.subset(range(100)), train=True).images
    assert whole[:100].equal(part)
    assert not whole[100:200].equal(part)


def test_train_and_test_are_drawn_apart(data):
    test = ImageSet(data.images, split="test")
    fixed = Preprocessing("fixed")
    assert not fixed.fix(data, train=True).images.equal(fixed.fix(test, train=False).images)


def test_dequantised_pixels_stay_in_their_bin(data):
    dequantise = Preprocessing(dequantise=True)
    values = dequantise(data.images, torch.Generator().manual_seed(0))
    assert (values * 256).floor().equal(data.images.float())
    assert values.max() < 1
    noise = values.double() * 256 - data.images
    assert noise.mean().item() == pytest.approx(0.5, abs=5 * (1 / 12 / noise.numel()) ** 0.5)
    assert noise.var().item() == pytest.approx(1 / 12, rel=0.02)


def test_dequantised_pixels_never_reach_one(data, monkeypatch):
    nearly_one = torch.tensor(1 - 2**-24)
    monkeypatch.setattr(preprocess, "_uniform", lambda shape, device, generator: nearly_one.expand(shape))
    assert (Preprocessing(dequantise=True)(data.images) * 256).floor().equal(data.images.float())


@pytest.mark.parametrize("kind", [{"binarise": "dynamic"}, {"dequantise": True}])
def test_generator_decides_the_draw(data, kind):
    step = Preprocessing(**kind)
    one, same, other = (step(data.images[:2], torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert one.equal(same)
    assert not one.equal(other)
    assert one.shape == data.images[:2].shape
    assert step(data.images.view(4, 100, 1, 16, 16)).shape == (4, 100, 1, 16, 16)


def test_messages(data):
    with pytest.raises(ValueError, match="dequantise"):
        Preprocessing("static", dequantise=True)
    with pytest.raises(ValueError, match="none, static, dynamic, fixed, got 'statc'"):
        Preprocessing("statc")
    with pytest.raises(ValueError, match="threshold"):
        Preprocessing("static", threshold=255)
    with pytest.raises(ValueError, match="uint8"):
        Preprocessing()(data.images.float())
