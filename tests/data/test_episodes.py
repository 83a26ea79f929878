import time

import pytest
import torch

from mnemon.data.episodes import (
    ClassEpisodes,
    GrowingEpisodes,
    IidEpisodes,
    RaggedEpisodes,
    draw_distinct,
    novelty_episodes,
)
from mnemon.data.images import ImageSet
from mnemon.data.targets import RecallEpisodes, TargetEpisodes


def labelled(*sizes, shuffle=True):
    labels = torch.cat([torch.full((size,), 10 * at) for at, size in enumerate(sizes)])
    if shuffle:
        labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    return ImageSet(torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8), labels)


SAMPLERS = [
    IidEpisodes(5, 4),
    RaggedEpisodes(2, 5, 4),
    ClassEpisodes(2, 3, 4),
    TargetEpisodes(2, 2, 1, 4),
    RecallEpisodes(5, 3, 4),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: type(s).__name__)
class TestEverySampler:
    def test_an_epoch_depends_on_seed_and_epoch_alone(self, sampler):
        data = labelled(30, 40, 33)
        torch.manual_seed(1)
        one = sampler.epoch(data, seed=0, epoch=3)
        torch.manual_seed(2)
        sampler.epoch(data, seed=0, epoch=2)
        assert one.index.equal(sampler.epoch(data, seed=0, epoch=3).index)
        assert not one.index.equal(sampler.epoch(data, seed=0, epoch=4).index)
        assert not one.index.equal(sampler.epoch(data, seed=1, epoch=3).index)

    def test_shapes(self, sampler):
        data = labelled(30, 40, 33)
        batches = sampler.epoch(data, seed=0, epoch=0)
        assert len(batches) == sampler.num_batches(data)
        assert batches.index.dtype == torch.int64
        index, mask = batches[0]
        assert index.shape == (sampler.batch_size, sampler.episode_length)
        assert mask is None or mask.shape == index.shape
        assert len([batches[i] for i in range(len(batches))]) == len(batches)

    def test_sixty_thousand_items_are_quick(self, sampler):
        data = labelled(*[6000] * 10)
        began = time.perf_counter()
        sampler.epoch(data, seed=0, epoch=0)
        assert time.perf_counter() - began < 1


def test_iid_epoch_repeats_nothing():
    index = IidEpisodes(5, 4).epoch(labelled(103), seed=0, epoch=0).index
    assert index.shape == (5, 4, 5)
    assert index.unique().numel() == 100


def test_iid_leaves_out_other_items_each_epoch():
    left = [
        set(range(103)) - set(IidEpisodes(5, 4).epoch(labelled(103), seed=0, epoch=e).index.flatten().tolist())
        for e in range(5)
    ]
    assert len(set.union(*left)) > 3


def test_growing_episodes_double_until_they_are_whole():
    sampler, data = GrowingEpisodes(8, 3, growth=2), labelled(103)
    shapes = [tuple(sampler.epoch(data, seed=0, epoch=epoch).index.shape) for epoch in range(9)]
    assert shapes == [(4, 24, 1)] * 2 + [(4, 12, 2)] * 2 + [(4, 6, 4)] * 2 + [(4, 3, 8)] * 3
    assert sampler.epoch(data, seed=0, epoch=2).index.unique().numel() == 96  # nothing twice
    whole = IidEpisodes(8, 3).epoch(data, seed=0, epoch=7).index
    assert torch.equal(sampler.epoch(data, seed=0, epoch=7).index, whole)
    lengths = [GrowingEpisodes(12, 1, growth=1).length_at(epoch) for epoch in (0, 1, 2, 3, 4, 1000)]
    assert lengths == [1, 2, 4, 12, 12, 12]  # 8 would not cut it whole


def test_ragged_lengths_and_padding():
    data = labelled(4000)
    batches = RaggedEpisodes(2, 5, 4).epoch(data, seed=0, epoch=0)
    lengths = batches.mask.sum(-1)
    counts = torch.bincount(lengths.flatten(), minlength=6)
    assert counts[:2].sum() == 0
    total = int(counts.sum())
    assert (counts[2:] / total - 0.25).abs().max() < 5 * (0.25 * 0.75 / total) ** 0.5
    assert batches.mask.equal(torch.arange(5) < lengths[..., None])
    present = batches.index[batches.mask]
    assert present.unique().numel() == present.numel()
    assert (batches.index == batches.index[..., :1])[~batches.mask].all()


