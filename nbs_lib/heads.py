"""Classifier heads: they own the prototypes and turn features into scores. No margin ever enters a head."""

import inspect

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nbs_lib.geometry import at_least_float32, cosine, unit
from nbs_lib.validation import check_real


def _check_size(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return value


class Head(nn.Module):
    """What both heads share: ``prototypes`` (K, d), ``bias`` (K,) or None, and cosines.

    Scores are computed outside any autocast in float32 or better, and the parameters keep their dtype.
    """

    bias: nn.Parameter | None

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.in_features = _check_size("in_features", in_features, 1)
        self.num_classes = _check_size("num_classes", num_classes, 2)
        self.prototypes = nn.Parameter(torch.empty(num_classes, in_features))

    def cosine(self, features: Tensor) -> Tensor:
        """Cosines (N, K) between features (N, d) and prototypes; a zero feature has cosine 0 and gets no gradient."""
        return cosine(self._checked(features), self.prototypes)

    def _checked(self, features: Tensor) -> Tensor:
        if features.ndim != 2 or features.shape[1] != self.in_features:
            raise ValueError(f"features must have shape (N, {self.in_features}), got {tuple(features.shape)}")
        return features


class LinearHead(Head):
    """Scores z = W h + b; the papers on BCE write z = W h - b, their bias is minus this one.

    Args:
        in_features: feature dimension d.
        num_classes: K >= 2.
        bias: whether there is a bias.
        bias_init: mean of the initial bias, which is this plus torch's usual uniform ±1/sqrt(d).
    """

    def __init__(self, in_features: int, num_classes: int, bias: bool = True, bias_init: float = 0.0) -> None:
        super().__init__(in_features, num_classes)
        self.bias_init = check_real("bias_init", bias_init)
        if not bias and bias_init != 0:
            raise ValueError(f"bias_init must be 0 when bias is False, got {bias_init!r}")
        self.bias = nn.Parameter(torch.empty(num_classes)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw prototypes and bias as ``nn.Linear`` does, the bias around ``bias_init``."""
        bound = self.in_features**-0.5
        nn.init.uniform_(self.prototypes, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, self.bias_init - bound, self.bias_init + bound)

    def forward(self, features: Tensor) -> Tensor:
        """Scores (N, K) of features (N, d), in float32 or better."""
        with torch.autocast(self._checked(features).device.type, enabled=False):
            bias = None if self.bias is None else at_least_float32(self.bias)
            return F.linear(at_least_float32(features), at_least_float32(self.prototypes), bias)

    def extra_repr(self) -> str:
        """Sizes, as in ``nn.Linear``."""
        return f"in_features={self.in_features}, num_classes={self.num_classes}, bias={self.bias is not None}"


class CosineHead(Head):
    """Scores cos θ between feature and prototype; the margin losses apply scale and margin to them themselves.

    Args:
        in_features: feature dimension d.
        num_classes: K >= 2.
        normalize_features: if False only the prototypes are normalised, and the scores are |h| cos θ.
    """

    def __init__(self, in_features: int, num_classes: int, normalize_features: bool = True) -> None:
        super().__init__(in_features, num_classes)
        self.normalize_features = normalize_features
        self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the prototypes evenly from the unit sphere."""
        with torch.no_grad():
            self.prototypes.copy_(unit(self.prototypes.normal_()))

    def forward(self, features: Tensor) -> Tensor:
        """Cosines (N, K) of features (N, d), or |h| cos θ without feature normalisation; float32 or better."""
        if self.normalize_features:
            return self.cosine(features)
        with torch.autocast(self._checked(features).device.type, enabled=False):
            return F.linear(at_least_float32(features), unit(self.prototypes))

    def extra_repr(self) -> str:
        """Sizes and normalisation."""
        return (
            f"in_features={self.in_features}, num_classes={self.num_classes}, "
            f"normalize_features={self.normalize_features}"
        )


def build(name: str, in_features: int, num_classes: int, **options: object) -> Head:
    """Make the head called ``name``, "linear" or "cosine".

    Raises:
        ValueError: for an unknown name or option.
    """
    heads = {"linear": LinearHead, "cosine": CosineHead}
    if name not in heads:
        raise ValueError(f"head must be one of {', '.join(map(repr, heads))}, got {name!r}")
    accepted = list(inspect.signature(heads[name]).parameters)[2:]
    for option in options:
        if option not in accepted:
            raise ValueError(f"head {name!r} has no option {option!r}: it accepts {', '.join(accepted)}")
    return heads[name](in_features, num_classes, **options)
