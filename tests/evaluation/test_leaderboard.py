"""Who leads, and who cannot be told apart: tables and curves of made-up numbers."""

import math

import pytest

from mnemon.evaluation.benchmark.store import summarise
from mnemon.evaluation.curves import figures
from mnemon.evaluation.leaderboard import (
    columns,
    data_sets,
    memory_text,
    number_text,
    own_choice,
    settings_text,
    standing,
    where_text,
)
from mnemon.evaluation.questions import BY_NAME, QUESTIONS, QUICK, empty_note, write_note
from mnemon.evaluation.which_memory import which_memory_page
from tests.evaluation.made_up import MODELS, column, joint, made_up, nobody, unanswered, whole


def test_quick_numbers_are_not_mixed_with_others():
    """Neither on the same data set, nor as another data set beside it."""
    real = joint(-90.0, -91.0)
    quick = [
        {**r, "command": f"{r['command']} --quick"} for r in (*joint(-1.0, -2.0, -3.0), *joint(-4.0, data="letters"))
    ]
    assert data_sets([*quick, *real]) == ["digits"]
    assert {name: score.value for name, score in column([*quick, *real]).scores.items()} == {"m0": -90.0, "m1": -91.0}
    assert QUICK not in which_memory_page([*quick, *real], nobody)
    assert data_sets(quick) == ["digits", "letters"]  # alone they are shown, and called so


def test_intervals_that_overlap_make_a_tie():
    found = column(joint(-90.0, -90.9, -91.1, -95.0))
    assert [score.model for score in found.best] == ["m0", "m1"]
    assert found.runner_up.model == "m2"
    assert [standing(found, f"m{i}") for i in range(4)] == ["tied", "tied", "behind", "behind"]
    alone = column(joint(-90.0, -91.1))
    assert standing(alone, "m0") == "best"


def test_lower_is_better_where_the_question_says_so():
    records = [
        made_up("write_latency", name, "digits", value, interval=0.1) for name, value in (("a", 5.0), ("b", 3.0))
    ]
    assert column(records, "write_latency").best[0].model == "b"
    assert not BY_NAME["write_latency"].higher_is_better


def test_times_of_two_machines_do_not_stand_in_one_column():
    times = [
        made_up("train_step", model, "digits", value, note=write_note("train_step", device=device))
        for model, value, device in (("a", 5.0, "NVIDIA H200"), ("b", 900.0, "2 CPU cores"), ("c", 7.0, "NVIDIA H200"))
    ]
    found = column(times, "train_step")
    assert [score.model for score in found.ranked] == ["a", "c"]
    assert found.scores["b"].why_not == "measured at other settings only"
    assert where_text(found) == "on NVIDIA H200"


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_what_is_no_number_is_no_answer(value):
    records = [*joint(-90.0), made_up("joint", "broken", "digits", value)]
    found = column(records)
    assert standing(found, "broken") == "none"
    assert found.scores["broken"].why_not == "not a finite number"
    assert [score.model for score in found.ranked] == ["m0"]


def test_empty_cells_say_why():
    records = [
        *joint(-90.0),
        unanswered("joint", "stored", "digits", "it has no posterior"),
        unanswered("joint", "broke", "digits", "out of memory", outcome="failed"),
        made_up("conditional", "late", "digits", -80.0),
    ]
    scores = column(records).scores
    assert scores["stored"].why_not == "it has no posterior"
    assert scores["broke"].why_not == "failed: out of memory"
    assert scores["late"].why_not == "not measured yet"
    named = unanswered("joint", "vae", "digits", "the memory of vae is none, that of vae-tsm likewise")
    found = column([*joint(-90.0), named]).scores["vae"]
    assert found.common_reason == "the memory of this model is none, that of vae-tsm likewise"
    assert {score.value for name, score in scores.items() if name != "m0"} == {None}


