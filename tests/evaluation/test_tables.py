"""The results page holds every number of the files, with the paper's beside it."""

import json

import pytest

from mnemon.evaluation.cells import Cell
from mnemon.evaluation.results import result
from mnemon.evaluation.tables import read_remarks, read_results, results_page


def record(**values):
    common = {
        "experiment": "vbm-table2-vae", "model": "vae", "data": "cifar10", "binarisation": "dequantised", "seed": 0,
        "updates": 10, "command": "mnemon train vbm-table2-vae", "commit": "abc", "episode_length": 64,
        "memory_floats": 1, "interval": 0.5, "scored": "written", "num_samples": 1, "unit": "nats/frame",
    }  # fmt: skip
    return result(**{**common, **values})


RECORDS = [
    record(metric="bound", bound="joint", value=3400.0, paper_value=3508.5),
    record(metric="bound", bound="conditional", value=3401.5, note="the scored frames are those that were written"),
    record(metric="bits_per_dim", bound="joint", value=6.321),
    *(record(metric="bound", bound="conditional", scored=s, value=v, note="episodes of 5 classes x 12")
      for s, v in (("written", -91.5), ("same_class", -92.5), ("unseen", -93.5))),
    record(metric="mse_corrupted", value=0.05, note="right half erased"),
    record(metric="mse_recalled", value=0.02, note="right half erased; best of 1 to 5 reads: 3"),
    record(metric="error_removed", value=0.6, interval=None, note="right half erased"),
    record(metric="auroc", value=0.912, scored="written", note="against unseen classes"),
    record(metric="bound", bound="joint", value=3300.25, note="resized to 100 clusters", episode_length=640),
]  # fmt: skip


def test_every_number_is_on_the_page(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(RECORDS))
    (tmp_path / "benchmark_x.json").write_text(json.dumps({"ratio": 3}))
    (tmp_path / "remarks.json").write_text(json.dumps({"vbm-table2-vae": "looked into", "another": "not shown"}))
    page = results_page(read_results(tmp_path), read_remarks(tmp_path))
    assert "- `vbm-table2-vae`: looked into" in page
    assert "not shown" not in page
    for piece in (
        "3400.0 ± 0.5", "3508.5 (-3.1%)", "3401.5", "6.321", "-91.5", "-92.5", "-93.5", "0.0500", "0.0200",
        "(3 reads)", "60%", "0.912", "100 clusters", "3300.2", "mnemon train vbm-table2-vae",
    ):  # fmt: skip
        assert piece in page, piece
    assert page.count("## ") == 6
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert all(line.count("|") > 3 for line in rows)


def test_memories_without_training_stand_once_beside_the_runs_they_are_measured_with(tmp_path):
    shares = {"ebmm": (0.01, 0.0012), "copy of the cue": (0.1, 0.003), "slots of equal floats": (0.0, 0.0)}
    records = [
        record(experiment=experiment, model=model, updates=None if model != "ebmm" else 7, metric="wrong_pixels",
               value=value, interval=interval, data="patterns", note="capacity: 10% of the bits flipped; one read",
               episode_length=length, memory_floats=8 * length if model.startswith("slots") else 40)
        for experiment in ("one", "other") for model, (value, interval) in shares.items() for length in (2, 4)
    ]  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(records))
    page = results_page(read_results(tmp_path), {})
    rows = [line for line in page.split("## Capacity")[1].splitlines() if "patterns |" in line]
    assert [row.split(" | ")[0] for row in rows] == ["| one", "| one", "| one", "| other"]
    assert [row.split(" | ")[-1] for row in rows] == ["1 ± 0.12 |", "10 ± 0.3 |", "0 |", "1 ± 0.12 |"]
    assert [row.split(" | ")[3] for row in rows] == ["40", "40", "16 to 32", "40"]


FEWSHOT = [
    *(record(metric="bound", bound="conditional", scored="same_class", data="omniglot", num_samples=1000, value=value,
             note=Cell(classes, examples).note("table"), paper_value=paper)
      for classes, examples, value, paper in ((1, 1, -85.25, -86.5), (1, 5, -75.25, None), (4, 1, -88.75, -87.5))),
    record(metric="bound", bound="conditional", value=-70.5, note=Cell(8, 4).note("scaling")),
    record(metric="short_of_optimal", value=0.375, note=Cell(8, 4).note("scaling")),
    record(metric="address_kl", value=3.25, note=Cell(8, 4).note("breakdown")),
    record(metric="accuracy", value=0.921, interval=0.004, paper_value=0.91,
           note="5-way 1-shot, 9 episodes; by address"),
    record(metric="accuracy", value=0.855, interval=0.004, note="5-way 1-shot, 9 episodes; by likelihood"),
    record(metric="accuracy", value=0.611, interval=0.004, note="20-way 1-shot, 9 episodes; by pixels",
           model="pixel nearest neighbour"),
    record(metric="bound", bound="prior", value=-90.875, num_samples=5000, note="nothing written; 9 images"),
    record(metric="address_kl", value=2.25),
]  # fmt: skip


