"""Cross-entropy, focal loss, LM-Softmax: modules over :mod:`nbs_lib.losses.functional`, where the formulas stand.

Common settings: ``reduction`` "mean", "sum" or "none"; ``validate`` the range of the labels on every call.
"""

from nbs_lib.losses import functional
from nbs_lib.losses.base import Criterion


class CrossEntropy(Criterion):
    """Softmax cross-entropy on raw scores; see :func:`~nbs_lib.losses.functional.cross_entropy`.

    Args:
        label_smoothing: share of the target probability spread evenly over all K classes, 0 to 1.
    """

    formula = functional.cross_entropy
    on_cosines = False

    def __init__(self, *, label_smoothing: float = 0.0, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(label_smoothing=label_smoothing, reduction=reduction, validate=validate)


class Focal(Criterion):
    """Focal loss on raw scores (Lin et al. 2017, Eq. (4)); see :func:`~nbs_lib.losses.functional.focal`.

    Args:
        gamma: γ >= 0, how strongly samples that are right already lose weight; 0 is cross-entropy.
    """

    formula = functional.focal
    on_cosines = False

    def __init__(self, *, gamma: float, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(gamma=gamma, reduction=reduction, validate=validate)


class LMSoftmax(Criterion):
    """Largest-margin softmax (Zhou et al. 2022, Eq. (3.5)); see :func:`~nbs_lib.losses.functional.lm_softmax`.

    Args:
        scale: s > 0.
    """

    formula = functional.lm_softmax

    def __init__(self, *, scale: float, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(scale=scale, reduction=reduction, validate=validate)


class LMSoftmaxTotal(Criterion):
    """One log-sum-exp over all samples and classes (Zhou et al. 2022, Eq. (3.6), left side).

    See :func:`~nbs_lib.losses.functional.lm_softmax_total`. A batch has one value, so there is no ``reduction``.

    Args:
        scale: s > 0.
    """

    formula = functional.lm_softmax_total

    def __init__(self, *, scale: float, validate: bool = True) -> None:
        super().__init__(scale=scale, validate=validate)
