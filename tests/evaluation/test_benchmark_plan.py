"""What the benchmark asks, and which cells it plans."""

import copy
import json

import pytest
import torch

from mnemon.evaluation.benchmark.grid import plan
from mnemon.evaluation.benchmark.protocol import UNTRAINED, Protocol, kinds
from mnemon.evaluation.benchmark.store import Cell
from mnemon.evaluation.questions import (
    BY_NAME,
    QUESTIONS,
    WHY_NOT,
    empty_note,
    read_note,
    why_not,
    write_note,
)
from mnemon.registry import MODELS
from mnemon.training.setup import fresh_model
from tests.evaluation.tiny_benchmark import tiny

# -- questions and notes ---------------------------------------------------------------------------


def test_a_note_is_read_as_it_was_written():
    note = read_note(write_note("recall", corruption="half", level=1.0, reads=3))
    assert note == ("recall", {"corruption": "half", "level": "1", "reads": "3"}, "measured", None)
    assert read_note(write_note("joint")) == ("joint", {}, "measured", None)
    reason = "x has no likelihood: it recalls, and more"
    assert read_note(empty_note("joint", "failed", reason)) == ("joint", {}, "failed", reason)
    reason = "a=1 failed: it says that this does not apply: at all"
    for settings in ({}, {"reads": 3, "level": 0.5}):
        words = {key: f"{value:g}" for key, value in settings.items()}
        assert read_note(empty_note("recall", "failed", reason, **settings)) == ("recall", words, "failed", reason)


def test_every_question_reads_as_a_sentence_and_its_headline_is_one_of_its_settings():
    assert len(BY_NAME) == len(QUESTIONS)
    for question in QUESTIONS:
        assert question.asks.endswith(("?", "."))
        assert set(question.headline) <= {*question.settings, "episode_length"}
        assert set(question.needs) <= set(WHY_NOT)


def test_what_is_missing_is_told_with_names():
    question = BY_NAME["same_class"]
    assert why_not(question, lambda need: need != "gpu", model="vae", data="glyphs") is None
    told = why_not(question, lambda need: need != "labels", model="vae", data="fixed_mnist")
    assert told == "fixed_mnist has no labels, or fewer than four classes"


# -- the plan --------------------------------------------------------------------------------------


def test_the_plan_has_every_model_on_every_data_set_with_its_seeds():
    cells = plan(Protocol.load())
    assert {cell.kind for cell in cells} == set(kinds()) >= {*MODELS, *UNTRAINED}
    seeds = {(cell.data, cell.kind): 0 for cell in cells}
    for cell in cells:
        seeds[cell.data, cell.kind] += 1
    three = ("omniglot", "fixed_mnist")
    for (data, kind), number in seeds.items():
        assert number == (3 if data in three and kind not in UNTRAINED else 1)
    assert len(seeds) == 5 * len(kinds())
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)


def test_the_updates_of_the_whole_grid_cost_half_an_hour():
    protocol = Protocol.load()
    cells = plan(protocol, kinds=(*MODELS, *UNTRAINED))
    assert sum(protocol.estimated_seconds(cell.kind)[0] for cell in cells) <= 30 * 60


def test_a_seed_that_is_named_twice_is_one():
    assert plan(tiny(), kinds=("vae",), seeds=(4, 4, 2)) == [Cell("glyphs", "vae", 2), Cell("glyphs", "vae", 4)]


def test_what_is_not_trained_has_one_seed():
    assert plan(tiny(), kinds=("copy", "vae"), seeds=(7,)) == [Cell("glyphs", "vae", 7)]
    with pytest.raises(ValueError, match=r"--seed: .* asked with the first \(glyphs: 0\); got 7"):
        plan(tiny(), kinds=("copy",), seeds=(7,))


def test_names_that_are_not_there():
    with pytest.raises(ValueError, match="did you mean 'omniglot'"):
        plan(Protocol.load(), data=("omniglott",))
    with pytest.raises(ValueError, match="did you mean 'vbm-tree'"):
        plan(Protocol.load(), kinds=("vbm-trees",))


def test_a_model_without_a_table_takes_part_with_the_settings_of_all():
    tables = copy.deepcopy(dict(Protocol.load().tables))
    del tables["models"]["vae"]
    protocol = Protocol.of("memory", tables)
    assert "vae" in {cell.kind for cell in plan(protocol)}
    assert protocol.config("glyphs", "vae", seed=0).model.kind == "vae"
    assert protocol.differs("vae") == "nothing"


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_the_protocol_builds_every_model_on_the_same_data(quick, kind):
    """Same frames, batch, width and updates for all; a model that has settings of its own says so."""
    protocol = Protocol.load(quick)
    for data in protocol.sets:
        config, floor = (protocol.config(data, k, seed=1) for k in (kind, "vae"))
        for section, names in {
            "data": ("name", "binarise", "threshold", "dequantise", "episode_length", "batch_size"),
            "model": ("likelihood", "num_filters", "code_dim"),
        }.items():
            for name in names:
                assert getattr(getattr(config, section), name) == getattr(getattr(floor, section), name)
        assert sum(stage.epochs for stage in config.stages) == sum(stage.epochs for stage in floor.stages)
        assert config.training.seed == 1
    assert protocol.differs(kind)


def test_models_of_the_protocol_are_built_and_their_memories_are_of_one_size():
    protocol, floats = Protocol.load(), {}
    x = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(0)).round()
    for kind in ("dkm", "kanerva-pp", "pseudo-inverse", "ebmm", *(k for k in MODELS if k.startswith("vbm"))):
        config = protocol.config("omniglot", kind, seed=0)
        values = config.as_dict()["model"] | {"image_shape": [1, 28, 28], "num_filters": 4}
        model = fresh_model(
            config.with_settings([f"model.{k}={json.dumps(v)}" for k, v in values.items() if v is not None])
        )
        with torch.no_grad():
            floats[kind] = model.eval().write(x).nbytes // 4
    assert max(floats.values()) < 1.1 * protocol.sizes.memory_floats
    assert min(floats.values()) > 0.9 * protocol.sizes.memory_floats
