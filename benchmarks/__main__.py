"""`python -m benchmarks [NAME ...]`, names as below; without one, all that a CPU can run."""

import sys

from benchmarks import (
    addressing,
    allocation,
    energy,
    gradient,
    growth,
    kanerva_pp,
    mixture,
    steps,
    sweep,
    training,
    write,
)

ALL = {
    "write": write.main,
    "sweep": sweep.main,
    "growth": growth.main,
    "mixture": mixture.main,
    "training": training.main,
    "gradient": gradient.main,
    "addressing": addressing.main,
    "kanerva_pp": kanerva_pp.main,
    "energy": energy.main,
    "allocation": allocation.main,
}

GPU_ONLY = {"steps": steps.main}

for name in sys.argv[1:] or ALL:
    if name not in ALL | GPU_ONLY:
        sys.exit(f"no benchmark {name!r}; there are {', '.join(ALL | GPU_ONLY)}")
    (ALL | GPU_ONLY)[name]()
