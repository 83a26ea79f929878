"""Who leads, who cannot be told apart, and what is said of it: every word follows from made-up numbers."""

import math

import numpy as np
import pytest

from mnemon.evaluation.benchmark.protocol import UNTRAINED, Protocol
from mnemon.evaluation.benchmark.store import summarise
from mnemon.evaluation.conditions import chance_of_another, conditions
from mnemon.evaluation.curves import figures
from mnemon.evaluation.jobs import JOBS, advise, holds_nothing, outstanding, summary
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
from mnemon.evaluation.likelihood import student
from mnemon.evaluation.questions import BY_NAME, QUESTIONS, QUICK, empty_note, write_note
from mnemon.evaluation.tables import results_page
from mnemon.evaluation.which_memory import SHORT, which_memory_page
from mnemon.evaluation.who_is_who import trained_weights
from mnemon.registry import MODELS as REGISTERED
from mnemon.training.setup import fresh_model
from tests.evaluation.made_up import MODELS, made_up, unanswered, whole


def joint(*values, data="digits", interval=0.5):
    return [made_up("joint", f"m{i}", data, value, interval=interval) for i, value in enumerate(values)]


def column(records, question="joint", data="digits"):
    return next(c for c in columns(records, data) if c.question.name == question)


def nobody(model):
    return False


def of_fixed_size(*models):
    """Their memory at two lengths of the episode, the same; on data of their own."""
    return [made_up("capacity_recall", m, "sizes", 0.1, length=length) for m in models for length in (16, 256)]


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


def test_what_is_neither_better_nor_worse_is_not_ranked():
    note = write_note("distractors", classes=8, examples=4)
    values = {"unused": -2.1, "lossy": 3.0, "unsure": -0.05}
    records = [made_up("distractors", name, "digits", value, note=note) for name, value in values.items()]
    found = column(records, "distractors")
    assert not found.ranked
    assert not found.best
    assert {standing(found, name) for name in values} == {"behind"}
    assert "distractors" not in advice(*records)
    assert "nats/frame, not ranked." in which_memory_page(records, nobody)


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


# -- which memory for which job --------------------------------------------------------------------


def advice(*records, holds_nothing=nobody):
    tables = [columns(records, data) for data in data_sets(records)]
    return {one.job.question: one for one in advise(tables, holds_nothing) if one.job.where is None}


def test_a_clear_lead_a_tie_and_no_pattern():
    lead = advice(*joint(-90.0, -95.0), *joint(-80.0, -85.0, data="colours"))["joint"]
    assert lead.verdict == "`m0` is ahead of all others on both data sets."
    assert lead.details[0] == "digits: `m0` -90.0 ± 0.5 nats/frame, ahead of `m1` -95.0 ± 0.5."
    tie = advice(*joint(-90.0, -90.2, -95.0))["joint"]
    assert tie.verdict == "`m0` and `m1` are among the best on the one data set measured."
    assert "cannot be told from `m1` -90.2 ± 0.5; then `m2`" in tie.details[0]
    mixed = advice(*joint(-90.0, -95.0), *joint(-85.0, -80.0, data="colours"))["joint"]
    assert mixed.verdict.startswith("It depends on the data")
    assert summary([lead, tie, mixed]) == [
        [lead.job.wish, "`m0` (2 of 2)", "not known yet"],
        [tie.job.wish, "`m0` and `m1` (1 of 1)", "not known yet"],
        [mixed.job.wish, "depends on the data", "not known yet"],
    ]


def test_who_is_of_fixed_size_is_seen_on_any_data_set():
    """Where capacity was not asked everywhere yet; of who was not asked nobody knows."""
    assert advice(*joint(-90.0, -95.0), *of_fixed_size("m1"))["joint"].named_of_fixed_size == "not known yet"
    found = advice(*joint(-90.0, -95.0, -99.0), *of_fixed_size("m1", "m2"))["joint"]
    assert found.named == "`m0` (1 of 1)"
    assert found.named_of_fixed_size == "`m1` (1 of 1)"
    grown = [made_up("capacity_recall", "m0", "sizes", 0.0, length=n, floats=n) for n in (16, 256)]
    found = advice(*joint(-90.0, -95.0, -99.0), *of_fixed_size("m1", "m2"), *grown)["joint"]
    assert "But such a memory grows with the episode. Of fixed size: `m1`" in found.verdict


