"""`python -m benchmarks [NAME ...]`: those of `ALL`; without a name, all."""

import sys

from benchmarks import addressing, energy, gradient, growth, mixture, sweep, training, write

ALL = {
    "write": write.main,
    "sweep": sweep.main,
    "growth": growth.main,
    "mixture": mixture.main,
    "training": training.main,
    "gradient": gradient.main,
    "addressing": addressing.main,
    "energy": energy.main,
}

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f"no benchmark {name!r}; there are {', '.join(ALL)}")
    ALL[name]()
