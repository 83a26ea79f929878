"""Sets before a judge: real ones pass, those with a foreign item and those whose factor varies do not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mnemon.evaluation.set_evidence import COVERAGE, Judged, least_evidence

NUM_VALUES, NOISE = 6, 0.28


def seen(values, generator, twins=False):
    """log p(value | x) by Bayes' rule, x being the value's corner of a simplex and Gaussian noise; of twins, 0 and 1
    look the same. Shapes: (...) -> (..., V)"""
    corners = torch.eye(NUM_VALUES, dtype=torch.float64)
    if twins:
        corners[1] = corners[0]
    x = corners[values] + NOISE * torch.randn(*values.shape, NUM_VALUES, dtype=torch.float64, generator=generator)
    return (-(x[..., None, :] - corners).square().sum(-1) / (2 * NOISE**2)).log_softmax(-1)


def calibrated(twins=False):
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(NUM_VALUES, (20000,), generator=generator)
    return least_evidence([seen(values, generator, twins)], values[:, None]), generator


def share(log_probs, least):
    return Judged([log_probs], least).fits[..., 0].all(-1).double().mean()


@pytest.mark.parametrize("twins", [False, True])
def test_real_sets_pass_and_sets_with_one_foreign_item_do_not(twins):
    least, generator = calibrated(twins)
    values = torch.randint(NUM_VALUES, (3000, 1), generator=generator).expand(-1, 10)
    whole = seen(values, generator, twins)
    # items pass independently, so a set does at coverage^10 = 0.980; one standard error of 3,000 sets is 0.003
    assert share(whole, least) > COVERAGE**10 - 0.02
    shift = torch.randint(1, NUM_VALUES, (3000,), generator=generator)
    other = (values[:, 0] + shift) % NUM_VALUES
    foreign = torch.cat((whole[:, :-1], seen(other, generator, twins)[:, None]), 1)
    # of 30 ordered pairs of different values two are twins, whom nobody can tell apart
    assert share(foreign, least) < (0.15 if twins else 0.10)
    varying = torch.randint(NUM_VALUES, (3000, 10), generator=generator)
    assert share(seen(varying, generator, twins), least) < 0.001


def test_twins_spoil_the_vote_on_labels_alone():
    least, generator = calibrated(twins=True)
    judged = Judged([seen(torch.zeros(500, 10).long(), generator, twins=True)], least)
    labels = judged.values[..., 0]
    # argmax of equal numbers: rounding decides, as noise does in a trained judge
    tilted = judged.log_probs[0] + 1e-9 * torch.randn(500, 10, NUM_VALUES, dtype=torch.float64, generator=generator)
    assert (tilted.argmax(-1) == labels[:, :1]).all(-1).double().mean() < 0.1
    assert share(tilted, least) > 0.93
    assert (judged.support[..., 0].mean() - 0.5).abs() < 0.05


@given(st.integers(1, 1500), st.integers(0, 10**6))
def test_all_but_the_asked_share_of_held_out_images_reach_the_threshold(number, seed):
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.rand(number, 3, dtype=torch.float64, generator=generator).log_softmax(-1)
    factors = torch.randint(3, (number, 1), generator=generator)
    least = least_evidence([log_probs], factors)
    below = sum(float(row[value]) < float(least) for row, value in zip(log_probs, factors[:, 0], strict=True))
    assert below <= (1 - COVERAGE) * (number + 1)
    assert number < 1000 or below >= (1 - COVERAGE) * (number + 1) - 2


def test_the_value_of_a_set_is_the_one_fewest_items_contradict():
    probs = torch.tensor([[[0.98, 0.02, 0.0], [0.98, 0.02, 0.0], [1e-6, 0.5, 0.5]]]).double().clamp(min=1e-12)
    judged = Judged([probs.log()], torch.tensor([0.01]).double().log())
    assert judged.best.tolist() == [[1]]
    assert judged.fits.all()
    assert judged.values[0, :, 0].tolist() == [0, 0, 1]
    assert judged.support[0, :, 0].tolist() == pytest.approx([0.02, 0.02, 0.5])
    together = Judged.join([judged, judged])
    assert together.fits.shape == (2, 3, 1)


def test_the_threshold_is_the_order_statistic_that_it_says():
    """With 19 images and a coverage of 0.9 it is the second smallest, though 1 - 0.9 is below 0.1 in floats."""
    values = torch.linspace(-5, -1, 19)
    log_probs, factors = torch.stack((values, torch.zeros(19)), -1), torch.zeros(19, 1, dtype=torch.int64)
    assert least_evidence([log_probs], factors, coverage=0.9) == values[1]
