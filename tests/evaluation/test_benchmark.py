"""One benchmark for all: what is skipped, what is resumed, what is told where there is no number."""

import copy
import dataclasses
import itertools
import json
import math
import multiprocessing
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mnemon.data import catalog
from mnemon.data.corruptions import corrupt
from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation.benchmark import store, workers
from mnemon.evaluation.benchmark.cell import STEPS, brief, run_cell
from mnemon.evaluation.benchmark.grid import Status, checked_status, plan, queued, results_path, run_grid, status
from mnemon.evaluation.benchmark.material import Place, training_data
from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.evaluation.benchmark.samples import Judge, share_of
from mnemon.evaluation.benchmark.store import PICTURE, ROUNDS, UNDISTURBED, Answers, Cell, summarise
from mnemon.evaluation.benchmark.subject import untrained_model
from mnemon.evaluation.likelihood import TestSet
from mnemon.evaluation.questions import (
    BY_NAME,
    EXPERIMENT,
    QUESTIONS,
    benchmark_records,
    empty_note,
    read_note,
    write_note,
)
from mnemon.evaluation.recall import successive_reads
from mnemon.evaluation.results import KEYS, result
from mnemon.evaluation.tables import read_results, results_page
from mnemon.training import checkpoint, progress
from mnemon.training.progress import OutOfTime
from tests.evaluation.tiny_benchmark import tiny

TIMED = {question.name for question in QUESTIONS if question.group == "cost"} - {"state_bytes"}
PAIR = ("vae", "vbm-mixture")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    return Place(folder / "runs", folder / "results", None, "cpu")


@pytest.fixture(scope="module")
def grid(place):
    """Three cells, worked off once."""
    cells = plan(tiny(), kinds=(*PAIR, "slots"))
    said = []
    assert run_grid(cells, tiny(), place, say=said.append)
    return SimpleNamespace(
        cells=cells, said=said, records=json.loads(results_path("glyphs", tiny(), place).read_text())
    )


def numbers(records):
    """What a cell found and time does not change."""
    return [(r["note"], r["bound"], r["value"]) for r in records if read_note(r["note"]).question not in TIMED]


# -- a grid that was run ---------------------------------------------------------------------------


def test_every_question_is_answered_or_explained(grid):
    assert all(tuple(record) == KEYS for record in grid.records)
    assert benchmark_records(grid.records) == grid.records
    for cell in grid.cells:
        mine = [record for record in grid.records if record["model"] == cell.kind]
        notes = [read_note(record["note"]) for record in mine]
        assert {note.question for note in notes} == set(BY_NAME)
        for record, note in zip(mine, notes, strict=True):
            question = BY_NAME[note.question]
            assert (record["experiment"], record["metric"], record["unit"]) == (
                EXPERIMENT, question.metric, question.unit
            )  # fmt: skip
            assert set(note.settings) <= {*question.settings, "workers"}
            if note.outcome == "measured":
                assert math.isfinite(record["value"])
            else:
                assert record["value"] is None
                assert note.outcome == "does not apply", record["note"]
                assert len(note.reason) > 10


def test_numbers_are_what_they_should_be(grid):
    def value(model, question, **where):
        found = [
            r["value"] for r in grid.records
            if r["model"] == model and read_note(r["note"]).question == question
            and all(r[key] == wanted for key, wanted in where.items())
        ]  # fmt: skip
        return found[0]

    # a VAE has no memory to pay for, and its bound does not know the length of the episode
    assert value("vae", "joint") == value("vae", "conditional")
    assert value("vbm-mixture", "joint") < value("vbm-mixture", "conditional")
    assert value("vae", "joint_classes") == value("vae", "conditional_classes") != value("vae", "joint")
    assert value("vbm-mixture", "joint_classes") < value("vbm-mixture", "conditional_classes")
    assert 0 < value("vae", "recall") < 1
    # three frames fit into the slots: one is always found again, and is 0 away from itself
    assert value("slots", "capacity_recall", episode_length=1) == 0
    assert value("slots", "sample_nearest") == 0
    assert value("slots", "state_bytes") == 4 * 3 * 784
    assert value("vae", "train_step") > 0
    timed = [r for r in grid.records if r["unit"] in ("ms", "frames/s") and r["value"] is not None]
    machines = {read_note(r["note"]).settings["device"] for r in timed}
    assert machines == {f"{torch.get_num_threads()} CPU core{'s' * (torch.get_num_threads() > 1)}"}


