"""Every kind of bad input has its own clear ValueError."""

import pytest
import torch

from mnemon import CategoricalMemory, Codes, GaussianMemory, KanervaMemory, MixtureMemory, TreeMemory
from mnemon.core.protocol import Terms
from mnemon.memories.records import Written
from tests.memories.cases import C, cases, episode


@cases()
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda z: z[:, :4], r"expected codes \(\*B, T, 6\), got \(9, 4\); this memory was made with code_dim=6"),
        (lambda z: z[0], r"got \(6,\); add an item dimension"),
        (lambda z: z[:0], "at least one item, got T = 0"),
        (lambda z: z.index_fill(0, torch.tensor([2]), torch.nan), "got NaN or infinity; mask such items"),
        (lambda z: z.index_fill(0, torch.tensor([2]), torch.inf), "got NaN or infinity"),
        (lambda z: z.half(), "expected float32 or float64 codes, got torch.float16"),
        (lambda z: z.long(), "expected float32 or float64 codes"),
        (lambda z: z.numpy(), "use torch.as_tensor"),
    ],
    ids=["size", "one-item", "empty", "nan", "inf", "half", "long", "numpy"],
)
def test_codes(case, spoil, message):
    with pytest.raises(ValueError, match=message):
        case.memory.write(spoil(episode(9)))


@cases()
def test_masks_and_weights(case):
    codes = episode(2, 9)
    mask = torch.ones(2, 9, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"expected mask of shape \(2, 9\)"):
        case.memory.write(codes, mask=mask[0])
    mask[1] = False
    with pytest.raises(ValueError, match="all masked"):
        case.memory.write(codes, mask=mask)
    with pytest.raises(ValueError, match="weights >= 0"):
        case.memory.write(codes, weights=-torch.ones(2, 9))
    with pytest.raises(ValueError, match="positive weight"):
        case.memory.write(codes, weights=torch.zeros(2, 9))
    with pytest.raises(ValueError, match="weights: expected finite"):
        case.memory.write(codes, weights=torch.full((2, 9), torch.nan))


@cases()
def test_write_options(case):
    codes = episode(9)
    with pytest.raises(ValueError, match="num_steps: expected a whole number"):
        case.memory.write(codes, num_steps=0)
    with pytest.raises(ValueError, match="tol: expected a positive"):
        case.memory.write(codes, num_steps=1, tol=-1.0)
    with pytest.raises(ValueError, match=r"chunk_size: expected a whole number|leave chunk_size out"):
        case.memory.write(codes, num_steps=1, chunk_size=0)
    with pytest.raises(ValueError, match=r"init: expected a state or one of .*; got 'magic'"):
        case.memory.write(codes, init="magic")
    with pytest.raises(ValueError, match=r"n: expected a whole number"):
        case.memory.sample(case.memory.write(codes, num_steps=1).state, 0)
    with pytest.raises(ValueError, match=r"steps: expected a whole number"):
        case.memory.recall(case.memory.write(codes, num_steps=1).state, codes, steps=0)


@pytest.mark.parametrize("name", ["noise_var", "slot_var"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), torch.tensor(-1.0)])
def test_variances(name, value):
    for kind in (GaussianMemory, CategoricalMemory, MixtureMemory, TreeMemory, KanervaMemory):
        with pytest.raises(ValueError, match=f"{name}: expected a positive, finite variance"):
            kind(C, 2, **{name: value})


def test_other_variances_and_sizes():
    with pytest.raises(ValueError, match="location_var"):
        MixtureMemory(C, 2, location_var=0.0)
    with pytest.raises(ValueError, match="location_var"):
        GaussianMemory(C, 2, shift=True, location_var=-1.0)
    with pytest.raises(ValueError, match="address_var"):
        KanervaMemory(C, 2, address_var=0.0)
    with pytest.raises(ValueError, match="noise_var: expected a number or a scalar tensor"):
        GaussianMemory(C, 2, torch.ones(3))
    with pytest.raises(ValueError, match=r"slot_mean: expected a number or a tensor \(2, 6\)"):
        GaussianMemory(C, 2, slot_mean=torch.zeros(6, 2))
    for bad in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="num_slots: expected a whole number"):
            GaussianMemory(C, bad)
    with pytest.raises(ValueError, match="code_dim"):
        GaussianMemory(0, 2)
    with pytest.raises(ValueError, match="num_clusters"):
        MixtureMemory(C, 2, num_clusters=0)