def test_data_sets_without_an_answer_are_not_counted_as_asked():
    records = [*joint(-90.0, -95.0), *joint(-80.0, -85.0, data="colours"), *of_fixed_size("m0")]
    assert advice(*records)["joint"].verdict == "`m0` is ahead of all others on both data sets with an answer."


def test_who_is_most_often_among_the_best_is_named():
    """One model leads on two of three data sets; or is among the best on one, and alone on another."""
    twice = [*joint(-90.0, -95.0), *joint(-80.0, -85.0, data="colours"), *joint(-75.0, -70.0, data="letters")]
    assert advice(*twice)["joint"].verdict == "`m0` is ahead of all others on 2 of 3 data sets."
    tied = [*joint(-90.0, -90.2), *joint(-80.0, -85.0, data="colours"), *joint(-75.0, -90.0, -70.0, data="letters")]
    assert advice(*tied)["joint"].verdict == "`m0` is among the best on 2 of 3 data sets, alone on 1."


def test_swapping_two_models_swaps_the_winner():
    for values, winner in (((-90.0, -95.0), "`m0`"), ((-95.0, -90.0), "`m1`")):
        assert advice(*joint(*values))["joint"].verdict.startswith(winner)


def test_a_model_without_a_memory_that_wins_is_pointed_out():
    found = advice(*joint(-90.0, -95.0), holds_nothing=lambda model: model == "m0")["joint"]
    assert found.verdict.endswith(" `m0` holds no memory.")
    known = [made_up("joint", name, "digits", value) for name, value in (("vae", -90.0), ("dkm", -95.0))]
    told = advice(*known, holds_nothing=holds_nothing)["joint"].verdict
    assert "`vae` holds no memory. What a memory adds to the same nets is told under" in told
    beaten = [*joint(-90.0, -90.1), *joint(-95.0, -80.0, data="colours")]
    once = advice(*beaten, holds_nothing=lambda model: model == "m0")["joint"]
    assert once.verdict.endswith("On 1 of 2 data sets a model without a memory, `m0`, does as well as any.")
    assert once.named == "`m1` (2 of 2)"
    assert found.named == "`m0` (1 of 1; without a memory)"
    tied = advice(*joint(-90.0, -90.1), holds_nothing=lambda model: model == "m0")["joint"]
    assert tied.named == "`m0` and `m1` (1 of 1; `m0` without a memory)"
    costs = [made_up("state_bytes", f"m{n}", "digits", value, interval=None) for n, value in enumerate((4, 400, 500))]
    small = advice(*costs, holds_nothing=lambda model: model == "m0")["state_bytes"]
    assert "m0" not in small.verdict
    assert "`m1`" in small.verdict


def test_a_memory_that_grows_is_no_rival_of_one_that_does_not():
    records = [
        made_up("capacity_recall", model, "digits", value, length=length, floats=floats)
        for model, value, sizes in (
            ("keeps all", 0.0, {16: 100, 256: 1600}),
            ("fixed", 0.05, {16: 90, 256: 90}),
            ("other", 0.9, {16: 9, 256: 9}),
        )
        for length, floats in sizes.items()
    ]
    assert column(records, "capacity_recall").growing == {"keeps all"}
    found = advice(*records)["capacity_recall"]
    assert found.verdict.startswith("`fixed`")
    assert summary([found])[0][1:] == ["only asked of those of fixed size", "`fixed` (1 of 1)"]
    assert "keeps all" not in "".join(found.details)
    recall = [made_up("recall", name, "digits", value, note=write_note("recall", corruption="flip", level=0.1, reads=3))
              for name, value in (("keeps all", 0.0), ("fixed", 0.5), ("other", 0.9))]  # fmt: skip
    both = advice(*records, *recall)["recall"]
    assert both.verdict.startswith("`keeps all` is ahead of all others on the one data set measured. But such a memory")
    assert "Of fixed size: `fixed` is ahead of all others on the one data set measured." in both.verdict
    assert both.verdict.endswith(both.job.caution)
    assert both.details[1].startswith("of fixed size, digits (flip 0.1, 3 reads): `fixed`")
    assert summary([both]) == [[both.job.wish, "`keeps all` (1 of 1)", "`fixed` (1 of 1)"]]


