"""Finding the episode of an item by contexts, as a part of what training maximises."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from mnemon.registry import build_model
from mnemon.training.objective import NAMES, check_objective, training_loss
from tests.models.test_conformance import full_statistician, images, seeded
from tests.training.cases import config, fit, image_set, of_kind, records, training_data

WEIGHTED = {"write_some": True, "membership_weight": 2.0}


def test_membership_is_the_share_of_the_own_episode():
    """The integral over contexts by quadrature, dimension by dimension."""
    model, x = full_statistician(), images(3, 4)
    state, items = model.write(x[:, :3]), x[:, 3]
    alone = model.write(items[:, None])
    # posteriors narrower than the prior, which the closed form asks for
    state = dataclasses.replace(state, std=state.std.clamp(max=0.9))
    means, stds = state.mean.detach().numpy(), state.std.detach().numpy()
    queries = alone.mean.detach().numpy(), np.minimum(alone.std.detach().numpy(), 1.0)
    found = model.log_membership(state, items)
    assert found.shape == (3,)
    for i in range(3):
        scores = [sum(_overlap(means[j, d], stds[j, d], queries[0][i, d], queries[1][i, d]) for d in range(4))
                  for j in range(3)]  # fmt: skip
        expected = scores[i] - math.log(sum(math.exp(s) for s in scores))
        assert found[i].item() == pytest.approx(expected, abs=1e-6)


def _overlap(mean, std, other_mean, other_std):
    def ratio(c):
        return math.exp(norm.logpdf(c, mean, std) + norm.logpdf(c, other_mean, other_std) - norm.logpdf(c))

    return math.log(quad(ratio, -12, 12, limit=200, points=[mean, other_mean])[0])


def _model_and_sets():
    settings = of_kind("statistician")
    data = training_data(settings)
    torch.manual_seed(0)
    model = build_model(dataclasses.replace(settings.model, image_shape=data.image_shape)).eval()
    return model, settings.objective, data.preprocessing(image_set().images[:15].unflatten(0, (3, 5)))


def test_it_is_added_to_the_bound_and_reported_beside_it():
    model, objective, x = _model_and_sets()
    plain = dataclasses.replace(objective, write_some=True)
    with_it = dataclasses.replace(plain, membership_weight=2.0)
    without, found = (training_loss(model, each, x, None, seeded(3)) for each in (plain, with_it))
    name = NAMES.index("auxiliary")
    assert without.values[name] == 0
    assert -math.inf < found.values[name] < 0
    torch.testing.assert_close(found.loss, without.loss - 2 * found.values[name])


def test_it_is_asked_of_items_that_are_there_and_not_written():
    """Absent items change nothing; an episode that leaves none has no part in the mean."""
    model, objective, x = _model_and_sets()
    weighted = dataclasses.replace(objective, write_some=True, membership_weight=1.0)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[0, 1:] = False
    values = [
        training_loss(model, weighted, torch.where(mask[..., None, None, None], x, noise), mask, seeded(5)).values
        for noise in (0.0, 1.0)
    ]
    torch.testing.assert_close(*values)
    alone = torch.zeros(3, 5, dtype=torch.bool)
    alone[:, 0] = True
    empty = training_loss(model, weighted, x, alone, seeded(5)).values[NAMES.index("auxiliary")]
    assert empty == 0


def test_training_finds_more_of_them(tmp_path):
    """Of four episodes, one pattern each: at first one of four is guessed."""
    data = {"episodes": "classes", "num_classes": 1, "episode_length": 5}
    settings = of_kind(
        "statistician-full",
        objective={"write_some": True, "membership_weight": 30.0},
        data=data,
        stages=[{"epochs": 30, "learning_rate": 3e-3, "patience": 0}],
    )
    fit(settings, tmp_path)
    course = [row["auxiliary"] for row in records(tmp_path, "train")]
    assert course[0] < -0.9
    assert course[-1] > -0.4


def test_bad_settings():
    with pytest.raises(ValueError, match=r"membership_weight: needs items that are not written"):
        config(objective={"membership_weight": 1.0})
    with pytest.raises(ValueError, match=r"membership_weight: expected at least 0, got -1"):
        config(objective={"write_some": True, "membership_weight": -1.0})
    with pytest.raises(ValueError, match=r"membership_weight: needs several episodes in a batch"):
        config(objective=WEIGHTED, data={"batch_size": 1})
    settings = of_kind("vae", objective=WEIGHTED)
    vae = build_model(dataclasses.replace(settings.model, image_shape=training_data(settings).image_shape))
    with pytest.raises(ValueError, match=r"membership_weight: VAE has no context to compare"):
        check_objective(vae, settings.objective)
