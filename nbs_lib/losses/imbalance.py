"""Formulas for classes of unequal size: the focal loss, LDAM, and class-balanced weights.

:mod:`nbs_lib.losses.functional` hands them on, and says what all formulas have in common. References:

* Lin et al. 2017, "Focal loss for dense object detection", https://arxiv.org/abs/1708.02002
* Cao et al. 2019, "Learning imbalanced datasets with label-distribution-aware margin loss",
  https://arxiv.org/abs/1906.07413
* Cui et al. 2019, "Class-balanced loss based on effective number of samples", https://arxiv.org/abs/1901.05555
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from nbs_lib.losses.target import margin_softmax, scaled_and_target, without_target
from nbs_lib.validation import (
    check_class_counts,
    check_cosine_margin,
    check_in,
    check_reduction,
    check_scale,
    check_scores,
    reduce,
)


def focal(scores: Tensor, target: Tensor, *, gamma: float, reduction: str = "mean", validate: bool = True) -> Tensor:
    """Focal loss, L_i = -(1 - p_i)^γ log p_i with the softmax probability p_i of the target (Lin et al. 2017, Eq. (4)).

    With t = z_iy - log Σ_{j≠y} exp(z_ij), p is the logistic function of t, and both log p and log(1 - p) are finite
    with finite slopes for every t. That is how it is computed; (1 - p)^γ taken literally has an infinite slope at
    p = 1 if γ < 1. γ = 0 is cross-entropy.

    Args:
        scores: decision scores z (N, K).
        target: labels (N,).
        gamma: γ >= 0; 1 in Zhou et al. 2022, 2 in Lin et al. 2017.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(scores, target, validate=validate)
    check_reduction(reduction)
    check_in("gamma", gamma, 0, 1e6, hint="0 is cross-entropy, 1 or 2 is usual")
    others, own = scaled_and_target(scores, target, 1)
    t = own - torch.logsumexp(without_target(others, target), 1)
    return reduce(-torch.exp(gamma * F.logsigmoid(-t)) * F.logsigmoid(t), reduction)


def ldam(
    cosines: Tensor,
    target: Tensor,
    *,
    scale: float | Tensor,
    margin: float,
    class_counts: Sequence[int] | Tensor,
    reduction: str = "mean",
    validate: bool = True,
) -> Tensor:
    """LDAM, CosFace with a margin for each class: the target logit is s (c_iy - m_y) (Cao et al. 2019, section 3.2).

    m_j = C n_j^(-1/4) with n_j the number of training images of class j: rare classes get more. C makes the largest
    margin, that of the rarest class, equal to ``margin``. Equal counts give CosFace.

    Args:
        cosines: cosines (N, K).
        target: labels (N,).
        scale: s > 0, a number or one per sample (N,); Cao et al. use 30, Zhou et al. 2022 use 5.
        margin: the largest margin, in cosine units, 0 to 2; 0.5 is usual.
        class_counts: n_j >= 1, K whole numbers; or a tensor (K,), whose values are not looked at.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(cosines, target, validate=validate)
    check_reduction(reduction)
    check_scale(scale, len(target))
    check_cosine_margin("margin", margin)
    check_class_counts(class_counts, cosines.shape[1])
    dtype = torch.promote_types(cosines.dtype, torch.float32)
    rarity = torch.as_tensor(class_counts, dtype=dtype, device=cosines.device) ** -0.25
    margins = margin * rarity / rarity.max()
    return margin_softmax(cosines, target, scale, 1.0, 0.0, margins[target], "none", reduction)


def class_balanced_weights(class_counts: Sequence[int], *, beta: float = 0.9999) -> Tensor:
    """Weights of the classes by their effective number of samples, w_j ∝ (1 - β) / (1 - β^n_j) (Cui et al. 2019).

    Their mean is one. β = 0 weighs all classes alike, β → 1 inversely to their numbers. Cao et al. 2019 use 0.9999 in
    the last part of training (deferred re-weighting, DRW).

    Args:
        class_counts: n_j >= 1, K whole numbers.
        beta: β, 0 <= β < 1.

    Returns:
        float64 (K,).

    Raises:
        ValueError: fewer than two classes, a count below one, β out of range.
    """
    class_counts = class_counts.tolist() if isinstance(class_counts, Tensor) else class_counts
    check_class_counts(class_counts)
    if check_in("beta", beta, 0, 1) == 1:
        raise ValueError("beta must be below 1, got 1: the limit of 1 / class_counts is reached from below")
    counts = torch.as_tensor(class_counts, dtype=torch.float64)
    weights = -1 / torch.expm1(counts * (math.log(beta) if beta else -math.inf))
    return weights / weights.mean()
