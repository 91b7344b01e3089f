"""The largest sample margins: best features for given prototypes, and the best of both, by small exact programs.

Paper: Zhou et al. 2022, "Learning towards the largest margins", Theorem 2.2, Proposition 2.3, Theorem 3.4. One feature
a class is enough here: samples of one class have the same best feature.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import brentq, minimize, nnls
from torch import Tensor

from nbs_lib.geometry import unit
from nbs_lib.metrics import sample_margins
from nbs_lib.theory.threads import one_thread
from nbs_lib.validation import check_prototypes


class MarginSolution(NamedTuple):
    """Unit prototypes (K, d) and one unit feature a class (K, d), float64."""

    prototypes: Tensor
    features: Tensor

    @property
    def margins(self) -> Tensor:
        """Sample margin (K,) of each class's feature (Zhou et al. 2022, eq. 2.5)."""
        return sample_margins(self.features @ self.prototypes.T, torch.arange(len(self.prototypes)))


def best_features(prototypes: Tensor) -> MarginSolution:
    """For fixed prototypes, the features of largest sample margin, class by class.

    ``max_{|z|=1} min_{j != y} (w_y - w_j) . z`` is the distance from w_y to the convex hull of the other prototypes,
    and z points along w_y minus its projection on that hull (minimax; this repairs the feature formula of Zhou et al.
    2022, Theorem 2.2). The projection is a non-negative least-squares problem. Where w_y coincides with another
    prototype no feature has a positive margin; z = w_y is returned.

    Args:
        prototypes: (K, d), any length of row.
    """
    check_prototypes(prototypes)
    w = unit(prototypes.detach().double().cpu())
    points = w.numpy()
    features = points.copy()
    heavy = 1e4  # the row that asks the weights to sum to one
    for y, point in enumerate(points):
        others = np.delete(points, y, axis=0)
        weights, _ = nnls(np.vstack([others.T, np.full(len(others), heavy)]), np.append(point, heavy))
        normal = point - weights @ others / weights.sum()
        if np.linalg.norm(normal) > 1e-7:
            features[y] = normal / np.linalg.norm(normal)
    return MarginSolution(w, torch.from_numpy(features))


def printed_features(prototypes: Tensor, tolerance: float = 1e-4) -> MarginSolution:
    """Features as Theorem 2.2 prints them: w_y minus the plain mean of its nearest other prototypes, scaled to one.

    Args:
        prototypes: (K, d), any length of row.
        tolerance: prototypes whose cosine to w_y is this close to the largest count as nearest.
    """
    check_prototypes(prototypes)
    w = unit(prototypes.detach().double().cpu())
    cosines = (w @ w.T).fill_diagonal_(-math.inf)
    nearest = (cosines >= cosines.amax(1, keepdim=True) - tolerance).double()
    return MarginSolution(w, unit(w - nearest @ w / nearest.sum(1, keepdim=True)))


@one_thread
def largest_sample_margins(
    K: int,
    d: int,
    *,
    weights: Tensor | None = None,
    starts: int = 4,
    seed: int = 0,
) -> MarginSolution:
    """Prototypes and features together, on the sphere, with the largest smallest (or mean) sample margin.

    Solves ``max t`` subject to ``(w_y - w_j) . z_y >= t_y`` and unit rows by sequential quadratic programming from
    random starts: t is one number (gamma_min, Theorem 2.2) or, with ``weights``, the sum of weights_y t_y (minus the
    mean of R_sm where class y holds that share of the samples, Theorem 3.4). Exact to about 1e-7; no scale, no step
    size.

    Args:
        K: number of classes.
        d: dimension.
        weights: (K,) shares of the classes, summing to one; None maximises the smallest margin.
        starts: random starts; the best result is returned.
        seed: of the starts.

    Raises:
        ValueError: K < 2, d < 2, or weights of another length.
    """
    if K < 2 or d < 2:
        raise ValueError(f"largest_sample_margins: needs K >= 2 and d >= 2, got K={K}, d={d}")
    if weights is not None and tuple(weights.shape) != (K,):
        raise ValueError(f"largest_sample_margins: weights must be ({K},), got {tuple(weights.shape)}")
    generator = np.random.default_rng(seed)
    share = None if weights is None else weights.double().numpy()
    found = [_ascend(generator, K, d, share) for _ in range(starts)]
    return max(found, key=lambda it: float(it.margins.min() if weights is None else weights.double() @ it.margins))


