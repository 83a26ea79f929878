import dataclasses

import pytest
import torch

from mnemon.training.config import StageConfig, parse
from mnemon.training.objective import NAMES, training_loss
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
    assert at(2, **slow) == pytest.approx((1.0, 82.0, 1 / 82, 1.0, None, None))
    for name in ("thesis_5_14", "thesis_6_13", "thesis_6_14"):
        assert at(60, weighting=name) == pytest.approx((1, 1, 1, 1, None, None))
    assert at(0) == FULL_BOUND


def test_a_warm_up_and_a_temperature_beside_them():
    half = at(1, kl_warmup=2.0, weighting="thesis_5_14", code_weight=3.0)
    assert half == pytest.approx((1.5, 0.5 / 1.5, 0.5 / 1.5, 3.0, None, None))
    cooling = StageConfig(epochs=10, temperature_from=1.0, temperature_to=0.5)
    assert [bound_weights(cooling, epochs).temperature for epochs in (0, 5, 10)] == [1.0, 0.75, 0.5]


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
    with pytest.raises(ValueError, match="did you mean 'thesis_5_14'"):
        parse({"name": "x", "stages": [{"weighting": "thesis_514"}]})
