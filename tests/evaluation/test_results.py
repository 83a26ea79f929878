import json

import pytest

from mnemon.evaluation import synthetic
from mnemon.evaluation.results import KEYS, current_commit, result, write_csv, write_json


def test_a_result_has_every_key():
    assert tuple(result(value=1.0)) == KEYS
    with pytest.raises(ValueError, match=r"unknown keys \['score'\]"):
        result(score=1.0)


def test_files_hold_what_was_written(tmp_path):
    records = [result(value=1.5, model="a, b"), result(value=-2.0)]
    write_json(tmp_path / "r.json", records)
    assert json.loads((tmp_path / "r.json").read_text()) == records
    write_csv(tmp_path / "r.csv", records)
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 3


def test_commit_is_a_hash_or_nothing():
    commit = current_commit()
    assert commit is None or set(commit.rstrip("+")) <= set("0123456789abcdef")


def test_one_cell_of_the_synthetic_grid():
    """Longer VB is better VB, the best scalar is the best variance, and the conclusion counts right."""
    scores = synthetic.score_cell(8, 50)
    value = {score.method: score.value for score in scores}
    assert list(value) == list(synthetic.METHODS)
    assert value["VB converged"] > value["VB 50"]
    for kind in ("online", "batched"):
        by_variance = [value[synthetic.dkm(kind, var)] for var in synthetic.ADDRESS_VARS]
        assert max(by_variance) == by_variance[-1]
    assert synthetic.ratios(scores, "DKM online, 0.3")[8, 50] == pytest.approx(218.078 / 108.676, abs=1e-4)
    assert "2.01 to 2.01" in synthetic.conclusion(scores)
