"""Evaluation of deep models: bounds, groups, novelty, recall, resizing, pictures."""

import dataclasses
import math

import pytest
import torch
from scipy import stats

from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation.experiments import Evaluation
from mnemon.evaluation.likelihood import Estimate, TestSet, episode_bounds, scored_groups, written_bound
from mnemon.evaluation.novelty import auroc, memory_gain, novelty
from mnemon.evaluation.parts import PARTS
from mnemon.evaluation.pictures import draw_all, with_neighbours
from mnemon.evaluation.recall import errors_of_corruptions, recall_errors
from mnemon.evaluation.results import KEYS
from mnemon.registry import build_model
from tests.training.cases import SHAPE, config, image_set


def patterns(**options):
    return TestSet.of(image_set(split="test", **options), Preprocessing("static"))


def model_of(settings):
    torch.manual_seed(0)
    return build_model(dataclasses.replace(settings.model, image_shape=SHAPE)).eval()


def test_an_estimate_is_a_mean_with_its_interval():
    values = torch.tensor([1.0, 2.0, 3.0, 6.0])
    estimate = Estimate.of(values)
    assert estimate.value == 3
    low, high = stats.t.interval(0.95, 3, loc=3, scale=stats.sem(values))
    assert (estimate.value - estimate.interval, estimate.value + estimate.interval) == pytest.approx((low, high))
    assert math.isnan(Estimate.of(values[:1]).interval)
    many = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    assert Estimate.of(many).interval == pytest.approx(1.96 * float(many.std()) / 100_000**0.5, rel=1e-4)


def test_bounds_are_those_of_the_terms():
    model, test = model_of(config()), patterns()
    found = episode_bounds(model, test, episode_length=6, batch_size=4)
    assert found["joint"].count == 20  # 120 images in episodes of 6
    parts = sum(found[name].value * sign for name, sign in
                (("reconstruction", 1), ("code_kl", -1), ("address_kl", -1), ("memory_kl", -1)))  # fmt: skip
    assert found["joint"].value == pytest.approx(parts, rel=1e-6)
    assert found["conditional"].value == pytest.approx(found["joint"].value + found["memory_kl"].value, rel=1e-6)
    again = episode_bounds(model, test, episode_length=6, batch_size=4)
    assert again == found


def test_the_bound_of_written_frames_is_that_of_the_protocol():
    model, test = model_of(config()), patterns()
    found = written_bound(model, test, episode_length=6, num_samples=3, batch_size=4)
    expected = []
    for x, generator in test.batches(6, 4, 0):
        with torch.no_grad():
            state = model.write(x, generator=generator)
            expected.append(model.log_likelihood(state, x, num_samples=3, generator=generator).value.mean(-1))
    assert found.count == 20
    assert found.value == pytest.approx(float(torch.cat(expected).mean()), rel=1e-6)


def test_groups_have_the_asked_for_frames():
    model, test = model_of(config()), patterns()
    found = scored_groups(model, test, num_classes=3, per_class=4, num_episodes=5, block=2)
    assert {name: tuple(values.shape) for name, values in found.items()} == {
        "written": (5, 12), "same_class": (5, 12), "unseen": (5, 12)}  # fmt: skip
    assert all(bool((values < 0).all()) for values in found.values())  # binary images: no log-probability is positive


def test_auroc_against_counting():
    generator = torch.Generator().manual_seed(0)
    known, novel = torch.randn(30, generator=generator) + 0.7, torch.randn(20, generator=generator)
    counted = (known[:, None] > novel).double().mean()
    assert auroc(known, novel) == pytest.approx(float(counted))


def test_a_memory_adds_nothing_before_it_is_written():
    model, test = model_of(config()), patterns()
    x = test.draw(torch.arange(6)[None], torch.Generator().manual_seed(0))
    gain = memory_gain(model, model.prior_state((1,)), x, torch.Generator().manual_seed(0))
    torch.testing.assert_close(gain, torch.zeros(1, 6))


