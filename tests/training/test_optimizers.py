"""LARS around Adam against steps written by hand, and which parameters weight decay and trust ratios reach."""

import numpy as np
import pytest
import torch
from torch import nn

from mnemon.registry import build_model
from mnemon.training.config import TrainingConfig, parse
from mnemon.training.optimizers import LarsAdam, biases_and_norms, make_optimizer, parameter_groups, trust_ratios
from mnemon.training.schedules import learning_rate
from tests.training.cases import SHAPE, config, fit, of_kind, records
from tests.training.test_resume import assert_same_run, fit_interrupted

RATE, BETAS, EPS, DECAY, TRUST = 0.03, (0.8, 0.95), 1e-6, 0.1, 0.5


def steps_by_hand(weight, gradients, form, adapted):
    """Written out in NumPy from the equations."""
    w, m, v = weight.copy(), np.zeros_like(weight), np.zeros_like(weight)
    for t, g in enumerate(gradients, start=1):
        if form == "l2":
            g = g + DECAY * w
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g**2
        u = (m / (1 - BETAS[0] ** t)) / (np.sqrt(v / (1 - BETAS[1] ** t)) + EPS)
        if form == "decoupled":
            u = u + DECAY * w
        ratio = TRUST * np.sqrt((w**2).sum()) / np.sqrt((u**2).sum()) if adapted else 1.0
        w = w - RATE * ratio * u
    return w


@pytest.mark.parametrize("form", ["decoupled", "l2"])
def test_steps_by_hand(form):
    rng = np.random.RandomState(0)
    shapes = [(4, 3), (2, 3, 2, 2), (5,)]
    start = [rng.randn(*shape) for shape in shapes]
    gradients = [[10.0**-k * rng.randn(*shape) for k in range(6)] for shape in shapes]
    weights = [nn.Parameter(torch.tensor(w)) for w in start]
    groups = [{"params": weights[:2]}, {"params": weights[2:], "adapted": False}]
    options = {"weight_decay": DECAY, "weight_decay_form": form, "trust_coefficient": TRUST}
    optimizer = LarsAdam(groups, lr=RATE, betas=BETAS, eps=EPS, **options)
    for t in range(6):
        for weight, some in zip(weights, gradients, strict=True):
            weight.grad = torch.tensor(some[t])
        optimizer.step()
    for i, weight in enumerate(weights):
        expected = steps_by_hand(start[i], gradients[i], form, adapted=i < 2)
        np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("form", "kind"), [("decoupled", torch.optim.AdamW), ("l2", torch.optim.Adam)])
def test_without_ratios_it_is_adam(form, kind):
    """Also when a parameter has no gradient in some steps."""
    runs = []
    for make in (lambda p: LarsAdam(p, lr=0.01, weight_decay=0.2, weight_decay_form=form, adapted=False),
                 lambda p: kind(p, lr=0.01, weight_decay=0.2)):  # fmt: skip
        generator = torch.Generator().manual_seed(1)
        weights = [nn.Parameter(torch.randn(3, n, generator=generator, dtype=torch.float64)) for n in (2, 4)]
        optimizer = make(weights)
        for t in range(7):
            for n, weight in enumerate(weights):
                gradient = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
                weight.grad = None if n and t % 3 == 1 else gradient
            optimizer.step()
        runs.append([weight.detach() for weight in weights])
    for left, right in zip(*runs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-14)


def test_the_rate_is_the_relative_step_whatever_the_scale():
    for scale in (1e-4, 1.0, 1e4):
        weight = nn.Parameter(scale * torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).double())
        before, weight.grad = weight.detach().clone(), torch.ones_like(weight)
        LarsAdam([weight], lr=0.02).step()
        assert float((weight.detach() - before).norm() / before.norm()) == pytest.approx(0.02, rel=1e-9)


def test_weights_or_updates_of_zero_take_plain_steps():
    zero, one = torch.zeros(2, 2), torch.ones(2, 2)
    ratios = trust_ratios([zero, one, zero, 3 * one], [one, zero, zero, one], 0.5)
    assert [float(ratio) for ratio in ratios] == [1, 1, 1, 1.5]
    weight = nn.Parameter(torch.zeros(2, 2))
    weight.grad = torch.ones(2, 2)
    LarsAdam([weight], lr=0.1).step()
    torch.testing.assert_close(weight.detach(), torch.full((2, 2), -0.1))


