import os
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.utils import _pytree as pytree

from mnemon import Codes, State
from mnemon.core.state import Record, atomic_path, rank
from mnemon.memories import CategoricalState, GaussianState, MixtureState


def mixture(*batch):
    return MixtureState(
        torch.randn(*batch, 3, 2, 4),
        torch.eye(2).expand(*batch, 3, 2, 2),
        torch.randn(*batch, 3, 4),
        torch.ones(*batch, 3),
    )


def test_batch_shape_comes_from_the_event_ranks():
    assert mixture().batch_shape == ()
    assert mixture(2, 5).batch_shape == (2, 5)


def test_indexing_leaves_event_dimensions_whole():
    state = mixture(2, 5)
    assert state[1].batch_shape == (5,)
    assert state[1, 2:4].R.shape == (2, 3, 2, 4)
    assert state[..., 0].v_b.shape == (2, 3)
    assert state[None].batch_shape == (1, 2, 5)
    assert torch.equal(state[np.array([1, 0])].R, state.R[[1, 0]])
    assert torch.equal(state[torch.tensor([True, False])].R, state.R[:1])
    with pytest.raises(ValueError, match="at most 2 batch indices"):
        state[0, 0, 0]


def test_indexing_by_a_mask_over_two_batch_dimensions():
    state = mixture(2, 2)
    mask = torch.tensor([[True, False], [True, True]])
    assert torch.equal(state[mask].R, state.R[mask])
    assert state[mask].batch_shape == (3,)


def test_stack_is_the_inverse_of_indexing():
    states = [mixture(2) for _ in range(3)]
    assert MixtureState.stack(states).batch_shape == (3, 2)
    assert MixtureState.stack(states, dim=-1).batch_shape == (2, 3)
    stacked = MixtureState.stack(states, dim=1)
    for i, state in enumerate(states):
        assert torch.equal(stacked[:, i].mu_b, state.mu_b)
    with pytest.raises(ValueError, match="one class and shape"):
        State.stack([mixture(2), mixture(3)])
    with pytest.raises(ValueError, match="at least one"):
        State.stack([])


def test_absent_fields_stay_absent():
    state = GaussianState(torch.randn(2, 3, 4), torch.eye(3).expand(2, 3, 3))
    assert state[0].mu_b is None
    assert GaussianState.stack([state, state]).v_b is None


def test_to_detach_and_nbytes():
    state = mixture(2).map(lambda t: t.clone().requires_grad_())
    assert not state.detach().R.requires_grad
    assert state.to(torch.float64).v_b.dtype == torch.float64
    assert state.nbytes == 4 * 2 * (3 * 2 * 4 + 3 * 2 * 2 + 3 * 4 + 3)


def test_pytree_round_trip_keeps_class_and_absent_fields():
    state = GaussianState(torch.randn(3, 4), torch.eye(3))
    leaves, spec = pytree.tree_flatten(state)
    assert len(leaves) == 2
    assert type(pytree.tree_unflatten(leaves, spec)) is GaussianState


def test_records_nest():
    @dataclass(frozen=True, eq=False)
    class Pair(Record):
        left: State
        number: int = field(default=3, metadata={"static": True})

    pair = Pair(mixture())
    assert pair.to(torch.float64).left.R.dtype == torch.float64
    assert pair.nbytes == pair.left.nbytes
    assert pytree.tree_map(lambda t: t * 0, pair).number == 3


def test_save_makes_expanded_tensors_whole_and_keeps_metadata(tmp_path):
    from safetensors import safe_open

    state = mixture().expand((2,))
    state.save(tmp_path / "m.safetensors", metadata={"weights": "abc"})
    loaded = MixtureState.load(tmp_path / "m.safetensors")
    assert torch.equal(loaded.R, state.R)
    with safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        assert file.metadata() == {
            "weights": "abc", "format": "mnemon-state", "format_version": "1", "class": "MixtureState"
        }  # fmt: skip


def test_truncated_file(tmp_path):
    path = tmp_path / "m.safetensors"
    mixture().save(path)
    whole = path.read_bytes()
    for size in (0, 4, 60, len(whole) - 8):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a whole safetensors file"):
            State.load(path)


def test_foreign_files(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"R": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="no memory of this library"):
        State.load(path)
    path.write_text("not a tensor in sight, but long enough to be read")
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        State.load(path)
    with pytest.raises(ValueError, match="no file"):
        State.load(tmp_path / "absent.safetensors")
    header = {"format": "mnemon-state", "format_version": "99", "class": "MixtureState"}
    save_file({"R": torch.zeros(2)}, path, metadata=header)
    with pytest.raises(ValueError, match="format version 99"):
        State.load(path)
    save_file({"R": torch.zeros(2), "Q": torch.zeros(2)}, path, metadata=header | {"format_version": "1"})
    with pytest.raises(ValueError, match=r"missing \['U_chol', 'mu_b', 'v_b'\], unknown \['Q'\]"):
        State.load(path)


def test_state_of_another_class(tmp_path):
    mixture().save(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"expected a CategoricalState .* got MixtureState"):
        CategoricalState.load(tmp_path / "m.safetensors")


def test_a_failed_save_leaves_the_good_file(tmp_path):
    path = tmp_path / "m.safetensors"
    good = mixture()
    good.save(path)
    bad = good.replace(R=torch.zeros(2, 2).to_sparse())
    with pytest.raises(Exception):  # noqa: B017, PT011  (whatever safetensors says of it)
        bad.save(path)
    assert torch.equal(State.load(path).R, good.R)
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_an_interrupted_save_leaves_the_good_file(tmp_path):
    path = tmp_path / "m.safetensors"
    mixture().save(path)
    before = path.read_bytes()

    def write_half():
        with atomic_path(path) as temporary:
            with open(temporary, "wb") as file:
                file.write(b"half a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_save_into_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="existing folder"):
        mixture().save(tmp_path / "nowhere" / "m.safetensors")


def test_save_onto_a_folder(tmp_path):
    with pytest.raises(ValueError, match=r"expected a file, got .*, which is a folder; name a file in it"):
        mixture().save(tmp_path)
    assert os.listdir(tmp_path) == []


def test_readers_never_see_a_half_written_file(tmp_path):
    path = tmp_path / "m.safetensors"
    state = MixtureState(torch.zeros(30, 20, 40), torch.eye(20).expand(30, 20, 20), torch.zeros(30, 40), torch.ones(30))
    state.save(path)
    stop, errors = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                State.load(path)
            except ValueError as error:
                errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(30):
        state.save(path)
    stop.set()
    reader.join()
    assert not errors


def test_rank_is_the_only_metadata_a_field_needs():
    assert rank(2) == {"event_rank": 2}


def test_fields_that_share_memory_are_saved(tmp_path):
    same = torch.ones(3, 4)
    Codes(same, same).save(tmp_path / "codes.safetensors")
    assert torch.equal(Codes.load(tmp_path / "codes.safetensors").std, same)


def test_the_diagonal_of_a_categorical_state_is_told_by_its_dimensions():
    R, U = torch.zeros(3, 3, 8), torch.arange(1.0, 10.0).reshape(3, 3)
    assert torch.equal(CategoricalState.from_moments(R=R, U=U).U_diag, U)
    assert torch.equal(CategoricalState.from_moments(R=R, U=torch.diag_embed(U)).U_diag, U)
