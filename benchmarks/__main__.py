"""`python -m benchmarks [write] [sweep] [growth] [mixture] [training] [gradient]`: all of them without a name."""

import sys

from benchmarks import gradient, growth, mixture, sweep, training, write

ALL = {
    "write": write.main,
    "sweep": sweep.main,
    "growth": growth.main,
    "mixture": mixture.main,
    "training": training.main,
    "gradient": gradient.main,
}

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f"no benchmark {name!r}; there are {', '.join(ALL)}")
    ALL[name]()