def test_a_column_stands_at_the_headline_and_the_others_follow():
    recall = [c for c in columns(whole(), "made-up digits") if c.question.name == "recall"]
    assert [dict(c.settings) for c in recall] == [
        {"corruption": "salt_and_pepper", "level": "0.1", "reads": "3"},
        {"corruption": "half", "level": "1", "reads": "3"},
    ]
    capacity = column(whole(), "capacity_recall", "made-up digits")
    assert dict(capacity.settings)["episode_length"] == "256"
    # where the headline was never asked, what most models were asked at
    few = [made_up("capacity_bound", name, "digits", -80.0, length=length)
           for name, length in (("a", 4), ("a", 8), ("b", 8))]  # fmt: skip
    assert dict(column(few, "capacity_bound").settings) == {"episode_length": "8"}


def test_every_cell_is_filled_or_explained():
    for data in data_sets(whole()):
        found = columns(whole(), data)
        assert {c.question.name for c in found} == {question.name for question in QUESTIONS}
        for cell in (c.scores[model] for c in found for model in MODELS):
            assert cell.value is not None or "ebmm" in cell.why_not or "vae" in cell.why_not


def test_what_was_measured_comes_before_what_does_not_apply():
    """An episode of one frame is too short for some models, which are measured at all other lengths."""
    short = {**unanswered("capacity_bound", "a", "digits", "too short"), "episode_length": 1}
    records = [short, made_up("capacity_bound", "a", "digits", -80.0, length=256)]
    assert column(records, "capacity_bound").scores["a"].value == -80.0
    assert column([short, *joint(-90.0)], "capacity_bound").scores["a"].why_not == "too short"


def test_a_number_that_failed_says_so_where_it_would_stand():
    """And nowhere else: others of the question were measured."""
    told = {"corruption": "flip", "level": 0.1, "reads": 3}
    note = empty_note("capacity_recall", "failed", "expected a finite number, got nan", **told)
    records = [
        made_up("capacity_recall", "m0", "digits", 0.1, note=write_note("capacity_recall", **told), length=64),
        made_up("capacity_recall", "m0", "digits", None, interval=None, note=note, length=256),
        made_up("capacity_recall", "m1", "digits", 0.2, note=write_note("capacity_recall", **told), length=256),
    ]
    kept = summarise(records)
    assert [record["value"] for record in kept] == [0.1, None, 0.2]
    found = column(kept, "capacity_recall")
    assert dict(found.settings)["episode_length"] == "256"
    assert found.scores["m0"].why_not == "failed: expected a finite number, got nan"
    assert found.scores["m1"].value == 0.2
    # another seed has the number
    seeds = [dict(record, seed=1) for record in records if record["model"] == "m1"]
    again = summarise([*records, *(dict(record, model="m0") for record in seeds)])
    assert [record["value"] for record in again] == [0.1, 0.2, 0.2]


def test_of_several_sizes_the_one_nearest_to_half_of_the_usual():
    usual = {"slots": 1000, "items": 64}
    records = [made_up("recall", model, "digits", 0.1, floats=floats) for model, floats in usual.items()]
    for model, floats, size in (
        ("slots", 250, "8 slots"), ("slots", 600, "16 slots"), ("slots", 1000, "32 slots"),
        ("items", 16, "16 items"), ("items", 33, "33 items"),
    ):  # fmt: skip
        note = write_note("resized_bound", size=size)
        records.append(made_up("resized_bound", model, "digits", float(floats), floats=floats, note=note))
    found = column(records, "resized_bound")
    assert {model: own_choice(score) for model, score in found.scores.items()} == {
        "slots": "16 slots", "items": "33 items",
    }  # fmt: skip
    assert where_text(found) == "with about half of its memory"
    unknown = [
        unanswered("recall", "slots", "digits", "failed"),
        *(r for r in records if r["metric"] == found.question.metric),
    ]
    assert own_choice(column(unknown, "resized_bound").scores["slots"]) == "16 slots"  # half of the largest


def test_a_column_of_half_a_memory_has_smaller_ones_only():
    note = write_note("resized_recall", size="4 items", corruption="salt_and_pepper", level=0.1, reads=3)
    usual = write_note("recall", corruption="salt_and_pepper", level=0.1, reads=3)
    records = [
        record
        for model, floats in {"small": 1000, "whole": 4000}.items()
        for record in (
            made_up("recall", model, "digits", 0.2, note=usual, floats=floats),
            made_up("resized_recall", model, "digits", 0.1, note=note, floats=2000),
        )
    ]
    found = column(records, "resized_recall")
    assert [score.model for score in found.ranked] == ["whole"]
    assert found.scores["small"].why_not == "measured with memories as large or larger only"


