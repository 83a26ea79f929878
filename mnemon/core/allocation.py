"""What becomes of memory that is freed.

glibc hands a large block that is freed back to the system at once, and gets the next one as empty pages, each of which
costs a fault when it is first touched. A training step on a CPU frees and asks for hundreds of large blocks: much of
its time goes there (`python -m benchmarks allocation`).
"""

from __future__ import annotations

import contextlib
import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Parameters of mallopt: how much may be free before it is handed back, and how many blocks come from the system one by
one."""
LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Keep what is freed for the next block, for the rest of the process; whether the C library can.

    The process then holds about the most that it ever used. For programs of their own, such as commands and workers: a
    library does not decide this for the program that it is part of.
    """
    with contextlib.suppress(OSError, TypeError, AttributeError):  # no glibc
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(MMAP_MAX, 0) and mallopt(TRIM_THRESHOLD, LARGEST))
    return False
