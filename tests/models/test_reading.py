import pytest
import torch

from mnemon.models import iterate, nearest
from tests.models.test_conformance import MODELS, SHAPE, images, models, seeded


@models()
@pytest.mark.parametrize("batch", [(), (2,)])
def test_iterative_reading(name, batch):
    model = MODELS[name]()
    state = model.write(images(*batch, 5), generator=seeded())
    pictures = iterate(model, state, 3, 2, generator=seeded(4))
    assert pictures.shape == (*batch, 3, 3, *SHAPE)
    assert torch.equal(pictures, iterate(model, state, 3, 2, generator=seeded(4)))
    assert torch.equal(pictures[..., 0, :, :, :], model.sample(state, 3, generator=seeded(4)))
    assert not pictures.requires_grad


def test_each_picture_is_the_cue_of_the_next():
    model = MODELS["mixture"]()
    state = model.write(images(5), generator=seeded())
    pictures = iterate(model, state, 2, 2, generator=seeded(4), mean_images=False)
    assert set(pictures.unique().tolist()) == {0.0, 1.0}
    generator = seeded(4)
    current = model.sample(state, 2, sample_pixels=True, generator=generator)
    for step in range(3):
        assert torch.equal(pictures[:, step], current)
        current = model.read(state, current, generator=generator)


def test_without_a_generator_latents_are_drawn_all_the_same():
    model = MODELS["gaussian"]()
    state = model.write(images(5), generator=seeded())
    torch.manual_seed(0)
    first = iterate(model, state, 2, 1)
    assert not torch.equal(first, iterate(model, state, 2, 1))
    torch.manual_seed(0)
    assert torch.equal(first, iterate(model, state, 2, 1))


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_nearest_against_brute_force(batch, monkeypatch):
    monkeypatch.setattr("mnemon.models.reading.BLOCK", 2)
    found, known = images(*batch, 5, seed=1), images(*batch, 7)
    found[..., 0, :, :, :] = known[..., 4, :, :, :]
    gap = (found.unsqueeze(-4) - known.unsqueeze(-5)).square().sum((-3, -2, -1))
    index = nearest(found, known)
    assert index.shape == (*batch, 5)
    assert torch.equal(index, gap.argmin(-1))
    assert (index[..., 0] == 4).all()
    assert torch.equal(nearest(found.bfloat16(), known.bfloat16()), index)


def test_nearest_tells_close_images_apart_far_from_zero():
    known = 1000 + torch.arange(3.0)[:, None, None, None] * 1e-3 * torch.ones(3, 1, 4, 4)
    assert nearest(known, known).tolist() == [0, 1, 2]


def test_bad_input():
    model = MODELS["vae"]()
    with pytest.raises(ValueError, match="steps"):
        iterate(model, model.prior_state(), 1, 0)
    with pytest.raises(ValueError, match="one image shape"):
        nearest(images(2), torch.rand(2, 1, 8, 8))
    with pytest.raises(ValueError, match="one image shape"):
        nearest(images(2)[0], images(2))
