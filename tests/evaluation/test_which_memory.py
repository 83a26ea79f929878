"""Which memory for which job: every word of the advice, and of its page, follows from made-up numbers."""

import math

import numpy as np
import pytest

from mnemon.evaluation.benchmark.protocol import UNTRAINED, Protocol
from mnemon.evaluation.conditions import chance_of_another, conditions
from mnemon.evaluation.jobs import JOBS, advise, holds_nothing, outstanding, summary
from mnemon.evaluation.leaderboard import columns, data_sets, standing
from mnemon.evaluation.likelihood import student
from mnemon.evaluation.questions import BY_NAME, write_note
from mnemon.evaluation.tables import results_page
from mnemon.evaluation.which_memory import SHORT, which_memory_page
from mnemon.evaluation.who_is_who import trained_weights
from mnemon.registry import MODELS as REGISTERED
from mnemon.training.setup import fresh_model
from tests.evaluation.made_up import MODELS, column, joint, made_up, nobody, of_fixed_size, unanswered, whole


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
