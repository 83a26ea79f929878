"""What must hold for any shape, noise, mask and weight."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemon import CategoricalMemory, GaussianMemory, KanervaMemory, MixtureMemory, TreeMemory

KINDS = ("gaussian", "shift", "categorical", "mixture", "tree")


@st.composite
def problems(draw):
    kind = draw(st.sampled_from(KINDS))
    C = draw(st.sampled_from((2, 4, 8)))
    K = draw(st.integers(1, 4))
    T = draw(st.integers(1, 10))
    seed = draw(st.integers(0, 2**31))
    variances = {name: draw(st.floats(0.05, 5)) for name in ("noise_var", "slot_var", "location_var")}
    location_var = variances.pop("location_var")
    clusters = draw(st.integers(1, 3))
    memory = {
        "gaussian": lambda: GaussianMemory(C, K, **variances),
        "shift": lambda: GaussianMemory(C, K, **variances, shift=True, location_var=location_var),
        "categorical": lambda: CategoricalMemory(C, K, **variances),
        "mixture": lambda: MixtureMemory(C, K, **variances, num_clusters=clusters, location_var=location_var),
        "tree": lambda: TreeMemory(C, K, **variances, num_segments=2, num_clusters=clusters, location_var=location_var),
    }[kind]()
    generator = torch.Generator().manual_seed(seed)
    codes = draw(st.floats(0.1, 5)) * torch.randn(T, C, dtype=torch.float64, generator=generator)
    codes = codes + draw(st.floats(-10, 10))
    mask = torch.rand(T, generator=generator) < 0.8
    mask[0] = True
    weights = 3 * torch.rand(T, dtype=torch.float64, generator=generator) + 0.01
    options = {
        "mask": mask if draw(st.booleans()) else None,
        "weights": weights if draw(st.booleans()) else None,
        "init": "random",
        "generator": generator,
    }
    return memory, codes, options


@given(problems())
@settings(max_examples=120, deadline=None)
def test_the_joint_bound_never_falls(problem):
    memory, codes, options = problem
    written = memory.write(codes, num_steps=100, return_trace=True, **options)
    slack = 1e-9 * (1 + written.trace.abs())
    assert (written.trace.diff(dim=0) >= -slack[1:]).all()
    joint = memory.terms(codes, written).joint
    torch.testing.assert_close(joint, written.trace[-1], atol=1e-7, rtol=1e-9)


@given(problems())
@settings(max_examples=60, deadline=None)
def test_covariances_stay_positive_definite(problem):
    memory, codes, options = problem
    state = memory.write(codes, num_steps=30, **options).state
    U = state.U_diag if hasattr(state, "U_diag") else torch.linalg.eigvalsh(state.U)
    assert (U > 0).all()
    assert (memory.slot_var * (1 + 1e-9) >= U).all()  # data never makes the memory less certain than its prior
    if getattr(state, "v_b", None) is not None:
        assert (state.v_b > 0).all()
        assert (state.v_b <= memory.location_var * (1 + 1e-9)).all()


@given(st.integers(0, 2**31), st.floats(-50, 50))
@settings(max_examples=30, deadline=None)
def test_moving_codes_and_prior_moves_the_memory(seed, by):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randn(7, 3, dtype=torch.float64, generator=generator)
    memory = MixtureMemory(3, 2, 0.5, num_clusters=2, location_var=2.0)
    moved = memory.replace(location_mean=by)
    init = memory.write(codes, num_steps=1, generator=generator).state
    left = memory.write(codes, init=init, num_steps=5, return_trace=True)
    right = moved.write(codes + by, init=init.replace(mu_b=init.mu_b + by), num_steps=5, return_trace=True)
    torch.testing.assert_close(left.state.R, right.state.R, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(left.state.mu_b + by, right.state.mu_b, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(left.trace, right.trace, atol=1e-7, rtol=1e-8)


@pytest.mark.parametrize("far", [0.0, 1e3])
def test_float32_keeps_its_digits_far_from_the_origin(far):
    generator = torch.Generator().manual_seed(0)
    codes = torch.randn(200, 8, dtype=torch.float64, generator=generator) + far
    for memory in (
        MixtureMemory(8, 2, 0.5, num_clusters=3, location_var=2.0, location_mean=far),
        GaussianMemory(8, 2, 0.5, shift=True, location_var=2.0, location_mean=far),
    ):
        init = memory.write(codes, num_steps=1, generator=generator).state
        double = memory.write(codes, init=init, num_steps=5, return_trace=True).trace
        single = memory.write(codes.float(), init=init.to(torch.float32), num_steps=5, return_trace=True).trace
        torch.testing.assert_close(single.double(), double, atol=0, rtol=2e-4)


@pytest.mark.parametrize("far", [100.0, 1000.0])
def test_an_empty_cluster_does_not_cost_float32_its_digits(far):
    """More clusters than the data want: some return to the prior's mean, far from the codes."""
    codes = 0.3 * torch.randn(200, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + far
    memory = MixtureMemory(16, 2, 0.1, num_clusters=10, location_var=far**2)
    init = memory.write(codes, num_steps=1, generator=torch.Generator().manual_seed(1)).state
    double = memory.write(codes, init=init, num_steps=30, return_trace=True)
    single = memory.write(codes.float(), init=init.to(torch.float32), num_steps=30, return_trace=True)
    torch.testing.assert_close(single.trace.double(), double.trace, atol=0, rtol=0.01)
    assert (single.trace.diff() > -5).all()


def test_online_kanerva_stays_positive_definite_in_float32():
    codes = torch.randn(3000, 8, generator=torch.Generator().manual_seed(0))
    memory = KanervaMemory(8, 6, 1e-3)
    state = memory.write(codes, generator=torch.Generator().manual_seed(0)).state
    assert (torch.linalg.eigvalsh(state.U) > 0).all()