def test_novelty_of_pixels_finds_what_was_written():
    found = novelty(model_of(config()), patterns(), num_classes=3, per_class=4, num_episodes=4)
    assert found["pixels_written"].value == 1  # the nearest written image of a written image is itself
    assert found["pixels_same_class"].value > 0.95  # copies of a pattern with few flips
    assert 0 <= found["model_written"].value <= 1
    assert {estimate.count for estimate in found.values()} == {4}  # intervals are over episodes


@pytest.mark.parametrize(("name", "level"), [("salt_and_pepper", 0.2), ("half", 1)])
def test_recall_errors(name, level):
    found = recall_errors(model_of(config()), patterns(), name, level, episode_length=6, batch_size=4, reads=3)
    assert len(found.reads) == 3
    if name == "salt_and_pepper":  # replaced pixels are wrong half of the time
        assert found.corrupted.value == pytest.approx(level / 2, abs=4 * found.corrupted.interval)
    reads, best = found.best
    assert best.value == min(read.value for read in found.reads) == found.reads[reads - 1].value
    assert found.removed == pytest.approx(1 - best.value / found.corrupted.value)


def test_many_corruptions_of_one_memory_give_what_each_gives_alone():
    model, damage = model_of(config()), [("salt_and_pepper", 0.2), ("half", 1), ("gaussian", 0.3), ("block", 3)]
    sizes = {"episode_length": 6, "batch_size": 4, "reads": 2}
    together = errors_of_corruptions(model, patterns(), damage, **sizes)
    assert together == [recall_errors(model, patterns(), *each, **sizes) for each in damage]


KINDS = {
    "vae": {},
    "statistician": {"context_dim": 5, "hidden": 4},
    "dkm": {"num_slots": 3},
    "vbm-gaussian": {"num_slots": 3, "num_steps": 2},
    "vbm-shifted": {"num_slots": 3, "num_steps": 2},
    "vbm-categorical": {"num_slots": 3, "num_steps": 2},
    "vbm-mixture": {"num_slots": 2, "num_steps": 2, "num_clusters": 2},
    "vbm-tree": {"num_slots": 2, "num_steps": 2, "num_clusters": 2, "num_segments": 2},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_gives_records_for_every_model(kind):
    settings = config()
    base = dataclasses.replace(settings.model, num_slots=None, num_clusters=None, num_steps=None)
    settings = dataclasses.replace(settings, model=dataclasses.replace(base, kind=kind, **KINDS[kind]))
    evaluation = Evaluation.of(
        model_of(settings), settings, patterns(), command="a command", updates=7, num_samples=2, num_episodes=4
    )
    for name, part in PARTS.items():
        if name in (
            "lengths",
            "denoise",
            "capacity",
            "contexts",
            "factors",
            "shared-noise",
        ):  # they have tests of their own
            continue
        records = list(part(evaluation))
        assert records or name == "resize"
        for record in records:
            assert set(record) == set(KEYS)
            assert (record["model"] == kind) or "nearest" in record["model"]
            assert record["memory_floats"] > 0
            if "nearest" in record["model"]:  # it keeps the images
                assert record["memory_floats"] == record["episode_length"] * math.prod(SHAPE)
            assert record["updates"] == 7


def test_pictures(tmp_path):
    model, test = model_of(config()), patterns()
    files = draw_all(model, test, tmp_path, length=12, num_clusters=3)
    assert [file.name for file in files] == [
        "episode.png",
        "samples.png",
        "iterative.png",
        "one_shot.png",
        "memory.png",
    ]
    assert all(file.stat().st_size > 500 for file in files)


def test_the_neighbour_column_is_a_written_image():
    episode = torch.rand(5, *SHAPE)
    chains = torch.cat((torch.rand(2, 3, *SHAPE), episode[[4, 1]][:, None]), dim=1)
    table = with_neighbours(chains, episode)
    assert table.shape == (2, 6, *SHAPE)
    assert torch.equal(table[:, -1], episode[[4, 1]])
    assert (table[:, -2] == 1).all()