def test_pictures_are_beside_the_results(grid, place):
    for cell in grid.cells:
        assert (place.out / "memory" / "glyphs" / f"{cell.kind}.png").stat().st_size > 5000


def test_the_results_page_leaves_them_to_the_report(grid, place):
    assert len(read_results(place.out)) == len(grid.records)
    assert EXPERIMENT not in results_page(grid.records)


def copy_judge(there, here):
    """So that it need not be trained again."""
    judge = Path("memory", "glyphs", "judge.safetensors")
    (here.out / judge).parent.mkdir(parents=True)
    shutil.copy(there.out / judge, here.out / judge)


def test_what_is_done_is_skipped(grid, place):
    kept = {path: path.stat().st_mtime_ns for path in place.runs.rglob("*") if path.is_file()}
    said = []
    assert run_grid(grid.cells, tiny(), place, until=0.0, say=said.append)  # no time for anything that is to be done
    assert said == []
    assert {path: path.stat().st_mtime_ns for path in place.runs.rglob("*") if path.is_file()} == kept
    assert {status(cell, tiny(), place.runs).state for cell in grid.cells} == {"done"}


def test_answers_of_other_settings_are_refused(grid, place):
    other = tiny(vae={"stages": [{"share": 1.0, "learning_rate": 1e-4, "patience": 0}]})
    with pytest.raises(ValueError, match="other settings"):
        run_cell(Cell("glyphs", "vae", 0), other, place)


def test_what_is_done_under_other_settings_is_not_taken_for_done(grid, place):
    """Neither of a cell that is asked for, nor of one beside it, whose numbers stand in the same file."""
    slower = [{"share": 1.0, "learning_rate": 1e-4, "patience": 0}]
    other = tiny(vae={"stages": slower})
    before = results_path("glyphs", other, place).read_bytes()
    for chosen in (PAIR, ("vbm-mixture",)):
        with pytest.raises(ValueError, match=r"vae.*other settings .*learning_rate is 0.001, not 0.0001"):
            run_grid(plan(other, kinds=chosen), other, place)
    assert results_path("glyphs", other, place).read_bytes() == before
    states = {cell.kind: checked_status(cell, other, place.runs).state for cell in grid.cells}
    assert states == {"vae": "of other settings", "vbm-mixture": "done", "slots": "done"}
    fewer = tiny()
    fewer.tables["sizes"]["episodes"] = 1
    with pytest.raises(ValueError, match=r"other settings .*sizes is"):
        run_grid(grid.cells, fewer, place)


def test_a_training_that_began_under_other_settings_is_refused(tmp_path):
    place, cell = Place(tmp_path / "runs", tmp_path / "out", None, "cpu"), Cell("glyphs", "vae", 0)
    _, config = training_data(cell, tiny(), place)
    run = cell.folder(place.runs) / "run"
    run.mkdir(parents=True)
    checkpoint.save_config(run, config)
    other = tiny(vae={"stages": [{"share": 1.0, "learning_rate": 1e-4, "patience": 0}]})
    copied = Cell("glyphs", "copy", 0)
    with pytest.raises(ValueError, match=r"a training of other settings .*learning_rate"):
        run_grid([copied, cell], other, place)
    for untried in (cell, copied):  # it did not fail: neither was tried
        assert not (untried.folder(place.runs) / store.ANSWERS).exists()
    assert checked_status(cell, other, place.runs).state == "of other settings"
    assert checked_status(cell, tiny(), place.runs).state == "begun"


