"""Real runs of the commands on models of data sets."""

import json

import pytest

from mnemon.evaluation import judge
from tests.test_commands import refused, run

TINY = ("--set", "stages.0.epochs=1", "--accelerator", "cpu", "--quiet")
ONE_EACH = tuple(x for at in (1, 2, 3) for x in ("--set", f"stages.{at}.epochs=1"))


def values(records, metric):
    return [record["value"] for record in records if record["metric"] == metric]


@pytest.fixture(scope="module")
def learner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contexts") / "run"
    sizes = ("model.hidden=16", "model.num_filters=4", "data.batch_size=40", "data.classes=[0,1]")
    run("train", "digits-context-aware", "--out", folder, *TINY, *ONE_EACH, *(x for s in sizes for x in ("--set", s)))
    return folder


def test_a_context_aware_learner_is_trained_judged_and_drawn(learner, tmp_path, monkeypatch):
    lines = [json.loads(line) for line in (learner / "metrics.jsonl").read_text().splitlines()]
    assert all(0.5 <= line["agreement"] <= 1 and line["choice_kl"] >= 0 for line in lines)
    monkeypatch.setattr(judge.train_judge, "__kwdefaults__", {**judge.train_judge.__kwdefaults__, "num_steps": 5})
    parts = ("--part", "bounds", "--part", "factors", "--episodes", "20")
    records = json.loads(run("eval", learner, *parts, "--json").stdout)
    assert len(values(records, "pseudo_accuracy")) == 1
    validated = [line["agreement"] for line in lines if line["kind"] == "validation" and line["epoch"]]
    assert values(records, "kept_accuracy") == [pytest.approx(sum(validated) / len(validated), abs=1e-5)]
    assert len(values(records, "judge_accuracy")) == 2
    assert values(records, "synthesis")
    assert all(0 <= value <= 1 for value in values(records, "constant_sets"))
    notes = [record["note"] for record in records if record["metric"] == "constant_sets"]
    assert "from the prior, a pattern never trained on; digit constant with background" in notes
    run("figures", learner, "--out", tmp_path)
    drawn = {path.stem for path in tmp_path.iterdir()}
    assert drawn == {"sets", "unseen_patterns", "given_sets", "synthesis", "training"}


def test_what_the_parts_refuse(learner):
    assert "expected a statistician, got context-aware" in refused("eval", learner, "--part", "contexts")
    message = refused("eval", learner, "--part", "factors", "--data", "digits")
    assert "digits has none; take black_white_mnist" in message


def test_a_told_learner_needs_episodes_that_tell(tmp_path):
    told = (
        "--set",
        "model.supervised=true",
        "--set",
        "objective.estimator=none",
        "--set",
        "data.episodes=iid",
        "--set",
        "stages.2.estimator=none",
    )
    assert "data.episodes=factors" in refused("train", "digits-context-aware", "--out", tmp_path / "run", *TINY, *told)
    one = ("--set", "model.num_contexts=1")
    assert "with one context there is nothing" in refused(
        "train", "digits-context-aware", "--out", tmp_path / "b", *TINY, *one
    )


def test_a_statistician_of_number_sets(tmp_path):
    sizes = (
        "model.hidden=8",
        "model.num_filters=2",
        "data.batch_size=50",
        "data.episode_length=20",
        "data.validation=0.9",
    )
    options = (x for s in sizes for x in ("--set", s))
    run(
        "train",
        "families-statistician-full",
        "--out",
        tmp_path / "run",
        *TINY,
        *options,
        "--set",
        "training.validation_batches=1",
    )
    records = json.loads(run("eval", tmp_path / "run", "--part", "contexts", "--json").stdout)
    assert len(values(records, "family_vote")) == 1
    assert len(values(records, "r2_mean")) == len(values(records, "r2_variance")) == 4
    run("figures", tmp_path / "run", "--out", tmp_path / "figures")
    assert (tmp_path / "figures" / "contexts.png").stat().st_size > 1000
