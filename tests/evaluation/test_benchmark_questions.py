"""What the benchmark asks, against loops over frames and against models whose answers are known."""

import dataclasses

import pytest
import torch

from mnemon.core.random import stream
from mnemon.data import catalog
from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation.benchmark import classes, holding
from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.evaluation.benchmark.samples import _judged
from mnemon.evaluation.benchmark.subject import Subject, Tests, untrained_model
from mnemon.evaluation.questions import read_note
from mnemon.evaluation.recall import recall_errors
from mnemon.models.energy import EnergyModel
from mnemon.models.hopfield import ModernHopfieldModel
from mnemon.nets.energy import GatedEnergy

SHAPE = (1, 28, 28)


@pytest.fixture(scope="module")
def tests():
    return Tests.of(catalog.load("glyphs", "test"), Preprocessing("static"), "cpu", 64)


def subject_of(kind, tests, **sizes):
    common = {"experiment": "e", "model": kind, "data": "glyphs"}
    asked = dataclasses.replace(Protocol.load(quick=True).sizes, **sizes)
    return Subject(kind, lambda: untrained_model(kind, SHAPE, 3072), tests, asked, 8, common, None)


def by_question(records):
    return {read_note(record["note"]).question: record for record in records}


def test_novelty_is_high_where_written_frames_are_known(tests):
    """A network that keeps everything reads what it holds without an error, and copying nothing knows nothing."""
    asked = {"novelty_written", "novelty_same_class"}
    kept = by_question(classes.novelty(subject_of("modern-hopfield", tests), asked))
    assert kept["novelty_written"]["value"] == pytest.approx(1, abs=0.01)
    assert kept["novelty_same_class"]["value"] > 0.7
    copied = by_question(classes.novelty(subject_of("copy", tests), asked))
    assert [record["value"] for record in copied.values()] == [0.5, 0.5]


def test_a_frame_whose_energy_a_write_lowers_is_familiar():
    torch.manual_seed(0)
    model = EnergyModel(GatedEnergy(SHAPE, hidden=8, dynamic_size=3), write_steps=1, read_steps=1)
    x = torch.rand(2, 4, *SHAPE)
    with torch.no_grad():
        state = model.write(x)
        name, score = classes.novelty_score(model)
        assert name == "fall of the energy"
        found = score(model, state, x, stream(0))
        for b in range(2):
            expected = model.net(x[b]) - model.energy(state, x)[b]
            torch.testing.assert_close(found[b], expected)


def test_a_query_is_scored_by_the_memory_of_each_class():
    """Against loops over episodes, queries and classes."""
    model, generator = ModernHopfieldModel((1, 3, 4)), torch.Generator().manual_seed(0)
    support, queries = (torch.rand(2, *size, 1, 3, 4, generator=generator) for size in ((3, 2), (5,)))
    found = classes.reading_scores(model, support, queries, generator)
    assert found.shape == (2, 5, 3)
    for episode in range(2):
        for query in range(5):
            for way in range(3):
                state, x = model.write(support[episode, way]), queries[episode, query : query + 1]
                error = float((model.read(state, x) - x).square().mean())
                assert float(found[episode, query, way]) == pytest.approx(-error, rel=1e-5)


def test_few_shot_classification_by_reading_is_better_than_chance(tests):
    (record,) = classes.fewshot(subject_of("modern-hopfield", tests), {"fewshot"})
    assert read_note(record["note"]).settings == {"ways": "5", "shots": "1", "by": "error of reading"}
    assert record["value"] > 0.6
    (copied,) = classes.fewshot(subject_of("copy", tests), {"fewshot"})
    assert copied["value"] == pytest.approx(0.2)


def test_recall_after_so_many_reads(tests):
    subject = subject_of("hopfield-hebb", tests, corruptions={"flip": (0.15,)})
    records = {record["note"]: record for record in holding.recall(subject, {"recall"})}
    errors = recall_errors(
        subject.model, tests.some, "flip", 0.15, episode_length=8, batch_size=8, num_batches=1, reads=3
    )
    for reads in (1, 2, 3):
        record = records[f"recall: corruption=flip, level=0.15, reads={reads}"]
        assert record["value"] == pytest.approx(errors.reads[reads - 1].value, rel=1e-5)
    assert errors.reads[0].value != errors.reads[2].value


def test_a_smaller_memory_of_kept_frames_recalls_fewer(tests):
    records = list(holding.resized(subject_of("slots", tests), {"resized_recall"}))
    floats = [record["memory_floats"] for record in records]
    errors = [record["value"] for record in records]
    assert floats == sorted(floats) == [784 * number for number in (4, 8, 16)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0 == errors[-1]  # more slots than frames
    kept = list(holding.resized(subject_of("modern-hopfield", tests), {"resized_recall"}))
    assert [record["memory_floats"] for record in kept] == [784 * number for number in (4, 8)]  # of frames of 8
    assert kept[0]["value"] > kept[1]["value"]


def test_judged_samples():
    """Three samples of classes 1, 1, 4 from an episode of two frames of each of classes 1 and 2."""
    found = _judged(torch.tensor([[1, 1, 4]]), torch.tensor([[1, 1, 2, 2]]))
    assert found["sample_fidelity"].tolist() == pytest.approx([2 / 3])
    assert found["sample_diversity"].tolist() == [0.5]
