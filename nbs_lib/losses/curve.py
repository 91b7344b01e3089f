"""The target logit as a function of the target cosine: where margins live, and where their numerics are hard.

Everything works element by element on cosines of any shape, so that a figure draws exactly what a loss computes.
Slopes are those autograd finds for the stated formula. At the two poles, c = ±1, some of these slopes are infinite;
there each docstring says which finite value stands in. Cosines beyond ±1 by rounding are treated as the pole.
"""

import math

import torch
from torch import Tensor

from nbs_lib.geometry import at_least_float32
from nbs_lib.validation import check_choice

BRANCHES = ("linear", "psi", "easy", "none")


def sine(cosines: Tensor) -> Tensor:
    """The sine of θ in [0, π] from its cosine c, sqrt((1 - c)(1 + c)); 0 with slope 0 at the poles and beyond them.

    The factored form loses no digits near the poles, where 1 - c² does.
    """
    squared = (1 - cosines) * (1 + cosines)
    pole = squared <= 0
    # Two masks: the outer one gives the pole its value, the inner one keeps sqrt off its infinite slope there, because
    # 0 * inf is NaN in backward.
    return squared.masked_fill(pole, 1.0).sqrt().masked_fill(pole, 0.0)


def _chebyshev(cosines: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """T_m(c) = cos mθ and U_{m-1}(c) = sin mθ / sin θ by their common recurrence p_{n+1} = 2 c p_n - p_{n-1}."""
    t_previous, t = torch.ones_like(cosines), cosines
    u_previous, u = torch.zeros_like(cosines), torch.ones_like(cosines)
    for _ in range(m - 1):
        t_previous, t = t, 2 * cosines * t - t_previous
        u_previous, u = u, 2 * cosines * u - u_previous
    return t, u


def _cos_of_multiple(cosines: Tensor, m1: float, m2: float) -> Tensor:
    """cos(m1 θ + m2) of θ = arccos c, for every c; its infinite slopes at the poles are left out."""
    if m1 == 1:
        return cosines if m2 == 0 else math.cos(m2) * cosines - math.sin(m2) * sine(cosines)
    if float(m1).is_integer() and m1 <= 16:
        t, u = _chebyshev(cosines, int(m1))
        return t if m2 == 0 else math.cos(m2) * t - math.sin(m2) * sine(cosines) * u
    # Real m1: through the angle, which atan2 gives to full precision with slope -1 / sin θ. At the poles the first two
    # terms of cos(m1 δ) = 1 - m1² (1 - cos δ) + ..., δ the distance to the pole, which also go on smoothly beyond it.
    s = sine(cosines)
    pole = s == 0
    theta = torch.atan2(s.masked_fill(pole, 1.0), cosines.masked_fill(pole, 0.0))
    start = math.cos(m2) * (1 - m1 * m1 * (1 - cosines))
    end = math.cos(m1 * math.pi + m2) * (1 - m1 * m1 * (1 + cosines))
    return torch.where(pole, torch.where(cosines > 0, start, end), torch.cos(m1 * theta + m2))


def _psi(cosines: Tensor, m1: float, m2: float) -> Tensor:
    """(-1)^j cos φ - 2 j with φ = m1 θ + m2, j = floor(φ / π): continuous and falling in θ on the whole of [0, π]."""
    last = max(math.ceil(m1 + m2 / math.pi - 1e-9) - 1, 0)  # j on the last stretch before θ = π
    plain = _cos_of_multiple(cosines, m1, m2)
    if last == 0:
        return plain
    with torch.no_grad():
        phi = m1 * torch.acos(cosines.clamp(-1, 1)) + m2
        j = (phi / math.pi).floor()
        sign = 1 - 2 * (j % 2)
    end = (-1) ** last * math.cos(m1 * math.pi + m2) - 2 * last
    return torch.where(cosines > -1, sign * plain - 2 * j, end + m1 * m1 * math.cos(m2) * (cosines + 1))


def target_logit(
    cosines: Tensor, m1: float = 1.0, m2: float = 0.0, m3: float | Tensor = 0.0, beyond: str | None = None
) -> Tensor:
    """Target logit before scaling, cos(m1 θ + m2) - m3 with cos θ = ``cosines`` (Zhou et al. 2022, Eq. (3.1)).

    The formula rises again once m1 θ + m2 passes π, and would then push a feature away from its prototype. ``beyond``
    says what holds there instead (θ is the angle to the own prototype, c its cosine):

    ========== ================================================================ =============================
    branch     beyond m1 θ + m2 = π                                             as a function of θ
    ========== ================================================================ =============================
    "linear"   c - m2 sin m2 - m3 (m1 = 1 only; insightface's choice)           falls, with one step down
    "psi"      (-1)^j cos(m1 θ + m2) - 2j - m3, j = floor((m1 θ + m2)/π)        falls, continuous
    "easy"     no angular margin, c - m3, as soon as c <= 0 (m1 = 1 only)       steps *up* by sin m2 at 90°
    "none"     the formula as it stands                                         rises beyond π
    ========== ================================================================ =============================

    With m1 = 1 "psi" reads -cos(θ + m2) - 2 - m3. All but "none" with m1 > 1 keep Zhou's condition (3.2).

    The slope d/dc is autograd's of the formula. It may be infinite at c = ±1, where that of sin θ is; the finite
    part stands in there: m1² cos m2 at c = 1 (cos m2 for ArcFace), the same at c = -1 with "psi", while "linear" and
    "easy" have slope 1 there and "none" keeps the finite part of its own. Values are exact everywhere.

    Args:
        cosines: cosines, any shape, half precision is raised to float32.
        m1: angular factor, at least 1 (SphereFace).
        m2: additive angle in radians, 0 to π/2 (ArcFace).
        m3: additive cosine margin (CosFace), one number or a tensor that broadcasts (LDAM: one a sample).
        beyond: the branch; None takes the usual one, "linear" for m1 = 1 and "psi" for m1 > 1.

    Returns:
        A tensor of the shape of ``cosines``.

    Raises:
        ValueError: for an unknown branch, or "linear" and "easy" with m1 > 1.
    """
    cosines = at_least_float32(cosines)
    beyond = branch(m1, beyond)
    if beyond == "psi":
        curve = _psi(cosines, m1, m2)
    else:
        curve = _cos_of_multiple(cosines, m1, m2)
        if m2 > 0 and beyond == "linear":
            curve = torch.where(cosines > -math.cos(m2), curve, cosines - m2 * math.sin(m2))
        elif m2 > 0 and beyond == "easy":
            curve = torch.where(cosines > 0, curve, cosines)
    return curve - m3 if isinstance(m3, Tensor) or m3 else curve


def branch(m1: float, beyond: str | None) -> str:
    """The branch that ``beyond`` asks for, after the checks :func:`target_logit` documents."""
    if beyond is None:
        return "linear" if m1 == 1 else "psi"
    check_choice("beyond", beyond, BRANCHES)
    if m1 != 1 and beyond in ("linear", "easy"):
        raise ValueError(f"beyond={beyond!r} is defined for m1 = 1 only, got m1 = {m1}: use 'psi' or 'none'")
    return beyond
