"""Models and memories on disk: what is saved comes back, and what does not belong together is refused."""

import dataclasses
import json

import pytest
import torch

from mnemon.data import catalog
from mnemon.pretrained import (
    ZOO,
    find_run,
    from_pretrained,
    load_memory,
    load_run,
    save_memory,
    save_pretrained,
    zoo_names,
)
from mnemon.registry import build_model
from mnemon.training.checkpoint import fingerprint
from tests.training.cases import SHAPE, SIZES, image_set, of_kind


def make(kind="vbm-mixture", seed=0):
    settings = of_kind(kind, model={"image_shape": SHAPE})
    torch.manual_seed(seed)
    return build_model(settings.model).eval(), settings


def images(number=8):
    return image_set().images[:number].float() / 255


@pytest.mark.parametrize("kind", SIZES)
def test_a_saved_model_reads_alike(kind, tmp_path):
    model, settings = make(kind)
    save_pretrained(model, settings, tmp_path / "new" / "folder")
    again, found = load_run(tmp_path / "new" / "folder")
    assert found == settings
    assert not again.training
    assert fingerprint(again) == fingerprint(model)
    reads = []
    for each in (model, again):
        with torch.no_grad():
            state = each.write(images(), generator=torch.Generator().manual_seed(1))
            reads.append(each.read(state, images(3), steps=2))
    assert torch.equal(*reads)


def test_the_fingerprint_changes_with_any_weight():
    model, _ = make()
    prints = {fingerprint(model)}
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.view(-1)[-1].add_(1e-3)
        prints.add(fingerprint(model))
    assert len(prints) == 1 + len(list(model.parameters()))
    assert fingerprint(model) == fingerprint(model.train())  # it is of the weights alone


@pytest.mark.parametrize("kind", SIZES)
def test_a_memory_comes_back(kind, tmp_path):
    model, _ = make(kind)
    with torch.no_grad():
        state = model.write(images(), generator=torch.Generator().manual_seed(1))
        save_memory(tmp_path / "memory.safetensors", state, model)
        again = load_memory(tmp_path / "memory.safetensors", model)
        assert type(again) is type(state)
        assert torch.equal(model.read(state, images(3)), model.read(again, images(3)))
        draws = [model.sample(s, 2, generator=torch.Generator().manual_seed(2)) for s in (state, again)]
    assert torch.equal(*draws)


def test_a_memory_of_other_weights_is_refused(tmp_path):
    (model, _), (other, _) = make(), make(seed=1)
    state = model.write(images(), generator=torch.Generator().manual_seed(1)).detach()
    save_memory(tmp_path / "memory", state, model)
    with pytest.raises(ValueError, match=r"written by other weights .*use the run that wrote it"):
        load_memory(tmp_path / "memory", other)
    assert load_memory(tmp_path / "memory", other, check=False).nbytes == state.nbytes
    state.save(tmp_path / "bare")
    with pytest.raises(ValueError, match=r"one saved without; save it with mnemon\.save_memory"):
        load_memory(tmp_path / "bare", model)
    with pytest.raises(ValueError, match="no file"):
        load_memory(tmp_path / "absent", model)


def test_weights_and_configuration_must_agree(tmp_path):
    model, settings = make()
    other = dataclasses.replace(settings, model=dataclasses.replace(settings.model, code_dim=6))
    with pytest.raises(ValueError, match="weights of another model"):
        save_pretrained(model, other, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_configuration_that_cannot_be_read(tmp_path):
    model, settings = make()
    save_pretrained(model, settings, tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    for text, message in (
        (json.dumps(values | {"version": 2}), "written by another version of this library; expected version 1"),
        (json.dumps(settings.as_dict()), "another version"),
        ("[1]", "another version"),
        ("{", "not readable as JSON"),
        (json.dumps(values | {"modell": {}}), "did you mean 'model'"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            from_pretrained(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match=r"expected a run folder with config\.json"):
        from_pretrained(tmp_path)


def test_settings_added_later_have_their_defaults(tmp_path):
    """A configuration saved before a setting existed."""
    model, settings = make()
    save_pretrained(model, settings, tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    del values["stages"][0]["kl_warmup"]
    path.write_text(json.dumps(values))
    assert load_run(tmp_path)[1] == settings


def test_unknown_names():
    with pytest.raises(ValueError, match="no model of that name in the zoo; did you mean 'mixture-characters'"):
        from_pretrained("mixture-character")
    with pytest.raises(ValueError, match=r"expected one of .*mixture-characters"):
        find_run("xyz")


@pytest.mark.parametrize("name", zoo_names())
def test_the_zoo(name):
    """Shipped weights are small, load, and hold a memory of images they have not seen: glyphs, and digits."""
    assert sum(path.stat().st_size for path in (ZOO / name).iterdir()) <= 5e6
    model, settings = load_run(name)
    assert settings.model.image_shape == (1, 28, 28)
    for data in ("glyphs", "digits"):
        x = (catalog.load(data, "test").images[::7][:24] > settings.data.threshold).float()
        with torch.no_grad():
            state = model.write(x, generator=torch.Generator().manual_seed(0))
            cue = torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.15, 1 - x, x)
            recalled = model.read(state, cue)
        assert (recalled - x).square().mean() < 0.8 * (cue - x).square().mean()
        drawn = model.sample(state, 5, generator=torch.Generator().manual_seed(2))
        assert drawn.shape == (5, 1, 28, 28)
        assert bool(((drawn >= 0) & (drawn <= 1)).all())


def test_there_is_a_zoo():
    assert "mixture-characters" in zoo_names()
