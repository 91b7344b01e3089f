"""Closed forms around the optima of Zhou et al. 2022, "Learning towards the largest margins".

Smallest values of the margin losses (Theorem 3.2 and Proposition 3.3, with the sign that is right), the largest margins
with and without a ReLU, and how far a finite scale keeps the class margin from the best packing.
"""

import math

import numpy as np
from scipy import optimize
from torch import Tensor

from nbs_lib.geometry import unit
from nbs_lib.validation import check_in, check_positive, check_prototypes

FLOAT32_FLOOR = 24 * math.log(2)
"""s (gamma - m) = 16.64. Beyond it exp(-s (gamma - m)) < 2^-24, which 1 + x in float32 swallows: the target's softmax
probability rounds to 1, and the gradient of the cross-entropy on the target logit is exactly 0."""


def _check_K(K: int) -> None:
    if isinstance(K, bool) or not isinstance(K, int) or K < 2:
        raise ValueError(f"K must be an integer of at least 2, got {K!r}")


def _log_sum(first: float, second: float) -> float:
    return float(np.logaddexp(first, second))


def gm_minimum(
    K: int, scale: float, *, alpha1: float = 1.0, beta1: float = 0.0, alpha2: float = 1.0, beta2: float = 0.0
) -> float:
    """Smallest mean GM-Softmax loss, ``log[exp(s(a2-a1+b2-b1)) + (K-1) exp(-s(1/(K-1)+a1+b1))]``.

    Zhou et al. 2022, Theorem 3.2, for balanced classes and K <= d + 1, attained by the simplex with every feature on
    its prototype. The printed first exponent, a1 + b1 - a2 - b2, has the wrong sign: :func:`gm_minimum_as_printed`.
    Holds for a2 <= a1 and a1 >= 1/2; for a2 = a1 exactly down to :func:`alpha_threshold`.

    Args:
        K: number of classes.
        scale: s.
        alpha1: factor of the target cosine in the numerator.
        beta1: offset there, in cosine units.
        alpha2: factor of the target cosine in the denominator.
        beta2: offset there; ``-math.inf`` drops the term (LM-Softmax, times s).
    """
    _check_K(K)
    check_positive("scale", scale)
    return _log_sum(scale * (alpha2 - alpha1 + beta2 - beta1), math.log(K - 1) - scale * (1 / (K - 1) + alpha1 + beta1))


def gm_minimum_as_printed(
    K: int, scale: float, *, alpha1: float = 1.0, beta1: float = 0.0, alpha2: float = 1.0, beta2: float = 0.0
) -> float:
    """The bound as Theorem 3.2 prints it, ``a1 + b1 - a2 - b2`` in the first exponent: too large where that is > 0."""
    _check_K(K)
    check_positive("scale", scale)
    return _log_sum(scale * (alpha1 + beta1 - alpha2 - beta2), math.log(K - 1) - scale * (1 / (K - 1) + alpha1 + beta1))


def gm_collapsed(
    K: int, scale: float, *, alpha1: float = 1.0, beta1: float = 0.0, alpha2: float = 1.0, beta2: float = 0.0
) -> float:
    """GM-Softmax loss of the collapse: all prototypes equal and every feature opposite, so that all cosines are -1.

    ``log[exp(s(a1-a2+b2-b1)) + (K-1) exp(-s(1-a1+b1))]``. Below :func:`alpha_threshold` it undercuts the simplex.
    """
    _check_K(K)
    check_positive("scale", scale)
    return _log_sum(scale * (alpha1 - alpha2 + beta2 - beta1), math.log(K - 1) - scale * (1 - alpha1 + beta1))


def alpha_threshold(K: int) -> float:
    """Smallest a1 = a2 for which Theorem 3.2 holds, ``(K-2) / (2(K-1))``: there simplex and collapse cost the same.

    The paper asks for 1/2, which is enough for every K. For ArcFace without a fallback beyond pi - m, a1 is cos m.
    """
    _check_K(K)
    return (K - 2) / (2 * (K - 1))


def normface_minimum(K: int, scale: float) -> float:
    """Smallest NormFace loss, ``log(1 + (K-1) exp(-s K/(K-1)))`` (Zhou et al. 2022, Prop. 3.3).

    Args:
        K: number of classes, at most d + 1, balanced.
        scale: s.
    """
    return gm_minimum(K, scale)


def cosface_minimum(K: int, scale: float, margin: float) -> float:
    """Smallest CosFace loss, ``log(1 + (K-1) exp(-s (K/(K-1) - m)))`` (Zhou et al. 2022, Prop. 3.3).

    Args:
        K: number of classes, at most d + 1, balanced.
        scale: s.
        margin: m in cosine units.
    """
    return gm_minimum(K, scale, beta1=-margin, beta2=-margin)


def arcface_minimum(K: int, scale: float, margin: float) -> float:
    """Smallest ArcFace loss, ``log(1 + (K-1) exp(-s (1/(K-1) + cos m)))`` (Zhou et al. 2022, Prop. 3.3).

    With the plain cos(theta + m) this holds only while cos m >= :func:`alpha_threshold`; with a target logit that keeps
    falling beyond pi - m, for all m up to pi/2.

    Args:
        K: number of classes, at most d + 1, balanced.
        scale: s.
        margin: m in radians, 0 to pi/2.
    """
    check_in("margin", margin, 0, math.pi / 2, unit="radians")
    return gm_minimum(K, scale, alpha1=math.cos(margin), alpha2=math.cos(margin))


def sphereface_minimum(K: int, scale: float) -> float:
    """Smallest A-Softmax loss with unit features: as NormFace, whatever the factor, since psi(0) = 1 (Prop. 3.3)."""
    return gm_minimum(K, scale)