def test_answers_of_an_earlier_version_are_known_by_their_fingerprint(grid, place, tmp_path):
    cell, elsewhere = Cell("glyphs", "slots", 0), Place(tmp_path / "runs", tmp_path / "out", None, "cpu")
    values = json.loads((cell.folder(place.runs) / store.ANSWERS).read_text())
    del values["settings"]
    path = cell.folder(elsewhere.runs) / store.ANSWERS
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(values))
    assert run_grid([cell], tiny(), elsewhere, until=0.0)
    path.write_text(json.dumps(values | {"fingerprint": "0"}))
    with pytest.raises(ValueError, match="other settings"):
        run_grid([cell], tiny(), elsewhere)


def test_answers_of_an_unknown_model_are_named(tmp_path):
    place = Place(tmp_path / "runs", tmp_path / "out", None, "cpu")
    Answers(place.runs / "glyphs" / "mnemosyne" / "seed0" / store.ANSWERS, "0", None, {}).save()
    with pytest.raises(ValueError, match=r"mnemosyne.*a model that is not known; delete it"):
        run_grid(plan(tiny(), kinds=("copy",)), tiny(), place)


def test_a_judge_of_other_settings_is_trained_anew(tmp_path):
    path, data = tmp_path / "judge.safetensors", catalog.load("glyphs", "test").subset(range(40))
    test = TestSet.of(data, Preprocessing("static"))
    first = Judge.cached(path, test, num_steps=1)
    made = path.read_bytes()
    again = Judge.cached(path, test, num_steps=1)
    assert again.accuracy == pytest.approx(first.accuracy)
    assert path.read_bytes() == made
    numbered = dataclasses.replace(data, labels=data.labels + 1)
    darker = Preprocessing("static", 50)
    for other in (test, TestSet.of(data, darker), TestSet.of(numbered, darker)):
        Judge.cached(path, other, num_steps=2)
        assert path.read_bytes() != made
        made = path.read_bytes()


def test_a_judge_that_cannot_be_read_is_named_and_fails_no_other_question(tmp_path):
    place, cell = Place(tmp_path / "runs", tmp_path / "out", None, "cpu"), Cell("glyphs", "slots", 0)
    judge = place.out / "memory" / "glyphs" / "judge.safetensors"
    judge.parent.mkdir(parents=True)
    judge.write_text("no safetensors")
    assert run_cell(Cell("glyphs", "copy", 0), tiny(), place).failed == []  # it is never sampled
    answers = run_cell(cell, tiny(), place)
    assert answers.failed == ["samples"]
    (note,) = {read_note(record["note"]).reason for record in answers.parts["samples"]}
    assert "judge.safetensors: expected the classifier that judges samples" in note
    with pytest.raises(ValueError, match="delete it, and it is trained again"):
        run_grid([cell], tiny(), dataclasses.replace(place, workers=2), retry=True)
    assert judge.read_text() == "no safetensors"


def test_a_cell_goes_on_in_the_middle_of_its_training_and_of_its_questions(grid, place, tmp_path, monkeypatch):
    """Stopped after one epoch of two, then after two parts: the numbers are those of a cell that was never stopped."""
    cell, elsewhere = Cell("glyphs", "vbm-mixture", 0), Place(tmp_path / "runs", tmp_path / "out", None, "cpu")
    copy_judge(place, elsewhere)
    # the cell looks at the time when it begins, before every epoch, at every checkpoint, and before every part
    for moments, (trained, parts) in {2: (False, 0), 6: (True, 2)}.items():
        clock = itertools.count()
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda clock=clock: next(clock)))
        with pytest.raises(OutOfTime):
            run_cell(cell, tiny(), elsewhere, until=moments)
        answers = Answers.open(cell.folder(elsewhere.runs))
        assert (answers.training is not None, len(answers.parts)) == (trained, parts)
        assert status(cell, tiny(), elsewhere.runs).state == "begun"
    monkeypatch.undo()
    assert run_grid([cell], tiny(), elsewhere)
    again, before = (Answers.open(cell.folder(where.runs)) for where in (elsewhere, place))
    assert numbers(again.records) == numbers(before.records)
    assert again.training["updates"] == before.training["updates"] == 20


