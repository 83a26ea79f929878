"""What a benchmark keeps: answers, records over seeds, results files that never get poorer."""

import json
import math
import statistics
from concurrent.futures import ThreadPoolExecutor

import pytest
from scipy import stats

from mnemon.data import catalog
from mnemon.evaluation.benchmark import store
from mnemon.evaluation.benchmark.cell import run_cell, update_times
from mnemon.evaluation.benchmark.grid import run_grid
from mnemon.evaluation.benchmark.material import Place
from mnemon.evaluation.benchmark.store import Answers, Cell, summarise
from mnemon.evaluation.questions import EXPERIMENT, empty_note
from mnemon.evaluation.results import result
from tests.evaluation.tiny_benchmark import tiny


def test_seeds_are_summed_up_with_students_interval():
    def record(seed, value, note="joint"):
        return result(
            experiment=EXPERIMENT, model="vae", metric="bound", seed=seed, num_seeds=1, value=value, interval=0.5,
            note=note, command=f"mnemon bench memory --data d --model vae --seed {seed}", commit=f"c{seed // 2}",
        )  # fmt: skip

    values = [-90.0, -91.0, -95.0]
    failed = empty_note("joint", "failed", "NaN")
    (found,) = summarise([*(record(seed, value) for seed, value in enumerate(values)), record(3, None, failed)])
    half = stats.t.ppf(0.975, 2) * statistics.stdev(values) / math.sqrt(3)
    assert (found["value"], found["num_seeds"], found["seed"]) == (-92.0, 3, None)
    assert found["interval"] == pytest.approx(half, rel=1e-3)
    assert found["command"] == "mnemon bench memory --data d --model vae --seed 0 --seed 1 --seed 2"
    assert found["commit"] == "c0, c1"
    (alone,) = summarise([record(0, -90.0)])
    assert (alone["interval"], alone["num_seeds"], alone["seed"]) == (0.5, 1, 0)
    (nothing,) = summarise([record(0, None, failed), record(1, None, failed)])
    assert nothing["value"] is None


def test_other_models_keep_their_results(tmp_path):
    """Numbers of one model are made again in a folder of runs that knows no others."""
    path = tmp_path / "memory_glyphs.json"
    notes = {"vae": "joint", "dkm": "joint", "copy": "recall: reads=1"}
    old = [result(experiment=EXPERIMENT, model=model, value=1.0, note=note) for model, note in notes.items()]
    store.write_results(path, old)
    new = [result(experiment=EXPERIMENT, model="dkm", value=2.0, note="joint")]
    assert store.write_results(path, new) == set()
    assert json.loads(path.read_text()) == [old[0], new[0], old[2]]
    why = result(experiment=EXPERIMENT, model="copy", note=empty_note("joint", "does not apply", "it has no bound"))
    store.write_results(path, [*old, why])
    assert store.write_results(path, new) == set()
    assert json.loads(path.read_text()) == [old[0], new[0], why, old[2]]  # reasons stay as numbers do
    for broken in ("not json", '{"a": 1}', "[1]"):
        path.write_text(broken)
        with pytest.raises(ValueError, match="expected results"):
            store.write_results(path, new)
        assert path.read_text() == broken


def test_answers_of_other_images(tmp_path):
    """Those of a cell that goes on are refused; where cells that are done had others, the grid says so."""
    place = Place(tmp_path / "runs", tmp_path / "out", None, "cpu")
    copy, slots = Cell("glyphs", "copy", 0), Cell("glyphs", "slots", 0)
    run_cell(copy, tiny(), place)
    images = Answers.open(copy.folder(place.runs)).images
    assert images == {split: catalog.load("glyphs", split).fingerprint for split in ("train", "test")}
    said = []
    assert run_grid([copy, slots], tiny(), place, say=said.append)
    assert not [text for text in said if "several sets of images" in text]
    answers = Answers.open(slots.folder(place.runs))
    answers.images = images | {"train": "of other images"}
    answers.save()
    assert run_grid([copy, slots], tiny(), place, say=said.append)
    assert "of several sets of images: not all cells had the same ones" in said[-1]
    del answers.parts["recall"]
    answers.save()
    with pytest.raises(ValueError, match="answers of other images than those at hand, or of the same in another order"):
        run_grid([slots], tiny(), place)
    answers.images, answers.parts = None, {}  # a file of an earlier version, of which nothing is left
    answers.save()
    assert run_cell(slots, tiny(), place).images == images


def test_fewer_numbers_do_not_replace_more(tmp_path):
    """Of a model that was stopped halfway, or has one seed of three; the same number of them does."""

    def numbers(*notes, value=1.0, seeds=1, model="vae"):
        return [result(experiment=EXPERIMENT, model=model, value=value, num_seeds=seeds, note=note) for note in notes]

    path = tmp_path / "memory_glyphs.json"
    other = numbers("joint", model="dkm")
    stored = [*numbers("joint", "conditional", seeds=3), *other]
    store.write_results(path, stored)
    for fewer in (numbers("joint", seeds=3), numbers("joint", "conditional")):
        assert store.write_results(path, [*fewer, *other]) == {"vae"}
        assert json.loads(path.read_text()) == stored
    again = numbers("joint", "conditional", value=2.0, seeds=3)
    assert store.write_results(path, again) == set()
    assert json.loads(path.read_text()) == [*again, *other]