class TestClasses:
    def test_distinct_classes_and_items(self):
        data = labelled(30, 7, 2, 40, 33)
        index = ClassEpisodes(3, 4, 8, batches_per_epoch=50).epoch(data, seed=0, epoch=0).index
        assert index.shape == (50, 8, 12)
        labels = data.labels[index].view(-1, 3, 4)
        assert (labels == labels[..., :1]).all()
        classes = labels[..., 0].sort(-1).values
        assert (classes.diff(dim=-1) > 0).all()
        assert 20 not in classes  # two images only
        items = index.view(-1, 12).sort(-1).values
        assert (items.diff(dim=-1) > 0).all()

    def test_classes_and_items_are_equally_likely(self):
        data = labelled(4, 4, 4, 4, shuffle=False)
        index = ClassEpisodes(2, 2, 1, batches_per_epoch=20000).epoch(data, seed=0, epoch=0).index
        first = torch.bincount(index[:, 0, 0], minlength=16) / len(index)
        assert (first - 1 / 16).abs().max() < 5 * (1 / 16 / len(index)) ** 0.5

    def test_default_number_of_batches(self):
        assert ClassEpisodes(2, 5, 3).num_batches(labelled(50, 50, 55)) == 5
        assert ClassEpisodes(2, 5, 30).num_batches(labelled(50, 50, 55)) == 1

    def test_many_images_per_class_are_quick(self):
        began = time.perf_counter()
        ClassEpisodes(2, 500, 4).epoch(labelled(*[6000] * 10), seed=0, epoch=0)
        assert time.perf_counter() - began < 1

    def test_messages(self):
        with pytest.raises(ValueError, match="has no labels; use IidEpisodes"):
            ClassEpisodes(1, 1, 1).epoch(ImageSet(torch.zeros(3, 1, 1, 1, dtype=torch.uint8)), seed=0, epoch=0)
        with pytest.raises(ValueError, match=r"expected 3 classes with at least 8 images each, got 2 \(of 3 classes"):
            ClassEpisodes(3, 8, 1).epoch(labelled(9, 8, 7), seed=0, epoch=0)
        with pytest.raises(ValueError, match="num_classes"):
            ClassEpisodes(0, 1, 1)


class TestRoles:
    def test_all_items_have_both_unless_it_is_said(self):
        roles = IidEpisodes(5, 4).epoch(labelled(103), seed=0, epoch=0).roles(0)
        assert roles.written is None
        assert roles.scored is None

    def test_few_shot_memory_and_targets_are_different_images_of_the_same_classes(self):
        data = labelled(30, 40, 33)
        sampler = TargetEpisodes(2, 3, 2, 4, batches_per_epoch=6)
        batches = sampler.epoch(data, seed=0, epoch=0)
        assert batches.index.shape == (6, 4, 10)
        for number in range(6):
            index, _ = batches[number]
            roles = batches.roles(number)
            written, scored = index.gather(1, roles.written), index.gather(1, roles.scored)
            assert written.shape == (4, 6)
            assert scored.shape == (4, 4)
            assert torch.cat((written, scored), 1).sort(1).values.equal(index.sort(1).values)
            assert all(len(set(row.tolist())) == 10 for row in index)
            of_class = data.labels[written].view(4, 2, 3)
            assert (of_class == of_class[..., :1]).all()
            assert (data.labels[scored].view(4, 2, 2) == of_class[..., :2]).all()
            assert roles.write_mask(index.shape).sum() == 24

    def test_what_is_recalled_was_written(self):
        batches = RecallEpisodes(7, 5, 4).epoch(labelled(103), seed=0, epoch=0)
        roles = batches.roles(1)
        assert roles.written is None
        assert roles.scored.shape == (4, 5)
        assert ((roles.scored >= 0) & (roles.scored < 7)).all()
        assert all(len(set(row.tolist())) == 5 for row in roles.scored)
        assert not batches.scored[0].equal(batches.scored[1])

    def test_the_first_batches_keep_their_roles(self):
        batches = RecallEpisodes(7, 5, 4).epoch(labelled(103), seed=0, epoch=0)
        assert len(batches.first(2)) == 2
        assert batches.first(2).roles(1).scored.equal(batches.roles(1).scored)
        assert len(batches.first(None)) == len(batches)

    def test_messages(self):
        with pytest.raises(ValueError, match="at most the episode's 4 items, got 5; they are drawn"):
            RecallEpisodes(4, 5, 1)
        with pytest.raises(ValueError, match="shots"):
            TargetEpisodes(2, 0, 1, 1)


