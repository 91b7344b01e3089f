"""The target entries of a batch of scores: gather them, and write into a scaled copy of the scores.

These few lines decide what a margin costs: one product (N, K), as every scaled softmax needs, and work on (N,).
"""

import math

from torch import Tensor

from nbs_lib.geometry import at_least_float32


def scaled_and_target(cosines: Tensor, target: Tensor, scale: float | Tensor) -> tuple[Tensor, Tensor]:
    """A fresh s * c (N, K) in float32 or better, which the caller may write into, and the target cosines (N,)."""
    cosines = at_least_float32(cosines)
    scaled = cosines * (scale.unsqueeze(1) if isinstance(scale, Tensor) else scale)
    return scaled, cosines.gather(1, target.unsqueeze(1)).squeeze(1)


def add_at_target(scaled: Tensor, target: Tensor, delta: Tensor) -> Tensor:
    """Add ``delta`` (N,) to the target entries of ``scaled`` (N, K), in place, and return it.

    Backward hands the gradient on as it is and gathers delta's share: no (N, K) copy.
    """
    return scaled.scatter_add_(1, target.unsqueeze(1), delta.to(scaled.dtype).unsqueeze(1))


def without_target(scaled: Tensor, target: Tensor) -> Tensor:
    """Take the target entries out of a log-sum-exp or a maximum over ``scaled`` (N, K), in place, and return it.

    Adding -inf, unlike overwriting, needs no mask in backward: the two functions give that entry gradient zero anyway.
    """
    return add_at_target(scaled, target, scaled.new_full(target.shape, -math.inf))