def test_a_cell_that_breaks_does_not_stop_the_others(tmp_path):
    broken = tiny(vae={"stages": [{"share": 1.0, "learning_rate": 1e30, "patience": 0}]})
    place = Place(tmp_path / "runs", tmp_path / "out", None, "cpu", prune=True)
    said = []
    assert run_grid(plan(broken, kinds=("vae", "copy")), broken, place, say=said.append)
    assert "failed: bounds" in said[0]
    records = json.loads(results_path("glyphs", broken, place).read_text())
    notes = [read_note(record["note"]) for record in records if record["model"] == "vae"]
    assert {note.question for note in notes} == set(BY_NAME)
    assert {note.outcome for note in notes} == {"failed"}
    assert any("NonFiniteLoss" in note.reason for note in notes)
    assert any(record["value"] is not None for record in records if record["model"] == "copy")
    assert status(Cell("glyphs", "vae", 0), broken, place.runs).state == "failed"
    assert said[2:] == ["times of 1 cell, one by one"]
    # tried again, it fails again; the other is left alone
    assert run_grid(plan(broken, kinds=("vae", "copy")), broken, place, retry=True, say=said.append)
    assert len(said) == 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a device that fails")
def test_a_device_that_fails_is_told_without_it(tmp_path):
    """Neither training nor test images can be had there, and the cell says so all the same."""
    place = Place(tmp_path / "runs", tmp_path / "out", None, "cuda")
    answers = run_cell(Cell("glyphs", "copy", 0), tiny(), place)
    assert {read_note(record["note"]).outcome for record in answers.records} == {"failed"}
    assert {record["data"] for record in answers.records} == {"glyphs"}


@pytest.mark.parametrize("leave", [(), UNDISTURBED])
def test_a_picture_that_cannot_be_drawn_is_told_and_tried_again(leave, tmp_path):
    """Also where times are still to come, as they are beside other cells. Here a folder stands in its place."""
    place, cell = Place(tmp_path / "runs", tmp_path / "out", None, "cpu", prune=True), Cell("glyphs", "slots", 0)
    picture = place.out / "memory" / "glyphs" / "slots.png"
    picture.mkdir(parents=True)
    answers = run_cell(cell, tiny(), place, leave=leave)
    assert answers.failed == [PICTURE]
    assert PICTURE not in {read_note(record["note"]).question for record in answers.records}
    assert run_cell(cell, tiny(), place).failed == [PICTURE]  # times are taken, and are no part of it
    assert status(cell, tiny(), place.runs).state == "failed"
    picture.rmdir()
    answers.forget_failures()
    assert run_cell(cell, tiny(), place).failed == []
    assert picture.is_file()


def test_costs_are_measured_in_rounds(tmp_path):
    """Of which the last one makes them the answer: what is stopped in between goes on there."""
    place, cell = Place(tmp_path / "runs", tmp_path / "out", None, "cpu"), Cell("glyphs", "slots", 0)
    for round_ in range(1, ROUNDS):
        found = run_cell(cell, tiny(), place, rounds=1)
        assert "costs" not in found.parts
        assert len(Answers.open(cell.folder(place.runs)).rounds) == round_
    found = run_cell(cell, tiny(), place)
    assert found.rounds == []
    assert set(found.parts) == {*STEPS}


