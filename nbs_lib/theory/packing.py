"""Points spread out on the sphere: the simplex, the Riesz energy and the best packings known (Tammes's problem).

Paper: Zhou et al. 2022, "Learning towards the largest margins", section 2.1. The largest class margin of K prototypes
in R^d is the largest smallest angle of K points on the unit sphere.
"""

import math

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from nbs_lib.geometry import unit
from nbs_lib.theory.threads import one_thread
from nbs_lib.validation import check_prototypes


def simplex_etf(K: int, d: int) -> Tensor:
    """Regular simplex: K unit rows in R^d with all cosines -1/(K-1) and sum zero (Zhou et al. 2022, Lemma 2.1).

    Returns:
        (K, d) float64; coordinates beyond K-1 are zero.

    Raises:
        ValueError: K < 2 or K > d + 1, where no such rows exist.
    """
    if not 2 <= K <= d + 1:
        raise ValueError(f"simplex_etf: needs 2 <= K <= d + 1, got K={K}, d={d}")
    # Helmert's basis of the hyperplane sum(x) = 0: column r holds r+1 equal entries and one that balances them
    r = torch.arange(1, K, dtype=torch.float64)
    basis = torch.triu(torch.ones(K, K - 1, dtype=torch.float64))
    basis[1:].diagonal().copy_(-r)
    points = torch.zeros(K, d, dtype=torch.float64)
    points[:, : K - 1] = basis / (r * (r + 1)).sqrt() * math.sqrt(K / (K - 1))
    return points


def simplex_angle(K: int) -> float:
    """Angle of the simplex in degrees, arccos(-1/(K-1)): the largest class margin for 2 <= K <= d + 1."""
    if K < 2:
        raise ValueError(f"simplex_angle: K must be at least 2, got {K}")
    return math.degrees(math.acos(-1 / (K - 1)))


def _root(*coefficients: float, near: float) -> float:
    """Real root of a polynomial (highest power first) next to ``near``."""
    roots = np.roots(coefficients)
    return float(roots[np.argmin(np.abs(roots - near))].real)


def _angle(cosine: float) -> float:
    return math.degrees(math.acos(cosine))


def _snub_cube() -> float:
    """Edge of the snub cube seen from its centre: 1/(2R) = sqrt((2-t)/(3-t)), t^3 = t^2 + t + 1."""
    t = _root(1, -1, -1, -1, near=1.84)
    return math.degrees(2 * math.asin(math.sqrt((2 - t) / (3 - t))))


_RECORD = "best known, not proved: Sloane, Hardin, Smith, Tables of spherical codes; reproduced by our own search"
_TAMMES: dict[int, tuple[float, str]] = {
    2: (180.0, "antipodes"),
    3: (120.0, "great circle; Fejes Tóth 1943"),
    4: (_angle(-1 / 3), "tetrahedron, cos -1/3; Fejes Tóth 1943"),
    5: (90.0, "octahedron less a point, not unique; Schütte, van der Waerden 1951"),
    6: (90.0, "octahedron; Fejes Tóth 1943"),
    7: (_angle(_root(3, -9, -3, 1, near=0.21)), "3x^3-9x^2-3x+1=0 in the cosine; Schütte, van der Waerden 1951"),
    8: (_angle((2 * math.sqrt(2) - 1) / 7), "square antiprism, 7x^2+2x-1=0; Schütte, van der Waerden 1951"),
    9: (_angle(1 / 3), "cos 1/3; Schütte, van der Waerden 1951"),
    10: (_angle(_root(7, -4, -2, 1, near=0.404)), "7x^3-4x^2-2x+1=0 in the cosine; Danzer 1963"),
    11: (_angle(1 / math.sqrt(5)), "icosahedron less a point; Danzer 1963"),
    12: (_angle(1 / math.sqrt(5)), "icosahedron; Fejes Tóth 1943"),
    13: (57.1367031, "Musin, Tarasov 2012"),
    14: (55.6705700, "Musin, Tarasov 2015"),
    15: (53.6578501, _RECORD),
    16: (52.2443957, _RECORD),
    17: (51.0903285, _RECORD),
    18: (49.5566548, _RECORD),
    19: (47.6919141, _RECORD),
    20: (47.4310362, _RECORD),
    21: (45.6132231, _RECORD),
    22: (44.7401612, _RECORD),
    23: (43.7099642, _RECORD),
    24: (_snub_cube(), "snub cube; Robinson 1961"),
}
TAMMES_DEGREES: dict[int, float] = {n: angle for n, (angle, _) in _TAMMES.items()}
"""Best-known smallest angle, in degrees, of N = 2..24 points on the sphere in R^3; proved for N <= 14 and N = 24."""
TAMMES_SOURCE: dict[int, str] = {n: source for n, (_, source) in _TAMMES.items()}
"""Where each entry of ``TAMMES_DEGREES`` comes from."""


