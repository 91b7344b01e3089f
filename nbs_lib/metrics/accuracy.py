"""Accuracy: top-k, and class by class."""

import torch
from torch import Tensor

from nbs_lib.validation import check_scores


def topk_accuracy(scores: Tensor, target: Tensor, k: int = 1, *, validate: bool = True) -> float:
    """Share of samples whose target is among the k largest scores.

    Of equal scores the lower class index counts as larger, on every device (half-precision cosines tie often, and
    ``torch.topk`` promises no order). A row whose target score is NaN is wrong.

    Args:
        scores: (N, K).
        target: (N,) int64.
        k: at least 1; above K it means K.
        validate: check the range of ``target``, which waits for a GPU.

    Returns:
        A share in [0, 1].

    Raises:
        ValueError: k below 1, an empty batch, shapes, dtypes or labels that do not fit.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"topk_accuracy: k must be an integer of at least 1, got {k!r}")
    check_scores(scores, target, validate=validate)
    if len(target) == 0:
        raise ValueError("topk_accuracy: the batch is empty")
    return float(_right(scores, target, k).double().mean())


def class_accuracy(scores: Tensor, target: Tensor, *, validate: bool = True) -> Tensor:
    """Share of the samples of each class whose highest score is that of their class; ties as in `topk_accuracy`.

    Args:
        scores: (N, K).
        target: (N,) int64.
        validate: check the range of ``target``, which waits for a GPU.

    Returns:
        float64 (K,); NaN for a class without samples.

    Raises:
        ValueError: shapes, dtypes or labels that do not fit.
    """
    check_scores(scores, target, validate=validate)
    right = _right(scores, target, 1).double()
    of_class = torch.bincount(target, minlength=scores.shape[1])
    return torch.bincount(target, weights=right, minlength=scores.shape[1]) / of_class


def _right(scores: Tensor, target: Tensor, k: int) -> Tensor:
    column = target.unsqueeze(1)
    own = scores.gather(1, column)
    # "not <=" rather than ">": NaN then stands above every number, and a target that is NaN below every class
    above = ~(scores <= own) | ((scores == own) & (torch.arange(scores.shape[1], device=scores.device) < column))
    return above.sum(1) < min(k, scores.shape[1])
