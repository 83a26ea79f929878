"""The same inference written another way: NumPy, one item and one cluster at a time, q(M) a full Gaussian of
K*C dimensions, expectations spelled out. Slow on purpose."""

from __future__ import annotations

import itertools

import numpy as np
from scipy import stats


def gaussian_kl(m1, S1, m0, S0):
    """KL between full Gaussians, by the textbook formula."""
    gap = m1 - m0
    inverse = np.linalg.inv(S0)
    trace = np.trace(inverse @ S1) + gap @ inverse @ gap
    return 0.5 * (trace - len(m1) + np.linalg.slogdet(S0)[1] - np.linalg.slogdet(S1)[1])


class Cluster:
    """q(vec M) = N(m, S) over K*C entries (row-major), q(b) = N(mu_b, S_b) over C; b may be absent."""

    def __init__(self, R, U, mu_b=None, v_b=None):
        self.K, self.C = R.shape
        self.m, self.S = R.reshape(-1).copy(), np.kron(U, np.eye(self.C))
        self.has_shift = mu_b is not None
        self.mu_b = mu_b.copy() if self.has_shift else np.zeros(self.C)
        self.S_b = v_b * np.eye(self.C) if self.has_shift else np.zeros((self.C, self.C))

    @property
    def R(self):
        return self.m.reshape(self.K, self.C)

    def mean_outer(self):
        """E[M M'], entry by entry from the full covariance."""
        S = self.S.reshape(self.K, self.C, self.K, self.C)
        A = np.zeros((self.K, self.K))
        for k, j, c in itertools.product(range(self.K), range(self.K), range(self.C)):
            A[k, j] += self.R[k, c] * self.R[j, c] + S[k, c, j, c]
        return A

    def address(self, z, s2):
        Sigma = np.linalg.inv(np.eye(self.K) + self.mean_outer() / s2)
        return Sigma @ self.R @ (z - self.mu_b) / s2, Sigma

    def expected_square(self, z, mu_w, Sigma):
        """E||z - M'w - b||^2 = sum over c of E[(z_c - sum_k M_kc w_k - b_c)^2]."""
        S = self.S.reshape(self.K, self.C, self.K, self.C)
        ww = np.outer(mu_w, mu_w) + Sigma
        total = 0.0
        for c in range(self.C):
            MM = np.outer(self.R[:, c], self.R[:, c]) + S[:, c, :, c]
            d2 = (z[c] - self.mu_b[c]) ** 2 + self.S_b[c, c]
            total += d2 - 2 * (z[c] - self.mu_b[c]) * self.R[:, c] @ mu_w + np.sum(MM * ww)
        return total

    def update(self, items, prior, s2):
        """items: (count, z, mu_w, Sigma) each; b first, then M, each from the full quadratic form."""
        if self.has_shift:
            precision = np.linalg.inv(prior.S_b)
            linear = precision @ prior.mu_b
            for n, z, mu_w, _ in items:
                precision = precision + n * np.eye(self.C) / s2
                linear = linear + n * (z - self.R.T @ mu_w) / s2
            self.S_b = np.linalg.inv(precision)
            self.mu_b = self.S_b @ linear
        precision = np.linalg.inv(prior.S)
        linear = precision @ prior.m
        for n, z, mu_w, Sigma in items:
            precision = precision + n * np.kron(np.outer(mu_w, mu_w) + Sigma, np.eye(self.C)) / s2
            linear = linear + n * np.outer(mu_w, z - self.mu_b).reshape(-1) / s2
        self.S = np.linalg.inv(precision)
        self.m = self.S @ linear

    def kl(self, prior):
        kl = gaussian_kl(self.m, self.S, prior.m, prior.S)
        return kl + gaussian_kl(self.mu_b, self.S_b, prior.mu_b, prior.S_b) if self.has_shift else kl


