"""Percentile bootstrap over identities: how far a measure would move had other people been drawn.

Pairs (and queries) of one identity share its images, so they are no independent draws: resampling them one by one gives
intervals that are too short. What was drawn independently are the identities.
"""

import torch
from torch import Tensor


def draw_counts(groups: int, resamples: int, seed: int) -> Tensor:
    """How often each of ``groups`` is drawn in each resample of as many, with replacement: (resamples, groups) float64.

    Raises:
        ValueError: no group or no resample.
    """
    for name, value in (("groups", groups), ("resamples", resamples)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    drawn = torch.randint(groups, (resamples, groups), generator=torch.Generator().manual_seed(seed))
    counts = torch.zeros(resamples, groups, dtype=torch.float64)
    return counts.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))


def interval(samples: Tensor, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Lower and upper percentile along the first axis of ``samples`` (R, ...); resamples that are NaN are left out.

    Raises:
        ValueError: a level outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")
    tail = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=samples.dtype, device=samples.device)
    low, high = samples.nanquantile(tail, dim=0)
    return low, high


def bootstrap_mean(values: Tensor, groups: Tensor, *, resamples: int = 1000, seed: int = 0) -> Tensor:
    """Means of ``values`` in resamples of whole groups, for :func:`interval`.

    Args:
        values: (N,) real; NaN entries count in no mean (a query without a match).
        groups: (N,) int64, the identity of each.
        resamples: how many.
        seed: of the resampling.

    Returns:
        (resamples,) float64; NaN where a resample holds no value.

    Raises:
        ValueError: shapes that differ, or no value at all.
    """
    if values.ndim != 1 or values.shape != groups.shape:
        raise ValueError(f"values and groups must both be (N,), got {tuple(values.shape)} and {tuple(groups.shape)}")
    used = ~values.isnan()
    if not used.any():
        raise ValueError("bootstrap_mean: there is no value")
    number = groups[used].unique(return_inverse=True)[1].cpu()
    count = int(number.max()) + 1
    rows = torch.stack((values[used].double().cpu(), torch.ones(len(number), dtype=torch.float64)))
    total = torch.zeros(2, count, dtype=torch.float64).index_add_(1, number, rows)
    above, below = total @ draw_counts(count, resamples, seed).T
    return above / below
