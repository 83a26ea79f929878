"""`python -m benchmarks NAME ...` with names of the benchmarks below; without a name, all."""

import sys

from benchmarks import addressing, gradient, growth, kanerva_pp, mixture, sweep, training, write

ALL = {
    "write": write.main,
    "sweep": sweep.main,
    "growth": growth.main,
    "mixture": mixture.main,
    "training": training.main,
    "gradient": gradient.main,
    "addressing": addressing.main,
    "kanerva_pp": kanerva_pp.main,
}

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f"no benchmark {name!r}; there are {', '.join(ALL)}")
    ALL[name]()
