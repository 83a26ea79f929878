"""Written frames beside their twins, in both encodings; denoising by ten reads; what is marked as no bound."""

import dataclasses
import math

import pytest
import torch

from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation import denoising
from mnemon.evaluation.denoising import LEVELS, READS, draw_denoising, draw_reads, point_of
from mnemon.evaluation.experiments import Evaluation, bounds, in_bits
from mnemon.evaluation.likelihood import Estimate, TestSet
from mnemon.evaluation.memory_use import draw_twins, lengths, shared_noise, twin_bounds
from mnemon.evaluation.papers import paper_conditional
from mnemon.evaluation.pictures import draw_all
from mnemon.evaluation.recall import recall_errors
from mnemon.registry import build_model
from mnemon.training.config import ModelConfig
from tests.training.cases import SHAPE, config, image_set

TINY = {"num_filters": 4, "code_dim": 4, "image_shape": SHAPE}
KINDS = {
    "kanerva-pp": {"map_shape": (2, 8, 8), "read_size": 5, "hidden": 8},
    "dkm-tsm": {"num_slots": 3},
    "vae-tsm": {"hidden": 8},
    "pseudo-inverse": {"num_slots": 3},
    "vbm-mixture": {"num_slots": 2, "num_clusters": 2, "num_steps": 2},
}
TOGETHER = {"kanerva-pp", "dkm-tsm"}


def patterns():
    return TestSet.of(image_set(split="test"), Preprocessing("static"))


def evaluation(kind, name="tiny", **options):
    torch.manual_seed(0)
    model = ModelConfig(kind=kind, **TINY, **KINDS[kind], **options)
    settings = dataclasses.replace(config(), model=model, name=name)
    made = build_model(model).eval()
    return Evaluation.of(made, settings, patterns(), command="a command", updates=7, num_samples=2, num_episodes=4)


def test_twins_are_other_images_of_the_same_classes():
    data = image_set()
    twins = draw_twins(data, length=16, num_episodes=5)
    assert twins.written.shape == twins.others.shape == (5, 16)
    for written, others in zip(*twins, strict=True):
        assert len(set(written.tolist()) | set(others.tolist())) == 32
        assert torch.equal(data.labels[written], data.labels[others])
    again = draw_twins(data, length=16, num_episodes=5)
    assert torch.equal(again.others, twins.others)


def test_twins_of_classes_that_are_used_up_or_unknown():
    """Classes of two, of which an episode may hold both: what is left stands in."""
    data = image_set(num_classes=12, per_class=2)
    twins = draw_twins(data, length=12, num_episodes=4)
    for written, others in zip(*twins, strict=True):
        assert len(set(written.tolist()) | set(others.tolist())) == 24
    unlabelled = dataclasses.replace(data, labels=None)
    assert draw_twins(unlabelled, length=12, num_episodes=2).others.shape == (2, 12)
    with pytest.raises(ValueError, match="at least 26 images"):
        draw_twins(data, length=13, num_episodes=1)


@pytest.mark.parametrize("kind", KINDS)
def test_both_encodings_of_written_frames_and_twins(kind):
    measured = evaluation(kind)
    found = twin_bounds(measured.model, measured.test, length=5, num_episodes=3, num_samples=2)
    expected = {(scored, "alone") for scored in ("written", "twin")}
    if kind in TOGETHER:
        expected |= {(scored, "together") for scored in ("written", "twin")}
    assert set(found) == expected
    assert all(values.shape == (3, 5) and (values < 0).all() for values in found.values())


def test_a_memory_that_holds_its_frames_knows_them_from_twins():
    """A pseudo-inverse memory of more slots than frames returns each code as it was; not so a code it never saw."""
    torch.manual_seed(0)
    sizes = {"num_slots": 8, "code_dim": 8, "num_filters": 4, "image_shape": SHAPE}
    model = build_model(ModelConfig(kind="pseudo-inverse", **sizes)).eval()
    x = image_set().images[:3].float()[None] / 255
    codes = model._encodings(x)
    recalled = model._recall_codes(model.write(x), x, None)
    other = model._recall_codes(model.write(x.flip(-1)), x, None)
    assert (recalled - codes).norm() < 0.5 * (other - codes).norm()


