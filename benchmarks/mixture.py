"""MixtureMemory against scikit-learn's mixtures and factor analysis: held-out density.

Data: scikit-learn's digits / 16, projected on the first 32 principal components of the training points. Every
method's hyperparameters are chosen by cross-validation on the training points. Density is plug-in at the
posterior mean (w and s integrated out), in nats per test point.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from sklearn.model_selection import KFold

from benchmarks.common import store
from mnemon import MixtureMemory
from mnemon.memories.variances import choose_variances

COMPONENTS = 32
SIZES = (50, 100, 200, 400, 800, 1400)
SPLITS = 3  # random train/test splits per size
FOLDS = 3
Fit = Callable[[np.ndarray, np.ndarray], np.ndarray]  # train, test -> log density of test


def fit_memory(num_clusters: int, num_slots: int, train: np.ndarray) -> Fit:
    """Variances are chosen by the bound on all training points, sizes by cross-validation like all others'."""
    codes = torch.from_numpy(train)
    scale = float(codes.var())
    memory = MixtureMemory(COMPONENTS, num_slots, 0.2 * scale, scale, num_clusters=num_clusters, location_var=scale)
    memory = choose_variances(memory, codes, num_steps=10)

    def fit(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        generator = torch.Generator().manual_seed(0)
        state = memory.write(torch.from_numpy(train), num_steps=100, tol=1e-3, generator=generator).state
        return memory.log_density(state, torch.from_numpy(test)).numpy()

    return fit


def fit_bayesian(covariance_type: str, n_components: int, reg_covar: float) -> Fit:
    def fit(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        sizes = {"n_components": n_components, "covariance_type": covariance_type, "reg_covar": reg_covar}
        return BayesianGaussianMixture(**sizes, max_iter=300, random_state=0).fit(train).score_samples(test)

    return fit


def fit_factors(n_components: int) -> Fit:
    return lambda train, test: FactorAnalysis(n_components, random_state=0).fit(train).score_samples(test)


def methods(train: np.ndarray) -> Iterator[tuple[str, dict[str, Any], Fit]]:
    """Every method with every setting that the training points allow."""
    clusters = [h for h in (1, 2, 5, 10, 20, 40) if 5 * h <= len(train)]
    for h, k in itertools.product(clusters, (2, 4, 8, 12)):
        yield "mnemon mixture", {"num_clusters": h, "num_slots": k}, fit_memory(h, k, train)
    for kind, n, reg in itertools.product(("full", "tied", "diag", "spherical"), clusters, (1e-6, 1e-3, 1e-2, 3e-2)):
        setting = {"n_components": n, "reg_covar": reg}
        yield f"sklearn Bayesian mixture, {kind}", setting, fit_bayesian(kind, n, reg)
    for n in (1, 2, 4, 8, 12, 16, 24):
        yield "sklearn factor analysis", {"n_components": n}, fit_factors(n)


def cross_validate(fit: Fit, train: np.ndarray) -> float:
    folds = KFold(FOLDS, shuffle=True, random_state=0).split(train)
    return mean(float(fit(train[a], train[b]).mean()) for a, b in folds)


def densities(num_train: int, split: int) -> list[dict[str, Any]]:
    """Held-out density of every method at its best setting by cross-validation."""
    data = load_digits().data / 16
    order = np.random.RandomState(split).permutation(len(data))
    train, test = data[order[:num_train]], data[order[1400:]]  # the same test points for every size
    pca = PCA(COMPONENTS, svd_solver="full").fit(train)
    train, test = pca.transform(train), pca.transform(test)
    best: dict[str, tuple[float, dict[str, Any], Fit]] = {}
    for name, setting, fit in methods(train):
        score = cross_validate(fit, train)
        if name not in best or score > best[name][0]:
            best[name] = score, setting, fit
    rows = []
    for name, (score, setting, fit) in best.items():
        held_out = fit(train, test)
        error = float(held_out.std() / len(held_out) ** 0.5)
        row = {"method": name, "setting": setting, "density": float(held_out.mean()), "standard_error": error}
        rows.append(row | {"cross_validated": score, "num_train": num_train, "split": split})
    return rows


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", RuntimeWarning)
    torch.set_num_threads(1)  # small problems: more threads only wait for each other
    rows: list[dict[str, Any]] = []
    for num_train in SIZES:
        began = time.perf_counter()
        for split in range(SPLITS):
            rows += densities(num_train, split)
        print(f"held-out density, {num_train} training points ({time.perf_counter() - began:.0f} s):")
        names = dict.fromkeys(row["method"] for row in rows)
        for name in names:
            found = [row for row in rows if row["method"] == name and row["num_train"] == num_train]
            values, settings = [row["density"] for row in found], [row["setting"] for row in found]
            print(f"  {name:38s} {mean(values):7.2f} +- {stdev(values):.2f} nats  {settings[0]}")
    store("mixture", rows=rows, dimensions=COMPONENTS, splits=SPLITS, folds=FOLDS, seed=0)