def best_known_angle(K: int, d: int) -> float | None:
    """Largest smallest angle known for K points on the unit sphere of R^d, in degrees; None if not in our tables.

    Simplex for K <= d + 1; 360/K on the circle; ``TAMMES_DEGREES`` in R^3; 90 degrees for d + 2 <= K <= 2d (Rankin
    1955); the Petersen code (10 points in R^4, cosine 1/6, Bachoc and Vallentin 2009).
    """
    if K < 2 or d < 1:
        raise ValueError(f"best_known_angle: needs K >= 2 and d >= 1, got K={K}, d={d}")
    if d >= K - 1:
        return simplex_angle(K)
    if d == 2:
        return 360.0 / K
    if d == 3 and K in TAMMES_DEGREES:
        return TAMMES_DEGREES[K]
    if d >= K / 2:
        return 90.0
    return _angle(1 / 6) if (K, d) == (10, 4) else None


def log_riesz_energy(prototypes: Tensor, t: float) -> Tensor:
    """Logarithm of :func:`riesz_energy`; stays finite for exponents in the thousands, and differentiable.

    As t grows, ``log E_t / t`` tends to minus the logarithm of the smallest distance: the link between eq. (2.4) and
    the packing problem (the printed limit inside the arg min needs this 1/t; without it both sides tend to 0).
    """
    w = unit(prototypes)
    i, j = torch.triu_indices(w.shape[-2], w.shape[-2], offset=1, device=w.device)
    log_distance = 0.5 * (w[..., i, :] - w[..., j, :]).square().sum(-1).log()
    return math.log(2) + torch.logsumexp(-t * log_distance, -1)


def riesz_energy(prototypes: Tensor, t: float) -> Tensor:
    """Riesz energy ``E_t(W) = sum_{i != j} |w_i - w_j|^(-t)`` of the unit rows (Zhou et al. 2022, before eq. 2.4).

    Args:
        prototypes: (..., K, d), any length of row.
        t: exponent; the simplex is the unique minimum for t > 0 and K <= d + 1 (Lemma 2.1).

    Returns:
        (...) energies; infinite where points coincide and t > 0.
    """
    return log_riesz_energy(prototypes, t).exp()


@one_thread
def polish_tammes(points: Tensor) -> Tensor:
    """Push points on the sphere to the local best packing next to them, to about 1e-7 degrees.

    Solves ``min c`` subject to ``w_i . w_j <= c`` and ``|w_i| = 1`` by sequential quadratic programming (SLSQP). Random
    points are good enough a start: the best of some thirty runs is the best packing known, for every N up to 24.

    Args:
        points: (K, d), any length of row; at most some fifty rows, as all pairs are constrained.

    Returns:
        (K, d) float64 unit rows on the CPU, at least as well spread as the input.

    Raises:
        ValueError: not a floating (K, d) tensor with K >= 2.
    """
    check_prototypes(points)
    start = unit(points.detach().double().cpu()).numpy()
    K, d = start.shape
    first, second = np.triu_indices(K, 1)
    widest = (start[first] * start[second]).sum(1).max()
    pair, point = np.arange(len(first)), np.arange(K)

    def gaps(x: np.ndarray) -> np.ndarray:
        w = x[:-1].reshape(K, d)
        return x[-1] - (w[first] * w[second]).sum(1)

    def gaps_slope(x: np.ndarray) -> np.ndarray:
        w = x[:-1].reshape(K, d)
        slope = np.zeros((len(first), K, d))
        slope[pair, first] = -w[second]
        slope[pair, second] = -w[first]
        return np.hstack((slope.reshape(len(first), -1), np.ones((len(first), 1))))

    def norms_slope(x: np.ndarray) -> np.ndarray:
        slope = np.zeros((K, K, d))
        slope[point, point] = 2 * x[:-1].reshape(K, d)
        return np.hstack((slope.reshape(K, -1), np.zeros((K, 1))))

    down = np.zeros(K * d + 1)
    down[-1] = 1.0
    found = minimize(
        lambda x: x[-1],
        np.append(start.ravel(), widest),
        jac=lambda _: down,
        method="SLSQP",
        constraints=(
            {"type": "ineq", "fun": gaps, "jac": gaps_slope},
            {"type": "eq", "fun": lambda x: (x[:-1].reshape(K, d) ** 2).sum(1) - 1, "jac": norms_slope},
        ),
        options={"ftol": 1e-15, "maxiter": 200},
    )
    better = found.x[:-1].reshape(K, d)
    better = better / np.linalg.norm(better, axis=1, keepdims=True)
    # a search that failed must not make things worse
    improved = (better[first] * better[second]).sum(1).max() <= widest
    return torch.from_numpy(better if improved else start)
