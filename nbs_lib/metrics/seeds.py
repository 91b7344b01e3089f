"""What a handful of seeds can tell: intervals of a mean, and which methods they do not tell from the best one."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student


class Interval(NamedTuple):
    """Mean, standard deviation (ddof = 1), bounds of the mean's interval, number of values; NaN where undefined."""

    mean: float
    std: float
    low: float
    high: float
    count: int


def mean_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student's interval of a mean, mean ± t sd / sqrt(n), t the quantile (1 + level)/2 with n - 1 degrees of freedom.

    For the few seeds of an experiment it is the honest one: with five values it is 1.24 sd wide on each side, where a
    bootstrap of the same five gives some 0.8 sd. One value has no interval; NaN values are left out.
    """
    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    count = len(values)
    mean = float(values.mean()) if count else math.nan
    if count < 2:
        return Interval(mean, math.nan, math.nan, math.nan, count)
    std = float(values.std(ddof=1))
    half = float(student.ppf((1 + level) / 2, count - 1)) * std / math.sqrt(count)
    return Interval(mean, std, mean - half, mean + half, count)


def tied_with_best(values: ArrayLike, *, largest: bool = True, level: float = 0.95) -> np.ndarray:
    """Which methods the seeds do not tell from the one with the best mean.

    A method differs if the interval of its difference to the best, seed by seed, leaves out 0. Pairing removes what a
    seed does to all methods alike (its initial weights, its order of images). The interval's level is raised so that
    all M - 1 comparisons hold together (Bonferroni): 1 - (1 - level) / (M - 1).

    Args:
        values: (M, S) one row a method, one column a seed, none missing.
        largest: whether the largest mean is the best.
        level: probability that no method is called different by chance.

    Returns:
        (M,) booleans, True for the best itself.

    Raises:
        ValueError: fewer than two methods or seeds, a value that is missing.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 2 or min(values.shape) < 2 or np.isnan(values).any():
        raise ValueError(f"values must be (methods, seeds), two or more of each, none NaN, got shape {values.shape}")
    best = (values if largest else -values).mean(1).argmax()
    each = 1 - (1 - level) / (len(values) - 1)
    found = [mean_interval(row - values[best], each) for row in values]
    return np.array([interval.low <= 0 <= interval.high for interval in found])
