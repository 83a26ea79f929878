"""`python -m benchmarks [write] [mixture] [growth]`: all of them without a name."""

import sys

from benchmarks import growth, mixture, write

ALL = {"write": write.main, "mixture": mixture.main, "growth": growth.main}

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f"no benchmark {name!r}; there are {', '.join(ALL)}")
    ALL[name]()
