"""A batch dealt out to threads is the batch."""

import pytest
import torch

from mnemon import GaussianMemory
from mnemon.memories import parallel
from mnemon.memories.frames import Frames
from tests.memories.cases import C, assert_close, cases, episode, num_items, start


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@cases()
def test_threads_change_nothing(case, two_threads):
    codes = episode(9, 2, num_items(case))
    mask = torch.rand(codes.shape[:-1], generator=torch.Generator().manual_seed(0)) < 0.8
    mask[..., 0] = True
    init = start(case, codes)
    assert parallel.num_parts(Frames.gather("test", codes, C), init) == 2
    options = {"mask": mask, "init": init, "num_steps": case.num_steps, "return_trace": True}
    threaded = case.memory.write(codes, **options)
    torch.set_num_threads(1)
    alone = case.memory.write(codes, **options)
    assert_close(threaded.state, alone.state)
    assert_close(threaded.address, alone.address)
    torch.testing.assert_close(threaded.trace, alone.trace)


@cases(lambda case: case.name in ("gaussian", "mixture"))
def test_a_prior_per_episode_is_dealt_out_too(case, two_threads):
    codes = episode(9, num_items(case))
    prior = start(case, codes)
    batched = case.memory.write(codes, prior=prior, num_steps=2)
    assert_close(batched.state[7], case.memory.write(codes[7], prior=prior[7], num_steps=2).state)


@cases(lambda case: case.name == "gaussian")
def test_gradients_are_not_threaded(case, two_threads):
    codes = episode(9, num_items(case)).requires_grad_()
    init = start(case, codes.detach())
    assert parallel.num_parts(Frames.gather("test", codes, C), init) == 1
    case.memory.write(codes, init=init, num_steps=2).state.R.sum().backward()
    assert codes.grad.abs().sum() > 0
    with torch.no_grad():
        assert parallel.num_parts(Frames.gather("test", codes, C), init) == 2


@cases(lambda case: case.name == "gaussian")
def test_an_error_in_a_thread_reaches_the_caller(case, two_threads):
    codes = episode(9, num_items(case))
    init = start(case, codes)
    broken = init.replace(R=init.R.index_fill(0, torch.tensor([8]), torch.nan))
    with pytest.raises(ValueError, match="NaN"):
        case.memory.write(codes, init=broken, num_steps=1)


def test_learned_hyperparameters_and_priors_keep_their_gradients(two_threads):
    codes = episode(9, 12)
    init = GaussianMemory(C, 3).write(codes, num_steps=1, generator=torch.Generator().manual_seed(0)).state
    for name in ("noise_var", "slot_var"):
        gradients = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            value = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
            memory = GaussianMemory(C, 3, **{name: value})
            joint = memory.terms(codes, memory.write(codes, init=init, num_steps=3)).joint.sum()
            gradients.append(torch.autograd.grad(joint, value)[0])
        torch.testing.assert_close(*gradients)
    prior = init.replace(R=init.R.clone().requires_grad_())
    assert GaussianMemory(C, 3).write(codes, prior=prior, init=init, num_steps=2).state.R.requires_grad


def test_forward_mode_keeps_its_tangent(two_threads):
    memory = GaussianMemory(C, 3)
    codes = episode(9, 12)
    init = memory.write(codes, num_steps=1).state

    def bound(z):
        return memory.terms(z, memory.write(z, init=init, num_steps=2)).joint.sum()

    _, tangent = torch.func.jvp(bound, (codes,), (torch.ones_like(codes),))
    step = 1e-5
    difference = (bound(codes + step) - bound(codes - step)) / (2 * step)
    torch.testing.assert_close(tangent, difference, rtol=1e-5, atol=1e-5)
