"""What the benchmark publishes is what it says: numbers of models whose answers are known, against counts by hand."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from scipy import stats

from mnemon.data.episodes import novelty_episodes
from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation.benchmark import classes, costs, holding
from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.evaluation.benchmark.subject import Subject, Tests, untrained_model
from mnemon.evaluation.experiments import sizes_of_classes
from mnemon.evaluation.likelihood import episode_bounds
from mnemon.evaluation.questions import read_note
from mnemon.evaluation.recall import recall_errors
from mnemon.registry import build_model
from mnemon.training.config import ModelConfig

NUM_CLASSES, PER_CLASS, SCALE = 20, 12, 12
LENGTH = 8


@pytest.fixture(scope="module")
def tests():
    """Images of four pixels, of which two say which class and which image of it this is."""
    labels = torch.arange(NUM_CLASSES).repeat_interleave(PER_CLASS)
    numbers = torch.arange(PER_CLASS).repeat(NUM_CLASSES)
    pixels = torch.stack((labels, numbers, labels * 0, labels * 0), dim=-1) * SCALE
    data = ImageSet(pixels.to(torch.uint8).reshape(-1, 1, 2, 2), labels)
    return Tests.of(data, Preprocessing("none"), "cpu", len(labels))


def named(x):
    """Class and number of images. Shapes: (..., 1, 2, 2) -> (...) both"""
    pixels = (x.flatten(-3) * 255 / SCALE).round().long()
    return pixels[..., 0], pixels[..., 1]


class Known:
    """Scores 10 for what was written, 5 for its classes, 0 for all else, and more the smaller the classes that were
    written; reads with an error of that order, but half of the new frames of a class worse than any other."""

    image_shape = (1, 2, 2)

    def write(self, x, *, generator=None):
        return SimpleNamespace(x=x, nbytes=4 * x.numel(), batch_shape=x.shape[:-4])

    def score(self, state, x):
        (written, numbers), (label, number) = named(state.x), named(x)
        same = (label[..., None] == written[..., None, :]).any(-1)
        held = ((label[..., None] == written[..., None, :]) & (number[..., None] == numbers[..., None, :])).any(-1)
        return 10.0 * held + 5.0 * (same & ~held) - written.double().mean(-1, keepdim=True)

    def log_likelihood(self, state, x, *, num_samples=1, generator=None):
        return SimpleNamespace(value=self.score(state, x))

    def read(self, state, x, **options):
        score = self.score(state, x) + named(state.x)[0].double().mean(-1, keepdim=True)
        error = torch.where((score == 5) & (named(x)[1] % 2 == 0), -5.0, score)
        return x + (20 - error)[..., None, None, None] / 100


def subject_of(model, tests, **sizes):
    asked = dataclasses.replace(Protocol.load(quick=True).sizes, **sizes)
    common = {"experiment": "e", "model": "known", "data": "made up"}
    return Subject("known", lambda: model, tests, asked, LENGTH, common, None, class_episodes=True)


def by_question(records):
    return {read_note(record["note"]).question: record for record in records}


def drawn(tests, number):
    sizes = sizes_of_classes(tests.every.data)
    del sizes["num_episodes"]
    return novelty_episodes(tests.every.data, num_episodes=number, seed=0, **sizes)


def test_groups_of_frames_are_told_apart_and_intervals_are_over_episodes(tests):
    found = by_question(holding.groups(subject_of(Known(), tests, episodes=12), {"same_class", "unseen"}))
    episodes = drawn(tests, 12)
    own = -tests.every.data.labels[episodes.written].double().mean(-1)
    half = stats.t.ppf(0.975, 11) * stats.sem(own.tolist())
    for question, scored in (("same_class", 5.0), ("unseen", 0.0)):
        assert found[question]["value"] == pytest.approx(scored + float(own.mean()), rel=1e-5)
        assert found[question]["interval"] == pytest.approx(half, rel=1e-3)
        assert found[question]["episode_length"] == episodes.written.shape[1]


def test_novelty_is_of_the_frames_that_it_names(tests):
    """What was written is always known; new frames of its classes with an even number look less known than all else."""
    found = by_question(classes.novelty(subject_of(Known(), tests, episodes=12), {"novelty_written"}))
    assert found["novelty_written"]["value"] == 1
    episodes, values = drawn(tests, 12), []
    for same, unseen in zip(episodes.same_class, episodes.unseen, strict=True):
        score = [-5 if int(index) % PER_CLASS % 2 == 0 else 5 for index in same]
        values.append(sum(mine > 0 for mine, _ in itertools.product(score, unseen)) / len(score) / len(unseen))
    record = found["novelty_same_class"]
    assert record["value"] == pytest.approx(sum(values) / len(values), rel=1e-5)
    assert 0.3 < record["value"] < 0.7
    assert record["interval"] == pytest.approx(stats.t.ppf(0.975, 11) * stats.sem(values), rel=1e-3)


def test_recall_against_length_is_after_the_reads_that_it_names(tests):
    subject = subject_of(untrained_model("modern-hopfield", (1, 2, 2), 8), tests, lengths=(4, 16), recall_episodes=16)
    corruption, level = next((name, levels[0]) for name, levels in subject.sizes.corruptions.items())
    for record, length in zip(holding.capacity(subject, {"capacity_recall"}), (4, 16), strict=True):
        batch = min(16, len(tests.some.data) // length)
        errors = recall_errors(
            subject.model, tests.some, corruption, level, episode_length=length, batch_size=batch,
            num_batches=math.ceil(16 / batch), reads=3,
        )  # fmt: skip
        assert record["episode_length"] == length
        assert read_note(record["note"]).settings["reads"] == "3"
        assert record["value"] == pytest.approx(errors.reads[2].value, rel=1e-5)
        assert errors.reads[2].value != pytest.approx(errors.reads[0].value, rel=1e-3)


@pytest.fixture(scope="module")
def mixture():
    torch.manual_seed(0)
    config = ModelConfig("vbm-categorical", image_shape=(1, 28, 28), num_filters=4, code_dim=8, num_slots=4)
    return build_model(config).eval()


@pytest.fixture(scope="module")
def dots():
    images = torch.randint(256, (160, 1, 28, 28), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    return Tests.of(ImageSet(images, torch.arange(20).repeat(8)), Preprocessing("static"), "cpu", 96)


@pytest.mark.parametrize("question", ["capacity_bound", "resized_bound"])
def test_a_joint_bound_is_the_conditional_one_less_what_the_memory_costs(mixture, dots, question):
    subject = subject_of(mixture, dots, lengths=(4, 8), slots=(2, 4))
    ask = holding.capacity if question == "capacity_bound" else holding.resized
    records = list(ask(subject, {question}))
    assert len(records) == 4
    for conditional, joint in (records[:2], records[2:]):
        assert (conditional["bound"], joint["bound"]) == ("conditional", "joint")
        assert joint["value"] < conditional["value"] - 0.1
    last = episode_bounds(mixture, dots.some, episode_length=LENGTH, batch_size=12)
    for record in records[-2:]:
        assert record["value"] == pytest.approx(last[record["bound"]].value, rel=1e-6)


def test_bounds_of_a_few_classes_are_of_episodes_of_classes(mixture, dots):
    asked = {"joint_classes", "conditional_classes"}
    found = by_question(holding.bounds_of_classes(subject_of(mixture, dots, episodes=6), asked))
    seen = []

    class Seeing:
        image_shape = mixture.image_shape

        def write(self, x, **options):
            return mixture.write(x, **options)

        def terms(self, x, **options):
            seen.append(x)
            return mixture.terms(x, **options)

    again = by_question(holding.bounds_of_classes(subject_of(Seeing(), dots, episodes=6), asked))
    assert {name: r["value"] for name, r in again.items()} == {name: r["value"] for name, r in found.items()}
    x, every = torch.cat(seen), dots.every.data
    assert x.shape[:2] == (8, 40)  # four episodes at a time
    label = {image.tobytes(): int(n) for image, n in zip(every.images.numpy() > 127, every.labels, strict=True)}
    for episode in x.bool().numpy():
        told = [label[image.tobytes()] for image in episode]
        assert sorted(told.count(n) for n in set(told)) == [5] * 8
    assert found["joint_classes"]["value"] < found["conditional_classes"]["value"]
    assert found["joint_classes"]["episode_length"] == 40


def test_rates_and_latencies_are_of_the_same_clock(tests, monkeypatch):
    """A model that takes a millisecond to write a frame and two to read one, by a clock of its own."""
    now = [0.0]
    monkeypatch.setattr(costs.time, "perf_counter", lambda: now[0])

    class Slow(Known):
        def write(self, x, *, generator=None):
            now[0] += 0.001 * math.prod(x.shape[:-3])
            return super().write(x)

        def read(self, state, x, **options):
            now[0] += 0.002 * math.prod(x.shape[:-3])
            return x

    expected = {"write_latency": 1.0 * LENGTH, "read_latency": 2.0, "write_rate": 1000.0, "read_rate": 500.0}
    found = by_question(costs.costs(subject_of(Slow(), tests), set(expected)))
    assert {name: record["value"] for name, record in found.items()} == pytest.approx(expected)


def test_few_classes_are_as_good_as_none(tests):
    """Of three classes nothing can be left out to tell from them; the questions about classes say so."""
    few = tests.every.data.subset(torch.arange(3 * PER_CLASS))
    subject = subject_of(Known(), Tests.of(few, Preprocessing("none"), "cpu", len(few)))
    assert not subject.has("labels")
    (record,) = classes.fewshot(subject, {"fewshot"})
    assert record["value"] is None
    assert read_note(record["note"]).reason == "made up has too few classes, or images of them"


class Growing(Known):
    """Keeps all frames, and is of no kind that the benchmark knows."""


class Full(Known):
    """Keeps the first six frames."""

    def write(self, x, *, generator=None):
        return super().write(x[..., :6, :, :, :])


@pytest.mark.parametrize(("model", "floats"), [(Growing(), 4 * 32), (Full(), 4 * 6)])
def test_whether_a_memory_grows_is_tried(tests, model, floats):
    subject = subject_of(model, tests)
    assert subject.own_floats == 4 * min(LENGTH, floats // 4)
    assert subject.floats(32) == floats


def test_one_number_that_is_none_fails_alone(tests):
    """Others of its part are kept, and the reason is that of its own."""

    class Sometimes(Known):
        def read(self, state, x, **options):
            return super().read(state, x) * (math.nan if state.x.shape[-4] == 4 else 1.0)

    subject = subject_of(Sometimes(), tests, lengths=(1, 4, 8))
    found = list(holding.capacity(subject, {"capacity_recall"}))
    assert [record["value"] is None for record in found] == [False, True, False]
    assert [record["episode_length"] for record in found] == [1, 4, 8]
    note = read_note(found[1]["note"])
    assert note.outcome == "failed"
    assert note.reason == "expected a finite number, got nan"
    assert note.settings == read_note(found[0]["note"]).settings