@pytest.mark.parametrize("sampler", [IidEpisodes(10, 4), RaggedEpisodes(1, 10, 4), RecallEpisodes(10, 2, 4)])
def test_too_few_items(sampler):
    with pytest.raises(ValueError, match=r"4 \* 10 = 40 images for one batch, got 39; take smaller"):
        sampler.epoch(labelled(39), seed=0, epoch=0)


def test_lengths_in_order():
    with pytest.raises(ValueError, match="at most max_length = 2, got 3"):
        RaggedEpisodes(3, 2, 1)


def test_distinct_draws_are_uniform_over_ordered_choices():
    draws = draw_distinct(torch.full((60000,), 4), 2, torch.Generator().manual_seed(0))
    assert (draws[:, 0] != draws[:, 1]).all()
    frequency = torch.bincount(draws[:, 0] * 4 + draws[:, 1], minlength=16).view(4, 4) / len(draws)
    expected = (1 - torch.eye(4)) / 12
    assert (frequency - expected).abs().max() < 5 * (1 / 12 / len(draws)) ** 0.5
    whole = draw_distinct(torch.tensor([3, 3]), 3, torch.Generator().manual_seed(0))
    assert whole.sort(-1).values.tolist() == [[0, 1, 2]] * 2


class TestNovelty:
    def test_three_disjoint_parts_with_the_right_classes(self):
        data = labelled(20, 15, 18, 3, 11, 12)
        episodes = novelty_episodes(data, num_classes=2, per_class=4, num_episodes=500, seed=0)
        assert [tuple(part.shape) for part in episodes] == [(500, 8)] * 3
        together = torch.cat(episodes, -1).sort(-1).values
        assert (together.diff(dim=-1) > 0).all()
        written, same, unseen = (data.labels[part] for part in episodes)
        assert written.equal(same)
        assert not (unseen[:, :, None] == written[:, None]).any()
        assert set(unseen.unique().tolist()) == {0, 10, 20, 30, 40, 50}

    def test_unseen_images_are_equally_likely(self):
        data = labelled(6, 6, 6)
        unseen = novelty_episodes(data, num_classes=1, per_class=3, num_episodes=20000, seed=0).unseen
        frequency = torch.bincount(unseen.flatten(), minlength=18) / unseen.numel()
        assert (frequency - 1 / 18).abs().max() < 5 * (1 / 18 / unseen.numel()) ** 0.5

    def test_same_class_takes_what_there_is(self):
        data = labelled(6, 6, 6, 6)
        shapes = {"num_classes": 2, "per_class": 4, "num_episodes": 3, "seed": 0}
        assert novelty_episodes(data, **shapes).same_class.shape == (3, 4)
        assert novelty_episodes(data, **shapes, per_class_same=1).same_class.shape == (3, 2)
        with pytest.raises(ValueError, match="at least 7 images"):
            novelty_episodes(data, **shapes, per_class_same=3)
        with pytest.raises(ValueError, match="at least 7 images"):
            novelty_episodes(data, **(shapes | {"per_class": 6}))

    def test_is_a_function_of_the_seed(self):
        data = labelled(20, 20, 20)
        shapes = {"num_classes": 1, "per_class": 2, "num_episodes": 9}
        one, same, other = (novelty_episodes(data, **shapes, seed=s) for s in (0, 0, 1))
        assert all(a.equal(b) for a, b in zip(one, same, strict=True))
        assert not one.written.equal(other.written)

    def test_needs_classes_outside(self):
        with pytest.raises(ValueError, match="images outside any 2 classes, got 0"):
            novelty_episodes(labelled(9, 9), num_classes=2, per_class=2, num_episodes=1, seed=0)
        with pytest.raises(ValueError, match="expected 3 classes"):
            novelty_episodes(labelled(9, 9), num_classes=3, per_class=2, num_episodes=1, seed=0)


def test_small_classes_take_part_in_novelty_episodes():
    labels = torch.cat((torch.arange(30).repeat_interleave(12), 30 + torch.arange(8).repeat_interleave(40)))
    data = ImageSet(torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), labels)
    episodes = novelty_episodes(data, num_classes=8, per_class=8, num_episodes=50, seed=0)
    assert episodes.same_class.shape == (50, 8 * 4)  # 12 - 8 are left in a small class
    assert len(labels[episodes.written].unique()) == 38