def test_a_wide_interval_makes_no_winner():
    """Of five models: one that may be the first or the last is not among the best; nor is anyone where all may be."""
    values, wide = (-90.0, -90.3, -95.0, -96.0, -97.0), {1: 8.0}
    records = [made_up("joint", f"m{n}", "digits", v, interval=wide.get(n, 0.1)) for n, v in enumerate(values)]
    column = columns(records, "digits")[0]
    assert [score.model for score in column.best] == ["m0", "m1"]
    assert [score.model for score in outstanding(column)] == ["m0"]
    assert advice(*records)["joint"].named == "`m0` (1 of 1)"
    few = [record for record in records if record["model"] != "m4"]
    assert advice(*few)["joint"].named == "`m0` and `m1` (1 of 1)"
    lost = [made_up("joint", f"m{n}", "digits", v, interval=8.0) for n, v in enumerate(values)]
    assert advice(*lost)["joint"].named == "nobody stands out"
    told = "Nobody stands out: no model can be told both from the middle of the field and from behind the first."
    assert advice(*lost, *of_fixed_size("m0", "m1"))["joint"].verdict == told


def test_what_was_counted_stands_out_however_many_share_it():
    costs = [made_up("state_bytes", f"m{n}", "digits", v, interval=None) for n, v in enumerate((1, 1, 1, 2, 3))]
    assert advice(*costs)["state_bytes"].named == "`m0`, `m1` and `m2` (1 of 1)"


def test_half_of_the_field_at_its_middle_does_not_stand_out():
    """Nor who ties with the first from the other side of it; nor anyone where all have the same."""
    values = ((0.52, 0.03), (0.51, 0.03), *3 * [(0.5, 0.0)], (0.49, 0.001), (0.48, 0.001))
    records = [made_up("novelty_written", f"m{n}", "digits", v, interval=reach) for n, (v, reach) in enumerate(values)]
    assert outstanding(column(records, "novelty_written")) == []
    same = [made_up("state_bytes", f"m{n}", "digits", 1.0, interval=None) for n in range(6)]
    assert advice(*same)["state_bytes"].named == "nobody stands out"


def test_a_number_of_one_episode_is_not_certain():
    """It may be as good as any, and makes no others so."""
    one = made_up("recall", "m0", "digits", 0.01, interval=None)
    others = [made_up("recall", f"m{n + 1}", "digits", v, interval=0.001) for n, v in enumerate((0.2, 0.3, 0.4, 0.9))]
    found = column([one, *others], "recall")
    assert [score.model for score in found.best] == ["m0", "m1"]
    assert [score.model for score in outstanding(found)] == ["m1"]
    assert len(column([one], "recall").best) == 1
    beside = [made_up("joint", "dkm", "digits", -95.0, interval=None), made_up("joint", "vae", "digits", -90.0)]
    page = which_memory_page(beside, nobody)
    assert "inf" not in page.split("\n## The tables")[0].split("Does a memory pay?")[1].split("## The models")[0]
    assert "| `dkm` | `vae` | -5.0 |" in page


def test_weights_of_the_nets_are_counted():
    """Those that the benchmark trains, on the data set whose images are larger; none where it trains none."""
    protocol = Protocol.load()
    counts = [
        sum(p.numel() for p in fresh_model(protocol.config_by_catalogue(data, "vae", seed=1)).parameters())
        for data in ("omniglot", "cifar10")
    ]
    assert trained_weights("vae", ("omniglot", "cifar10"), quick=False) == max(counts) > min(counts)
    assert trained_weights("vae", ("glyphs",), quick=True) < min(counts)
    assert trained_weights("vae", ("made-up",), quick=False) is None
    assert trained_weights("slots", ("omniglot",), quick=False) is None


def test_weights_are_those_of_the_sets_that_a_model_was_measured_on():
    """A model that takes one channel only has none to count on others, and does not stop the page."""
    records = [
        *joint(-90.0, -91.0, data="omniglot"),
        made_up("joint", "vbm-gaussian", "omniglot", -92.0),
        unanswered("joint", "vbm-gaussian", "cifar10", "one channel only", "failed"),
    ]
    about = which_memory_page(records, nobody).split("\n## The models\n")[1].split("\n## ")[0]
    assert f"| {trained_weights('vbm-gaussian', ('omniglot',), quick=False):,} |" in about
    assert trained_weights("vbm-gaussian", ("omniglot",), quick=False) != trained_weights(
        "vbm-gaussian", ("cifar10",), quick=False
    )