def _ascend(generator: np.random.Generator, K: int, d: int, share: np.ndarray | None) -> MarginSolution:
    own, other = np.nonzero(~np.eye(K, dtype=bool))
    pair, row = np.arange(len(own)), np.arange(2 * K)
    goal = np.ones(1) if share is None else share
    slot = np.zeros(len(own), dtype=int) if share is None else own  # which t bounds which pair
    split = 2 * K * d

    def rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        both = x[:split].reshape(2 * K, d)
        return both[:K], both[K:]

    def slack(x: np.ndarray) -> np.ndarray:
        w, z = rows(x)
        return ((w[own] - w[other]) * z[own]).sum(1) - x[split:][slot]

    def slack_slope(x: np.ndarray) -> np.ndarray:
        w, z = rows(x)
        slope = np.zeros((len(own), 2 * K, d))
        slope[pair, own] = z[own]
        slope[pair, other] = -z[own]
        slope[pair, K + own] = w[own] - w[other]
        bound = np.zeros((len(own), len(goal)))
        bound[pair, slot] = -1.0
        return np.hstack((slope.reshape(len(own), -1), bound))

    def norms(x: np.ndarray) -> np.ndarray:
        return (x[:split].reshape(2 * K, d) ** 2).sum(1) - 1

    def norms_slope(x: np.ndarray) -> np.ndarray:
        slope = np.zeros((2 * K, 2 * K, d))
        slope[row, row] = 2 * x[:split].reshape(2 * K, d)
        return np.hstack((slope.reshape(2 * K, -1), np.zeros((2 * K, len(goal)))))

    w = generator.normal(size=(K, d))
    z = w + 0.1 * generator.normal(size=(K, d))
    start = np.vstack((w, z))
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    down = np.append(np.zeros(split), -goal)
    result = minimize(
        lambda x: float(down @ x),
        np.append(start.ravel(), np.full(len(goal), -2.0)),
        jac=lambda _: down,
        method="SLSQP",
        constraints=(
            {"type": "ineq", "fun": slack, "jac": slack_slope},
            {"type": "eq", "fun": norms, "jac": norms_slope},
        ),
        options={"ftol": 1e-13, "maxiter": 300},
    )
    return MarginSolution(*(unit(torch.from_numpy(part.copy())) for part in rows(result.x)))


def three_class_optimum(share: float) -> tuple[float, float]:
    """Optimum of the mean sample margin for three classes, the first with ``share`` (1/3 to 1) of the samples.

    By symmetry w_1 faces w_2 and w_3, which stand at the angle phi on either side of -w_1. The heights of that triangle
    are the three margins, so the mean is ``share (1 + cos phi) + (1 - share) 2 sin phi cos(phi/2)``.

    Returns:
        The class margin 2 phi in degrees, and the mean sample margin. Only share = 1/3 gives the simplex, 120 degrees.

    Raises:
        ValueError: share outside [1/3, 1).
    """
    if not 1 / 3 - 1e-12 <= share < 1:
        raise ValueError(f"three_class_optimum: share must lie in [1/3, 1), got {share}")

    def slope(phi: float) -> float:
        fold = 2 * math.cos(phi) * math.cos(phi / 2) - math.sin(phi) * math.sin(phi / 2)
        return -share * math.sin(phi) + (1 - share) * fold

    phi = brentq(slope, 1e-9, math.pi / 2, xtol=1e-14)
    value = share * (1 + math.cos(phi)) + (1 - share) * 2 * math.sin(phi) * math.cos(phi / 2)
    return math.degrees(2 * phi), value
