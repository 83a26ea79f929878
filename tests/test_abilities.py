"""`mnemon models`: what each model is and can do, against the models themselves."""

import dataclasses
import json
import re

import pytest
import torch
from typer.testing import CliRunner

from mnemon import registry
from mnemon.abilities import ABILITIES, ABOUT, IMAGE_SHAPE, abilities, presets_by_kind, small_model
from mnemon.cli import app
from mnemon.models.hopfield import HopfieldModel
from mnemon.presets import names
from mnemon.registry import MODELS, SYMBOLS, build_model
from mnemon.training.config import ModelConfig

PYRAMID = {"architecture": "pyramid", "embedding_dim": 5}
SIZES = {
    "vae": ({}, {}),
    "statistician": ({"context_dim": 7, "hidden": 5}, {"D": 7, "P": 5}),
    "statistician-full": ({"context_dim": 7, "hidden": 5, "layer_dim": 3}, {"D": 7, "P": 5}),
    "context-aware": (
        {"num_contexts": 3, "context_dim": 7, "layer_dim": 2, "hidden": 8, "constant": "any"},
        {"K": 3, "D": 7, "S": 8},
    ),
    **dict.fromkeys(("dkm", "dkm-tsm", "pseudo-inverse"), ({"num_slots": 3, "code_dim": 6}, {"K": 3, "C": 6})),
    **dict.fromkeys(("vma", "soft-attention", "gmn"), (PYRAMID, {"M": 4, "X": 784, "E": 5})),
    "kanerva-pp": ({"map_shape": [2, 9, 8], "read_size": 5, "hidden": 8}, {"A": 2, "V": 9, "W": 8}),
    "vae-tsm": ({"hidden": 8}, {}),
    "ebmm": ({"dynamic_size": 3, "hidden": 8}, {}),
    **dict.fromkeys(
        ("vbm-gaussian", "vbm-shifted", "vbm-categorical"), ({"num_slots": 3, "code_dim": 6}, {"K": 3, "C": 6})
    ),
    "vbm-mixture": ({"num_slots": 3, "code_dim": 6, "num_clusters": 2}, {"K": 3, "C": 6, "H": 2}),
    "vbm-tree": (
        {"num_slots": 3, "code_dim": 6, "num_clusters": 2, "num_segments": 3},
        {"K": 3, "C": 6, "H": 2, "G": 3},
    ),
}
"""Settings of a small model of each kind, and what the symbols of its formula then are."""


def evaluate(formula, symbols):
    """Neighbours are factors: "H (K C + K^2)"."""
    python = re.sub(r"(?<=[\w)])\s+(?=[\w(])", " * ", formula).replace("^", "**").replace("C/G", "(C/G)")
    return eval(python, {}, symbols)


@pytest.mark.parametrize("kind", MODELS)
def test_the_formula_gives_the_size_of_a_written_memory(kind):
    settings, symbols = SIZES[kind]
    model = build_model(ModelConfig(kind=kind, image_shape=IMAGE_SHAPE, num_filters=4, **settings)).eval()
    with torch.no_grad():
        state = model.write(torch.rand(4, *IMAGE_SHAPE).round())
    if kind == "ebmm":
        symbols = {"W": state.weights.shape[-1]}
    if kind == "context-aware":
        symbols = symbols | {"P": state.pooled.shape[-1]}
    assert evaluate(MODELS[kind].state_floats, symbols) == sum(tensor.numel() for tensor in state.tensors().values())


def test_every_symbol_of_a_formula_is_explained():
    used = {symbol for entry in MODELS.values() for symbol in re.findall(r"[A-Z]", entry.state_floats)}
    assert used == set(SYMBOLS)


def test_refusals_are_the_models_own():
    energy = abilities(small_model("ebmm", "ebmm-patterns-32"))
    assert not energy["likelihood"].can
    assert "has no likelihood" in energy["likelihood"].about
    assert energy["recall"].can
    spatial = abilities(small_model("kanerva-pp"))
    assert not spatial["write on"].can
    assert "write all frames at once" in spatial["write on"].about
    assert spatial["likelihood"].can
    mixture = abilities(small_model("vbm-mixture"))
    assert all(answer.can for answer in mixture.values())
    assert mixture["resize"].about == "num_clusters at write time"
    assert not abilities(small_model("vbm-gaussian"))["resize"].can
    assert not abilities(small_model("vae"))["classify"].can
    assert abilities(HopfieldModel(IMAGE_SHAPE, "hebb", num_sweeps=1))["write on"].can


def test_a_model_that_cannot_is_not_said_to():
    """An ability is taken away from a model; nothing else changes."""
    model = small_model("vbm-gaussian")
    before = abilities(model)

    def refuse(*_, **__):
        raise ValueError("sample: not today")

    model.sample = refuse
    after = abilities(model)
    assert after["generate"] == dataclasses.replace(before["generate"], can=False, about="sample: not today")
    assert {name for name in before if before[name] != after[name]} == {"generate"}


def test_the_list_of_models():
    done = CliRunner().invoke(app, ["models", "--json"])
    assert done.exit_code == 0, done.output
    found = {model["kind"]: model for model in json.loads(done.stdout)}
    assert list(found) == list(MODELS)
    assert sorted(preset for model in found.values() for preset in model["presets"]) == names()
    assert all(list(model["abilities"]) == list(ABILITIES) == list(ABOUT) for model in found.values())
    assert found["vma"]["abilities"]["classify"]["about"].startswith("by address")


def test_a_trained_model_is_told_by_its_kind():
    done = CliRunner().invoke(app, ["models", "mixture-characters"])
    assert done.exit_code == 2
    assert "mixture-characters is a trained vbm-mixture; show that one" in done.stderr


def test_one_model_for_people():
    done = CliRunner().invoke(app, ["models", "pseudo-inverse"])
    assert done.exit_code == 0, done.output
    assert "K C floats an episode" in done.stdout
    assert ", ".join(presets_by_kind()["pseudo-inverse"]) in " ".join(done.stdout.split())
    refused = CliRunner().invoke(app, ["models", "vbm-mixtur"])
    assert refused.exit_code == 2
    assert "did you mean 'vbm-mixture'" in refused.stderr


def test_an_entry_point_that_names_something_else_is_refused(monkeypatch, tmp_path):
    metadata = tmp_path / "other-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[mnemon.models]\nother = json:dumps\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"expected other to name a mnemon\.entry\.Entry, got function"):
        registry.entries()
    with pytest.raises(ValueError, match="expected other to name"):
        build_model(ModelConfig(kind="nothing", image_shape=IMAGE_SHAPE))
