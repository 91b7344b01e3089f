"""Calibration error against cases small enough for a pencil, and a plain loop."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbs_lib.metrics import expected_calibration_error, reliability_bins


def two_classes(*confidences, right):
    """Rows (c, 1-c) for c >= 1/2, and targets that make them right or wrong."""
    p = torch.tensor([[c, 1 - c] for c in confidences], dtype=torch.float64)
    return p, torch.tensor([0 if r else 1 for r in right])


def loop_ece(probabilities, target, bins):
    """Bin m holds ((m-1)/M, m/M], the first also 0: Guo et al. 2017, section 2."""
    members = [[] for _ in range(bins)]
    for row, y in zip(probabilities.tolist(), target.tolist(), strict=True):
        confidence = max(row)
        place = next(m for m in range(bins) if confidence <= (m + 1) / bins or m == bins - 1)
        members[place].append((confidence, row.index(confidence) == y))
    gaps = [abs(sum(c for c, _ in b) - sum(r for _, r in b)) for b in members if b]
    return sum(gaps) / len(target)


@pytest.mark.parametrize("bins", [1, 2, 5, 10, 15, 100])
def test_certainty_falls_into_the_last_bin(bins):
    """{0.95 right, 1.0 wrong}: one bin, |0.5 - 0.975| = 0.475 (torchmetrics 1.9 says 0.525).

    With 100 bins 0.95 has a bin of its own: (0.05 + 1) / 2 = 0.525.
    """
    p, target = two_classes(0.95, 1.0, right=(True, False))
    expected = 0.525 if bins == 100 else 0.475
    assert expected_calibration_error(p, target, bins) == pytest.approx(expected, abs=1e-12)
    assert reliability_bins(p, target, bins).count.sum() == 2


def test_bins_by_hand():
    p, target = two_classes(0.55, 0.6, 0.9, 1.0, right=(True, False, True, True))
    found = reliability_bins(p, target, bins=5)
    assert found.edges.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert found.count.tolist() == [0, 0, 2, 0, 2]
    assert found.count.dtype == torch.int64
    assert found.confidence[[2, 4]].tolist() == pytest.approx([0.575, 0.95])
    assert found.accuracy[[2, 4]].tolist() == [0.5, 1]
    assert found.confidence[[0, 1, 3]].isnan().all()
    assert found.accuracy[[0, 1, 3]].isnan().all()
    assert found.error == pytest.approx((2 * 0.075 + 2 * 0.05) / 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_edge_belongs_to_the_bin_below_in_every_dtype(dtype):
    """float32(0.6) is a little more than 0.6: it must not slip over the edge."""
    p, target = two_classes(0.6, 0.8, right=(True, True))
    assert reliability_bins(p.to(dtype), target, bins=5).count.tolist() == [0, 0, 1, 1, 0]


def test_perfect_and_hopeless():
    eye = torch.eye(7)
    assert expected_calibration_error(eye, torch.arange(7)) == 0
    assert expected_calibration_error(eye, (torch.arange(7) + 1) % 7) == 1
    flat = torch.full((8, 4), 0.25)
    assert expected_calibration_error(flat, torch.arange(8) % 4) == pytest.approx(0)  # right once in four


@given(st.integers(1, 40), st.integers(2, 6), st.integers(1, 20), st.integers(0, 2**20))
def test_agrees_with_a_loop_in_any_order(N, K, bins, seed):
    generator = torch.Generator().manual_seed(seed)
    p = (3 * torch.randn(N, K, generator=generator, dtype=torch.float64)).softmax(1)
    target = torch.randint(K, (N,), generator=generator)
    error = expected_calibration_error(p, target, bins)
    assert error == pytest.approx(loop_ece(p, target, bins), abs=1e-12)
    rows, columns = torch.randperm(N, generator=generator), torch.randperm(K, generator=generator)
    renamed = torch.argsort(columns)[target]
    assert expected_calibration_error(p[rows][:, columns], renamed[rows], bins) == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softmax_in_half_precision_is_accepted(dtype):
    p = torch.randn(50, 1000).to(dtype).softmax(1)
    assert 0 <= expected_calibration_error(p, torch.zeros(50, dtype=torch.int64)) <= 1


@pytest.mark.parametrize(
    "logits",
    [
        torch.tensor([[2.0, -1.0], [0.3, 0.7]]),  # outside [0, 1]
        torch.tensor([[0.9, 0.8], [0.1, 0.2]]),  # inside by chance, but no distribution
        torch.tensor([[0.5, 0.5], [math.nan, 1.0]]),
        torch.tensor([[0.5, 0.5], [-0.2, 1.2]]),
    ],
)
def test_what_is_no_distribution_is_refused(logits):
    with pytest.raises(ValueError, match="softmax"):
        expected_calibration_error(logits, torch.tensor([0, 1]))


def test_other_refusals():
    p, target = two_classes(0.9, 0.8, right=(True, True))
    with pytest.raises(ValueError, match="empty"):
        expected_calibration_error(p[:0], target[:0])
    with pytest.raises(ValueError, match="label 2"):
        expected_calibration_error(p, target + 2)
    for bins in (0, 2.5, True):
        with pytest.raises(ValueError, match="bins"):
            expected_calibration_error(p, target, bins)
