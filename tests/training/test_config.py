"""Configurations: what is read, what is refused, and that every preset builds its model."""

import dataclasses
import json

import pytest

from mnemon import presets
from mnemon.data.catalog import CATALOG
from mnemon.registry import build_model
from mnemon.training.config import parse
from tests.training.cases import SIZES, config


def test_json_round_trip():
    settings = config(stages=[{"epochs": 2, "regulariser": {"gamma": 0.4}}, {"epochs": 1, "leftover": True}])
    assert parse(json.loads(json.dumps(settings.as_dict()))) == settings


def test_settings_by_key():
    settings = config().with_settings(["training.seed=9", "stages.0.epochs=7", "data.name=other", "model.code_var=0.5"])
    assert (settings.training.seed, settings.stages[0].epochs) == (9, 7)
    assert (settings.data.name, settings.model.code_var) == ("other", 0.5)
    assert settings.with_settings(["model.code_var=none"]).model.code_var is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trainning": {}}, "unknown setting trainning; did you mean 'training'"),
        ({"data": {"episode_lenght": 3}}, r"unknown setting data.episode_lenght; did you mean 'episode_length'"),
        ({"data": {"episode_length": "many"}}, "data.episode_length: expected int, got 'many'"),
        ({"data": {"batch_size": True}}, "data.batch_size: expected int, got True"),
        ({"data": {"binarise": "dynamc"}}, "data.binarise: got 'dynamc'; did you mean 'dynamic'"),
        ({"data": 3}, "data: expected a table"),
        ({"stages": []}, "at least one stage"),
        ({"data": {"targets": 4}}, "episodes of kind iid score every item; leave it out, or take few_shot or recall"),
        ({"data": {"episodes": "few_shot"}}, "data.targets: episodes of kind few_shot need the number"),
        (
            {"data": {"episodes": "recall", "targets": 4}, "objective": {"write_fraction": 0.5}},
            "objective.write_fraction: episodes of kind recall say themselves what is written",
        ),
        ({"objective": {"estimator": "vimko"}}, "objective.estimator: got 'vimko'; did you mean 'vimco'"),
        ({"objective": {"num_samples": 0}}, "objective.num_samples: expected at least 1, got 0"),
        ({"stages": 3}, "stages: expected a list"),
    ],
)
def test_bad_settings(values, message):
    with pytest.raises(ValueError, match=message):
        parse({"name": "x", **values})


def test_a_configuration_needs_a_name():
    with pytest.raises(ValueError, match="missing name"):
        parse({})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.sed=1", "unknown setting training.sed; did you mean 'seed'"),
        ("training.seed", "expected key=value"),
        ("stages.4.epochs=1", "expected a number below 1"),
        ("stages.0=1", "names a stage"),
        ("model.regulariser.gamma=1", "not set in this experiment"),
        ("nothing.at.all=1", "unknown setting nothing"),
    ],
)
def test_bad_keys(setting, message):
    with pytest.raises(ValueError, match=message):
        config().with_settings([setting])


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_builds_its_model(name):
    settings = presets.load(name)
    assert settings.name == name
    assert settings.description
    small = dataclasses.replace(settings.model, image_shape=CATALOG[settings.data.name].image_shape, num_filters=8)
    model = build_model(small)
    assert sum(p.numel() for p in model.parameters()) > 0


def test_presets_name_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'vbm-table2-gaussian'"):
        presets.load("vbm-table2-gausian")
    with pytest.raises(ValueError, match="no file"):
        presets.load("absent.toml")


def test_a_preset_file_may_extend_another(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "digits-gaussian"\n[model]\nnum_slots = 3\n')
    settings, base = presets.load(str(path)), presets.load("digits-gaussian")
    assert settings.name == "mine"
    assert settings.model == dataclasses.replace(base.model, num_slots=3)
    path.write_text(f'extends = "{path}"\n')
    with pytest.raises(ValueError, match="extends itself"):
        presets.load(str(path))
    path.write_text("not toml")
    with pytest.raises(ValueError, match=r"not a readable \.toml"):
        presets.load(str(path))


def test_models_refuse_what_they_have_no_use_for():
    settings = config().model
    for change, message in (
        ({"kind": "vbm-mixtur"}, "did you mean 'vbm-mixture'"),
        ({"context_dim": 5}, "context_dim: vbm-mixture has no use for it"),
        ({"image_shape": None}, "image_shape"),
        ({"flat_prior": True}, "flat_prior: vbm-mixture has no use for it"),
        ({"kind": "vma", **SIZES["vma"], "architecture": "improved"}, "expected pyramid or mlp"),
        ({"kind": "soft-attention", **SIZES["vma"], "flat_prior": True}, "soft-attention has no use"),
        ({"kind": "vma", **SIZES["vma"], "content_dim": 5}, "nothing but a learned memory"),
        ({"kind": "gmn", **SIZES["gmn"], "num_slots": 3}, "num_slots: gmn has no use for it"),
        ({"num_matching_steps": 2}, "num_matching_steps: vbm-mixture has no use for it"),
    ):
        with pytest.raises(ValueError, match=message):
            build_model(dataclasses.replace(settings, **{"image_shape": (1, 22, 22), **change}))


def test_the_command_of_a_run_names_what_was_set_and_no_words():
    """A description that was written anew since is no setting."""
    config = presets.load("digits-gaussian").with_settings(["training.seed=3", "stages.0.epochs=2"])
    told = dataclasses.replace(config, description="as it was called before", paper="another")
    expected = "mnemon train digits-gaussian --set training.seed=3 --set stages.0.epochs=2"
    assert presets.train_command(told) == expected
