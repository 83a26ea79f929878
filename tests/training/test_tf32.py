"""training.tf32: what a GPU's products are rounded to, while a training runs and after it."""

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from mnemon import presets
from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.training.setup import products
from tests.training.cases import config, fit, of_kind

BACKENDS = (
    torch.backends.cuda.matmul,
    torch.backends.cudnn.conv,
    torch.backends.cudnn.rnn,
    torch.backends.mkldnn.matmul,
)


def allowed():
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


def settings():
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def choose(matmul, convolutions):
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = convolutions


@pytest.fixture(autouse=True)
def as_it_was():
    """Whatever a test sets, by either of PyTorch's interfaces."""
    before, precisions = settings(), [backend.fp32_precision for backend in BACKENDS]
    yield
    choose(*before)
    for backend, precision in zip(BACKENDS, precisions, strict=True):
        backend.fp32_precision = precision


@pytest.fixture
def seen():
    """The flags whenever a module is called, and after each backward pass."""
    found = {"forward": set(), "step": set()}
    hooks = (
        register_module_forward_pre_hook(lambda *_: found["forward"].add(allowed())),
        register_optimizer_step_pre_hook(lambda *_: found["step"].add(allowed())),
    )
    yield found
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("matmul", ["highest", "high", "medium"])
@pytest.mark.parametrize("convolutions", [True, False])
def test_what_was_set_comes_back_also_after_an_error(matmul, convolutions):
    def break_off():
        with products(tf32=False):
            assert allowed() == (False, False)
            assert torch.get_float32_matmul_precision() == "highest"
            raise KeyError

    choose(matmul, convolutions)
    with pytest.raises(KeyError):
        break_off()
    assert settings() == (matmul, convolutions)


def test_by_default_nothing_is_touched():
    choose("medium", True)
    with products(tf32=True):
        assert settings() == ("medium", True)
        choose("high", False)
    assert settings() == ("high", False)


def test_the_other_interface_of_pytorch():
    """Of fp32_precision nothing is asked where it is left alone, and where it is not the words say what to do."""
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    with products(tf32=True):
        assert torch.backends.cudnn.conv.fp32_precision == "ieee"
    with pytest.raises(ValueError, match=r"tf32: expected .*set by fp32_precision; set them"), products(tf32=False):
        pass


@pytest.mark.parametrize(("tf32", "flags"), [(False, (False, False)), (True, (True, True))])
def test_a_training_sees_what_was_asked_for(tf32, flags, seen, tmp_path):
    choose("high", True)
    fit(of_kind("ebmm", training={"tf32": tf32}, stages=[{"epochs": 1}]), tmp_path)
    assert seen == {"forward": {flags}, "step": {flags}}
    assert settings() == ("high", True)


def test_a_training_that_breaks_leaves_them_as_they_were(seen, tmp_path):
    choose("medium", True)
    broken = config(training={"tf32": False}, stages=[{"epochs": 3, "learning_rate": 1e30}])
    with pytest.raises(ValueError, match="training stopped"):
        fit(broken, tmp_path)
    assert seen["step"] == {(False, False)}
    assert settings() == ("medium", True)


def test_energies_are_trained_without_it():
    """Their gradients are third derivatives. Every preset of them, and the benchmark on every data set."""
    found = {name: presets.load(name) for name in presets.names()}
    for quick in (True, False):
        protocol = Protocol.load(quick)
        found |= {f"{protocol.name} {data}": protocol.config(data, "ebmm", seed=0) for data in protocol.sets}
    energies = {name: each.training.tf32 for name, each in found.items() if each.model.kind == "ebmm"}
    assert {"ebmm-omniglot", "ebmm-patterns-32", "memory omniglot", "memory-quick glyphs"} <= energies.keys()
    assert [name for name, tf32 in energies.items() if tf32] == []
