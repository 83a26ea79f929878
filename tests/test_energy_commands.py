"""The commands on an energy-based memory: trained, evaluated, drawn, written and read from the command line."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from mnemon.data.catalog import load
from tests.test_commands import refused, run
from tests.training.cases import of_kind

SHAPE = (4, 8)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("energy")
    generator = torch.Generator().manual_seed(0)
    (folder / "bits").mkdir()
    for split, number in (("train", 80), ("test", 40)):
        images = torch.randint(2, (number, *SHAPE), generator=generator, dtype=torch.uint8) * 255
        np.savez(folder / "bits" / f"{split}.npz", images=images.numpy())
    settings = of_kind("ebmm", objective={"corruption": "flip", "level": 0.1}, data={"binarise": "none"})
    (folder / "tiny.json").write_text(json.dumps(settings.as_dict()))
    options = ("--data", folder / "bits", "--set", "stages.0.epochs=2", "--accelerator", "cpu")
    return folder, run("train", folder / "tiny.json", "--out", folder / "run", *options)


def test_train_reports_the_error(trained):
    folder, done = trained
    assert "squared error" in done.output
    assert "2 epochs" in done.output
    assert "nats" not in done.output
    assert json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])["wrong"] <= 1


def test_eval_measures_what_there_is(trained, tmp_path):
    """Without a likelihood: recall and capacity by default, and a clear word where a bound is asked for."""
    folder, _ = trained
    files = ("--out", tmp_path / "r.json", "--figures", tmp_path / "figures")
    run("eval", folder / "run", "--episodes", 4, "--device", "cpu", *files)
    records = json.loads((tmp_path / "r.json").read_text())
    assert {"mse_recalled", "wrong_pixels", "mse_corrupted"} <= {record["metric"] for record in records}
    assert (tmp_path / "figures" / "capacity_bits.png").exists()
    message = refused("eval", folder / "run", "--part", "bounds")
    assert "EnergyModel has no likelihood" in message
    out = ("--out", tmp_path / "results.md", "--figures", tmp_path / "all")
    run("results", tmp_path, *out)
    assert "## Capacity" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "all" / "capacity_bits.png").exists()


def test_the_pairwise_preset_corrects_flips(trained, tmp_path):
    """On fewer and other bits, after one epoch, at the size of a Hopfield network."""
    folder, _ = trained
    changes = ("data.episode_length=6", "data.batch_size=4", "data.validation=0.3", "stages.0.epochs=1")
    options = [word for change in changes for word in ("--set", change)]
    settings = ("--data", folder / "bits", "--accelerator", "cpu", *options)
    run("train", "ebmm-pairwise-patterns", "--out", tmp_path / "run", *settings)
    out = ("--out", tmp_path / "r.json", "--device", "cpu")
    done = run("eval", tmp_path / "run", "--part", "capacity", "--episodes", 8, "--data", folder / "bits", *out)
    shown = " ".join(done.output.split())
    for name in ("wrong pixels in per cent", "squared error per pixel", "10% of the bits flipped", "copy of the cue"):
        assert name in shown
    wrong = {r["model"]: r for r in json.loads((tmp_path / "r.json").read_text()) if r["metric"] == "wrong_pixels"}
    assert wrong["ebmm"]["memory_floats"] == wrong["hopfield, storkey"]["memory_floats"] == 32 * 33 // 2
    assert wrong["ebmm"]["value"] < 0.5 * wrong["copy of the cue"]["value"]
    for name, record in wrong.items():  # every number stands beside the memory that it is of
        assert f"{name} {100 * record['value']:.3g}" in shown


def test_figures_show_what_is_read(trained, tmp_path):
    folder, _ = trained
    options = ("--data", folder / "bits", "--out", tmp_path, "--device", "cpu")
    run("figures", folder / "run", "--beside", folder / "run", *options)
    assert (tmp_path / "recalled.png").exists()


def test_write_and_read(trained, tmp_path):
    folder, _ = trained
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 4, SHAPE) == 0
        Image.fromarray(pixels.astype(np.uint8) * 255).save(tmp_path / "pictures" / f"{number}.png")
    memory = tmp_path / "memory.safetensors"
    run("write", folder / "run", tmp_path / "pictures", "-o", memory, "--device", "cpu")
    run("read", folder / "run", memory, tmp_path / "pictures", "-o", tmp_path / "read", "--device", "cpu")
    assert len(list((tmp_path / "read").glob("*.png"))) == 4
    assert "has no likelihood" in refused("score", folder / "run", memory, tmp_path / "pictures")


def test_patterns_are_fair_bits():
    data = load("patterns", "test")
    assert data.image_shape == (1, 8, 16)
    assert set(data.images[:100].unique().tolist()) == {0, 255}
    means = data.images.double().mean(0) / 255
    assert (means - 0.5).abs().max() < 5 * 0.5 / len(data) ** 0.5
    again = load("patterns", "test")
    assert torch.equal(data.images, again.images)
