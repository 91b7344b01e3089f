"""Regularisers to add to a loss: ``criterion(s, y) + mu * sample_margin(c, y) + 100 * lam * zero_centroid(w)``."""

from torch import Tensor, nn

from nbs_lib.losses import functional
from nbs_lib.losses.base import Criterion

PAPER_LAMBDA = 100
"""What one unit of the paper's λ is worth: the objective adds 100 λ |w̄|² (Zhou et al. 2022, Appendix C)."""


class SampleMargin(Criterion):
    """Negative sample margin R_sm on cosines (Zhou et al. 2022, Eq. (3.4)).

    See :func:`~nbs_lib.losses.functional.sample_margin_loss`. Beside a cross-entropy it wants cosines too.

    Args:
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels on every call.
    """

    formula = functional.sample_margin_loss

    def __init__(self, *, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(reduction=reduction, validate=validate)


class ZeroCentroid(nn.Module):
    """Squared length of the mean prototype, R_w (Zhou et al. 2022, Eq. (3.7)), without its factor.

    See :func:`~nbs_lib.losses.functional.zero_centroid_loss`; the paper's λ stands for ``PAPER_LAMBDA * λ``, 100 λ.

    Args:
        normalize: scale each prototype to length one first.
    """

    def __init__(self, *, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize

    def forward(self, prototypes: Tensor) -> Tensor:
        """R_w of prototypes (K, d)."""
        return functional.zero_centroid_loss(prototypes, normalize=self.normalize)

    def extra_repr(self) -> str:
        """The setting, as it would be written in the call."""
        return f"normalize={self.normalize}"
