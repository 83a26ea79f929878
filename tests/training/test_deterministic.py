"""training.deterministic: the same seed gives the same weights, on a GPU too."""

import dataclasses
import os
import warnings

import pytest
import torch
from safetensors.torch import load_file

from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.registry import MODELS
from mnemon.training.setup import fresh_model, one_order
from tests.training.cases import SIZES, config, fit, of_kind
from tests.training.test_resume import DRAWS, assert_same_run, fit_interrupted

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="other orders of summing need a GPU")


def settings():
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # and so what a test sets is taken back
    enabled, warns, fills = settings()
    yield
    torch.use_deterministic_algorithms(enabled, warn_only=warns)
    torch.utils.deterministic.fill_uninitialized_memory = fills


@pytest.mark.parametrize("fills", [True, False])
def test_what_was_set_comes_back_also_after_an_error(fills):
    def break_off():
        with one_order(CUDA, deterministic=True):
            assert settings() == (True, True, False)
            raise KeyError

    torch.utils.deterministic.fill_uninitialized_memory = fills
    with pytest.raises(KeyError):
        break_off()
    assert settings() == (False, False, fills)


@pytest.mark.parametrize(("device", "asked"), [(CUDA, False), (CPU, True)])
def test_otherwise_nothing_is_touched(device, asked):
    with one_order(device, deterministic=asked):
        assert settings() == (False, False, True)


def test_who_asked_pytorch_already_keeps_their_settings():
    torch.use_deterministic_algorithms(True)
    with one_order(CUDA, deterministic=True):
        assert settings() == (True, False, True)
    assert settings() == (True, False, True)


def test_the_library_is_told_unless_it_was(monkeypatch):
    with one_order(CUDA, deterministic=True):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with one_order(CUDA, deterministic=True):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    with one_order(CUDA, deterministic=True):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.parametrize("kind", MODELS)
def test_a_training_begins_alike_with_any_number_of_threads(kind):
    """At the benchmark's sizes: small matrices are factorised by one thread anyway."""
    asked = Protocol.load().config("glyphs", kind, seed=0)
    asked = dataclasses.replace(asked, model=dataclasses.replace(asked.model, image_shape=(1, 28, 28)))
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 4):
            torch.set_num_threads(threads)
            found.append(fresh_model(asked).state_dict())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


@NEEDS_GPU
@pytest.mark.parametrize("kind", SIZES)
def test_a_training_on_a_gpu_goes_on_exactly(kind, tmp_path):
    """Every model: what the two trainings share is the seed. No kernel is warned of."""
    asked = of_kind(kind, objective=DRAWS, data={"binarise": "dynamic"})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*deterministic.*")
        fit(asked, tmp_path / "whole", accelerator="cuda")
        fit_interrupted(asked, tmp_path / "parts", "epoch 1:", "epoch 3:", accelerator="cuda")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@NEEDS_GPU
def test_half_precision_goes_on_exactly(tmp_path):
    asked = of_kind("kanerva-pp", training={"precision": "bf16-mixed"})
    for name in ("one", "other"):
        fit(asked, tmp_path / name, accelerator="cuda")
    assert_same_run(tmp_path / "one", tmp_path / "other")


def test_it_is_a_setting_of_a_training(tmp_path):
    """And on a CPU it changes nothing."""
    for name, chosen in (("one", True), ("other", False)):
        fit(config(training={"deterministic": chosen}, stages=[{"epochs": 1}]), tmp_path / name)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "other"))
    assert all(torch.equal(one[name], other[name]) for name in one)
