"""The losses as pure functions, one a formula; those for classes of unequal size stand in ``imbalance.py``.

Notation throughout: ``cosines`` (N, K) holds c_ij = cos θ_ij between feature i and prototype j, y_i is ``target[i]``, s
is ``scale``; sums over j run over the K classes. References by author and year:

* Zhou et al. 2022, "Learning towards the largest margins", https://arxiv.org/abs/2206.11589
* Wang et al. 2017, "NormFace", https://arxiv.org/abs/1704.06369
* Wang et al. 2018, "CosFace", https://arxiv.org/abs/1801.09414
* Deng et al. 2019, "ArcFace", https://arxiv.org/abs/1801.07698
* Liu et al. 2017, "SphereFace", https://arxiv.org/abs/1704.08063

Common to all of them:

* scores or cosines are (N, K) with K >= 2, target is int64 (N,); inputs are never modified;
* half-precision input is raised to float32 first; float64 stays float64;
* ``reduction`` is "mean", "sum" or "none" (N,); the mean of an empty batch is a 0 that is connected to the graph;
* ``validate=False`` skips the check that the labels lie in 0..K-1, which makes a CUDA device wait;
* whatever is wrong with an argument is a ``ValueError`` that names it.

The margin touches the target entries only: they are gathered, transformed and scattered back into the scaled scores.
"""

import torch
from torch import Tensor

from nbs_lib.geometry import at_least_float32, unit
from nbs_lib.losses.curve import branch, target_logit
from nbs_lib.losses.imbalance import class_balanced_weights, focal, ldam
from nbs_lib.losses.smoothing import label_aware_smoothing
from nbs_lib.losses.target import add_at_target, margin_softmax, scaled_and_target, softmax_loss, without_target
from nbs_lib.validation import (
    check_cosine_margin,
    check_factor,
    check_in,
    check_per_sample,
    check_positive,
    check_prototypes,
    check_radians,
    check_reduction,
    check_scale,
    check_scores,
    reduce,
)

__all__ = [
    "arcface",
    "class_balanced_weights",
    "cosface",
    "cross_entropy",
    "focal",
    "gm_softmax",
    "label_aware_smoothing",
    "ldam",
    "lm_softmax",
    "lm_softmax_total",
    "normface",
    "sample_margin_loss",
    "sphereface",
    "target_logit",
    "unified",
    "zero_centroid_loss",
]


def cross_entropy(
    scores: Tensor, target: Tensor, *, label_smoothing: float = 0.0, reduction: str = "mean", validate: bool = True
) -> Tensor:
    """Softmax cross-entropy, L_i = -log( exp(z_iy) / Σ_j exp(z_ij) ) (Zhou et al. 2022, Eq. (2.1)).

    Args:
        scores: decision scores z (N, K).
        target: labels (N,).
        label_smoothing: share of the target probability spread evenly over all K classes, 0 to 1.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(scores, target, validate=validate)
    check_reduction(reduction)
    check_in("label_smoothing", label_smoothing, 0, 1)
    return softmax_loss(at_least_float32(scores), target, reduction, label_smoothing)


def normface(
    cosines: Tensor, target: Tensor, *, scale: float | Tensor, reduction: str = "mean", validate: bool = True
) -> Tensor:
    """NormFace, softmax over scaled cosines: L_i = -log( exp(s c_iy) / Σ_j exp(s c_ij) ) (Wang et al. 2017).

    Smallest value, balanced classes and K <= d + 1: log(1 + (K-1) exp(-s K/(K-1))) (Zhou et al. 2022, Prop. 3.3).

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        scale: s > 0, a number or one per sample (N,).
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(cosines, target, validate=validate)
    check_reduction(reduction)
    check_scale(scale, len(target))
    factor = scale.unsqueeze(1) if isinstance(scale, Tensor) else scale
    return softmax_loss(at_least_float32(cosines) * factor, target, reduction)