class EvoNorm(nn.Module):
    """A norm that is none of PyTorch's, with terms of four dimensions."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 4, 1, 1))


def test_biases_and_norms():
    dense = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), EvoNorm(), nn.LayerNorm((4, 4)),
                          dense, nn.Linear(4, 1))  # fmt: skip
    small = biases_and_norms(model)
    weights = {name for name, parameter in model.named_parameters() if id(parameter) not in small}
    assert weights == {"0.weight", "5.parametrizations.weight.original", "6.weight"}


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, [(None, None)]),
        ({"weight_decay_on": "weights"}, [(None, None), (0.0, None)]),
        ({"optimizer": "lars_adam"}, [(None, True), (None, False)]),
        ({"optimizer": "lars_adam", "weight_decay_on": "weights"}, [(None, True), (0.0, False)]),
    ],
)
def test_groups(training, expected):
    model = build_model(of_kind("vbm-gaussian", model={"image_shape": SHAPE}).model)
    groups = parameter_groups(model, model, TrainingConfig(**training))
    assert [(group.get("weight_decay"), group.get("adapted")) for group in groups] == expected
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    if len(groups) > 1:
        assert all(parameter.ndim > 1 for parameter in groups[0]["params"])


def test_learned_contents_are_left_alone():
    settings = of_kind("vma", model={"image_shape": SHAPE, "num_slots": 5, "content_dim": 6, "architecture": "mlp"})
    model = build_model(settings.model)
    optimizer = make_optimizer(model, model, TrainingConfig(optimizer="lars_adam", weight_decay=0.1), 1e-3)
    places = [group for group in optimizer.param_groups if any(p is model.contents for p in group["params"])]
    assert [(group["weight_decay"], group["adapted"]) for group in places] == [(0.0, False)]


# -- in training -----------------------------------------------------------------------------------

LARS = {"optimizer": "lars_adam", "weight_decay": 1e-3, "weight_decay_on": "weights"}
ONE_CYCLE = [{"epochs": 4, "learning_rate": 2e-2, "decay": "one_cycle", "warmup": 0.25, "patience": 0}]


def test_a_one_cycle_rises_and_falls():
    stage = config(stages=[{**ONE_CYCLE[0], "learning_rate": 0.5, "warmup": 0.2}]).stages[0]
    rates = [learning_rate(stage, f) for f in (0, 0.1, 0.2, 0.6, 1)]
    assert rates == pytest.approx([0.02, 0.26, 0.5, 0.25, 0])


def test_training_with_it_raises_the_bound(tmp_path):
    fit(config(training=LARS, stages=ONE_CYCLE), tmp_path)
    validation = records(tmp_path, "validation")
    assert validation[-1]["joint"] > validation[0]["joint"] + 10


def test_an_interrupted_training_goes_on_exactly(tmp_path):
    settings = config(training={**LARS, "checkpoint_every": 2}, stages=ONE_CYCLE)
    fit(settings, tmp_path / "whole")
    fit_interrupted(settings, tmp_path / "parts", "epoch 1:", "epoch 3:")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"training": {"optimizer": "lars"}}, "training.optimizer: got 'lars'"),
        ({"training": {"trust_coefficient": 0.0}}, "training.trust_coefficient: expected above 0, got 0.0"),
        ({"stages": [{"decay": "one_cycle"}]}, "stages.0.warmup: expected the share of the stage"),
        ({"stages": [{"decay": "one_cycle", "warmup": 10.0}]}, "stages.0.warmup: .* below 1, got 10.0"),
        ({"stages": [{"decay": "cosine", "warmup": 0.1}]}, "stages.0.warmup: a cosine rate has no rise"),
    ],
)
def test_bad_settings(values, message):
    with pytest.raises(ValueError, match=message):
        parse({"name": "x", **values})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"betas": (0.9, 1.0)}, "betas: expected two numbers from 0 to below 1"),
        ({"lr": -1.0}, "lr: expected at least 0"),
        ({"trust_coefficient": 0.0}, "trust_coefficient: expected above 0"),
        ({"weight_decay_form": "both"}, "weight_decay_form: expected decoupled or l2"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        LarsAdam([nn.Parameter(torch.ones(1))], **options)
