"""Capacity of recall: every model is asked the same, and the numbers are what they say."""

import pytest
import torch

from mnemon.data.corruptions import corrupt
from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation.capacity import TASKS, Task, baselines, capacity, measure_recall
from mnemon.evaluation.capacity_pictures import draw_capacity, draw_recalls, draw_tradeoff
from mnemon.evaluation.experiments import Evaluation
from mnemon.evaluation.likelihood import TestSet
from mnemon.models.hopfield import CopyModel, HopfieldModel, ModernHopfieldModel, SlotMemory
from mnemon.registry import build_model
from tests.training.cases import of_kind

SHAPE = (1, 4, 8)
FLIPS = Task("flip", 0.1, (2, 4))


def bits(number=64, name="bits"):
    images = torch.randint(2, (number, *SHAPE), generator=torch.Generator().manual_seed(0), dtype=torch.uint8) * 255
    return TestSet.of(ImageSet(images, name=name, split="test"), Preprocessing())


def evaluation(test=None, **options):
    settings = of_kind(
        "ebmm", model={"image_shape": SHAPE}, objective={"corruption": "flip", "level": 0.1}, data={"episode_length": 4}
    )
    torch.manual_seed(0)
    model = build_model(settings.model).eval()
    return Evaluation.of(model, settings, test or bits(), command="none", updates=7, num_episodes=6, **options)


def test_copying_has_the_error_of_the_cue():
    found = measure_recall(CopyModel(SHAPE), bits(), FLIPS, episode_length=4, num_episodes=50)
    assert found.error.value == pytest.approx(0.1, abs=3 * (0.1 * 0.9 / (50 * 4 * 32)) ** 0.5)
    assert found.wrong.value == pytest.approx(found.error.value, rel=1e-5)  # of bits, a flip is an error of 1
    assert found.memory_floats == 0


def test_slots_keep_what_fits():
    """Half of the episode is kept and comes back whole; cues of the other half find another image, half of whose bits
    are wrong."""
    whole = measure_recall(SlotMemory(SHAPE), bits(), FLIPS, episode_length=4, num_episodes=50)
    assert (whole.error.value, whole.memory_floats) == (0, 4 * 32)
    half = measure_recall(SlotMemory(SHAPE, 2 * 32 + 5), bits(), FLIPS, episode_length=4, num_episodes=50)
    assert half.memory_floats == 2 * 32
    short = measure_recall(SlotMemory(SHAPE, 4 * 32), bits(), FLIPS, episode_length=2, num_episodes=2)
    assert short.memory_floats == 4 * 32
    assert half.error.value == pytest.approx(0.5 * 0.5, abs=0.08)  # less than a half: the nearer of two
    assert half.error.value < 0.25
    with pytest.raises(ValueError, match="capacity: expected room for an image of 32 numbers, got 31"):
        SlotMemory(SHAPE, 31)


