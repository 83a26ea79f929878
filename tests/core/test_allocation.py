"""Freed memory that is kept costs no faults when it is used again. In a process of its own: it cannot be undone."""

import platform
import subprocess
import sys

import pytest

from mnemon.core.allocation import keep_freed_memory

FAULTS = """
import resource, sys
import torch
from mnemon.core.allocation import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(4):
    torch.ones(16 * 2**20)  # 64 MiB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(16 * 2**20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    told = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(told.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_a_block_that_was_freed_is_used_again_without_faults():
    assert faults("hand back") > 20  # of pages of 4 KiB 16,384; of huge ones 32
    assert faults("keep") <= 2


@pytest.mark.skipif(platform.libc_ver()[0] == "glibc", reason="glibc can")
def test_other_c_libraries_are_left_alone():
    assert not keep_freed_memory()
