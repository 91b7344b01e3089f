"""Expected calibration error and the reliability diagram behind it.

Guo et al. 2017, "On calibration of modern neural networks", eq. 3: with M equal-width bins of the confidence,
``ECE = sum_m (|B_m| / N) |acc(B_m) - conf(B_m)|``.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nbs_lib.geometry import at_least_float32
from nbs_lib.validation import check_scores


@dataclass(frozen=True)
class ReliabilityBins:
    """The bins of a reliability diagram, as float64 tensors on the CPU.

    Attributes:
        edges: (bins + 1,) from 0 to 1. Bin m is (edges[m], edges[m+1]]; the first also holds 0, the last holds 1.
        confidence: (bins,) mean confidence; NaN in an empty bin.
        accuracy: (bins,) share of right answers; NaN in an empty bin.
        count: (bins,) number of samples, int64.
    """

    edges: Tensor
    confidence: Tensor
    accuracy: Tensor
    count: Tensor

    @property
    def error(self) -> float:
        """Expected calibration error: the count-weighted mean of |accuracy - confidence|."""
        gap = (self.accuracy - self.confidence).abs().nan_to_num(0.0)
        return float((gap * self.count).sum() / self.count.sum())


def reliability_bins(probabilities: Tensor, target: Tensor, bins: int = 15) -> ReliabilityBins:
    """Sort predictions into equal-width bins of their confidence, the largest probability of the row.

    Bins are closed on the right, as in Guo et al. 2017, so a confidence of exactly 1 falls into the last one
    (torchmetrics 1.9 gives it a bin of its own, which changes the error). One transfer brings the result to the CPU;
    checking labels and rows waits for a GPU twice more.

    Args:
        probabilities: (N, K), rows in [0, 1] that sum to 1.
        target: (N,) int64.
        bins: number of bins, at least 1.

    Raises:
        ValueError: an empty batch, ``bins`` below 1, labels out of range, or rows that are no distributions
            (logits passed by mistake).
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise ValueError(f"reliability_bins: bins must be an integer of at least 1, got {bins!r}")
    check_scores(probabilities, target)
    if len(target) == 0:
        raise ValueError("reliability_bins: the batch is empty")
    # softmax rounds to the dtype it was computed in: allow its rows to miss 1 by that much
    slack = 1e-2 if probabilities.dtype in (torch.float16, torch.bfloat16) else 1e-4
    p = at_least_float32(probabilities.detach())
    least, most = p.aminmax()
    astray = (p.double().sum(1) - 1).abs().amax()
    low, high, off = torch.stack((least.double(), most.double(), astray)).tolist()
    if not (low >= -1e-6 and high <= 1 + 1e-6 and off <= slack):
        raise ValueError(
            "reliability_bins: probabilities must be rows in [0, 1] that sum to 1, got values from "
            f"{low:.4g} to {high:.4g} and a row sum off by {off:.4g}: apply softmax to logits first"
        )
    confidence, predicted = p.max(1)
    confidence = confidence.clamp(0.0, 1.0)
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=p.device)
    # edges in the dtype of the confidences: 0.2 in float32 must not exceed the edge 0.2 in float64
    index = (torch.bucketize(confidence, edges.to(confidence.dtype)) - 1).clamp(
        min=0
    )  # 0 itself belongs to the first bin
    right = (predicted == target).double()
    rows = torch.stack((torch.ones_like(right), confidence.double(), right))
    total = torch.zeros(3, bins, dtype=torch.float64, device=p.device).index_add_(1, index, rows).cpu()
    count = total[0]
    share = total[1:] / torch.where(count > 0, count, math.nan)
    return ReliabilityBins(edges=edges.cpu(), confidence=share[0], accuracy=share[1], count=count.long())


def expected_calibration_error(probabilities: Tensor, target: Tensor, bins: int = 15) -> float:
    """Expected calibration error over equal-width bins (Guo et al. 2017, eq. 3), in [0, 1].

    Args:
        probabilities: (N, K), rows in [0, 1] that sum to 1.
        target: (N,) int64.
        bins: number of bins; 15 is the usual choice.

    Raises:
        ValueError: as :func:`reliability_bins`.
    """
    return reliability_bins(probabilities, target, bins).error
