"""Label-aware smoothing against the paper's formula written out in plain Python."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from nbs_lib.losses import LabelAwareSmoothing, functional, smoothing_by_class

COUNTS = (5000, 1200, 300, 50, 7)


def slow_smoothing(counts, high, low, shape):
    """Zhong et al. 2021, the three "related functions" with n_1 the largest and n_K the smallest class."""
    first, last = max(counts), min(counts)
    parts = [(n - last) / (first - last) for n in counts]
    return {
        "concave": [low + (high - low) * math.sin(math.pi * x / 2) for x in parts],
        "linear": [low + (high - low) * x for x in parts],
        "convex": [high + (high - low) * math.sin(3 * math.pi / 2 + math.pi * x / 2) for x in parts],
    }[shape]


@pytest.mark.parametrize("shape", ["concave", "linear", "convex"])
def test_smoothing_rises_from_the_rarest_class_to_the_most_frequent(shape):
    found = smoothing_by_class(COUNTS, largest=0.4, smallest=0.1, shape=shape)
    assert found.tolist() == pytest.approx(slow_smoothing(COUNTS, 0.4, 0.1, shape), abs=1e-15)
    assert found[0].item() == pytest.approx(0.4)
    assert found[-1].item() == pytest.approx(0.1)


def test_classes_of_equal_size_get_the_largest():
    assert smoothing_by_class([9, 9, 9], largest=0.2).tolist() == [0.2] * 3


def test_value_and_gradient():
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(8, 5, dtype=torch.float64, generator=generator)
    target = torch.arange(8) % 5
    epsilon = slow_smoothing(COUNTS, 0.3, 0.0, "concave")
    want = []
    for row, y in zip(scores.tolist(), target.tolist(), strict=True):
        total = math.log(sum(math.exp(z) for z in row))
        labels = [1 - epsilon[y] if j == y else epsilon[y] / 4 for j in range(5)]
        want.append(-sum(q * (z - total) for q, z in zip(labels, row, strict=True)))
    for reduction, value in (("none", want), ("sum", sum(want)), ("mean", sum(want) / 8)):
        criterion = LabelAwareSmoothing(class_counts=COUNTS, reduction=reduction)
        assert criterion(scores, target).tolist() == pytest.approx(value, rel=1e-12)
    leaf = scores.clone().requires_grad_()
    assert gradcheck(lambda z: LabelAwareSmoothing(class_counts=COUNTS)(z, target), leaf)


def test_without_smoothing_it_is_cross_entropy_and_extremes_stay_finite():
    scores = torch.tensor([[0.0, 300.0, -300.0], [5.0, 4.0, 3.0]], dtype=torch.float16, requires_grad=True)
    target = torch.tensor([0, 2])
    plain = functional.cross_entropy(scores, target)
    none = functional.label_aware_smoothing(scores, target, smoothing=torch.zeros(3))
    torch.testing.assert_close(none, plain)
    some = functional.label_aware_smoothing(scores, target, smoothing=torch.full((3,), 0.2))
    some.backward()
    assert some.dtype == torch.float32
    assert scores.grad.isfinite().all()
    empty = functional.label_aware_smoothing(
        torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), smoothing=torch.ones(3)
    )
    assert empty.item() == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smoothing_by_class([3]), "class_counts"),
        (lambda: smoothing_by_class([3, 2], largest=1.2), "largest must be between 0 and 1"),
        (lambda: smoothing_by_class([3, 2], shape="wavy"), "shape must be one of"),
        (
            lambda: LabelAwareSmoothing(class_counts=[3, 2])(torch.zeros(1, 3), torch.tensor([0])),
            "each of the 3 classes",
        ),
        (lambda: LabelAwareSmoothing(class_counts=[3, 2])(torch.zeros(1, 2), torch.tensor([2])), "label 2"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