def test_pruning_leaves_answers_and_no_weights(tmp_path):
    place = Place(tmp_path / "runs", tmp_path / "out", None, "cpu", prune=True)
    cell = Cell("glyphs", "vae", 0)
    assert set(run_cell(cell, tiny(), place).parts) == {*STEPS}
    assert [path.name for path in cell.folder(place.runs).iterdir()] == [store.ANSWERS]
    assert PICTURE in STEPS
    # what is asked later needs the weights again, and the plan says so
    answers = Answers.open(cell.folder(place.runs))
    bounds = answers.parts.pop("bounds")
    answers.save()
    left = status(cell, tiny(), place.runs)
    assert (left.state, left.left_updates) == ("begun", tiny().estimated_seconds("vae")[0])
    answers.keep("bounds", bounds)
    # weights that an earlier command left go too
    (cell.folder(place.runs) / "run").mkdir()
    assert run_grid([cell], tiny(), dataclasses.replace(place, prune=False))
    assert (cell.folder(place.runs) / "run").is_dir()
    assert run_grid([cell], tiny(), place)
    assert [path.name for path in cell.folder(place.runs).iterdir()] == [store.ANSWERS]


def test_bits_are_asked_of_bits_only(tmp_path):
    tables = copy.deepcopy(dict(tiny().tables))
    tables["sets"]["glyphs"] |= {"model": {"likelihood": "gaussian"}}
    place = Place(tmp_path / "runs", tmp_path / "out", None, "cpu")
    answers = run_cell(Cell("glyphs", "hopfield-hebb", 0), Protocol.of("memory-quick", tables), place)
    assert {read_note(r["note"]).reason for r in answers.records} == {
        "a Hopfield network holds bits, and glyphs has grey levels"
    }


# -- several seeds, and small things ---------------------------------------------------------------


def test_reads_that_go_on_are_reads_from_the_beginning():
    data = catalog.load("glyphs", "test")
    x = (data.images[:6] > 127).float()
    model = untrained_model("hopfield-hebb", (1, 28, 28), 0)
    state = model.write(x)
    for name, level in (("half", 1.0), ("flip", 0.2)):
        cue, observed = corrupt(name, x, level, torch.Generator().manual_seed(0))
        for steps, found in enumerate(successive_reads(model, state, cue, observed, 3), 1):
            whole = model.read(state, cue, observed=observed, steps=steps)
            assert torch.equal(found, whole if observed is None else torch.where(observed, cue, whole))


def test_the_share_of_places():
    assert share_of(torch.tensor([[0, 0, 1], [2, 2, 2]]), 4).tolist() == [0.5, 0.25]


def test_what_is_timed_is_the_last_stage_with_episodes_of_full_length():
    whole = Protocol.load().config("omniglot", "kanerva-pp", seed=0)
    found = brief(whole, 20)
    assert (whole.data.episodes, found.data.episodes, found.data.batches_per_epoch) == ("growing", "iid", 20)
    two = Protocol.load().config("omniglot", "context-aware", seed=0)
    (stage,) = brief(two, 20).stages
    assert stage == dataclasses.replace(two.stages[-1], epochs=5)
    assert brief(two, 20).model == two.model


def test_a_grid_is_queued_seed_by_seed():
    def one(kind, seed, state, left):
        return Status(Cell("glyphs", kind, seed), state, (), {}, left, 0.0)

    short, long = one("vae", 0, "waiting", 1), one("dkm", 0, "waiting", 9)
    later, begun = one("ebmm", 1, "waiting", 99), one("gmn", 1, "begun", 5)
    assert queued([later, short, begun, long]) == [begun, long, short, later]