def test_later_seeds_do_not_take_away_what_the_first_alone_was_asked(tmp_path):
    """Nor is a model of another package lost while that is not installed; a question that is no more is."""

    def record(note, model="vae", **values):
        return result(experiment=EXPERIMENT, model=model, note=note, **{"value": 1.0, "num_seeds": 1, **values})

    path = tmp_path / "memory_glyphs.json"
    times, elsewhere = record("write_latency: device=2 CPU cores"), record("joint", model="elsewhere")
    stored = [record("joint"), times, elsewhere, record("asked of old")]
    path.write_text(json.dumps(stored))
    later = [record("joint", value=2.0, num_seeds=2)]
    assert store.write_results(path, later) == {"vae"}
    assert json.loads(path.read_text()) == [*later, times, elsewhere]


def test_numbers_of_another_training_are_refused(tmp_path):
    path = tmp_path / "memory_glyphs.json"

    def record(note, updates, model="vae"):
        return result(experiment=EXPERIMENT, model=model, note=note, value=1.0, num_seeds=1, updates=updates)

    stored = [record("joint", 1000), record("recall", None, "slots")]
    store.write_results(path, stored)
    with pytest.raises(ValueError, match=r"expected numbers of 1,000 updates, as it holds, got 2,000; .*--out"):
        store.write_results(path, [record("joint", 2000)])
    assert json.loads(path.read_text()) == stored
    store.write_results(path, [record("recall", None, "copy")])  # what is not trained goes with any
    assert len(json.loads(path.read_text())) == 3


def test_writers_of_one_file_lose_nothing_of_each_other(tmp_path):
    path, models = tmp_path / "memory_glyphs.json", [f"m{number}" for number in range(60)]
    with ThreadPoolExecutor(6) as writers:
        list(writers.map(lambda model: store.write_results(path, [_number(model)]), models))
    assert {record["model"] for record in json.loads(path.read_text())} == set(models)


def _number(model):
    return result(experiment=EXPERIMENT, model=model, note="joint", value=1.0, num_seeds=1)


def test_times_of_another_device_stand_beside_those_that_are_there(tmp_path):
    def time(device, value):
        note = f"write_latency: device={device}"
        return result(experiment=EXPERIMENT, model="vae", value=value, num_seeds=1, note=note)

    path = tmp_path / "memory_glyphs.json"
    gpu, cpu, again = time("NVIDIA H200", 1.0), time("2 CPU cores", 9.0), time("NVIDIA H200", 2.0)
    store.write_results(path, [gpu])
    store.write_results(path, [cpu])
    assert sorted(r["value"] for r in json.loads(path.read_text())) == [1.0, 9.0]
    store.write_results(path, [again])
    assert sorted(r["value"] for r in json.loads(path.read_text())) == [2.0, 9.0]


@pytest.mark.parametrize("broken", ["{", "", "[]", '{"a": 1}'])
def test_answers_that_are_none_are_named(tmp_path, broken):
    folder = Cell("glyphs", "vae", 0).folder(tmp_path)
    folder.mkdir(parents=True)
    (folder / store.ANSWERS).write_text(broken)
    (tmp_path / "glyphs" / "vae" / "seed_old").mkdir()
    (tmp_path / "glyphs" / "vae" / "seed_old" / store.ANSWERS).write_text("{}")
    assert store.stored_cells(tmp_path, "glyphs") == [Cell("glyphs", "vae", 0)]
    with pytest.raises(ValueError, match=r"answers\.json: expected the answers of a cell"):
        Answers.open(folder)


def test_times_of_updates_leave_out_the_first_epoch():
    lines = [{"kind": "train", "frames_per_second": rate} for rate in (10, 100, 200, 400)]
    lines.insert(2, {"kind": "validation"})
    found = update_times(lines, 100)
    assert found.value == pytest.approx((1000 + 500 + 250) / 3)
    assert found.interval == pytest.approx(stats.t.ppf(0.975, 2) * stats.sem([1000.0, 500.0, 250.0]))


def test_an_interval_of_costs_is_over_rounds_of_one_device(tmp_path):
    answers = Answers(tmp_path / store.ANSWERS, None, None, {})
    values = [3.0, 5.0, 4.5]
    for value, device in ((99.0, "GPU"), *((value, "CPU") for value in values)):
        note = f"write_latency: device={device}"
        time = result(experiment=EXPERIMENT, model="copy", metric="write_latency", value=value, interval=0.1, note=note)
        size = result(experiment=EXPERIMENT, model="copy", metric="state_bytes", value=8.0, note="s")
        peak = result(experiment=EXPERIMENT, model="copy", metric="peak_memory", value=2 * value, note="p")
        answers.keep_round([time, size, peak])
    latency, size, peak = Answers.open(tmp_path).parts["costs"]
    low, high = stats.t.interval(0.95, 2, statistics.fmean(values), stats.sem(values))
    assert latency["value"] == pytest.approx(statistics.fmean(values))
    assert latency["interval"] == pytest.approx((high - low) / 2, rel=1e-3)
    assert (size["value"], size["interval"]) == (8.0, None)
    assert peak["interval"] == pytest.approx(high - low, rel=1e-3)
