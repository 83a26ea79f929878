import numpy as np
import pytest
import torch
from scipy import stats

from mnemon.data.synthetic import linear_gaussian_episode


def test_true_density_is_the_gaussian_it_says():
    episode = linear_gaussian_episode(num_slots=2, code_dim=3, num_items=5, noise_var=0.4, seed=1)
    covariance = (episode.slots.T @ episode.slots).numpy() + 0.4 * np.eye(3)
    expected = stats.multivariate_normal(np.zeros(3), covariance).logpdf(episode.codes.numpy())
    np.testing.assert_allclose(episode.log_density(), expected)


def test_codes_are_slots_times_weights_plus_noise():
    episode = linear_gaussian_episode(num_slots=4, code_dim=50, num_items=4000, noise_var=0.4, slot_var=2.0, seed=1)
    residual = episode.codes - episode.weights @ episode.slots
    assert residual.var().item() == pytest.approx(0.4, abs=5 * 0.4 * (2 / residual.numel()) ** 0.5)
    assert (episode.slots - episode.slot_mean).var().item() == pytest.approx(2.0, rel=0.4)


def test_a_seed_means_one_episode():
    size = {"num_slots": 2, "code_dim": 3, "num_items": 5}
    first, again, other = (linear_gaussian_episode(**size, seed=s).codes for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_bad_sizes():
    with pytest.raises(ValueError, match="num_items"):
        linear_gaussian_episode(num_slots=2, code_dim=3, num_items=0)
    with pytest.raises(ValueError, match="noise_var"):
        linear_gaussian_episode(num_slots=2, code_dim=3, num_items=1, noise_var=-1.0)