def test_fewshot_numbers_have_their_own_tables():
    page = results_page([*RECORDS, *FEWSHOT])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    experiment = "vbm-table2-vae"
    assert [experiment, "omniglot", "1000", "1", "-85.2 ± 0.5 (-86.5)", "-75.2 ± 0.5"] in rows
    assert [experiment, "omniglot", "1000", "4", "-88.8 ± 0.5 (-87.5)", ""] in rows
    assert [experiment, "cifar10", "1", "8", "4", "-70.5 ± 0.5", "0.38 ± 0.50"] in rows
    assert [experiment, "cifar10", "vae", "address", "0.921 ± 0.004 (0.91)", ""] in rows
    assert [experiment, "cifar10", "vae", "likelihood", "0.855 ± 0.004", ""] in rows
    assert [experiment, "cifar10", "pixel nearest neighbour", "pixels", "", "0.611 ± 0.004"] in rows
    assert [experiment, "vae", "cifar10", "1", "10", "5000", "-90.88 ± 0.50", "2.25 ± 0.50"] in rows
    bounds = next(row for row in rows if "3400.0 ± 0.5" in row)
    assert "3401.5 ± 0.5" in bounds  # the conditional bound is still that of written frames


def test_resized_memories_are_listed_by_data():
    resized = {"metric": "bound", "bound": "joint", "note": "resized to 100 clusters", "episode_length": 640}
    page = results_page([record(data=name, value=value, **resized) for name, value in (("a", -1.5), ("b", -2.5))])
    assert "-1.5 ± 0.5" in page
    assert "-2.5 ± 0.5" in page


def test_memories_of_several_sizes_are_rows_of_their_own():
    joint = {"metric": "bound", "bound": "joint"}
    page = results_page([record(value=value, memory_floats=size, **joint) for value, size in ((-1.5, 64), (-2.5, 256))])
    assert "-1.5 ± 0.5" in page
    assert "-2.5 ± 0.5" in page


def test_stored_items_are_listed_with_what_finding_them_costs():
    common = {"note": "log |M| = 5.545", "episode_length": 256}
    bounds = [
        record(metric="bound", bound="conditional", value=value, num_samples=count, **common)
        for value, count in ((-9.5, 1), (-8.25, 4))
    ]
    page = results_page([*bounds, record(metric="address_kl", value=5.25, num_samples=1, **common)])
    assert "| 256 | -9.50 ± 0.50 | -8.25 ± 0.50 | 5.25 ± 0.50 | 5.55 |" in page


def test_accuracies_of_the_validation_split_are_rows_of_their_own():
    """Settings are chosen on one split and reported on the other."""
    common = {"metric": "accuracy", "bound": None, "interval": None, "note": "5-way 1-shot, 10 episodes; by context_kl"}
    page = results_page([record(value=v, split=split, **common) for v, split in ((0.75, "test"), (0.875, "valid"))])
    assert "| context_kl | 0.750 |" in page
    assert ", valid |" in page
    assert "| context_kl | 0.875 |" in page
    joint = {"metric": "bound", "bound": "joint"}
    page = results_page([record(value=v, split=s, **joint) for v, s in ((-80.5, "test"), (-99.5, "valid"))])
    rows = [line for line in page.splitlines() if "80.5" in line or "99.5" in line]
    assert ["cifar10, valid" in row for row in rows] == ["99.5" in row for row in rows]
    assert len(rows) == 2


def test_contexts_are_listed_by_family():
    found = [record(metric="family_vote", bound=None, value=0.97, interval=None, note="5 nearest")]
    for metric, value in (("r2_mean", 0.99), ("r2_variance", 0.75)):
        found.append(record(metric=metric, bound=None, value=value, interval=None, note="of its own; laplace"))
    assert "| 0.970 | laplace 0.99 | laplace 0.75 |" in results_page(found)


def test_generated_sets_are_listed_beside_real_ones():
    shares = {"given a set; digit constant": 0.25, "real sets; digit constant": 0.875}
    found = [
        record(metric="constant_sets", bound=None, value=share, interval=None, note=of) for of, share in shares.items()
    ]
    page = results_page(found)
    for of, share in shares.items():
        assert f"| all items agree | {of} | {share:.3f} |" in page


def test_without_results_there_is_only_the_head():
    assert results_page([]).startswith("# Results")
    assert "##" not in results_page([])


def test_trainings_of_one_preset_stand_apart(tmp_path):
    runs = ((10, -90.5, 1.25), (20, -80.5, 2.5))
    records = [
        row
        for updates, bound, kl in runs
        for row in (
            record(metric="bound", bound="joint", value=bound - 1, updates=updates),
            record(metric="address_kl", value=kl, updates=updates),
            record(metric="bound", bound="prior", value=bound, num_samples=5000, updates=updates),
        )
    ]
    (tmp_path / "a.json").write_text(json.dumps(records))
    page = results_page(read_results(tmp_path), {})
    for updates, bound, kl in runs:
        assert f"| {updates} | 5000 | {bound:.2f} ± 0.50 | {kl:.2f} ± 0.50 |" in page
        assert f"| {bound - 1:.1f} ± 0.5 |" in page


def test_a_file_that_is_cut_off_is_named(tmp_path):
    (tmp_path / "half.json").write_text('[{"experiment": "vae"')
    with pytest.raises(ValueError, match=r"half\.json: not readable as JSON .*make it again"):
        read_results(tmp_path)


def test_a_record_that_lacks_something_is_named_and_other_lists_are_left_out(tmp_path):
    (tmp_path / "other.json").write_text("[1, 2]")
    assert read_results(tmp_path) == []
    whole = record(metric="bound", value=1.0)
    lacking = {key: value for key, value in whole.items() if key != "command"}
    (tmp_path / "mine.json").write_text(json.dumps([whole, lacking]))
    with pytest.raises(ValueError, match=r"mine\.json: record 2: expected the keys .*, got none of command; add null"):
        read_results(tmp_path)