@pytest.mark.parametrize(("part", "question"), [("training", "train_step"), ("costs", "write_latency")])
def test_only_times_are_left_to_take(part, question, tmp_path):
    """Beside one another as one by one, and without a judge, which nobody needs; a failure is taken up again alone."""
    cell, there = Cell("glyphs", "vae", 0), beside(tmp_path)
    every = {step: [] for step in STEPS if step != part}
    answers = Answers(cell.folder(there.runs) / store.ANSWERS, None, {"updates": 20}, every)
    note = empty_note(question, "failed", "out of memory")
    answers.keep(part, [result(experiment=EXPERIMENT, model="vae", data="glyphs", metric=question, note=note)])
    assert run_grid([cell], tiny(), there, retry=True)
    found = Answers.open(cell.folder(there.runs))
    assert found.failed == []
    assert set(found.took) == {part}
    assert any(record["value"] for record in found.parts[part] if read_note(record["note"]).question == question)
    assert [path.name for path in (there.runs / "glyphs").iterdir()] == ["vae"]
    assert [path.name for path in cell.folder(there.runs).iterdir()] == [store.ANSWERS]


@pytest.mark.parametrize("missing", [("training",), UNDISTURBED])
def test_times_are_taken_without_trained_weights(missing, tmp_path, monkeypatch):
    """Of a cell whose weights are deleted; of the training that it takes nothing is left."""
    cell = Cell("glyphs", "kanerva-pp", 0)
    there = Place(tmp_path / "runs", tmp_path / "out", None, "cpu")
    every = {step: [] for step in STEPS if step not in missing}
    Answers(cell.folder(there.runs) / store.ANSWERS, None, {"updates": 20}, every).save()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = run_cell(cell, tiny(), there)
    assert set(found.took) == set(missing)
    assert all(record["value"] > 0 for record in found.parts["costs"] if "peak_memory" not in record["note"])
    (record,) = found.parts["training"]
    assert record["value"] > 0
    assert record["interval"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert not (cell.folder(there.runs) / "run").exists()


def test_updates_are_those_of_the_protocol(place):
    protocol = tiny()
    data, config = training_data(Cell("glyphs", "context-aware", 0), protocol, place)
    assert len(data.train) + len(data.held_out) == 240
    assert [stage.epochs for stage in config.stages] == [1, 1]
    assert len(data.epoch(0, 0)) == 10
    assert protocol.updates == 20


def test_what_does_not_apply_to_one_length_stands_beside_what_was_measured_at_others():
    common = {"experiment": EXPERIMENT, "model": "context-aware", "metric": "accuracy", "num_seeds": 1}
    short = empty_note("fewshot", "does not apply", "one frame is too short")
    records = [
        result(**common, seed=seed, episode_length=length, value=value, note=note, command="c")
        for seed in (0, 1)
        for length, value, note in ((5, None, short), (25, 0.5 + seed, write_note("fewshot", ways=5, shots=5)))
    ]
    one, five = summarise(records)
    assert (one["episode_length"], one["value"], one["note"]) == (5, None, short)
    assert (five["episode_length"], five["value"], five["num_seeds"]) == (25, 1.0, 2)


# -- beside one another ----------------------------------------------------------------------------


def beside(tmp_path, workers=2):
    return Place(tmp_path / "runs", tmp_path / "out", None, "cpu", workers=workers)


def test_a_process_that_dies_takes_no_other_cell_with_it(tmp_path):
    """The first process has a training that would take hours; it is killed as soon as another cell is done."""
    protocol, place, said = tiny(), beside(tmp_path), []
    protocol.tables["updates"] = 10**7

    def say(text):
        said.append(text)
        if len(said) == 1:
            (first,) = [each for each in multiprocessing.active_children() if each.name == f"{workers.NAME}-1"]
            first.kill()

    cells = plan(protocol, kinds=("vae", "copy", "slots"))
    assert run_grid(cells, protocol, place, say=say)
    states = {cell.kind: status(cell, protocol, place.runs).state for cell in cells}
    assert states == {"vae": "failed", "copy": "done", "slots": "done"}
    notes = [read_note(r["note"]) for r in Answers.open(Cell("glyphs", "vae", 0).folder(place.runs)).records]
    assert {note.question for note in notes} == set(BY_NAME)
    assert all("code -9" in note.reason for note in notes)
    assert multiprocessing.active_children() == []


def test_a_device_that_failed_is_asked_nothing_more(grid, place, tmp_path, monkeypatch):
    """In its process, whatever else waits: the same command goes on in another one."""
    there = Place(tmp_path / "runs", tmp_path / "out", None, "cpu")
    copy_judge(place, there)
    cells = plan(tiny(), kinds=("slots", "copy"))

    def fail(*_):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch, "cdist", fail)  # which samples are compared by
    with pytest.raises(torch.AcceleratorError):
        run_grid(cells, tiny(), there)
    assert {cell.kind: status(cell, tiny(), there.runs).state for cell in cells} == {
        "slots": "failed", "copy": "waiting",
    }  # fmt: skip
    monkeypatch.undo()
    assert run_grid(cells, tiny(), there)
    assert {cell.kind: status(cell, tiny(), there.runs).state for cell in cells} == {"slots": "failed", "copy": "done"}


