"""Training of models without a likelihood: what a step minimises, and what it reports."""

import dataclasses

import pytest
import torch

from mnemon.core.episode import Roles
from mnemon.registry import build_model
from mnemon.training.config import ObjectiveConfig
from mnemon.training.objective import RECALL_NAMES, names_of, training_loss
from tests.training.cases import RECALL, fit, of_kind, records

SHAPE = (1, 3, 4)


def make(**model):
    torch.manual_seed(0)
    settings = of_kind("ebmm", model={"image_shape": SHAPE, **model})
    return build_model(settings.model).double()


def bits(*shape, seed=0):
    return torch.randint(2, (*shape, *SHAPE), generator=torch.Generator().manual_seed(seed)).double()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_training_lowers_the_error_and_reports_it(tmp_path):
    settings = of_kind(
        "ebmm",
        model={"hidden": 32, "dynamic_size": 8, "read_rate": 1.0},
        objective={"corruption": "flip", "level": 0.1},
        stages=[{"epochs": 6, "learning_rate": 1e-2, "patience": 0}],
    )
    summary = fit(settings, tmp_path)
    lines = records(tmp_path)
    assert all({*RECALL_NAMES} <= line.keys() and "joint" not in line for line in lines)
    validation = records(tmp_path, "validation")
    assert [line["epoch"] for line in validation] == list(range(7))
    assert validation[-1]["error"] < 0.9 * validation[0]["error"]
    assert validation[-1]["loss"] == min(line["loss"] for line in validation) == summary.best_loss
    for line in lines:
        assert line["error_of_cue"] == pytest.approx(0.1, abs=0.02)  # bits: each flip is an error of 1


def test_the_pairwise_energy_trains_on_episodes_of_any_length(tmp_path):
    settings = of_kind(
        "ebmm",
        model={"energy": "pairwise", "hidden": None, "dynamic_size": None, "num_hops": None, "read_rate": 2e-4},
        data={"episodes": "ragged", "min_length": 2},
        objective={"corruption": "flip", "level": 0.1},
        stages=[{"epochs": 2, "learning_rate": 2e-3, "patience": 0}],
    )
    assert fit(settings, tmp_path).improved
    assert records(tmp_path)[-1]["error"] < 0.99 * records(tmp_path)[0]["error_of_cue"]


def test_a_pairwise_energy_has_no_sizes_to_choose():
    with pytest.raises(ValueError, match=r"model\.dynamic_size: a pairwise energy has no sizes to choose"):
        make(energy="pairwise")


def test_the_loss_is_the_squared_error_of_all_steps_or_of_the_last():
    x, objective = bits(2, 3), ObjectiveConfig(corruption="flip", level=0.2)
    for stepwise in (True, False):
        model = make(stepwise=stepwise)
        with torch.no_grad():
            result = training_loss(model, objective, x, None, seeded())
            cue = torch.where(torch.rand(x.shape, generator=seeded()) >= 0.2, x, 1 - x)  # as the corruption draws
            read = model.trajectory(model.write(x), cue)
        errors = [float((step - x).square().sum() / 6) for step in read]
        assert float(result.loss) == pytest.approx(sum(errors) if stepwise else errors[-1])
        wrong = float(((read[-1] > 0.5) != (x > 0.5)).double().mean())
        expected = [float(result.loss), errors[-1] / 12, float((cue - x).square().mean()), wrong]
        torch.testing.assert_close(result.values, torch.tensor(expected))
        assert names_of(model) == RECALL_NAMES


def test_absent_items_do_not_count():
    model, objective = make(), ObjectiveConfig(corruption="block", level=2.0)
    x, mask = bits(2, 4), torch.tensor([[True, True, True, False]] * 2)
    spoiled = torch.where(mask[..., None, None, None], x, 1 - x)
    one, other = (training_loss(model, objective, each, mask, seeded()) for each in (x, spoiled))
    torch.testing.assert_close(one.values, other.values)
    full = training_loss(model, objective, x, None, seeded())
    assert not torch.allclose(one.loss, full.loss)


@torch.no_grad()
def test_only_scored_items_are_read():
    model, objective, x = make(), ObjectiveConfig(corruption="flip", level=0.0), bits(2, 4)
    scored = torch.tensor([[1, 3], [0, 2]])
    result = training_loss(model, objective, x, None, seeded(), roles=Roles(None, scored))
    read = model.trajectory(model.write(x), x)
    errors = torch.stack([(step - x).square().flatten(2).sum(-1) for step in read]).sum(0)
    assert float(result.loss) == pytest.approx(float(errors.gather(1, scored).mean()))
    subset = training_loss(model, objective, x, None, seeded(), roles=Roles(scored, scored))
    write_mask = torch.zeros(2, 4, dtype=torch.bool).scatter(1, scored, torch.ones(2, 2, dtype=torch.bool))
    read = model.trajectory(model.write(x, mask=write_mask), x)
    errors = torch.stack([(step - x).square().flatten(2).sum(-1) for step in read]).sum(0)
    assert float(subset.loss) == pytest.approx(float(errors.gather(1, scored).mean()))


def test_recall_episodes_train(tmp_path):
    assert fit(of_kind("ebmm", data=RECALL), tmp_path).improved


def test_recomputing_trains_alike(tmp_path):
    """The same curve with what a step computes kept or computed anew."""
    curves = []
    for recompute in (False, True):
        settings = of_kind("ebmm", model={"recompute": recompute}, training={"precision": "64-true"})
        settings = dataclasses.replace(settings, stages=(dataclasses.replace(settings.stages[0], epochs=1),))
        fit(settings, tmp_path / str(recompute))
        curves.append([line["loss"] for line in records(tmp_path / str(recompute))])
    assert curves[0] == pytest.approx(curves[1], rel=1e-9)


@pytest.mark.parametrize("name", ["recall_weight", "bound_weight", "memory_weight", "write_fraction"])
def test_an_objective_of_bounds_is_refused(name, tmp_path):
    settings = of_kind("ebmm")
    settings = dataclasses.replace(settings, objective=ObjectiveConfig(**{name: 0.5}))
    with pytest.raises(ValueError, match=rf"objective\.{name}: EnergyModel has no bound"):
        fit(settings, tmp_path)
