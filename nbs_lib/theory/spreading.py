"""How points spread over the sphere: sets of least Riesz energy, and a bound that no packing can pass.

Paper: Zhou et al. 2022, "Learning towards the largest margins", section 2.1.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from nbs_lib.theory.free_features import normalised, random_points
from nbs_lib.theory.packing import log_riesz_energy
from nbs_lib.theory.threads import one_thread
from nbs_lib.validation import check_positive


@one_thread
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