def lm_minimum(K: int, scale: float) -> float:
    """Smallest LM-Softmax loss, ``log(K-1)/s - K/(K-1)``, a negative number (Zhou et al. 2022, eq. 3.5).

    Args:
        K: number of classes, at most d + 1, balanced.
        scale: s.
    """
    return gm_minimum(K, scale, beta2=-math.inf) / scale


def max_sample_margin(K: int) -> float:
    """Largest gamma_min, and largest mean margin of balanced classes, ``K/(K-1)`` (Prop. 2.3, Thm 3.4; K <= d + 1)."""
    _check_K(K)
    return K / (K - 1)


def relu_sample_margin_cap(K: int) -> float:
    """Largest mean sample margin of balanced classes with features z >= 0, ``sqrt(K/(K-1))``, whatever the prototypes.

    From ``sum_y w_y . (z_y - zbar) <= K sqrt(1 - |zbar|^2)`` and ``|zbar|^2 >= 1/K`` for non-negative unit features;
    attained by a simplex of prototypes over orthonormal features.
    """
    _check_K(K)
    return math.sqrt(K / (K - 1))


def relu_cosine_cap(K: int) -> float:
    """Cosine between feature and prototype where :func:`relu_sample_margin_cap` is attained, ``sqrt((K-1)/K)``."""
    _check_K(K)
    return math.sqrt((K - 1) / K)


def _antiprism_cosines(u: float) -> tuple[float, float, float, float]:
    """Cosines of a square antiprism of height sqrt(u): in the square, across, and the two farther pairs."""
    return u, -u + (1 - u) / math.sqrt(2), 2 * u - 1, -u - (1 - u) / math.sqrt(2)


def finite_scale_class_margin(scale: float) -> float:
    """Class margin in degrees at the minimum, K = 8 on S^2, at a finite scale: 74.858 only as s grows without bound.

    The optimum is a square antiprism with each feature on its prototype, and the same for NormFace, CosFace and
    LM-Softmax (Zhou et al. 2022, fig. 3): all points are alike, so each loss is a rising function of
    ``2 e^{s c1} + 2 e^{s c2} + e^{s c3} + 2 e^{s c4}``, minimised here over the height.
    """
    check_positive("scale", scale)

    def log_energy(u: float) -> float:
        c1, c2, c3, c4 = (scale * c for c in _antiprism_cosines(u))
        return float(np.logaddexp.reduce([c1 + math.log(2), c2 + math.log(2), c3, c4 + math.log(2)]))

    found = optimize.minimize_scalar(log_energy, bounds=(0.05, 0.6), method="bounded", options={"xatol": 1e-13})
    return math.degrees(math.acos(max(_antiprism_cosines(found.x)[:2])))


def finite_scale_constant() -> float:
    """The constant 11.726 in ``class margin = 74.8585 - 11.726/s`` degrees, K = 8 on S^2, from the contacts alone.

    With only the contacts c1 = u and c2 = -u + (1-u)/sqrt2 left at large s, the minimum of 2 e^{s c1} + 2 e^{s c2} has
    ``c1 - c2 = ln(1 + 1/sqrt2) / s``, so u exceeds its packing value by ``ln(1 + 1/sqrt2) / ((2 + 1/sqrt2) s)``.
    """
    shift = math.log(1 + math.sqrt(0.5)) / (2 + math.sqrt(0.5))
    packed = (2 * math.sqrt(2) - 1) / 7
    return math.degrees(shift / math.sqrt(1 - packed**2))


def finite_scale_bias(points: Tensor, *, tolerance: float = 1e-6) -> float:
    """Constant b of ``class margin(s) = packing angle - b/s`` (degrees), for any packing and large s.

    The law of the minimum of LM-Softmax summed over samples inside the logarithm, and of NormFace and CosFace. At
    large s only the contacts (pairs at the packing's angle) count: the minimum of ``log sum exp(s c_ij)`` moves each by
    ``e_ij / s``, where e = R x minimises the convex ``log sum exp(R x)`` over the tangential shifts x of the points.
    The largest e divided by the sine of the angle is the bias. It is 0 if all contacts carry the same stress, as for
    the octahedron, the icosahedron and the simplex. LM-Softmax averaged over samples follows this law only where all
    points are alike.

    Args:
        points: (K, d) an optimal packing (see :func:`~nbs_lib.theory.packing.polish_tammes`).
        tolerance: pairs whose cosine is this close to the largest are contacts.

    Returns:
        b >= 0 in degrees times scale.
    """
    check_prototypes(points)
    w = unit(points.detach().double().cpu()).numpy()
    K, d = w.shape
    i, j = np.triu_indices(K, 1)
    cosines = (w[i] * w[j]).sum(1)
    contact = cosines > cosines.max() - tolerance
    i, j, row = i[contact], j[contact], np.arange(contact.sum())
    # rate of each contact's cosine under a shift of a point along the sphere
    rates = np.zeros((len(row), K, d))
    rates[row, i] = w[j] - cosines.max() * w[i]
    rates[row, j] = w[i] - cosines.max() * w[j]
    rates = rates.reshape(len(row), K * d)
    # the shifts that move the contacts, in an orthonormal basis: what is left is strictly convex
    left, strength, _ = np.linalg.svd(rates, full_matrices=False)
    basis = left[:, strength > 1e-8 * max(1.0, strength.max())]

    def log_sum(x: np.ndarray) -> tuple[float, np.ndarray]:
        e = basis @ x
        top = e.max()
        weights = np.exp(e - top)
        return top + math.log(weights.sum()), basis.T @ (weights / weights.sum())

    found = optimize.minimize(log_sum, np.zeros(basis.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-10})
    return math.degrees(float((basis @ found.x).max()) / math.sqrt(1 - cosines.max() ** 2))