def test_trees():
    with pytest.raises(ValueError, match="divisor of code_dim 6, got 4"):
        TreeMemory(C, 2, num_segments=4)
    with pytest.raises(ValueError, match=r"num_clusters\^num_segments <= 1000000, got 20\^6"):
        TreeMemory(C, 2, num_segments=6, num_clusters=20)
    with pytest.raises(ValueError, match="slot_mean: expected a number"):
        TreeMemory(C, 2, slot_mean=torch.zeros(2, C))


def test_more_clusters_than_items():
    for memory in (MixtureMemory(C, 2, num_clusters=10), TreeMemory(C, 2, num_clusters=10)):
        with pytest.raises(ValueError, match="got 9 items and 10 clusters; pass num_clusters=9 or less"):
            memory.write(episode(9))
        mask = torch.arange(20) < 4
        with pytest.raises(ValueError, match="got 4 items and 10 clusters"):
            memory.write(episode(20), mask=mask)
        assert memory.write(episode(9), num_clusters=4).state.R.shape[-3] == 4
        assert memory.write(episode(9), init="random").state.R.shape[-3] == 10


def test_clusters_must_agree():
    for memory in (MixtureMemory(C, 2, num_clusters=3), TreeMemory(C, 2, num_clusters=3)):
        state = memory.write(episode(9), num_clusters=4).state
        with pytest.raises(ValueError, match=r"to agree, got \[3, 4\]"):
            memory.write(episode(9), prior=state, num_clusters=3)
        assert memory.write(episode(9), prior=state).state.R.shape[-3] == 4
        assert memory.write(episode(9), init=state).state.R.shape[-3] == 4


def test_clusters_of_a_memory_without_them():
    with pytest.raises(ValueError, match="GaussianMemory has no clusters"):
        GaussianMemory(C, 2).write(episode(9), num_clusters=3)


@cases()
def test_a_state_of_another_memory(case):
    codes = episode(9)
    other = CategoricalMemory(C, 3) if not isinstance(case.memory, CategoricalMemory) else GaussianMemory(C, 3)
    foreign = other.write(codes).state
    expected = f"expected a {case.memory.state_class.__name__}, got a {type(foreign).__name__}"
    for call in (
        lambda: case.memory.write(codes, prior=foreign),
        lambda: case.memory.write(codes, init=foreign),
        lambda: case.memory.recall(foreign, codes),
        lambda: case.memory.address(foreign, codes),
        lambda: case.memory.sample(foreign),
        lambda: case.memory.log_likelihood(foreign, codes),
        lambda: case.memory.log_density(foreign, codes),
    ):
        with pytest.raises(ValueError, match=expected):
            call()


@cases()
def test_a_state_of_another_size_or_type(case):
    codes = episode(9)
    state = case.memory.write(codes, num_steps=1).state
    bigger = case.memory.replace(num_slots=5, slot_mean=0.0)
    with pytest.raises(ValueError, match="written by a memory of another size"):
        bigger.recall(state, codes)
    with pytest.raises(ValueError, match=r"expected codes of the state's dtype torch.float64, got torch.float32"):
        case.memory.recall(state, codes.float())


def test_shift_belongs_to_the_state():
    codes = episode(9)
    plain, shifted = GaussianMemory(C, 2), GaussianMemory(C, 2, shift=True)
    with pytest.raises(ValueError, match="expected mu_b"):
        shifted.recall(plain.write(codes).state, codes)
    with pytest.raises(ValueError, match="expected a state without shift"):
        plain.recall(shifted.write(codes).state, codes)


def test_stochastic_codes():
    mean = episode(9)
    with pytest.raises(ValueError, match="positive code std"):
        GaussianMemory(C, 2).write(Codes(mean, torch.zeros_like(mean)))
    with pytest.raises(ValueError, match="code std: expected finite"):
        GaussianMemory(C, 2).write(Codes(mean, torch.full_like(mean, torch.nan)))


def test_online_kanerva_refuses_a_second_pass():
    with pytest.raises(ValueError, match="would count every item twice"):
        KanervaMemory(C, 2).write(episode(9), num_steps=2)
    with pytest.raises(ValueError, match="leave chunk_size out"):
        KanervaMemory(C, 2).write(episode(9), chunk_size=3)


def test_a_memory_without_a_posterior_has_no_joint_bound():
    zero = torch.zeros(3)
    with pytest.raises(ValueError, match=r"bounds only log p\(episode \| memory\); use .conditional"):
        Terms(zero, zero, zero).joint


