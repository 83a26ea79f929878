import dataclasses

import pytest
import torch

from mnemon.training.config import StageConfig, parse
from mnemon.training.objective import NAMES, _subset, training_loss
from mnemon.training.schedules import FULL_BOUND, BoundWeights, bound_weights
from tests.training.cases import config, image_set, of_kind, training_data


def at(epochs, **options):
    return bound_weights(StageConfig(**options), epochs)


def test_the_weightings_of_the_thesis():
    """omega = 1 + alpha; alpha begins with 1 and is halved after each epoch."""
    for epochs, omega in ((0, 2.0), (0.9, 2.0), (1, 1.5), (3.5, 1.125)):
        assert at(epochs, weighting="thesis_5_14") == BoundWeights(omega, 1 / omega, 1 / omega)
        assert at(epochs, weighting="thesis_6_13") == BoundWeights(omega, omega**-2, omega**-2)
    slow = {"weighting": "thesis_6_14", "alpha": 100.0, "alpha_factor": 0.9}
    assert at(2, **slow) == pytest.approx((1.0, 82.0, 1 / 82, 1.0, None, None, True))
    for name in ("thesis_5_14", "thesis_6_13", "thesis_6_14"):
        assert at(60, weighting=name) == pytest.approx((1, 1, 1, 1, None, None, True))
    assert at(0) == FULL_BOUND


def test_a_warm_up_and_a_temperature_beside_them():
    half = at(1, kl_warmup=2.0, weighting="thesis_5_14", code_weight=3.0)
    assert half == pytest.approx((1.5, 0.5 / 1.5, 0.5 / 1.5, 3.0, None, None, True))
    cooling = StageConfig(epochs=10, temperature_from=1.0, temperature_to=0.5)
    assert [bound_weights(cooling, epochs).temperature for epochs in (0, 5, 10)] == [1.0, 0.75, 0.5]


def test_geometric_weights_go_from_one_value_to_another():
    """By the same factor in equal times: halfway is the geometric mean. The choice is cheap where latents are dear."""
    stage = {"epochs": 4, "weighting": "geometric", "latent_weights": (0.25, 16.0), "code_weight": 0.5, "codes": False}
    for epochs, omega in ((0, 0.25), (2, 2.0), (4, 16.0), (5, 16.0)):
        expected = (1.0, omega, 1 / max(1.0, omega), 0.5)
        found = bound_weights(StageConfig(**stage), epochs)
        assert found.numbers == pytest.approx(expected)
        assert not found.codes


def test_a_part_of_any_size_is_written():
    """Sizes from one item to all that are present, each equally often, of items that are equally likely."""
    x, generator = torch.zeros(6000, 4, 1), torch.Generator().manual_seed(0)
    part = _subset(x, None, None, generator)
    sizes = part.sum(-1).bincount(minlength=5)
    assert sizes[0] == 0
    assert (sizes[1:] - 1500).abs().max() < 5 * (6000 * 0.25 * 0.75) ** 0.5
    assert (part.float().mean(0) - 2.5 / 4).abs().max() < 5 * (0.25 / 6000) ** 0.5
    mask = torch.tensor([True, False, True, False]).expand(6000, 4)
    some = _subset(x, mask, None, generator)
    assert not (some & ~mask).any()
    assert set(some.sum(-1).tolist()) == {1, 2}


def test_weights_are_those_of_the_loss_and_not_of_what_is_reported():
    settings = of_kind("statistician")
    data = training_data(settings)
    torch.manual_seed(0)
    from mnemon.registry import build_model

    model = build_model(dataclasses.replace(settings.model, image_shape=data.image_shape)).eval()
    x = data.preprocessing(image_set().images[:12].unflatten(0, (2, 6)))

    def loss(weights):
        return training_loss(model, settings.objective, x, None, torch.Generator().manual_seed(0), weights)

    plain, weighted = loss(FULL_BOUND), loss(BoundWeights(2.0, 0.5, 0.25, 3.0))
    values = dict(zip(NAMES, plain.values.tolist(), strict=True))
    expected = 2 * values["reconstruction"] - 0.5 * (3 * values["code_kl"] + values["memory_kl"])
    assert -weighted.loss.item() == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(weighted.values[1:], plain.values[1:])


def test_bad_settings():
    with pytest.raises(ValueError, match=r"stages\.0\.alpha: expected alpha of at least 0"):
        config(stages=[{"alpha": -1.0}])
    with pytest.raises(ValueError, match=r"stages\.0\.latent_weights: weighting geometric needs"):
        config(stages=[{"weighting": "geometric"}])
    with pytest.raises(ValueError, match=r"stages\.0\.latent_weights: weighting none has its own"):
        config(stages=[{"latent_weights": [1.0, 2.0]}])
    with pytest.raises(ValueError, match="expected no write_fraction beside it"):
        config(objective={"write_some": True, "write_fraction": 0.5})
    with pytest.raises(ValueError, match=r"objective\.write_some: episodes of kind recall"):
        config(data={"episodes": "recall", "targets": 4}, objective={"write_some": True})
    with pytest.raises(ValueError, match="did you mean 'thesis_5_14'"):
        parse({"name": "x", "stages": [{"weighting": "thesis_514"}]})
