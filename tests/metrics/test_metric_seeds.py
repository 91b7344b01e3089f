"""Intervals over seeds: textbook numbers, promised coverage, and who is told from the best."""

import math

import numpy as np
import pytest

from nbs_lib.metrics import mean_interval, tied_with_best


def test_a_textbook_example():
    """1 to 5: sd sqrt(2.5), t with 4 degrees of freedom 2.7764 (0.975) and 2.1318 (0.95)."""
    found = mean_interval([1, 2, 3, 4, 5, math.nan])
    assert found.mean == 3
    assert found.std == pytest.approx(math.sqrt(2.5))
    assert (found.low, found.high) == pytest.approx(
        (3 - 2.7764 * math.sqrt(0.5), 3 + 2.7764 * math.sqrt(0.5)), abs=1e-4
    )
    assert mean_interval([1, 2, 3, 4, 5], 0.9).high == pytest.approx(3 + 2.1318 * math.sqrt(0.5), abs=1e-4)
    assert found.count == 5


def test_one_value_and_none():
    one = mean_interval([0.7])
    assert (one.mean, one.count) == (0.7, 1)
    assert np.isnan([one.std, one.low, one.high]).all()
    assert math.isnan(mean_interval([]).mean)


def test_coverage_of_five_normal_values():
    """95 % within 4 standard errors over 4,000 draws."""
    draws = np.random.default_rng(0).normal(7, 3, (4000, 5))
    covered = np.mean([interval.low <= 7 <= interval.high for interval in map(mean_interval, draws)])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


def test_ties():
    seeds = np.array([0.0, 3.0, -2.0, 1.0, 5.0])  # what a seed does to every method alike, far larger than the gaps
    noise = np.array([0.1, -0.1, 0.05, 0.0, -0.05])
    values = np.stack([seeds, seeds + 0.02 + noise, seeds - 1 + noise, seeds + 0.01])
    assert tied_with_best(values).tolist() == [True, True, False, True]
    assert tied_with_best(-values, largest=False).tolist() == [True, True, False, True]
    assert tied_with_best(values, largest=False).tolist() == [False, False, True, False]


def test_ties_hold_together():
    """Methods that do not differ: in at most 5 % of experiments is any called different."""
    generator = np.random.default_rng(1)
    wrong = np.mean([not tied_with_best(generator.normal(size=(2, 5))).all() for _ in range(2000)])
    assert wrong < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)
    assert wrong > 0.02
    many = np.mean([not tied_with_best(generator.normal(size=(8, 5))).all() for _ in range(1000)])
    assert many < 0.1  # the best of eight is the best partly by luck, for which the level does not account


@pytest.mark.parametrize("values", [[1.0, 2.0], [[1.0, 2.0]], [[1.0], [2.0]], [[1.0, math.nan], [1.0, 2.0]]])
def test_too_little_to_compare(values):
    with pytest.raises(ValueError, match=r"values must be \(methods, seeds\)"):
        tied_with_best(values)
