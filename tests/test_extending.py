"""The worked example of docs/extending.md: one file and one line, then everything works as for the other models."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch

from tests.extending import blocks, example


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The files of the page, and the package installed, into a folder of its own and without an index."""
    source, folder = tmp_path_factory.mktemp("centre"), tmp_path_factory.mktemp("extending")
    (code,) = blocks("python")
    package, preset = blocks("toml")
    (source / "centre.py").write_text(code)
    (source / "pyproject.toml").write_text(package)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), str(source)], check=True, capture_output=True, text=True)
    (folder / "my-centre.toml").write_text(preset)
    return folder


def mnemon(project, *arguments):
    path = os.pathsep.join([str(project), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "mnemon", *arguments],
        capture_output=True, text=True, cwd=project, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_worked_example_is_known_trains_and_is_measured(project):
    told = json.loads(mnemon(project, "models", "centre", "--json"))
    assert told["state_floats"] == "C + 1"
    assert all(told["abilities"][name]["can"] for name in ("recall", "generate", "joint bound", "write on", "prior"))
    small = [
        f"--set={setting}"
        for setting in ("stages.0.epochs=1", "data.classes=[0,1,2,3,4,5]", "model.num_filters=4",
                        "model.options.spread=0.4", "training.validation_batches=1")
    ]  # fmt: skip
    mnemon(project, "train", "my-centre.toml", "--out", "run", "--accelerator", "cpu", "--quiet", *small)
    assert json.loads((project / "run" / "config.json").read_text())["model"]["options"] == {"spread": 0.4}
    records = json.loads(mnemon(project, "eval", "run", "--part", "bounds", "--json"))
    joint = next(record for record in records if record["bound"] == "joint")
    assert joint["model"] == "centre"
    assert joint["memory_floats"] == 16 + 1
    assert joint["value"] > -28 * 28  # a blank guess costs log 2 a pixel, 543 nats; an untrained one little more


def test_an_installed_model_takes_part_in_the_benchmark(project):
    listed = json.loads(mnemon(project, "bench", "memory", "--quick", "--list", "--json"))
    assert "centre" in {cell["kind"] for cell in listed}
    chosen = [f"--model={kind}" for kind in ("centre", "vae")]
    told = json.loads(mnemon(project, "bench", "memory", "--quick", *chosen, "--device", "cpu", "--json"))
    (path,) = told["results"]
    assert (told["done"], told["failed"]) == (2, 0)
    records = json.loads((project / path).read_text())
    assert {record["model"] for record in records} == {"centre", "vae"}
    assert sum(record["value"] is not None for record in records if record["model"] == "centre") > 30
    mnemon(project, "results", "out/memory-quick", "--out", "quick.md")
    page = (project / "which_memory.md").read_text()
    about = r"\| `centre` \| centre of an episode's codes \| a Gaussian belief about one vector \| ([\d,]+) \|"
    assert int(re.search(about, page)[1].replace(",", "")) > 1000
    beside = re.findall(r"^\| `centre` \| `vae` \| (.*) \|$", page, re.MULTILINE)
    assert len(beside) == 2  # counted over data sets, and on the one there is


def test_a_misspelt_option_of_its_own_is_refused_with_its_nearest_match(project):
    from mnemon.training.config import ModelConfig

    config = ModelConfig(kind="centre", image_shape=(1, 28, 28), options={"sprea": 0.4})
    with pytest.raises(ValueError, match=r"unknown setting model\.options\.sprea; did you mean 'spread'"):
        example().build(config)


def test_the_written_belief_is_the_exact_posterior():
    """Against Gaussian conditioning on the codes as one vector, in float64."""
    from tests.models.test_conformance import codec, images

    model = example().CentreModel(codec(), spread=0.3).double()
    x = images(5)
    with torch.no_grad():
        state, z = model.write(x), model.codec.encode(x).mean
    # joint covariance of (m, z_1, ..., z_5) for one coordinate: m has variance 1, z_t is m plus noise
    cov = torch.ones(6, 6, dtype=torch.float64) + torch.diag(torch.tensor([0.0] + [0.3] * 5, dtype=torch.float64))
    gain = cov[:1, 1:] @ torch.linalg.inv(cov[1:, 1:])
    torch.testing.assert_close(state.mean, (gain @ z)[0])
    torch.testing.assert_close(state.var, cov[0, 0] - (gain @ cov[1:, :1])[0, 0])