def test_records_of_lengths():
    measured = evaluation("kanerva-pp")
    records = list(lengths(measured))
    assert {record["episode_length"] for record in records} == {1, 5, 16, 32}  # 120 images: no 64 with twins
    assert {record["scored"] for record in records} == {"written", "same_class"}
    assert {record["memory_floats"] for record in records} == {2 * 8 * 8}  # whatever the length
    notes = {record["note"].split("; ")[1] for record in records}
    assert notes == {"scored frames encoded alone", "scored frames encoded together"}
    assert all(record["command"].endswith("--part lengths --samples 2 --episodes 4") for record in records)


def test_what_is_no_bound_says_so():
    with pytest.raises(ValueError, match="--part shared-noise: expected a pseudo-inverse memory, got kanerva-pp"):
        list(shared_noise(evaluation("kanerva-pp")))
    (record,) = shared_noise(evaluation("pseudo-inverse", name="pseudo-inverse-mnist"))
    assert (record["metric"], record["bound"]) == ("no_bound", None)
    assert record["note"].startswith("NO BOUND")
    assert record["paper_value"] == -31.48


def test_conditional_numbers_of_papers():
    records = list(bounds(evaluation("kanerva-pp", name="kpp-mnist")))
    (record,) = [r for r in records if r["bound"] == "conditional" and r["metric"] == "bound"]
    assert (record["paper_value"], record["unit"]) == (-41.58, "nats/frame")
    assert "together" in record["note"]
    assert not [r for r in records if r["metric"] == "bits_per_dim"]  # binary images
    assert paper_conditional("kpp-fashion") == {}
    grey = evaluation("kanerva-pp", name="kpp-fashion", likelihood="logistic_mixture")
    (bits,) = [r for r in bounds(grey) if r["metric"] == "bits_per_dim"]
    (nats,) = [r for r in bounds(grey) if r["metric"] == "bound"]
    assert bits["paper_value"] == 3.40
    assert bits["value"] == pytest.approx(-nats["value"] / (math.prod(SHAPE) * math.log(2)), abs=1e-4)
    assert in_bits(evaluation("vae-tsm").model, Estimate(-50.0, 1.0, 4)) is None


def test_denoising(tmp_path, monkeypatch):
    monkeypatch.setattr(denoising, "LEVELS", {name: levels[::4] for name, levels in LEVELS.items()})
    records = []
    for kind in ("vae-tsm", "vbm-mixture", "kanerva-pp"):
        measured = evaluation(kind, name=kind)
        records += denoising.denoise(measured)
    points = [point_of(record) for record in records]
    assert len(points) == 3 * 3 * 2 * 3  # models, noises, levels, numbers of reads
    assert {point.reads for point in points} == {0, 1, READS}
    noisy = {p: r["value"] for p, r in zip(points, records, strict=True) if p.reads == 0}
    salted = {p.level: value for p, value in noisy.items() if p.noise == "salt_and_pepper"}
    assert salted[0.4] == pytest.approx(0.2, abs=0.02)  # half of the replaced pixels are wrong
    ten = next(r for p, r in zip(points, records, strict=True) if p == ("poisson", 0.8, READS))
    sizes = {"episode_length": 6, "num_batches": 1, "reads": READS}
    again = recall_errors(evaluation("vae-tsm").model, patterns(), "poisson", 0.8, **sizes)
    assert ten["value"] == pytest.approx(again.reads[-1].value, abs=1e-5)
    (curves,) = draw_denoising(records, tmp_path)
    assert curves.name == "patterns_denoising.png"
    draw_reads(measured.model, measured.test, tmp_path / "reads.png", length=6)
    assert all(path.stat().st_size > 5000 for path in (curves, tmp_path / "reads.png"))
    assert draw_denoising([record for record in records if point_of(record) is None], tmp_path) == []


def test_what_is_read_beside_the_keys_is_drawn(tmp_path):
    files = draw_all(evaluation("kanerva-pp").model, patterns(), tmp_path, length=8)
    assert [file.stem for file in files] == ["episode", "samples", "iterative", "one_shot", "perturbed"]
    assert files[-1].stat().st_size > 500
