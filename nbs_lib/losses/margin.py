"""Margin softmax losses on cosines, as modules over :mod:`nbs_lib.losses.functional`, where the formulas stand."""

from torch import Tensor

from nbs_lib.losses import functional
from nbs_lib.losses.base import Criterion
from nbs_lib.losses.curve import branch
from nbs_lib.validation import check_cosine_margin, check_factor, check_positive, check_radians, check_real


class NormFace(Criterion):
    """Softmax over scaled cosines (Wang et al. 2017); see :func:`~nbs_lib.losses.functional.normface`.

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
        return functional.normface(cosines, target, scale=self.scale, reduction=self.reduction, validate=self.validate)


class CosFace(Criterion):
    """Additive cosine margin, s (c_y - m) (Wang et al. 2018); see :func:`~nbs_lib.losses.functional.cosface`.

    Args:
        scale: s > 0.
        margin: m in cosine units, 0 to 2.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels on every call.
    """

    def __init__(self, *, scale: float, margin: float, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.scale = check_positive("scale", scale)
        self.margin = check_cosine_margin("margin", margin)

    def forward(self, cosines: Tensor, target: Tensor) -> Tensor:
        """Loss of cosines (N, K) and labels (N,)."""
        return functional.cosface(
            cosines,
            target,
            scale=self.scale,
            margin=self.margin,
            reduction=self.reduction,
            validate=self.validate,
        )


class ArcFace(Criterion):
    """Additive angular margin, s cos(θ_y + m) (Deng et al. 2019); see :func:`~nbs_lib.losses.functional.arcface`.

    Args:
        scale: s > 0.
        margin: m in radians, 0 to π/2.
        beyond: what holds beyond θ + m = π: "linear", "psi", "easy" or "none".
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels on every call.
    """

    def __init__(
        self, *, scale: float, margin: float, beyond: str = "linear", reduction: str = "mean", validate: bool = True
    ) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.scale = check_positive("scale", scale)
        self.margin = check_radians("margin", margin)
        self.beyond = branch(1.0, beyond)

    def forward(self, cosines: Tensor, target: Tensor) -> Tensor:
        """Loss of cosines (N, K) and labels (N,)."""
        return functional.arcface(
            cosines,
            target,
            scale=self.scale,
            margin=self.margin,
            beyond=self.beyond,
            reduction=self.reduction,
            validate=self.validate,
        )


class SphereFace(Criterion):
    """Multiplicative angular margin, s ψ(θ_y) (Liu et al. 2017); see :func:`~nbs_lib.losses.functional.sphereface`.

    Args:
        margin: factor m >= 1 on the angle, whole or real.
        scale: s > 0; None for the original form without normalised features: the call then takes their norms.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels on every call.
    """

    def __init__(self, *, margin: float, scale: float | None, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.margin = check_factor("margin", margin)
        self.scale = None if scale is None else check_positive("scale", scale)

    def forward(self, cosines: Tensor, target: Tensor, norms: Tensor | None = None) -> Tensor:
        """Loss of cosines (N, K), labels (N,) and, with ``scale=None``, the feature norms (N,)."""
        if (self.scale is None) == (norms is None):
            raise ValueError("norms must be given if and only if SphereFace was made with scale=None")
        return functional.sphereface(
            cosines,
            target,
            margin=self.margin,
            scale=norms if self.scale is None else self.scale,
            reduction=self.reduction,
            validate=self.validate,
        )


class UnifiedMargin(Criterion):
    """All three margins, s (cos(m1 θ_y + m2) - m3) (Zhou et al. 2022, Eq. (3.1)).

    See :func:`~nbs_lib.losses.functional.unified`.

    Args:
        scale: s > 0.
        m1: angular factor, at least 1.
        m2: additive angle in radians, 0 to π/2.
        m3: additive margin in cosine units, 0 to 2.
        beyond: what holds beyond m1 θ + m2 = π; None takes "linear" for m1 = 1, else "psi".
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels on every call.
    """

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
        super().__init__(reduction=reduction, validate=validate)
        self.scale = check_positive("scale", scale)
        self.m1 = check_factor("m1", m1)
        self.m2 = check_radians("m2", m2)
        self.m3 = check_cosine_margin("m3", m3)
        branch(m1, beyond)
        self.beyond = beyond

    def forward(self, cosines: Tensor, target: Tensor) -> Tensor:
        """Loss of cosines (N, K) and labels (N,)."""
        return functional.unified(
            cosines,
            target,
            scale=self.scale,
            m1=self.m1,
            m2=self.m2,
            m3=self.m3,
            beyond=self.beyond,
            reduction=self.reduction,
            validate=self.validate,
        )


class GMSoftmax(Criterion):
    """Generalised margin softmax (Zhou et al. 2022, Eq. (3.3)); see :func:`~nbs_lib.losses.functional.gm_softmax`.

    Args:
        scale: s > 0.
        alpha1: α1, slope of the numerator's target logit.
        beta1: β1, its offset.
        alpha2: α2, slope of the denominator's target logit.
        beta2: β2, its offset; -inf leaves the target out.
        reduction: "mean", "sum" or "none".
        validate: check the range of the labels on every call.
    """

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
        super().__init__(reduction=reduction, validate=validate)
        self.scale = check_positive("scale", scale)
        self.alpha1 = check_real("alpha1", alpha1)
        self.beta1 = check_real("beta1", beta1)
        self.alpha2 = check_real("alpha2", alpha2)
        self.beta2 = check_real("beta2", beta2)

    def forward(self, cosines: Tensor, target: Tensor) -> Tensor:
        """Loss of cosines (N, K) and labels (N,)."""
        return functional.gm_softmax(
            cosines,
            target,
            scale=self.scale,
            alpha1=self.alpha1,
            beta1=self.beta1,
            alpha2=self.alpha2,
            beta2=self.beta2,
            reduction=self.reduction,
            validate=self.validate,
        )
