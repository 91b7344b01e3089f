"""Margin softmax losses on cosines, as modules over :mod:`nbs_lib.losses.functional`, where the formulas stand.

Common settings: ``scale`` s > 0; ``reduction`` "mean", "sum" or "none"; ``validate`` the range of the labels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nbs_lib.losses import functional
from nbs_lib.losses.base import Criterion
from nbs_lib.validation import check_class_counts


class NormFace(Criterion):
    """Softmax over scaled cosines (Wang et al. 2017); see :func:`~nbs_lib.losses.functional.normface`."""

    formula = functional.normface

    def __init__(self, *, scale: float, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(scale=scale, reduction=reduction, validate=validate)


class CosFace(Criterion):
    """Additive cosine margin, s (c_y - m) (Wang et al. 2018); see :func:`~nbs_lib.losses.functional.cosface`.

    Args:
        margin: m in cosine units, 0 to 2.
    """

    formula = functional.cosface

    def __init__(self, *, scale: float, margin: float, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(scale=scale, margin=margin, reduction=reduction, validate=validate)


class ArcFace(Criterion):
    """Additive angular margin, s cos(θ_y + m) (Deng et al. 2019); see :func:`~nbs_lib.losses.functional.arcface`.

    Args:
        margin: m in radians, 0 to π/2.
        beyond: what holds beyond θ + m = π: "linear", "psi", "easy" or "none".
    """

    formula = functional.arcface

    def __init__(
        self, *, scale: float, margin: float, beyond: str = "linear", reduction: str = "mean", validate: bool = True
    ) -> None:
        super().__init__(scale=scale, margin=margin, beyond=beyond, reduction=reduction, validate=validate)


class SphereFace(Criterion):
    """Multiplicative angular margin, s ψ(θ_y) (Liu et al. 2017); see :func:`~nbs_lib.losses.functional.sphereface`.

    Args:
        margin: factor m >= 1 on the angle, whole or real.
        scale: s > 0; None for the original form without normalised features: the call then takes their norms.
    """

    formula = functional.sphereface

    def __init__(self, *, margin: float, scale: float | None, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(margin=margin, scale=scale, reduction=reduction, validate=validate)

    def _check(self) -> None:
        norms = torch.empty(0) if self.scale is None else None
        self(torch.empty(0, 2), torch.empty(0, dtype=torch.long), norms)

    def forward(self, cosines: Tensor, target: Tensor, norms: Tensor | None = None) -> Tensor:
        """Loss of cosines (N, K), labels (N,) and, with ``scale=None``, the feature norms (N,)."""
        if (self.scale is None) == (norms is None):
            raise ValueError("norms must be given if and only if SphereFace was made with scale=None")
        settings = self.settings if norms is None else {**self.settings, "scale": norms}
        return functional.sphereface(cosines, target, **settings)


class LDAM(Criterion):
    """An additive cosine margin for each class, the larger the rarer it is (Cao et al. 2019, section 3.2).

    See :func:`~nbs_lib.losses.functional.ldam`.

    Args:
        margin: the largest margin, that of the rarest class, in cosine units, 0 to 2.
        class_counts: number of training images of each of the K classes, at least 1.
    """

    formula = functional.ldam

    def __init__(
        self,
        *,
        scale: float,
        margin: float,
        class_counts: Sequence[int],
        reduction: str = "mean",
        validate: bool = True,
    ) -> None:
        check_class_counts(class_counts)
        counts = tuple(class_counts.tolist() if isinstance(class_counts, Tensor) else class_counts)
        super().__init__(scale=scale, margin=margin, class_counts=counts, reduction=reduction, validate=validate)

    def _check(self) -> None:
        check_class_counts(self.class_counts)
        self._held = (self.class_counts, torch.tensor(self.class_counts))
        self(torch.empty(0, len(self.class_counts)), torch.empty(0, dtype=torch.long))

    def forward(self, cosines: Tensor, target: Tensor) -> Tensor:
        """Loss of cosines (N, K) and labels (N,)."""
        counts, on_device = self._held
        if counts != self.class_counts or on_device.device != cosines.device:
            # Once, not on every call: the copy makes a CUDA device wait.
            check_class_counts(self.class_counts)
            on_device = torch.tensor(self.class_counts, device=cosines.device)
            self._held = self.class_counts, on_device
        return functional.ldam(cosines, target, **{**self.settings, "class_counts": on_device})


class UnifiedMargin(Criterion):
    """All three margins, s (cos(m1 θ_y + m2) - m3) (Zhou et al. 2022, Eq. (3.1)).

    See :func:`~nbs_lib.losses.functional.unified`.

    Args:
        m1: angular factor, at least 1.
        m2: additive angle in radians, 0 to π/2.
        m3: additive margin in cosine units, 0 to 2.
        beyond: what holds beyond m1 θ + m2 = π; None takes "linear" for m1 = 1, else "psi".
    """

    formula = functional.unified

    def __init__(
        self,
        *,
        scale: float,
        m1: float = 1.0,
        m2: float = 0.0,
        m3: float = 0.0,
        beyond: str | None = None,
        reduction: str = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(scale=scale, m1=m1, m2=m2, m3=m3, beyond=beyond, reduction=reduction, validate=validate)


class GMSoftmax(Criterion):
    """Generalised margin softmax (Zhou et al. 2022, Eq. (3.3)); see :func:`~nbs_lib.losses.functional.gm_softmax`.

    Args:
        alpha1: α1, slope of the numerator's target logit.
        beta1: β1, its offset.
        alpha2: α2, slope of the denominator's target logit.
        beta2: β2, its offset; -inf leaves the target out.
    """

    formula = functional.gm_softmax

    def __init__(
        self,
        *,
        scale: float,
        alpha1: float = 1.0,
        beta1: float = 0.0,
        alpha2: float = 1.0,
        beta2: float = 0.0,
        reduction: str = "mean",
        validate: bool = True,
    ) -> None:
        shape = {"alpha1": alpha1, "beta1": beta1, "alpha2": alpha2, "beta2": beta2}
        super().__init__(scale=scale, **shape, reduction=reduction, validate=validate)