def test_runs_and_results_are_kept_apart(tmp_path):
    """Each folder is locked while it is written to."""
    with pytest.raises(ValueError, match=r"--runs and --out: expected two folders, got .*out for both"):
        Place(tmp_path / "out", tmp_path / "runs" / ".." / "out", None, "cpu")


def test_another_gpu_than_the_first_is_refused(tmp_path):
    with pytest.raises(ValueError, match="got cuda:1: trainings take the first GPU; choose another one by"):
        Place(tmp_path / "runs", tmp_path / "out", None, "cuda:1")


def test_cells_beside_one_another_give_the_numbers_of_cells_one_by_one(grid, place, tmp_path):
    """Stopped before anything begins, then worked off; the longest, which is first, breaks: its process is replaced."""
    broken = tiny(dkm={"stages": [{"share": 1.0, "learning_rate": 1e30, "patience": 0}]})
    there, cells = beside(tmp_path), plan(broken, kinds=(*PAIR, "dkm"))
    copy_judge(place, there)
    assert not run_grid(cells, broken, there, until=0.0)
    assert {status(cell, broken, there.runs).state for cell in cells} == {"waiting"}
    said = []
    assert run_grid(cells, broken, there, say=said.append)
    assert said[-1] == "times of 2 cells, one by one"
    for cell in cells:
        found = Answers.open(cell.folder(there.runs))
        if cell.kind in PAIR:
            here, alone = numbers(found.records), numbers(Answers.open(cell.folder(place.runs)).records)
            assert [(note, bound, value is None) for note, bound, value in here] == [
                (note, bound, value is None) for note, bound, value in alone
            ]
            # on half of the cores, and so with sums in another order
            pairs = [(one, other) for (*_, one), (*_, other) in zip(here, alone, strict=True) if one is not None]
            assert [one for one, _ in pairs] == pytest.approx([other for _, other in pairs], rel=1e-4, abs=1e-6)
            assert found.training["workers"] == 2
            assert {*UNDISTURBED, "updates"} <= set(found.took)
        else:
            assert set(found.failed) == {*STEPS}


def test_settings_that_do_not_fit_stop_all_processes(tmp_path):
    place, cell = beside(tmp_path), Cell("glyphs", "copy", 0)
    Answers(cell.folder(place.runs) / store.ANSWERS, "of other settings", None, {}).save()
    with pytest.raises(ValueError, match="other settings"):
        list(workers.work_off([workers.Job(cell, None)], tiny(), place, 1))
    assert multiprocessing.active_children() == []


def test_times_are_taken_with_the_first_seed_only(tmp_path):
    place, cell = Place(tmp_path / "runs", tmp_path / "out", None, "cpu"), Cell("glyphs", "vae", 7)
    answers = run_cell(cell, tiny(), place)
    assert set(answers.parts) == {*STEPS}
    assert answers.parts["costs"] == answers.parts["training"] == answers.parts[PICTURE] == []
    assert answers.parts["bounds"]