@pytest.mark.parametrize(
    "model",
    [HopfieldModel(SHAPE, "hebb"), HopfieldModel(SHAPE), ModernHopfieldModel(SHAPE, beta=0.01), SlotMemory(SHAPE)],
    ids=["hebb", "storkey", "modern", "slots"],
)
def test_episodes_of_different_lengths_in_one_batch(model):
    """An episode is recalled as it would be alone, also from cues that all episodes share."""
    x = (torch.rand(2, 4, *SHAPE, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    mask = torch.tensor([[True] * 4, [False, True, False, True]])
    state = model.write(x, mask=mask)
    for cue in (x, x[0]):
        for i in range(2):
            alone = model.read(model.write(x[i, mask[i]]), cue.expand_as(x)[i])
            torch.testing.assert_close(model.read(state, cue)[i], alone)


def test_associative_memories_repair_few_patterns():
    for model in (HopfieldModel(SHAPE, "hebb"), HopfieldModel(SHAPE), ModernHopfieldModel(SHAPE)):
        found = measure_recall(model, bits(), FLIPS, episode_length=2, num_episodes=20)
        assert found.wrong.value < 0.02
    assert found.memory_floats == 2 * 32  # which keeps the patterns themselves
    assert HopfieldModel((1, 8, 16)).memory_floats(None) == 8256


def test_intervals_are_over_episodes():
    """Images of an episode share a memory: they are one measurement."""
    found = measure_recall(HopfieldModel(SHAPE), bits(), FLIPS, episode_length=4, num_episodes=7)
    assert found.error.count == found.wrong.count == 7


def test_every_model_gets_the_same_cues():
    seen = []

    class Spy(CopyModel):
        def read(self, state, cue, **options):
            seen.append(cue)
            return super().read(state, cue, **options)

    for capacity_of in (Spy(SHAPE), Spy(SHAPE)):
        measure_recall(capacity_of, bits(), FLIPS, episode_length=3, num_episodes=4, seed=5)
    assert torch.equal(*seen)


def test_records_of_a_run_and_of_the_memories_beside_it():
    records = list(capacity(evaluation()))
    names = {record["model"] for record in records}
    beside = {"copy of the cue", "hopfield, hebb", "hopfield, storkey", "modern hopfield, all kept"}
    assert names == {"ebmm", "nothing written", "slots of equal floats", *beside}
    assert {record["metric"] for record in records} == {"mse_recalled", "wrong_pixels"}
    assert all(record["episode_length"] == 4 and "10% of the bits flipped" in record["note"] for record in records)
    own = [record for record in records if record["model"] == "ebmm"]
    assert all(record["updates"] == 7 and record["memory_floats"] == 4 * 33 for record in own)
    assert all(record["updates"] is None for record in records if record["model"] != "ebmm")
    assert all("--part capacity" in record["command"] for record in records)


def test_nothing_written_is_the_read_of_the_start():
    """What nets without a memory make of a cue, under the same cues; it counts no floats."""
    model, seen = evaluation().model, {}
    for written in (True, False):
        seen[written] = measure_recall(model, bits(), FLIPS, episode_length=4, num_episodes=3, written=written)
    assert seen[False].memory_floats == 0 < seen[True].memory_floats

    class Unwritten(CopyModel):
        def read(self, state, cue, **options):
            return model.read(model.prior_state((len(cue),)), cue)

    expected = measure_recall(Unwritten(SHAPE), bits(), FLIPS, episode_length=4, num_episodes=3)
    assert seen[False].error == expected.error != seen[True].error


def test_tasks_belong_to_the_data():
    """Known data have their own damage and lengths, whatever the run was trained for."""
    records = list(capacity(evaluation(bits(name="omniglot"))))
    assert {r["episode_length"] for r in records} == {n for n in TASKS["omniglot"].lengths if n <= 64}
    assert all("15% of the bits flipped" in r["note"] for r in records)
    assert str(TASKS["cifar10"]) == "16x16 pixels erased"


def test_grey_images_have_no_hopfield_network():
    assert not any(name.startswith("hopfield") for name in baselines(SHAPE, 64, binary=False))
    assert "slots of equal floats" not in baselines(SHAPE, 31, binary=True)


def test_figures(tmp_path):
    test = bits(name="omniglot")
    found = evaluation(bits())
    records = [{**r, "data": "omniglot", "episode_length": n} for n in (2, 4) for r in capacity(found)]
    other = [{**r, "memory_floats": 999} for r in records if r["model"] == "ebmm"]
    files = [*draw_capacity(records, tmp_path), *draw_tradeoff(records, tmp_path)]
    assert [file.name for file in files] == ["capacity_omniglot.png"]  # one size of memory is no trade-off
    files += draw_tradeoff(records + other, tmp_path)
    models = {"ebmm": found.model, "storkey": HopfieldModel(SHAPE)}
    files.append(draw_recalls(models, test, FLIPS, tmp_path, length=4))
    assert [file.name for file in files[1:]] == ["tradeoff_omniglot.png", "recalled.png"]
    assert all(file.stat().st_size > 1000 for file in files)


def test_few_wrong_pixels_can_be_told_from_none(tmp_path, monkeypatch):
    """0, a thousandth and a tenth stand apart, which is what memories differ by."""
    drawn = []
    monkeypatch.setattr("mnemon.plots.save", lambda figure, path: drawn.append(figure))
    draw_capacity(list(capacity(evaluation())), tmp_path)
    for axis in drawn[0].axes:
        none, few, many = (axis.transData.transform((4, value))[1] for value in (0.0, 1e-3, 1e-1))
        low, high = axis.bbox.y0, axis.bbox.y1
        assert none == pytest.approx(low)
        assert min(few - none, many - few) > 0.1 * (high - low)


def test_runs_of_two_sizes_are_one_curve_of_the_tradeoff(tmp_path, monkeypatch):
    """Runs that differ in size alone share a curve; the same model under another name, as an ablation is, has its own;
    and what has no memory is no curve."""
    drawn = []
    monkeypatch.setattr("mnemon.plots.curves", lambda axis, series, **_: drawn.append(series))
    records = [{**record, "experiment": "net"} for record in capacity(evaluation())]
    own = [record for record in records if record["model"] == "ebmm"]
    larger = [{**record, "experiment": "net-16k", "memory_floats": 999, "value": 0.0} for record in own]
    ablation = [{**record, "experiment": "net-last-step", "value": 1.0} for record in own]
    draw_tradeoff(records + larger + ablation, tmp_path)
    (series,) = drawn
    assert series["net"][0] == [own[0]["memory_floats"], 999]
    assert series["net-last-step"] == ([own[0]["memory_floats"]], [1.0])
    assert "copy of the cue" not in series
    assert not any("nothing written" in name for name in series)
    draw_capacity(records + larger + ablation, tmp_path)
    assert {"net, 132 floats", "net, 999 floats", "net-last-step, 132 floats"} <= set(drawn[-1])


def test_a_memory_that_grows_is_one_curve_and_empty_ones_are_drawn_once(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("mnemon.plots.curves", lambda axis, series, **_: drawn.append(series))
    run = [{**record, "experiment": "net"} for record in capacity(evaluation(bits(name="omniglot")))]
    grown = [{**r, "memory_floats": 10 * r["episode_length"]} if r["model"] == "ebmm" else r for r in run]
    draw_capacity(grown + [{**record, "experiment": "net-last-step"} for record in run], tmp_path)
    lengths = sorted({record["episode_length"] for record in run})
    for series in drawn:
        assert series[f"net, {10 * lengths[-1]:,} floats"][0] == lengths
        assert sum("nothing written" in name for name in series) == 1


def test_slots_of_two_sizes_are_two_curves(tmp_path, monkeypatch):
    """Beside runs of different sizes stand slots of different sizes; every curve has one point for each length."""
    drawn = []
    monkeypatch.setattr("mnemon.plots.curves", lambda axis, series, **_: drawn.append(series))
    run = evaluation(bits(name="omniglot"))
    own = list(capacity(run))
    larger = [{**r, "memory_floats": 8 * r["memory_floats"], "value": 0.0} for r in own if "slots" in r["model"]]
    draw_capacity(own + larger, tmp_path)
    for series in drawn:
        assert sum(name.startswith("slots") for name in series) == 2
        assert all(len(set(lengths)) == len(lengths) for lengths, _ in series.values())


def test_flipping_bits():
    x = (torch.rand(20, 1, 30, 30, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    flipped, observed = corrupt("flip", x, 0.3, torch.Generator().manual_seed(1))
    assert observed is None
    share = float((flipped != x).float().mean())
    assert share == pytest.approx(0.3, abs=4 * (0.21 / x.numel()) ** 0.5)
    assert torch.equal(corrupt("flip", x, 0.0)[0], x)
    assert torch.equal(corrupt("flip", x, 1.0)[0], 1 - x)
    with pytest.raises(ValueError, match="flip: expected a probability"):
        corrupt("flip", x, 1.5)
