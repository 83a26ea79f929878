"""Gradients, torch.compile and vmap go through a whole write."""

import pytest
import torch
from torch.func import grad, vmap

from mnemon import Codes, GaussianMemory, KanervaMemory, MixtureMemory
from tests.memories.cases import assert_close, cases, episode, num_items, start


@cases()
def test_gradients_pass_gradcheck(case):
    codes = episode(num_items(case))
    init = start(case, codes)
    steps = min(case.num_steps, 2)

    def state_and_bound(z):
        written = case.memory.write(z, init=init, num_steps=steps)
        kept = [t for name, t in written.state.tensors().items() if name != "counts"]
        return case.memory.terms(z, written).joint, *kept

    assert torch.autograd.gradcheck(state_and_bound, codes.requires_grad_())


@cases()
def test_second_derivatives_pass_gradgradcheck(case):
    codes = episode(3)
    init = start(case, episode(num_items(case)))

    def bound(z):
        return case.memory.terms(z, case.memory.write(z, init=init, num_steps=1)).joint

    assert torch.autograd.gradgradcheck(bound, codes.requires_grad_())


def test_gradients_reach_stochastic_codes_and_hyperparameters():
    mean, std = episode(8).requires_grad_(), torch.full((8, 6), 0.4, dtype=torch.float64, requires_grad=True)
    noise_var = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    slot_var = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    init = MixtureMemory(6, 2, 0.7, 0.5, num_clusters=3).write(mean.detach(), num_steps=1).state

    def bound(mean, std, noise_var, slot_var):
        memory = MixtureMemory(6, 2, noise_var, slot_var, num_clusters=3)
        codes = Codes(mean, std)
        return memory.terms(codes, memory.write(codes, init=init, num_steps=2)).joint

    assert torch.autograd.gradcheck(bound, (mean, std, noise_var, slot_var))


def test_gradients_reach_the_learned_parts_of_kanerva():
    codes = episode(5)
    slot_mean = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    address_var = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def bound(slot_mean, address_var):
        memory = KanervaMemory(6, 3, 0.7, 0.5, slot_mean, address_var=address_var)
        return memory.terms(codes, memory.write(codes)).joint

    assert torch.autograd.gradcheck(bound, (slot_mean, address_var))


def test_gradient_is_finite_when_a_cluster_takes_nothing():
    """Responsibilities that underflow to 0 in float32 must not turn the gradient into NaN."""
    codes = torch.cat((torch.zeros(4, 50), torch.full((4, 50), 100.0))).requires_grad_()
    memory = MixtureMemory(50, 2, 0.1, num_clusters=2, location_var=1e4)
    written = memory.write(codes, num_steps=3, return_trace=True)
    assert (written.address.theta == 0).any()
    (memory.terms(codes, written).joint + written.trace[-1]).backward()
    assert codes.grad.isfinite().all()


@cases()
def test_compiled_write_equals_eager(case):
    codes = episode(2, num_items(case))
    init = start(case, codes)
    steps = min(case.num_steps, 2)

    def write(z, init):
        written = case.memory.write(z, init=init, num_steps=steps)
        return written.state, case.memory.terms(z, written).joint, case.memory.recall(written.state, z)

    torch._dynamo.reset()
    compiled = torch.compile(write, fullgraph=True, backend="aot_eager")
    for left, right in zip(write(codes, init), compiled(codes, init), strict=True):
        if isinstance(left, torch.Tensor):
            torch.testing.assert_close(left, right)
        else:
            assert_close(left, right)


def test_inductor_compiles_a_write_with_its_backward():
    """The default backend, end to end, start included; kept to one memory because it is slow."""
    codes = episode(9).float().requires_grad_()
    memory = MixtureMemory(6, 2, 0.7, 0.5, num_clusters=3)

    def bound(z, init):
        return memory.terms(z, memory.write(z, init=init, num_steps=1)).joint

    init = memory.write(codes.detach(), num_steps=1).state
    torch._dynamo.reset()
    eager = torch.autograd.grad(bound(codes, init), codes)[0]
    compiled = torch.autograd.grad(torch.compile(bound, fullgraph=True)(codes, init), codes)[0]
    torch.testing.assert_close(eager, compiled, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["kmeans++", "random"])
def test_start_compiles_without_a_generator(name):
    memory = MixtureMemory(6, 2, 0.7, 0.5, num_clusters=3)
    codes = episode(9)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda z: memory.write(z, init=name, num_steps=1).state, fullgraph=True, backend="aot_eager"
    )
    assert compiled(codes).R.isfinite().all()


@cases()
def test_vmap_equals_batch(case):
    codes = episode(3, num_items(case))
    init = start(case, codes)

    def write(z, init):
        written = case.memory.write(z, init=init, num_steps=case.num_steps)
        return written.state, case.memory.terms(z, written).joint

    state, joint = vmap(write)(codes, init)
    expected_state, expected_joint = write(codes, init)
    assert_close(state, expected_state)
    torch.testing.assert_close(joint, expected_joint)


def test_vmap_of_grad_equals_autograd():
    memory = GaussianMemory(6, 3, 0.7, 0.5, shift=True)
    codes = episode(3, 9)
    init = memory.write(codes, num_steps=1).state

    def bound(z, init):
        return memory.terms(z, memory.write(z, init=init, num_steps=2)).joint

    expected = torch.autograd.grad(bound(codes.requires_grad_(), init).sum(), codes)[0]
    torch.testing.assert_close(vmap(grad(bound))(codes.detach(), init), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@cases()
def test_gpu_equals_cpu_and_its_file_loads_on_cpu(case, tmp_path):
    codes = episode(2, num_items(case))
    init = start(case, codes)
    cpu = case.memory.write(codes, init=init, num_steps=case.num_steps)
    gpu = case.memory.write(codes.cuda(), init=init.to("cuda"), num_steps=case.num_steps)
    assert_close(cpu.state, gpu.state.to("cpu"), 1e-8)
    gpu.state.save(tmp_path / "memory.safetensors")
    loaded = type(cpu.state).load(tmp_path / "memory.safetensors")
    assert loaded.R.device.type == "cpu"
    assert_close(cpu.state, loaded, 1e-8)


@cases(lambda case: case.rises)
def test_vmap_with_mask_and_tolerance(case):
    codes = episode(3, num_items(case))
    mask = torch.ones(codes.shape[:-1], dtype=torch.bool)
    mask[1, 2] = False
    init = start(case, codes)

    def write(z, mask, init):
        return case.memory.write(z, init=init, mask=mask, num_steps=30, tol=1e-2).state

    assert_close(vmap(write)(codes, mask, init), write(codes, mask, init))


def test_vmap_of_a_masked_start():
    codes, mask = episode(3, 9), torch.ones(3, 9, dtype=torch.bool)
    memory = MixtureMemory(6, 2, num_clusters=3)
    state = vmap(lambda z, m: memory.write(z, mask=m).state, randomness="different")(codes, mask)
    assert state.batch_shape == (3,)
