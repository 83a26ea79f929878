"""Measuring memories: benchmarks, novelty, and the records that results files hold."""
