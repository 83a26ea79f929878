"""Pictures of few-shot learning: what is on them is what was given. They were looked at, too."""

import math

import pytest
import torch
from matplotlib.figure import Figure

from mnemon import plots
from mnemon.evaluation.cells import Cell
from mnemon.evaluation.fewshot_pictures import (
    address_histogram,
    draw_curves,
    kl_curves,
    one_shot_table,
    scaling_curves,
)
from mnemon.evaluation.results import result


def images(*shape):
    return torch.rand(*shape, 1, 6, 5, generator=torch.Generator().manual_seed(0))


def heights(axis):
    """The tops of vertical lines, slot by slot."""
    return [path.vertices[1, 1] for path in axis.collections[-1].get_paths()]


def test_marks_of_an_axis_do_not_touch():
    """On a logarithmic axis an eighth of its length apart, and none at 0."""
    axis = Figure().subplots()
    plots.curves(
        axis, {"a": ([0.0, 1.0, 1.1, 10.0], [1.0] * 4), "b": ([100.0, 9.0, 101.0], [1.0] * 3)}, xlabel="", ylabel=""
    )
    assert list(axis.get_xticks()) == [1.0, 9.0, 100.0]


def test_addresses_stand_class_by_class(tmp_path):
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, 0.0]])
    memory, labels = images(4), torch.tensor([1, 0, 1, 0])
    figure = address_histogram(weights, memory, images(2), labels=labels, top=3)
    axes = figure.axes
    assert len(axes) == 2 * (2 + 3)
    assert heights(axes[1]) == pytest.approx([0.2, 0.4, 0.1, 0.3])
    assert [axis.get_title() for axis in axes[2:5]] == ["0.40", "0.30", "0.20"]
    for axis, slot in zip(axes[2:5], (3, 2, 1), strict=True):
        assert torch.equal(torch.from_numpy(axis.images[0].get_array().data), memory[slot, 0])
    assert axes[7].get_title() == "1.00"
    assert axes[8].get_title() == "< 0.01"
    plots.save(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 3000


def test_addresses_of_one_slot_and_colour():
    figure = address_histogram(torch.ones(1, 1), torch.rand(1, 3, 4, 4), torch.rand(1, 3, 4, 4))
    assert len(figure.axes) == 3
    with pytest.raises(ValueError, match=r"\(targets, slots\) = \(2, 4\), got \(2, 3\)"):
        address_histogram(torch.ones(2, 3), images(4), images(2))


def test_one_shot_rows():
    examples, samples = images(3), images(3, 4)
    table = one_shot_table(examples, samples)
    assert table.shape == (3, 6, 1, 6, 5)
    assert torch.equal(table[:, 0], examples)
    assert (table[:, 1] == 1).all()
    assert torch.equal(table[:, 2:], samples)
    with pytest.raises(ValueError, match=r"expected samples \(3, m, 1, 6, 5\), got \(2, 4, 1, 6, 5\)"):
        one_shot_table(examples, samples[:2])


def test_each_part_of_the_bound_has_a_panel():
    figure = kl_curves([1, 4, 19], {"address_kl": [2.0, 3.0, 4.5], "code_kl": [28.0, 28.01, 28.0]})
    first, second = figure.axes
    assert first.lines[0].get_xydata().tolist() == [[1, 2], [4, 3], [19, 4.5]]
    assert second.get_title() == "KL of the code"
    low, high = second.get_ylim()
    assert high - low == pytest.approx(2)  # a hundredth of a nat looks flat


def test_the_optimal_line_is_log_c_above():
    figure = scaling_curves([1, 8, 144], {"ours": [-68.8, -71.0, -74.5], "soft": [-73.4, -80.0, -90.0]})
    ours, optimal = figure.axes[0].lines[:2]
    assert ours.get_ydata().tolist() == [68.8, 71.0, 74.5]
    assert optimal.get_ydata() == pytest.approx([68.8, 68.8 + math.log(8), 68.8 + math.log(144)])
    assert optimal.get_linestyle() == "--"
    with pytest.raises(ValueError, match="expected 2 bounds of ours, got 1"):
        scaling_curves([1, 2], {"ours": [-1.0]})


def test_curves_from_records(tmp_path):
    common = {"experiment": "e", "data": "some"}
    records = [
        *(result(metric="bound", value=-70.0 - c, note=Cell(c, 4).note("scaling"), **common) for c in (1, 2)),
        *(result(metric=m, value=n, note=Cell(8, n).note("breakdown"), **common)
          for n in (1, 2) for m in ("code_kl", "address_kl")),
        result(metric="bound", value=-1.0, note=None, **common),
        result(metric="bound", value=-1.0, data="other"),
    ]  # fmt: skip
    files = draw_curves(records, tmp_path)
    assert [file.name for file in files] == ["some_scaling.png", "some_breakdown.png"]
    assert all(file.is_file() for file in files)
    assert draw_curves(records[-2:], tmp_path) == []