def unified(
    cosines: Tensor,
    target: Tensor,
    *,
    scale: float | Tensor,
    m1: float = 1.0,
    m2: float = 0.0,
    m3: float = 0.0,
    beyond: str | None = None,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Unified margin softmax: the target logit s c_iy becomes s (cos(m1 θ_iy + m2) - m3) (Zhou et al. 2022, Eq. (3.1)).

    SphereFace is m1, ArcFace m2, CosFace m3; the slopes at c = ±1 are those of :func:`target_logit`.

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        scale: s > 0, a number or one per sample (N,).
        m1: angular factor, at least 1.
        m2: additive angle in radians, 0 to π/2.
        m3: additive margin in cosine units, 0 to 2 (cosines differ by no more).
        beyond: what holds beyond m1 θ + m2 = π, see :func:`target_logit`; None takes "linear" for m1 = 1, else "psi".
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(cosines, target, validate=validate)
    check_reduction(reduction)
    check_scale(scale, len(target))
    check_factor("m1", m1)
    check_radians("m2", m2)
    check_cosine_margin("m3", m3)
    return margin_softmax(cosines, target, scale, m1, m2, m3, branch(m1, beyond), reduction)


def cosface(
    cosines: Tensor,
    target: Tensor,
    *,
    scale: float | Tensor,
    margin: float,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """CosFace / AM-Softmax: the target logit is s (c_iy - m) (Wang et al. 2018, Eq. (4)).

    Smallest value, balanced classes and K <= d + 1: log(1 + (K-1) exp(-s (K/(K-1) - m))) (Zhou et al. 2022, Prop. 3.3).

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        scale: s > 0, a number or one per sample (N,).
        margin: m in cosine units, 0 to 2; 0 is NormFace.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(cosines, target, validate=validate)
    check_reduction(reduction)
    check_scale(scale, len(target))
    check_cosine_margin("margin", margin)
    return margin_softmax(cosines, target, scale, 1.0, 0.0, margin, "none", reduction)


def arcface(
    cosines: Tensor,
    target: Tensor,
    *,
    scale: float | Tensor,
    margin: float,
    beyond: str = "linear",
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """ArcFace: the target logit is s cos(θ_iy + m) (Deng et al. 2019, Eq. (3)).

    Computed as cos m · c - sin m · sin θ. Past θ = π - m the formula rises again; ``beyond`` says what holds there.
    Smallest value, balanced classes, K <= d + 1 and a branch that keeps falling:
    log(1 + (K-1) exp(-s (1/(K-1) + cos m))) (Zhou et al. 2022, Prop. 3.3).

    The slope d cos(θ+m)/dc grows like sin m / sin θ towards c = ±1; at c = ±1 itself it is taken as cos m.

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        scale: s > 0, a number or one per sample (N,).
        margin: m in radians, 0 to π/2; 0 is NormFace.
        beyond: "linear" (c - m sin m, falls with one step down), "psi" (-cos(θ+m) - 2, falls, continuous), "easy" (no
            margin for c <= 0) or "none" (cos(θ+m) as it stands, rises): see :func:`target_logit`.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(cosines, target, validate=validate)
    check_reduction(reduction)
    check_scale(scale, len(target))
    check_radians("margin", margin)
    return margin_softmax(cosines, target, scale, 1.0, margin, 0.0, branch(1.0, beyond), reduction)


def sphereface(
    cosines: Tensor,
    target: Tensor,
    *,
    margin: float,
    scale: float | Tensor,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """SphereFace / A-Softmax: the target logit is s ψ(θ_iy), ψ(θ) = (-1)^j cos(mθ) - 2j, j = floor(mθ/π).

    In Liu et al. 2017 s is the feature's norm |z_i|: pass ``scale=features.norm(dim=1)`` for that original
    form, a number for the one with normalised features (Zhou et al. 2022, Prop. 3.3). Whole m go through Chebyshev's
    polynomial, real m through the angle. The slope at c = ±1 is m², which is exact but for real m at c = -1 (infinite).

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        margin: factor m >= 1 on the angle, whole or real; 1 is NormFace, 4 was the paper's choice.
        scale: s > 0, or the feature norms (N,).
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(cosines, target, validate=validate)
    check_reduction(reduction)
    check_scale(scale, len(target))
    check_factor("margin", margin)
    return margin_softmax(cosines, target, scale, margin, 0.0, 0.0, "psi", reduction)


def gm_softmax(
    cosines: Tensor,
    target: Tensor,
    *,
    scale: float | Tensor,
    alpha1: float | Tensor = 1.0,
    beta1: float | Tensor = 0.0,
    alpha2: float | Tensor = 1.0,
    beta2: float | Tensor = 0.0,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """Generalised margin softmax (Zhou et al. 2022, Eq. (3.3)), with c_i for the target cosine.

    L_i = -log[ exp(s(α1 c_i + β1)) / ( exp(s(α2 c_i + β2)) + Σ_{j≠y} exp(s c_ij) ) ].

    The paper asks for α1 >= 1/2 and α2 <= α1; nothing is refused here, so that a reader can see what happens outside.
    β2 = -inf drops the target from the denominator and gives s times LM-Softmax (with α1 = 1, β1 = 0).

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        scale: s > 0, a number or one per sample (N,).
        alpha1: α1, a number or one per sample (N,).
        beta1: β1, likewise.
        alpha2: α2, likewise.
        beta2: β2, likewise.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(cosines, target, validate=validate)
    check_reduction(reduction)
    check_scale(scale, len(target))
    for name, value in {"alpha1": alpha1, "beta1": beta1, "alpha2": alpha2, "beta2": beta2}.items():
        check_per_sample(name, value, len(target))
    scaled, own = scaled_and_target(cosines, target, scale)
    add_at_target(scaled, target, scale * ((alpha2 - 1) * own + beta2))
    return reduce(torch.logsumexp(scaled, 1) - scale * (alpha1 * own + beta1), reduction)


def lm_softmax(
    cosines: Tensor, target: Tensor, *, scale: float, reduction: str = "mean", validate: bool = True
) -> Tensor:
    """LM-Softmax, L_i = (1/s) log Σ_{j≠y} exp(s (c_ij - c_iy)) (Zhou et al. 2022, Eq. (3.5)).

    The softmax loss without the target below, divided by s: a smooth maximum of the negative sample margin. It is
    *negative* when all is well: between log(K-1)/s - K/(K-1) (balanced, K <= d + 1) and log(K-1)/s + 2.

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        scale: s > 0.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_reduction(reduction)
    return reduce(_lm_rows(cosines, target, scale, validate), reduction)


def _lm_rows(cosines: Tensor, target: Tensor, scale: float, validate: bool) -> Tensor:
    check_scores(cosines, target, validate=validate)
    check_positive("scale", scale)
    scaled, own = scaled_and_target(cosines, target, scale)
    return torch.logsumexp(without_target(scaled, target), 1) / scale - own


def lm_softmax_total(cosines: Tensor, target: Tensor, *, scale: float, validate: bool = True) -> Tensor:
    """LM-Softmax with one sum over samples and classes, (1/s) log Σ_i Σ_{j≠y_i} exp(s (c_ij - c_iy)).

    Left side of Zhou et al. 2022, Eq. (3.6). Its limit for s → ∞ is minus the smallest sample margin of the batch
    (restored Eq. (3.5')), where the mean of :func:`lm_softmax` tends to minus the mean margin: beyond K = d + 1 classes
    only this one has the best packing as its limit. A batch has one value, so there is no ``reduction``; if empty, 0.

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        scale: s > 0.
        validate: check the range of the labels.
    """
    rows = _lm_rows(cosines, target, scale, validate)
    return torch.logsumexp(rows * scale, 0) / scale if len(rows) else rows.sum()


def sample_margin_loss(cosines: Tensor, target: Tensor, *, reduction: str = "mean", validate: bool = True) -> Tensor:
    """Sample-margin regulariser R_sm = -(c_iy - max_{j≠y} c_ij) (Zhou et al. 2022, Eq. (3.4)).

    Between -2 and 2 on cosines. On raw scores it has no lower bound: give it cosines, also beside a cross-entropy
    (``head.cosine(features)``). Added as ``criterion + mu * R_sm``, mu = 0.5 or 1 in the paper. Classes that tie for
    the maximum share its gradient evenly.

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(cosines, target, validate=validate)
    check_reduction(reduction)
    others, own = scaled_and_target(cosines, target, 1)
    return reduce(without_target(others, target).amax(1) - own, reduction)


def zero_centroid_loss(prototypes: Tensor, *, normalize: bool = True) -> Tensor:
    """Zero-centroid regulariser R_w = |(1/K) Σ_j w_j|² without its factor (Zhou et al. 2022, Eq. (3.7)).

    Mind the paper's unit: its λ is 1, 2, 5, 10 or 20, but the objective adds 100 λ |w̄|² (Appendix C), so λ = 1 reads
    ``criterion + 100 * zero_centroid_loss(w)``. ``losses.PAPER_LAMBDA`` is that 100.

    The w_j are unit prototypes unless ``normalize=False``. The paper does not say which it means; on raw prototypes the
    penalty is met by changing their lengths, the class margin stays as it was, and with λ >= 2 SGD at the paper's
    learning rate of 0.1 diverges. The penalty on unit prototypes is stiff as well: clip gradients, keep λ = 1.

    Args:
        prototypes: prototypes (K, d), or several sets (..., K, d).
        normalize: scale each prototype to length one first.

    Returns:
        A scalar, or (...) for several sets; in [0, 1] for unit prototypes.
    """
    check_prototypes(prototypes)
    prototypes = unit(prototypes) if normalize else at_least_float32(prototypes)
    return prototypes.mean(-2).square().sum(-1)
