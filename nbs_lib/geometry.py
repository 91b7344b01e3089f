"""Unit vectors, cosines and angles: the numerics that heads, losses, metrics and theory share.

Everything here works in float32 or better whatever the input's dtype or the surrounding autocast.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def at_least_float32(x: Tensor) -> Tensor:
    """Return ``x`` in float32 if it is a half-precision tensor, else unchanged (float64 stays float64)."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def unit(x: Tensor, eps: float = 1e-12) -> Tensor:
    """Scale the rows of ``x`` (..., d) to Euclidean length one.

    A row shorter than ``eps`` has no direction: it maps to zero and passes no gradient
    (``F.normalize`` would pass one 1/eps times too large). So does a row whose length overflows its dtype.
    """
    x = at_least_float32(x)
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    short = norm <= eps
    inverse = (1.0 / norm.masked_fill(short, 1.0)).masked_fill(short, 0.0)
    return x * inverse


def cosine(features: Tensor, prototypes: Tensor) -> Tensor:
    """Cosines (N, K) between the rows of ``features`` (N, d) and of ``prototypes`` (K, d), outside any autocast."""
    with torch.autocast(features.device.type, enabled=False):
        return F.linear(unit(features), unit(prototypes))


def angle(u: Tensor, v: Tensor) -> Tensor:
    """Angle in radians between the last axes of ``u`` and ``v``, in float64, exact to rounding from 0 to pi.

    Kahan's form 2 atan2(|u - v|, |u + v|) on unit vectors: arccos of the cosine loses everything below 0.02 degrees
    in float32 and has infinite slope at both ends.
    """
    u, v = unit(u.double()), unit(v.double())
    return 2 * torch.atan2(torch.linalg.vector_norm(u - v, dim=-1), torch.linalg.vector_norm(u + v, dim=-1))
