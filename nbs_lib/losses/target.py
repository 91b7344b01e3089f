"""The target entries of a batch of scores: take them out, write into a scaled copy of the scores, softmax over it.

These few lines decide what a margin costs: the one product (N, K) that every scaled softmax needs, and work on (N,).
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nbs_lib.geometry import at_least_float32
from nbs_lib.losses.curve import target_logit
from nbs_lib.validation import reduce


class _ScaleAndTake(torch.autograd.Function):
    """(s c, c_y) with one backward for both.

    Autograd's own backward of ``gather`` fills a second (N, K) tensor with zeros and adds it to the gradient of the
    product: two passes more than this one, which writes the few target entries into the product's gradient.

    No ``jvp``: forward-mode derivatives would be two lines, but torch.compile refuses a function that has them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(cosines: Tensor, index: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        return cosines * scale, cosines.gather(1, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        _, index, ctx.scale = inputs
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx: Any, scaled_grad: Tensor, own_grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return (scaled_grad * ctx.scale).scatter_add_(1, index, own_grad), None, None


def scaled_and_target(cosines: Tensor, target: Tensor, scale: float | Tensor) -> tuple[Tensor, Tensor]:
    """A fresh s * c (N, K) in float32 or better, which the caller may write into, and the target cosines (N,).

    A tensor ``scale`` holds one value a sample, (N,), and gets its gradient too.
    """
    cosines, index = at_least_float32(cosines), target.unsqueeze(1)
    if isinstance(scale, Tensor):
        scaled, own = cosines * scale.unsqueeze(1), cosines.gather(1, index)
    else:
        scaled, own = _ScaleAndTake.apply(cosines, index, scale)
    return scaled, own.squeeze(1)


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


def softmax_loss(scores: Tensor, target: Tensor, reduction: str, label_smoothing: float = 0.0) -> Tensor:
    """Softmax cross-entropy of scores (N, K) in float32 or better; the mean of an empty batch is 0."""
    if scores.shape[0] == 0:
        return reduce(scores.sum(1), reduction)
    return F.cross_entropy(scores, target, reduction=reduction, label_smoothing=label_smoothing)


def margin_softmax(
    cosines: Tensor,
    target: Tensor,
    scale: float | Tensor,
    m1: float,
    m2: float,
    m3: float | Tensor,
    beyond: str,
    reduction: str,
) -> Tensor:
    """Softmax loss of s * c with s (cos(m1 θ + m2) - m3) at the target; m3 may hold one margin a sample, (N,)."""
    scaled, own = scaled_and_target(cosines, target, scale)
    delta = scale * (target_logit(own, m1, m2, m3, beyond) - own)
    return softmax_loss(add_at_target(scaled, target, delta), target, reduction)
