import json
import math

import pytest
import torch

from mnemon.data.factors import black_and_white
from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation.context_pictures import (
    GRID,
    REACH,
    draw_contexts,
    latent_grid,
    latent_plane,
    schedule_curves,
    training_curves,
)
from mnemon.evaluation.context_space import explained, neighbour_vote
from mnemon.evaluation.factor_sets import kept_accuracy, relative_entropy
from mnemon.evaluation.judge import _moved, train_judge
from mnemon.evaluation.likelihood import TestSet
from mnemon.registry import build_model
from mnemon.training.checkpoint import read_metrics
from mnemon.training.config import ModelConfig, StageConfig


def test_neighbours_vote():
    places = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [0.15]]).double()
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    assert neighbour_vote(places, labels, 3).tolist() == [True] * 6 + [False]


def test_a_straight_line_explains_what_is_straight():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 3, dtype=torch.float64, generator=generator)
    line = inputs @ torch.tensor([1.0, -2.0, 0.5]).double() + 3
    assert explained(inputs, line) == pytest.approx(1)
    noise = torch.randn(200, dtype=torch.float64, generator=generator)
    assert explained(inputs, noise) < 0.1
    # noise of a share r of the variance leaves 1 - r
    assert explained(inputs, line + line.std() * noise) == pytest.approx(0.5, abs=0.12)


def test_entropy_is_relative_to_as_many_uniform_draws():
    uniform = torch.randint(4, (4000, 6), generator=torch.Generator().manual_seed(1))
    found = relative_entropy(uniform, 4)
    assert abs(found.mean() - 1) < 5 * found.std() / math.sqrt(4000)
    assert (relative_entropy(torch.full((3, 6), 2), 4) == 0).all()


def test_the_judge_learns_what_images_show_and_leaves_random_numbers_alone():
    generator = torch.Generator().manual_seed(0)
    patterns = (torch.rand(3, 1, 12, 12, generator=generator) < 0.4).to(torch.uint8) * 255
    data = black_and_white(ImageSet(patterns.repeat(20, 1, 1, 1), torch.arange(3).repeat(20)))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    judge = train_judge(data, Preprocessing("static"), num_steps=30, batch_size=32)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(judge.values(Preprocessing("static")(data.images)), data.factors)
    assert judge.values(torch.zeros(2, 3, 1, 12, 12)).shape == (2, 3, 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="other orders of summing need a GPU")
def test_a_gpu_trains_the_same_judge_again():
    generator = torch.Generator().manual_seed(0)
    digits = ImageSet(torch.randint(256, (400, 1, 28, 28), generator=generator).to(torch.uint8), torch.arange(400) % 10)
    data = black_and_white(digits)
    twice = [train_judge(data, Preprocessing("static"), device="cuda", num_steps=60).state_dict() for _ in range(2)]
    assert all(torch.equal(value, twice[1][name]) for name, value in twice[0].items())


def test_kept_accuracy_is_of_the_last_epochs_alone(tmp_path):
    rows = [{"kind": "validation", "epoch": epoch, "agreement": 0.1 if epoch < 4 else 0.9} for epoch in range(14)]
    rows.insert(13, {"kind": "train", "epoch": 13, "agreement": 0.0})
    assert kept_accuracy(rows).value == pytest.approx(0.9)
    assert math.isnan(kept_accuracy(rows).interval)  # ten times the same sets
    assert kept_accuracy(rows[:6]).value == pytest.approx((3 * 0.1 + 2 * 0.9) / 5)  # epoch 0 is before the training
    assert kept_accuracy([]) is None
    assert kept_accuracy([{"kind": "validation", "epoch": 1}]) is None
    text = "\n".join(json.dumps(row) for row in rows)
    assert read_metrics(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text(text)  # its last line has no end: it was cut off
    assert read_metrics(tmp_path) == rows[:-1]


def test_batches_are_moved_to_every_place_and_small_images_stay():
    images = torch.arange(28.0 * 28).view(1, 1, 28, 28)
    moved = {tuple(_moved(images, step)[0, 0, 10, 10:12].tolist()) for step in range(25)}
    expected = {(28.0 * row + column, 28.0 * row + column + 1) for row in range(8, 13) for column in range(8, 13)}
    assert moved == expected
    assert _moved(images, 0)[0, 0, 0, 0] == images[0, 0, 0, 0]  # the edge goes on
    small = torch.rand(2, 1, 8, 8)
    assert _moved(small, 3) is small


def test_curves_show_the_weights_and_the_temperature_of_every_stage():
    stages = (
        StageConfig(epochs=2, weighting="thesis_6_14", alpha=3.0, temperature_from=1.0, temperature_to=0.5),
        StageConfig(epochs=4, weighting="geometric", latent_weights=(16.0, 1.0)),
    )
    records = [
        {"kind": kind, "epoch": epoch, "stage": int(epoch > 2), "loss": 9.0 + epoch, "joint": -1.0 * epoch}
        for epoch in range(7)
        for kind in ("train", "validation")
    ]
    weights, temperature = schedule_curves(records, stages)
    epochs, latents = weights.lines["other latents"]
    assert epochs == [1, 2, 3, 4, 5, 6]
    halves = [16 * 16 ** (-done / 8) for done in (1, 3, 5, 7)]  # in the middle of each of four epochs
    assert latents == pytest.approx([1 + 3, 1 + 1.5, *halves])
    assert weights.lines["a"][1] == pytest.approx([1 / value for value in latents])
    assert weights.lines["reconstruction"][1] == [1.0] * 6
    assert temperature.lines["temperature"] == ([1, 2], [0.875, 0.625])
    figure = training_curves(records, stages)
    assert [axis.get_title() for axis in figure.axes] == ["loss", "joint", "weights in the loss", "temperature"]
    assert [axis.get_title() for axis in training_curves(records, (StageConfig(), StageConfig())).axes] == [
        "loss",
        "joint",
    ]
    assert training_curves([]) is None


def test_the_plane_of_a_code_of_two_numbers(tmp_path):
    """Rows go down from large second numbers, columns right from small first ones. Thesis, figure 4.3"""
    torch.manual_seed(0)
    model = build_model(ModelConfig(kind="vae", image_shape=(1, 8, 8), architecture="mlp", code_dim=2)).eval()
    with torch.no_grad():
        grid = latent_grid(model)
        assert grid.shape == (GRID, GRID, 1, 8, 8)
        for (row, column), code in {
            (0, 0): (-REACH, REACH),
            (-1, -1): (REACH, -REACH),
            (0, -1): (REACH, REACH),
        }.items():
            torch.testing.assert_close(grid[row, column], model.codec.image(torch.tensor([code]))[0])
    images = torch.randint(256, (30, 1, 8, 8), dtype=torch.uint8)
    test = TestSet.of(ImageSet(images, torch.arange(30) % 3, "noise", "test"), Preprocessing(), torch.device("cpu"))
    files = draw_contexts(model, test, tmp_path, length=5)
    assert [file.stem for file in files] == ["latent_plane", "latent_grid"]
    assert all(file.stat().st_size > 1000 for file in files)
    (axis,) = latent_plane(model, test).axes
    assert len(axis.collections[0].get_offsets()) == 30
    assert [text.get_text() for text in axis.texts] == ["0", "1", "2"]
