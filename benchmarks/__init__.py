"""Speed and growth, measured as ratios within one run: `python -m benchmarks`. Not part of the tests."""
