"""How fast margins grow: the gradient flow of free features, and the one case in which it can be solved.

Zhou et al. 2022 observe after Proposition 3.3 that losses which share their optimum stop short of it in practice. The
reason is a matter of time. Put K prototypes on a cone around an axis, and each feature on its prototype: symmetry
keeps them there, and one number, the sample margin gamma, moves. With kappa = K/(K-1) its largest value, tau the time
and m the offset (CosFace's margin; 0 for NormFace)

    d gamma / d tau = (2 s / K) gamma (kappa - gamma) p,    p = 1 / (1 + exp(s (gamma - m)) / (K-1)),

while LM-Softmax has 1/s in the place of p: the logistic equation, at its goal exponentially fast. Once p is small
NormFace crawls, s (gamma - m) = log(tau) + ...: the margin grows with the logarithm of the time, and like 1/s.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nbs_lib.geometry import unit
from nbs_lib.theory.free_features import Loss, named_loss
from nbs_lib.theory.packing import simplex_etf
from nbs_lib.theory.threads import one_thread
from nbs_lib.validation import check_choice, check_positive


def cone(K: int, d: int, margin: float) -> Tensor:
    """K unit vectors on a cone: all pairs at the same angle, with 1 - cosine = ``margin`` (features = prototypes).

    Args:
        K: number of classes, at most d.
        d: dimension; one more than the simplex needs, for the axis of the cone.
        margin: between 0 (all equal) and K/(K-1) (the simplex).

    Returns:
        (K, d) float64.

    Raises:
        ValueError: K > d, or a margin outside [0, K/(K-1)].
    """
    largest = K / (K - 1)
    if not 0 <= margin <= largest:
        raise ValueError(f"margin must lie in [0, K/(K-1)] = [0, {largest:.4f}], got {margin}")
    sine = math.sqrt(margin / largest)
    points = torch.full((K, d), math.sqrt(max(0.0, 1 - sine**2)), dtype=torch.float64)
    points[:, :-1] = sine * simplex_etf(K, d - 1)
    return points


def margin_speed(margin: np.ndarray, K: int, scale: float, *, offset: float = 0.0, kind: str = "softmax") -> np.ndarray:
    """Speed d gamma / d tau of the cone's margin under gradient flow of the mean loss (see the module's formula).

    Args:
        margin: sample margins, any shape.
        K: number of classes.
        scale: s.
        offset: m in cosine units, for CosFace.
        kind: "softmax" (NormFace, CosFace) or "lm" (LM-Softmax, which is divided by s).

    Returns:
        Speeds, the shape of ``margin``.
    """
    check_choice("kind", kind, ("softmax", "lm"))
    check_positive("scale", scale)
    margin = np.asarray(margin, dtype=float)
    logistic = 2 / K * margin * (K / (K - 1) - margin)
    if kind == "lm":
        return logistic
    return scale * logistic / (1 + np.exp(scale * (margin - offset)) / (K - 1))


def margin_path(
    K: int, scale: float, start: float, *, offset: float = 0.0, kind: str = "softmax", points: int = 4000
) -> tuple[np.ndarray, np.ndarray]:
    """Solve the cone's equation of motion: margins, and the time at which the flow reaches each.

    The equation separates: tau = integral of d gamma / speed. In u = log(gamma / (kappa - gamma)) the logistic factor
    drops out of the integrand, and the trapezoidal rule is accurate to 1e-4 or so.

    Args:
        K: number of classes.
        scale: s.
        start: margin at time 0, between 0 and K/(K-1).
        offset: m, see :func:`margin_speed`.
        kind: see :func:`margin_speed`.
        points: of the grid.

    Returns:
        times (points,), from 0 on, and margins (points,), rising to within 1e-12 of K/(K-1).
    """
    kappa = K / (K - 1)
    if not 0 < start < kappa:
        raise ValueError(f"start must lie strictly between 0 and K/(K-1) = {kappa:.4f}, got {start}")
    u = np.linspace(math.log(start / (kappa - start)), 28.0, points)
    margins = kappa / (1 + np.exp(-u))
    # d gamma / d u = gamma (kappa - gamma) / kappa: written out, the difference kappa - gamma would lose all its digits
    slowness = K / (2 * kappa) * np.ones(points)
    if kind != "lm":
        check_choice("kind", kind, ("softmax", "lm"))
        slowness *= (1 + np.exp(scale * (margins - offset)) / (K - 1)) / scale
    steps = 0.5 * (slowness[1:] + slowness[:-1]) * np.diff(u)
    return np.concatenate([[0.0], np.cumsum(steps)]), margins


@dataclass(frozen=True)
class Flow:
    """What :func:`gradient_flow` recorded: times (R,), mean and worst sample margin (R,), and the last points."""

    time: np.ndarray
    mean_margin: np.ndarray
    worst_margin: np.ndarray
    prototypes: Tensor
    features: Tensor

    def at(self, time: float) -> float:
        """Mean sample margin at ``time``, interpolated in the logarithm of the time."""
        return float(np.interp(math.log(time), np.log(self.time[1:]), self.mean_margin[1:]))


@one_thread
def gradient_flow(
    loss: Loss | str,
    prototypes: Tensor,
    features: Tensor,
    scale: float,
    until: float,
    *,
    fineness: float = 0.2,
    max_steps: int = 20_000,
    **hyper: float,
) -> Flow:
    """Follow the gradient flow of the mean loss over prototypes and features on the sphere, one feature a class.

    Heun's method with steps that grow as the gradient fades, so that a horizon of 1e6 costs some hundred steps: what a
    fixed step size could only reach in as many. Works in the dtype of the points, which shows what float32 costs.

    Args:
        loss: a name, or a function of (cosines, target, scale), as in :func:`~nbs_lib.theory.free_features.optimise`.
        prototypes: (K, d) unit rows to start from.
        features: (K, d) unit rows to start from.
        scale: s.
        until: time at which to stop.
        fineness: step size relative to the stiffest direction; 0.2 follows the exact path to about 1e-3 in margin.
        max_steps: give up after so many steps (the record then ends early).
        **hyper: further arguments of a loss given by name, such as ``margin=0.35``.

    Returns:
        A :class:`Flow`, with a record of every step.
    """
    check_positive("until", until)
    loss = named_loss(loss, **hyper) if isinstance(loss, str) else loss
    w, z = unit(prototypes.detach()).clone(), unit(features.detach()).clone()
    target = torch.arange(len(w))
    time, record = 0.0, []
    for _ in range(max_steps + 1):
        pull_w, pull_z, stiffness, margins = _pulls(loss, w, z, target, scale)
        record.append((time, float(margins.mean()), float(margins.min())))
        if time >= until or stiffness == 0:
            break
        step = min(fineness / stiffness, until - time)
        half_w, half_z, _, _ = _pulls(loss, unit(w - step * pull_w), unit(z - step * pull_z), target, scale)
        w, z = unit(w - step / 2 * (pull_w + half_w)), unit(z - step / 2 * (pull_z + half_z))
        time += step
    times, mean, worst = np.array(record).T
    return Flow(times, mean, worst, w, z)


def _pulls(loss: Loss, w: Tensor, z: Tensor, target: Tensor, scale: float) -> tuple[Tensor, Tensor, float, Tensor]:
    """Gradients of the mean loss along the sphere for w and z, a bound of the curvature, and the sample margins."""
    cosines = (z @ w.T).requires_grad_()
    (slope,) = torch.autograd.grad(loss(cosines, target, scale).mean(), cosines)
    cosines = cosines.detach()
    margins = cosines.diagonal() - cosines.clone().fill_diagonal_(-math.inf).amax(1)
    stiffness = float(slope.abs().sum(1).max()) * (1 + scale * max(float(margins.max()), 0.0) / 2)
    tangents = []
    for points, pull in ((w, slope.T @ z), (z, slope @ w)):
        tangents.append(pull - (pull * points).sum(1, keepdim=True) * points)
    return *tangents, stiffness, margins
