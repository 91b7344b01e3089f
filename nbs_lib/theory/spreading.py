"""How points spread over the sphere: minimal Riesz energy, contacts and the stress they carry, the law of 1/s.

Paper: Zhou et al. 2022, "Learning towards the largest margins", section 2.1. The law of 1/s is derived in the chapter
on the class margin; the paper does not have it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from nbs_lib.geometry import unit
from nbs_lib.theory.free_features import normalised, random_points
from nbs_lib.theory.packing import log_riesz_energy
from nbs_lib.validation import check_positive, check_prototypes


def minimise_riesz(K: int, d: int, t: float | Sequence[float], *, starts: int = 4, seed: int = 0) -> Tensor:
    """Points of least Riesz energy ``E_t`` (Zhou et al. 2022, before eq. 2.4), by L-BFGS on ``log E_t / t``.

    Args:
        K: number of points, at least 2.
        d: dimension of the sphere's space.
        t: exponent, positive, or a rising ladder of exponents, each started where the one before ended.
        starts: random starts; the one that ends lowest is returned.
        seed: of the starts.

    Returns:
        (K, d) float64 unit rows.

    Raises:
        ValueError: fewer than two points, or an exponent that is not positive.
    """
    if K < 2:
        raise ValueError(f"minimise_riesz: K must be at least 2, got {K}")
    ladder = [float(t)] if isinstance(t, int | float) else [float(rung) for rung in t]
    for rung in ladder:
        check_positive("t", rung)

    def value_and_slope(x: np.ndarray, rung: float) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(x).view(K, d).requires_grad_()
        value = log_riesz_energy(normalised(free), rung) / rung
        value.backward()
        return value.item(), free.grad.flatten().numpy()

    best, lowest = None, math.inf
    for points in random_points(starts, K, d, seed=seed):
        x = points.flatten().numpy()
        for rung in ladder:
            options = {"maxiter": 2000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 20}
            found = optimize.minimize(value_and_slope, x, (rung,), jac=True, method="L-BFGS-B", options=options)
            x = normalised(torch.from_numpy(found.x).view(K, d)).flatten().numpy()
        if found.fun < lowest:
            best, lowest = torch.from_numpy(x).view(K, d), found.fun
    return best


def fejes_toth_bound(N: int) -> float:
    """Upper bound in degrees on the smallest angle of N >= 3 points on S^2, reached by N = 3, 4, 6 and 12 only.

    ``cos = (cot(omega)^2 - 1) / 2`` with ``omega = pi N / (6 (N - 2))``: no spherical triangulation can do better than
    equilateral triangles all over (Fejes Tóth 1943).
    """
    if N < 3:
        raise ValueError(f"fejes_toth_bound: N must be at least 3, got {N}")
    cotangent = 1 / math.tan(math.pi * N / (6 * (N - 2)))
    return math.degrees(math.acos((cotangent**2 - 1) / 2))


class ContactStress(NamedTuple):
    """Contacts of a packing: ``pairs`` (E, 2), their ``weights`` (E,) with sum 1, its ``angle`` in degrees."""

    pairs: Tensor
    weights: Tensor
    angle: float


def contact_stress(prototypes: Tensor, *, tolerance: float = 1e-5) -> ContactStress:
    """Weights ``lambda_e >= 0`` on the contacts that hold a best packing in balance, those of largest entropy.

    They are the multipliers of ``min c, w_i . w_j <= c``: ``sum_j lambda_ij w_j`` is parallel to ``w_i`` for every i.
    Computed as the softmax weights of the linearised contacts, ``min_x log sum_e exp(a_e . x)``, which is convex.

    Args:
        prototypes: (K, d), a packing to about 1e-7 degrees: see :func:`~nbs_lib.theory.packing.polish_tammes`.
        tolerance: pairs whose cosine is this close to the largest are contacts.

    Raises:
        ValueError: not a (K, d) tensor, or points that no weights hold in balance (no locally best packing).
    """
    check_prototypes(prototypes)
    w = unit(prototypes.detach().double().cpu()).numpy()
    first, second = np.triu_indices(len(w), 1)
    cosines = (w[first] * w[second]).sum(1)
    near = cosines >= cosines.max() - tolerance
    first, second, edge = first[near], second[near], np.arange(near.sum())
    slopes = np.zeros((len(edge), *w.shape))
    slopes[edge, first] = w[second] - cosines.max() * w[first]
    slopes[edge, second] = w[first] - cosines.max() * w[second]
    slopes = slopes.reshape(len(edge), -1)

    def soft_maximum(x: np.ndarray) -> tuple[float, np.ndarray]:
        rates = slopes @ x
        weights = np.exp(rates - rates.max())
        return rates.max() + math.log(weights.sum()), slopes.T @ (weights / weights.sum())

    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-10}
    x = optimize.minimize(soft_maximum, np.zeros(slopes.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    weights = np.exp(slopes @ x - (slopes @ x).max())
    weights /= weights.sum()
    if np.abs(slopes.T @ weights).max() > 1e-4:
        raise ValueError("contact_stress: prototypes are no locally best packing: no weights balance their contacts")
    pairs = torch.from_numpy(np.stack((first, second), 1))
    return ContactStress(pairs, torch.from_numpy(weights), math.degrees(math.acos(cosines.max())))


def finite_scale_constant(prototypes: Tensor, *, tolerance: float = 1e-5) -> float:
    """Constant C, in degrees, of the law ``class margin(s) = packing angle - C / s`` near a best packing.

    ``C = (180/pi) (H(lambda) - H_inf(lambda)) / sin(angle)``: the Shannon entropy of the contact stress less its
    min-entropy ``-log max lambda``. It is zero if and only if all contacts carry the same weight.

    Args:
        prototypes: (K, d), as for :func:`contact_stress`.
        tolerance: likewise.
    """
    stress = contact_stress(prototypes, tolerance=tolerance)
    weights = stress.weights[stress.weights > 0]
    excess = float((weights * (weights.max() / weights).log()).sum())
    return math.degrees(excess / math.sin(math.radians(stress.angle)))
