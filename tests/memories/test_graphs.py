"""Writes replayed as CUDA graphs give what plain ones give, with and without gradients. Needs a GPU."""

import pytest
import torch

from mnemon import CategoricalMemory, Codes, GaussianMemory, KanervaMemory, MixtureMemory, TreeMemory
from mnemon.memories.graphs import Uncapturable, WriteGraphs, capturable, deciding

C = 12
MEMORIES = {
    "gaussian": (GaussianMemory(C, 5, 0.7), 6),
    "shift": (GaussianMemory(C, 5, 0.7, shift=True), 6),
    "categorical": (CategoricalMemory(C, 5, 0.7), 3),
    "mixture": (MixtureMemory(C, 2, 0.6, 0.4, num_clusters=4, location_var=1.2), 4),
    "tree": (TreeMemory(C, 2, 0.6, 0.4, num_clusters=3, location_var=1.2), 4),
    "kanerva": (KanervaMemory(C, 5), None),
}
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def run(name, codes, graphs):
    """The state, the joint bound and the gradient of a write whose start is always the same."""
    memory, steps = MEMORIES[name]
    codes = codes.detach().requires_grad_()
    given = Codes(codes, torch.ones_like(codes))
    generator = torch.Generator(codes.device).manual_seed(0)
    written = memory.write(given, num_steps=steps, graphs=graphs, generator=generator)
    joint = memory.terms(given, written).joint.sum()
    if joint.requires_grad and torch.is_grad_enabled():
        joint.backward()
    state = {key: value.detach().clone() for key, value in written.state.tensors().items()}
    return state, joint.detach().clone(), codes.grad


@gpu
@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("grad", [True, False])
def test_replayed_equals_plain(name, grad):
    graphs = WriteGraphs()
    with torch.set_grad_enabled(grad):
        for seed in range(3):  # the first captures, the others replay on other codes
            codes = torch.randn(2, 9, C, generator=torch.Generator().manual_seed(seed)).double().cuda()
            plain, replayed = run(name, codes, None), run(name, codes, graphs)
            torch.testing.assert_close(replayed, plain, atol=1e-9, rtol=1e-9)


@gpu
def test_jitter_inside_a_graph():
    """A matrix that is not quite positive definite gets a factor, as it does outside."""
    from mnemon.core.linalg import safe_cholesky

    singular = torch.ones(3, 4, 4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    safe_cholesky(singular)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        factor = safe_cholesky(singular)
    graph.replay()
    assert factor.isfinite().all()
    torch.testing.assert_close(factor @ factor.mT, singular, atol=1e-3, rtol=1e-3)


def test_on_the_cpu_graphs_are_left_out():
    graphs = WriteGraphs()
    codes = torch.randn(2, 9, C, dtype=torch.float64)
    torch.testing.assert_close(run("mixture", codes, graphs), run("mixture", codes, None))
    assert not graphs._graphs


def test_a_value_that_decides_is_refused_where_graphs_are_captured():
    assert deciding(torch.tensor(3)) == 3
    with capturable(), pytest.raises(Uncapturable, match="depends on a value"):
        deciding(torch.tensor(3))
    assert deciding(torch.tensor(3)) == 3
