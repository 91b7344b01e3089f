"""Cross-entropy and LM-Softmax, as modules over :mod:`nbs_lib.losses.functional`, where the formulas stand."""

from torch import Tensor

from nbs_lib.losses import functional
from nbs_lib.losses.base import Criterion
from nbs_lib.validation import check_in, check_positive


class CrossEntropy(Criterion):
    """Softmax cross-entropy on raw scores; see :func:`~nbs_lib.losses.functional.cross_entropy`.

    Args:
        label_smoothing: share of the target probability spread evenly over all K classes, 0 to 1.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels on every call.
    """

    def __init__(self, *, label_smoothing: float = 0.0, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.label_smoothing = check_in("label_smoothing", label_smoothing, 0, 1)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Loss of scores (N, K) and labels (N,)."""
        return functional.cross_entropy(
            scores,
            target,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
            validate=self.validate,
        )


class LMSoftmax(Criterion):
    """Largest-margin softmax (Zhou et al. 2022, Eq. (3.5)); see :func:`~nbs_lib.losses.functional.lm_softmax`.

    Args:
        scale: s > 0.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels on every call.
    """

    def __init__(self, *, scale: float, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.scale = check_positive("scale", scale)

    def forward(self, cosines: Tensor, target: Tensor) -> Tensor:
        """Loss of cosines (N, K) and labels (N,)."""
        return functional.lm_softmax(
            cosines, target, scale=self.scale, reduction=self.reduction, validate=self.validate
        )


class LMSoftmaxTotal(Criterion):
    """One log-sum-exp over all samples and classes (Zhou et al. 2022, Eq. (3.6), left side).

    See :func:`~nbs_lib.losses.functional.lm_softmax_total`.

    Args:
        scale: s > 0.
        reduction: only "mean", because the batch has one value; here so that all losses are made alike.
        validate: check the range of the labels on every call.
    """

    def __init__(self, *, scale: float, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.scale = check_positive("scale", scale)
        if reduction != "mean":
            raise ValueError(f"reduction must be 'mean' for LMSoftmaxTotal (a batch has one value), got {reduction!r}")

    def forward(self, cosines: Tensor, target: Tensor) -> Tensor:
        """Loss of cosines (N, K) and labels (N,)."""
        return functional.lm_softmax_total(cosines, target, scale=self.scale, validate=self.validate)