def test_questions_of_other_versions_are_left_out():
    older = made_up("joint", "m0", "digits", 1.0, note="asked of old: reads=1")
    assert data_sets([older]) == []
    assert column([*joint(-90.0, -95.0), older]).scores["m0"].value == -90.0


def test_conditions_say_what_was_not_trained():
    untrained = [made_up("recall", name, "digits", 0.1, updates=None) for name in ("slots", "copy")]
    assert conditions(untrained, "digits").endswith(
        "nothing was trained. Intervals are over test episodes, of times over rounds."
    )
    assert "another training of the same model may fall outside it" in conditions(joint(-90.0), "digits")


@pytest.mark.parametrize("number", [2, 3, 5])
def test_one_training_more_falls_into_the_interval_as_often_as_is_said(number):
    draws = np.random.default_rng(0).normal(size=(200_000, number + 1))
    seen, another = draws[:, :-1], draws[:, -1]
    reach = student(number) * seen.std(axis=1, ddof=1) / math.sqrt(number)
    share = (abs(another - seen.mean(axis=1)) < reach).mean()
    assert share == pytest.approx(chance_of_another(number), abs=4 * math.sqrt(share * (1 - share) / 200_000))


def test_the_question_of_every_job_is_asked():
    assert {job.question for job in JOBS} <= set(BY_NAME)
    assert len({job.wish for job in JOBS}) == len(JOBS)
    filled = advise([columns(whole(), "made-up digits")], nobody)
    assert [one.job for one in filled] == list(JOBS)


def test_the_page_in_markdown():
    page = which_memory_page(whole(), nobody)
    assert page.count("\n## ") == len(JOBS) + 4  # in short, what a memory adds, the models, and the tables
    assert all(page.index(f"| {job.wish} | ") < page.index(f"\n## {job.wish}\n") for job in JOBS)
    assert "(1) this model has no likelihood" in page
    assert "Not measured yet" not in page
    joint_alone = which_memory_page(joint(-90.0, -95.0), nobody)
    assert "Not measured yet, or answered by one model at most: Clean up" in joint_alone
    tables = [line for line in page.splitlines() if line.startswith("| `")]
    beside = 1 + 2  # vbm-mixture beside vae: counted, and on either data set
    assert len(tables) == len(MODELS) * (6 * 2 + 1) + beside
    heads = [line.split(" | ") for line in page.splitlines() if line.startswith("| model | ")]
    assert all(len(set(head)) == len(head) for head in heads)
    asked = page.split("### made-up digits: recall\n")[1].split("| model")[0].strip()
    assert asked.count("\n- ") == 0  # once, though several columns ask it
    assert asked.endswith("what error is left? Squared error per pixel, lower is better.")
    assert "| Recall of damaged frames: salt and pepper 0.1, 3 reads |" in page
    assert "has not been run yet" in which_memory_page([], nobody)


def test_the_page_says_what_each_model_is():
    page = which_memory_page([*joint(-90.0), *whole(models=("vbm-mixture", "slots"))], nobody)
    about = page.split("\n## The models\n")[1].split("\n## ")[0]
    mixture = "| `vbm-mixture` | VBM, mixture | H clusters, each K slots and a location |  | Lingle (VBM), theorem 4 |"
    assert mixture in about
    assert "H: clusters." in about
    assert "M: stored items" not in about  # no model here has any
    assert "| `slots` | gives back the nearest kept frame; not trained | as many frames as fit |" in about
    assert "| `m0` | a model of another package |" in about
    assert all(entry.title and entry.memory for entry in (*REGISTERED.values(), *UNTRAINED.values()))


def test_the_overview_has_a_leaderboard_for_each_data_set():
    page = results_page(whole())
    assert "## All memories, one protocol" in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == len(MODELS) * 2
    assert all(len(row.split(" | ")) == 2 + len(SHORT) for row in rows)
    assert set(SHORT) <= set(BY_NAME)
    assert "All memories" not in results_page([])


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