def test_update_of_a_shifted_memory_needs_the_slots():
    memory = GaussianMemory(C, 2, shift=True)
    codes = episode(9)
    address = memory.address(memory.write(codes).state, codes)
    with pytest.raises(ValueError, match="expected an address with R"):
        memory.update(address.replace(R=None), codes)


def test_terms_of_other_codes():
    memory = GaussianMemory(C, 2)
    written = memory.write(episode(9), weights=torch.ones(9))
    with pytest.raises(ValueError, match="one per item"):
        memory.terms(episode(8), written)
    with pytest.raises(ValueError, match="expected codes"):
        memory.terms(torch.zeros(9, 3), Written(written.state))


@cases()
def test_states_that_do_not_fit_the_codes(case):
    codes = episode(4, 9)
    state = case.memory.write(codes, num_steps=1).state
    for name in ("prior", "init"):
        with pytest.raises(ValueError, match=f"write: {name}: expected codes of the state's dtype"):
            case.memory.write(codes.float(), **{name: state})
        with pytest.raises(ValueError, match=r"episodes of batch \(3,\), got one of batch \(4,\)"):
            case.memory.write(codes[:3], **{name: state})
        with pytest.raises(ValueError, match=r"episodes of batch \(\), got one of batch \(4,\)"):
            case.memory.write(codes[0], **{name: state})
    with pytest.raises(ValueError, match="got a str"):
        case.memory.write(codes, prior="prior")
    for read in (case.memory.recall, case.memory.log_likelihood, case.memory.log_density, case.memory.address):
        with pytest.raises(ValueError, match=r"batch shapes that broadcast, got \(4,\) and \(3,\)"):
            read(state, codes[:3])


@cases()
def test_addresses_and_writes_of_something_else(case):
    codes = episode(9)
    written = case.memory.write(codes, num_steps=1)
    other = CategoricalMemory(C, 3) if not isinstance(case.memory, CategoricalMemory) else GaussianMemory(C, 3)
    foreign = other.write(codes)
    with pytest.raises(ValueError, match="expected what write returned"):
        case.memory.terms(codes, written.state)
    with pytest.raises(ValueError, match="use the memory that wrote this state"):
        case.memory.terms(codes, foreign)
    with pytest.raises(ValueError, match="use the memory that made this address"):
        case.memory.update(foreign.address, codes)
    with pytest.raises(ValueError, match="addresses of 8 items, got 9"):
        case.memory.update(written.address, codes[:8])
    with pytest.raises(ValueError, match="use the memory that wrote this state"):
        case.memory.update(written.address, codes, prior=foreign.state)


@cases()
def test_cues(case):
    codes = episode(9)
    state = case.memory.write(codes, num_steps=1).state
    with pytest.raises(ValueError, match="observed: expected a shape that broadcasts"):
        case.memory.recall(state, codes, observed=torch.ones(5))
    with pytest.raises(ValueError, match="observed: expected a Tensor"):
        case.memory.recall(state, codes, observed=[True] * C)
    with pytest.raises(ValueError, match=r"use torch.as_tensor"):
        case.memory.recall(state, codes.numpy(), observed=torch.ones(C))
    ones = case.memory.recall(state, codes, observed=torch.ones(C, dtype=torch.long))
    torch.testing.assert_close(ones, case.memory.recall(state, codes))
    with pytest.raises(ValueError, match="log_density: expected observed vectors"):
        case.memory.log_density(state, Codes(codes, torch.ones_like(codes)))


def test_more_kinds_of_nonsense():
    with pytest.raises(ValueError, match="expected at least one episode"):
        GaussianMemory(C, 2).write(torch.zeros(0, 5, C))
    with pytest.raises(ValueError, match="location_mean: expected a number or a tensor"):
        MixtureMemory(C, 2, location_mean=torch.zeros(C + 1))
    with pytest.raises(ValueError, match="location_mean: expected a number"):
        TreeMemory(C, 2, location_mean=torch.zeros(C))
    with pytest.raises(ValueError, match="slot_mean: expected finite"):
        GaussianMemory(C, 2, slot_mean=float("nan"))
    with pytest.raises(ValueError, match="noise_var: expected a positive number"):
        GaussianMemory(C, 2, noise_var="a")
    with pytest.raises(ValueError, match="code std: expected a shape"):
        GaussianMemory(C, 2).write(Codes(episode(9), torch.ones(9, 2)))
    with pytest.raises(ValueError, match="expected mask as a Tensor, got list"):
        GaussianMemory(C, 2).write(episode(9), mask=[True] * 9)