def test_a_wide_interval_does_not_make_a_model_one_of_the_best():
    """It overlaps with the best one's, but ranks below a model that is surely behind."""
    records = [*joint(-90.0, -90.2, -95.0), made_up("joint", "wide", "digits", -99.0, interval=50.0)]
    found = column(records)
    assert [score.model for score in found.best] == ["m0", "m1"]
    assert found.runner_up.model == "m2"
    assert standing(found, "wide") == "behind"


def test_what_reads_the_same_is_a_tie():
    values = {"exact": 1.0, "nearly": 0.99996, "behind": 0.9}
    records = [made_up("novelty_written", name, "digits", value, interval=0.0) for name, value in values.items()]
    assert [score.model for score in column(records, "novelty_written").best] == ["exact", "nearly"]


def test_the_size_of_a_memory_stands_where_some_column_tells_it():
    records = [
        {**unanswered("joint", "a", "digits", "none"), "memory_floats": None},
        made_up("conditional", "a", "digits", -1.0, floats=3072),
        *joint(-90.0),
    ]
    assert memory_text(columns(records, "digits"), "a") == "3,072"


def test_settings_and_numbers_for_people():
    assert settings_text((("corruption", "salt_and_pepper"), ("level", "0.1"), ("reads", "1"))) == (
        "salt and pepper 0.1, 1 read"
    )
    assert settings_text((("corruption", "half"), ("level", "1"))) == "right half erased"
    assert settings_text((("corruption", "block"), ("level", "8"), ("reads", "3"))) == (
        "block of 8 pixels erased, 3 reads"
    )
    assert settings_text((("ways", "5"), ("shots", "5"))) == "5 classes, 5 examples of each"
    assert number_text(-90.04, "nats/frame", interval=0.46) == "-90.0 ± 0.5"
    assert number_text(0.01234, "per pixel") == "0.0123"
    assert number_text(123456.0, "bytes") == "123,456"
    assert number_text(0.00012, "ms", interval=0.0) == "1.2e-04"
    assert number_text(0.07451, "ms", interval=0.00269) == "0.0745 ± 0.0027"
    assert number_text(17.66, "ms", interval=1.183) == "17.7 ± 1.2"
    assert [number_text(value, "bytes") for value in (0.0, 4.0)] == ["0", "4"]


# -- curves ----------------------------------------------------------------------------------------


def test_curves_go_along_one_setting_at_a_time():
    found = {(f.along.question, f.along.setting, f.fixed): f for f in figures(whole(), "made-up digits")}
    reads = found["recall", "reads", "salt and pepper 0.1"]
    assert [point.x for point in reads.lines["vma"]] == [1, 3, 10]
    assert set(reads.lines) == set(MODELS)
    levels = found["recall", "level", "salt and pepper, 3 reads"]
    assert [point.x for point in levels.lines["vma"]] == [0.1, 0.3]
    assert [point.x for point in found["capacity_bound", "episode_length", ""].lines["vma"]] == [1, 16, 256]
    sizes = found["resized_bound", "memory_floats", ""]
    assert [point.x for point in sizes.lines["vma"]] == [500, 1000, 2000]
    assert set(sizes.lines) == {"vma", "vbm-mixture"}
    assert ("recall", "level", "half, 3 reads") not in found  # one level makes no curve


def test_a_curve_holds_the_record():
    asked = [(reads, write_note("recall", corruption="flip", level=0.2, reads=reads)) for reads in (2, 1)]
    records = [made_up("recall", "a", "digits", 0.1 / reads, interval=0.01, note=note) for reads, note in asked]
    (figure,) = figures(records, "digits")
    assert [(p.x, p.y, p.interval) for p in figure.lines["a"]] == [(1, 0.1, 0.01), (2, 0.05, 0.01)]
