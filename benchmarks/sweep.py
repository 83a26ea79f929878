"""Time per sweep: MixtureMemory against scikit-learn's full-covariance Bayesian mixture, ten components each.

1,400 digits on 32 principal components, float64 on both sides: (time of 40 sweeps - time of 10) / 30.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from benchmarks.common import alternate, store
from mnemon import MixtureMemory

NUM_SLOTS, NUM_CLUSTERS, NUM_POINTS, DIMENSIONS = 6, 10, 1400, 32
ROUNDS = 15


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    data = load_digits().data[:NUM_POINTS] / 16
    codes = PCA(DIMENSIONS, svd_solver="full").fit_transform(data)
    tensor = torch.from_numpy(codes)
    memory = MixtureMemory(DIMENSIONS, NUM_SLOTS, 0.03, 0.05, num_clusters=NUM_CLUSTERS, location_var=0.1)
    init = memory.write(tensor, num_steps=1, generator=torch.Generator().manual_seed(0)).state

    def ours(sweeps: int) -> Callable[[], Any]:
        return lambda: memory.write(tensor, init=init, num_steps=sweeps)

    def theirs(sweeps: int) -> Callable[[], Any]:
        settings = {"covariance_type": "full", "init_params": "random_from_data", "tol": 0, "random_state": 0}
        model = BayesianGaussianMixture(n_components=NUM_CLUSTERS, max_iter=sweeps, **settings)
        return lambda: model.fit(codes)

    per_sweep = {}
    for name, make in (("mnemon", ours), ("sklearn", theirs)):
        seconds = {n: median(alternate({"call": make(n)}, ROUNDS)["call"]) for n in (10, 40)}
        per_sweep[name] = 1e3 * (seconds[40] - seconds[10]) / 30
    ratio = per_sweep["sklearn"] / per_sweep["mnemon"]
    print(f"per sweep: mnemon {per_sweep['mnemon']:.2f} ms, sklearn {per_sweep['sklearn']:.2f} ms, ratio {ratio:.1f}")
    shape = {"points": NUM_POINTS, "dimensions": DIMENSIONS, "clusters": NUM_CLUSTERS, "slots": NUM_SLOTS}
    store("sweep", shape=shape | {"dtype": "float64"}, ms_per_sweep=per_sweep, ratio=ratio, rounds=ROUNDS, seed=0)
