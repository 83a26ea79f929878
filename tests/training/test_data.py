"""What is held out for validation, and data sets that are trained on together."""

import dataclasses

import pytest
import torch

from mnemon.training.data import TrainingData, join
from tests.training.cases import config, image_set


def grouped(**options):
    """Three classes to a group."""
    data = image_set(**options)
    return dataclasses.replace(data, groups=data.labels // 3)


@pytest.mark.parametrize("episodes", ["iid", "classes"])
def test_whole_groups_are_held_out(episodes):
    settings = config(data={"validation_groups": 2, "episodes": episodes, "num_classes": 3}).data
    data = TrainingData.of(settings, grouped())
    assert (data.train.num_groups, data.held_out.num_groups) == (2, 2)
    assert set(data.train.labels.tolist()).isdisjoint(data.held_out.labels.tolist())
    assert len(data.train) + len(data.held_out) == 120
    assert torch.equal(data.held_out.groups, data.held_out.labels // 3)
    data.check()


def test_only_what_is_trained_on_is_turned():
    settings = {"validation_groups": 2, "episodes": "classes", "num_classes": 3}
    plain, turned = (
        TrainingData.of(config(data={**settings, "quarter_turns": turns}).data, grouped()) for turns in (False, True)
    )
    assert torch.equal(turned.held_out.images, plain.held_out.images)
    assert len(turned.train) == 4 * len(plain.train)
    assert turned.train.num_classes == 4 * plain.train.num_classes
    assert torch.equal(turned.train.images[len(plain.train) :][: len(plain.train)], plain.train.images.rot90(1, (2, 3)))


def test_what_cannot_be_held_out():
    settings = config(data={"validation_groups": 4}).data
    with pytest.raises(ValueError, match="one of the 4 groups of patterns, got 4"):
        TrainingData.of(settings, grouped())
    with pytest.raises(ValueError, match="patterns has none"):
        TrainingData.of(settings, image_set())
    with pytest.raises(ValueError, match=r"data.validation_groups: expected at least 1, got 0"):
        config(data={"validation_groups": 0})


def test_groups_of_joined_sets_stay_apart():
    both = join([grouped(), grouped(num_classes=6)])
    assert (both.num_classes, both.num_groups) == (18, 6)
    assert both.groups[-1] == 5
    assert join([grouped(), image_set()]).groups is None


@pytest.mark.parametrize("number", [1, 3, 7])
def test_an_epoch_of_so_many_batches_is_cut_from_passes_over_the_images(number):
    settings = {"episode_length": 4, "batch_size": 2}
    plain = TrainingData.of(config(data=settings).data, image_set())
    data = TrainingData.of(config(data=settings | {"batches_per_epoch": number}).data, image_set())
    passes = -(-number // len(plain.epoch(0, 0)))
    for epoch in (0, 1):
        whole = torch.cat([plain.epoch(5, epoch * passes + at).index for at in range(passes)])
        assert torch.equal(data.epoch(5, epoch).index, whole[:number])
    assert torch.equal(data.validation().index, plain.validation().index)


def test_episodes_grow_by_epochs_of_any_number_of_batches():
    settings = {"episodes": "growing", "episode_length": 4, "batch_size": 2, "growth": 2, "batches_per_epoch": 7}
    data = TrainingData.of(config(data=settings).data, image_set())
    shapes = [tuple(data.epoch(0, epoch).index.shape) for epoch in range(6)]
    assert shapes == 2 * [(7, 8, 1)] + 2 * [(7, 4, 2)] + 2 * [(7, 2, 4)]


def test_growing_episodes_are_validated_whole():
    data = TrainingData.of(config(data={"episodes": "growing", "episode_length": 4, "growth": 2}).data, image_set())
    plain = TrainingData.of(config(data={"episode_length": 4}).data, image_set())
    assert data.epoch(0, 0).index.shape[1:] == (16, 1)
    for left, right in ((data.validation(), plain.validation()), (data.grown(3), plain.grown(3))):
        assert torch.equal(left.index, right.index)
    assert torch.equal(plain.grown(3).index, plain.epoch(3, 0).index)