def mixture_sweeps(Z, clusters, priors, s2, num_steps, counts=None, variances=None):
    """Run sweeps; returns the joint bound after each. `variances` (T, C): codes are Gaussian, not observed."""
    H, (T, C) = len(clusters), Z.shape
    counts = np.ones(T) if counts is None else counts
    trace = []
    for _ in range(num_steps):
        theta, weights = np.zeros((T, H)), {}
        for t in range(T):
            score = np.zeros(H)
            for h, cluster in enumerate(clusters):
                mu_w, Sigma = weights[t, h] = cluster.address(Z[t], s2)
                kl = gaussian_kl(mu_w, Sigma, np.zeros(cluster.K), np.eye(cluster.K))
                score[h] = -cluster.expected_square(Z[t], mu_w, Sigma) / (2 * s2) - kl
            theta[t] = np.exp(score - score.max()) / np.exp(score - score.max()).sum()
        for h, cluster in enumerate(clusters):
            cluster.update([(counts[t] * theta[t, h], Z[t], *weights[t, h]) for t in range(T)], priors[h], s2)
        joint = -sum(cluster.kl(prior) for cluster, prior in zip(clusters, priors, strict=True))
        for t, h in itertools.product(range(T), range(H)):
            mu_w, Sigma = weights[t, h]
            square = clusters[h].expected_square(Z[t], mu_w, Sigma)
            if variances is None:
                fit = -0.5 * (square / s2 + C * np.log(2 * np.pi * s2))
            else:
                square = square + variances[t].sum()
                fit = -0.5 * (square / s2 - C + C * np.log(s2) - np.log(variances[t]).sum())
            kl = gaussian_kl(mu_w, Sigma, np.zeros(len(mu_w)), np.eye(len(mu_w)))
            entropy = theta[t, h] and np.log(theta[t, h] * H)
            joint += counts[t] * theta[t, h] * (fit - kl - entropy)
        trace.append(joint)
    return trace, theta


def categorical_sweeps(Z, R, U, R0, U0, s2, num_steps, counts=None):
    """Theorem 2 with full K x K matrices."""
    (T, C), K = Z.shape, len(R)
    counts = np.ones(T) if counts is None else counts
    trace = []
    for _ in range(num_steps):
        A = R @ R.T + C * U
        logits = np.array([(R @ z - 0.5 * np.diag(A)) / s2 for z in Z])
        theta = np.exp(logits - logits.max(1, keepdims=True))
        theta /= theta.sum(1, keepdims=True)
        precision0 = np.linalg.inv(U0)
        U = np.linalg.inv(precision0 + sum(n * np.diag(p) for n, p in zip(counts, theta, strict=True)) / s2)
        R = U @ (precision0 @ R0 + sum(n * np.outer(p, z) for n, p, z in zip(counts, theta, Z, strict=True)) / s2)
        joint = -sum(gaussian_kl(R[:, c], U, R0[:, c], U0) for c in range(C))
        for t, k in itertools.product(range(T), range(K)):
            square = np.sum((Z[t] - R[k]) ** 2) + C * U[k, k]
            fit = -0.5 * (square / s2 + C * np.log(2 * np.pi * s2))
            joint += counts[t] * theta[t, k] * (fit - (theta[t, k] and np.log(K * theta[t, k])))
        trace.append(joint)
    return R, U, trace


def categorical_evidence(Z, R0, slot_var, s2):
    """log p(Z) exactly: sum over all K^T assignments of Gaussian marginals."""
    (T, C), K = Z.shape, len(R0)
    logs = []
    for assignment in itertools.product(range(K), repeat=T):
        same = np.equal.outer(assignment, assignment).astype(float)
        covariance = s2 * np.eye(T) + slot_var * same
        total = -T * np.log(K)
        for c in range(C):
            mean = np.array([R0[k, c] for k in assignment])
            total += stats.multivariate_normal(mean, covariance).logpdf(Z[:, c])
        logs.append(total)
    return np.logaddexp.reduce(logs)
