"""Label-aware smoothing: frequent classes, of which a network is too sure, are smoothed more than rare ones.

Reference: Zhong et al. 2021, "Improving calibration for long-tailed recognition" (MiSLAS), section 3.2,
https://arxiv.org/abs/2104.00466. :mod:`nbs_lib.losses.functional` says what all formulas have in common.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nbs_lib.geometry import at_least_float32
from nbs_lib.validation import check_choice, check_class_counts, check_in, check_reduction, check_scores, reduce

SHAPES = ("concave", "linear", "convex")


def smoothing_by_class(
    class_counts: Sequence[int], *, largest: float = 0.3, smallest: float = 0.0, shape: str = "concave"
) -> Tensor:
    """Smoothing ε_j of each class, from ``smallest`` for the rarest to ``largest`` for the most frequent.

    With x = (n_j - n_min)/(n_max - n_min), ε goes from one to the other like sin(π x/2) ("concave"), x ("linear") or
    1 - cos(π x/2) ("convex"). Classes of equal size all get ``largest``.

    Args:
        class_counts: n_j >= 1, K whole numbers.
        largest: ε of the most frequent class, 0 to 1.
        smallest: ε of the rarest class, 0 to 1.
        shape: "concave", "linear" or "convex".

    Returns:
        float64 (K,).
    """
    class_counts = class_counts.tolist() if isinstance(class_counts, Tensor) else class_counts
    check_class_counts(class_counts)
    check_in("largest", largest, 0, 1)
    check_in("smallest", smallest, 0, 1)
    check_choice("shape", shape, SHAPES)
    counts = torch.as_tensor(class_counts, dtype=torch.float64)
    low, high = counts.aminmax()
    x = (counts - low) / (high - low) if high > low else torch.ones_like(counts)
    rise = {"concave": torch.sin(math.pi / 2 * x), "linear": x, "convex": 1 - torch.cos(math.pi / 2 * x)}[shape]
    return smallest + (largest - smallest) * rise


def label_aware_smoothing(
    scores: Tensor, target: Tensor, *, smoothing: Tensor, reduction: str = "mean", validate: bool = True
) -> Tensor:
    """Cross-entropy to smoothed labels, L_i = -(1 - ε_y) log p_iy - ε_y/(K-1) Σ_{j≠y} log p_ij.

    Zhong et al. 2021, section 3.2. The paper spreads ε over the K - 1 other classes, its published code over all K, as
    the usual label smoothing does; this is the paper's.

    Args:
        scores: decision scores z (N, K); p is their softmax.
        target: labels (N,).
        smoothing: ε (K,), each from 0 to 1; its values are not looked at.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels.
    """
    check_scores(scores, target, validate=validate)
    check_reduction(reduction)
    K = scores.shape[1]
    if smoothing.shape != (K,):
        raise ValueError(f"smoothing must hold one number for each of the {K} classes, got {tuple(smoothing.shape)}")
    log_p = F.log_softmax(at_least_float32(scores), dim=1)
    own = log_p.gather(1, target.unsqueeze(1)).squeeze(1)
    epsilon = smoothing.to(log_p)[target]
    return reduce(-(1 - epsilon) * own - epsilon / (K - 1) * (log_p.sum(1) - own), reduction)


class LabelAwareSmoothing(nn.Module):
    """Cross-entropy to labels smoothed by the size of their class; see :func:`label_aware_smoothing`.

    Args:
        class_counts: number of training images of each of the K classes, at least 1.
        largest: smoothing of the most frequent class.
        smallest: smoothing of the rarest class.
        shape: how it rises in between, see :func:`smoothing_by_class`.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels on every call.
    """

    def __init__(
        self,
        *,
        class_counts: Sequence[int],
        largest: float = 0.3,
        smallest: float = 0.0,
        shape: str = "concave",
        reduction: str = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction, self.validate = reduction, validate
        self.smoothing = smoothing_by_class(class_counts, largest=largest, smallest=smallest, shape=shape)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Loss of scores (N, K) and labels (N,)."""
        if self.smoothing.device != scores.device:
            self.smoothing = self.smoothing.to(scores.device, torch.float32)  # once: a copy makes a CUDA device wait
        return label_aware_smoothing(
            scores, target, smoothing=self.smoothing, reduction=self.reduction, validate=self.validate
        )
