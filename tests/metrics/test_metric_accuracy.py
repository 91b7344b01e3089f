"""Top-k accuracy against a plain loop, and at its corners."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbs_lib.metrics import class_accuracy, topk_accuracy


def loop_topk(scores, target, k):
    right = 0
    for row, y in zip(scores.tolist(), target.tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda j: (-row[j], j))
        right += y in order[:k]
    return right / len(target)


@given(st.integers(1, 9), st.integers(2, 7), st.integers(1, 9), st.integers(0, 2**20))
def test_agrees_with_sorting(N, K, k, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 4, (N, K), generator=generator).float()  # few values, many ties
    target = torch.randint(K, (N,), generator=generator)
    assert topk_accuracy(scores, target, k) == pytest.approx(loop_topk(scores, target, k))


def test_top_one_is_argmax():
    scores = torch.randn(500, 10)
    target = torch.randint(10, (500,))
    assert topk_accuracy(scores, target) == pytest.approx((scores.argmax(1) == target).double().mean().item())


def test_more_answers_than_classes_are_always_right():
    scores, target = torch.randn(20, 3), torch.randint(3, (20,))
    assert topk_accuracy(scores, target, k=3) == 1
    assert topk_accuracy(scores, target, k=50) == 1


def test_a_tie_goes_to_the_lower_class():
    scores = torch.zeros(4, 4, dtype=torch.bfloat16)
    target = torch.arange(4)
    assert [topk_accuracy(scores, target, k) for k in (1, 2, 4)] == [0.25, 0.5, 1]


def test_nan_is_never_right():
    scores = torch.tensor([[math.nan, 1.0, 2.0], [5.0, math.nan, 2.0], [math.nan, math.nan, math.nan]])
    assert topk_accuracy(scores, torch.tensor([0, 0, 1]), k=3) == pytest.approx(1 / 3)
    assert topk_accuracy(scores, torch.tensor([2, 0, 1])) == 0


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_a_number_of_answers_that_makes_no_sense(k):
    with pytest.raises(ValueError, match="k must be"):
        topk_accuracy(torch.randn(2, 3), torch.tensor([0, 1]), k)


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="empty"):
        topk_accuracy(torch.empty(0, 3), torch.empty(0, dtype=torch.int64))


def test_class_accuracy():
    scores = torch.tensor([[2.0, 1, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [math.nan, 9, 0, 0]])
    got = class_accuracy(scores, torch.tensor([0, 0, 0, 1, 0]))
    assert got.dtype == torch.float64
    assert got[:2].tolist() == [2 / 4, 0.0]  # ties go to the lower class, NaN is wrong
    assert got[2:].isnan().all()
    with pytest.raises(ValueError, match="label 4"):
        class_accuracy(scores, torch.tensor([0, 0, 0, 1, 4]))
