"""How many threads work on one thing."""

import contextlib

import torch

from mnemon.core.threads import one_thread


def test_there_are_as_many_threads_afterwards():
    """Also where it breaks."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with contextlib.suppress(ValueError), one_thread():
            assert torch.get_num_threads() == 1
            raise ValueError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
