"""Class margin and sample margin: how far apart prototypes lie, and how clearly a sample belongs to its own.

Paper: Zhou et al. 2022, "Learning towards the largest margins", sections 2 and C.2. The class margin is an angle in
degrees, the sample margin a difference of cosines. All angles are computed in float64.
"""

import math

import torch
from torch import Tensor

from nbs_lib.geometry import angle, at_least_float32, unit
from nbs_lib.validation import check_prototypes, check_scores

# Rows of the Gram matrix held at once: K = 10,000 then needs 82 MB instead of 800 MB.
_ROWS = 1024


def class_margins(prototypes: Tensor) -> Tensor:
    """Class margin in degrees of every set of prototypes in a batch of sets.

    ``m_c(W) = min_{i != j} angle(w_i, w_j)`` (Zhou et al. 2022, eq. 2.2). The nearest neighbour of each prototype is
    found through the Gram matrix in float64, a band of rows at a time; the angle of those K pairs is then taken by
    :func:`nbs_lib.geometry.angle`, which keeps its digits near 0 and 180 degrees where arccos loses them.

    Args:
        prototypes: (..., K, d), any length of row; K >= 2.

    Returns:
        (...) float64 on the device of ``prototypes``; NaN for a set with a zero or non-finite row, which has no angle.

    Raises:
        ValueError: fewer than two rows, or not a floating tensor.
    """
    check_prototypes(prototypes)
    with torch.no_grad(), torch.autocast(prototypes.device.type, enabled=False):
        w = unit(prototypes.double())
        k = w.shape[-2]
        smallest = []
        for start in range(0, k, _ROWS):
            rows = w[..., start : start + _ROWS, :]
            gram = rows @ w.mT
            gram.diagonal(offset=start, dim1=-2, dim2=-1).fill_(-math.inf)
            nearest = gram.argmax(-1)
            partner = w.gather(-2, nearest.unsqueeze(-1).expand(*nearest.shape, w.shape[-1]))
            smallest.append(angle(rows, partner).amin(-1))
        margin = torch.rad2deg(torch.stack(smallest, -1).amin(-1))
        # a zero row has norm 0 after `unit`, a non-finite one NaN: both fail this comparison
        sound = (torch.linalg.vector_norm(w, dim=-1) > 0.5).all(-1)
        return torch.where(sound, margin, math.nan)


def class_margin(prototypes: Tensor) -> float:
    """Class margin in degrees: the smallest angle between two prototypes (Zhou et al. 2022, eq. 2.2).

    Args:
        prototypes: (K, d), any length of row; K >= 2.

    Returns:
        Degrees in [0, 180].

    Raises:
        ValueError: wrong shape, or a row that is zero or not finite and so has no direction.
    """
    check_prototypes(prototypes)
    if prototypes.dim() != 2:
        raise ValueError(f"class_margin: prototypes must be (K, d), got {tuple(prototypes.shape)}")
    margin = float(class_margins(prototypes))
    if math.isnan(margin):
        raise ValueError("class_margin: prototypes has a zero or non-finite row, which has no direction")
    return margin


def pairwise_cosines(prototypes: Tensor) -> Tensor:
    """Cosines of all pairs of prototypes, (K(K-1)/2,) in float64: pairs (0,1), (0,2), ..., (K-2,K-1).

    Args:
        prototypes: (K, d), any length of row; K >= 2. Memory grows with K squared.

    Raises:
        ValueError: wrong shape.
    """
    check_prototypes(prototypes)
    if prototypes.dim() != 2:
        raise ValueError(f"pairwise_cosines: prototypes must be (K, d), got {tuple(prototypes.shape)}")
    with torch.no_grad(), torch.autocast(prototypes.device.type, enabled=False):
        w = unit(prototypes.double())
        i, j = torch.triu_indices(len(w), len(w), offset=1, device=w.device)
        return (w @ w.T)[i, j].clamp(-1.0, 1.0)


def prototype_norm_ratio(prototypes: Tensor) -> float:
    """Longest over shortest prototype, max |w_j| / min |w_j| (Zhou et al. 2022, fig. 1); infinite if one is zero.

    Args:
        prototypes: (K, d).

    Raises:
        ValueError: wrong shape or a non-finite entry.
    """
    check_prototypes(prototypes)
    if prototypes.dim() != 2:
        raise ValueError(f"prototype_norm_ratio: prototypes must be (K, d), got {tuple(prototypes.shape)}")
    with torch.no_grad():
        shortest, longest = torch.linalg.vector_norm(prototypes.double(), dim=-1).aminmax()
        low, high = torch.stack((shortest, longest)).tolist()
    if not math.isfinite(high):
        raise ValueError("prototype_norm_ratio: prototypes has a non-finite entry")
    return high / low if low > 0 else math.inf


def sample_margins(cosines: Tensor, target: Tensor, *, validate: bool = True) -> Tensor:
    """Sample margin of every row: ``cos(w_y, z) - max_{j != y} cos(w_j, z)`` (Zhou et al. 2022, eq. 2.5 and C.2).

    The printed formula in C.2 has w_y in the second numerator, a slip. The two largest entries of each row are
    enough: no (N, K) mask is built. A tie between the target and another class gives exactly 0. Given raw scores
    instead of cosines, the result is in their unit.

    Args:
        cosines: (N, K) scores, K >= 2; half precision is lifted to float32.
        target: (N,) int64; classes may be absent.
        validate: check the range of ``target``, which waits for a GPU.

    Returns:
        (N,) margins, positive where the sample is classified rightly.

    Raises:
        ValueError: shapes, dtypes or labels that do not fit.
    """
    check_scores(cosines, target, validate=validate)
    scores = at_least_float32(cosines)
    top = scores.topk(2, dim=1)
    own = scores.gather(1, target.unsqueeze(1)).squeeze(1)
    return own - torch.where(top.indices[:, 0] == target, top.values[:, 1], top.values[:, 0])


def mean_sample_margin(cosines: Tensor, target: Tensor, *, validate: bool = True) -> float:
    """Mean of :func:`sample_margins`, the paper's m_samp, summed in float64.

    Raises:
        ValueError: as :func:`sample_margins`, or an empty batch.
    """
    if len(target) == 0:
        raise ValueError("mean_sample_margin: the batch is empty")
    with torch.no_grad():
        return float(sample_margins(cosines, target, validate=validate).double().mean())
