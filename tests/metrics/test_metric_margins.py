"""Class and sample margins against hand-made geometry, slow float64 loops, and what must not change them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbs_lib import metrics
from nbs_lib.metrics import (
    class_margin,
    class_margins,
    mean_sample_margin,
    pairwise_cosines,
    prototype_norm_ratio,
    sample_margins,
)
from nbs_lib.metrics import margins as margins_module

seeds = st.integers(0, 2**20)
sizes = st.integers(2, 7)


def normal(*shape, seed, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def on_circle(*degrees):
    radians = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack((radians.cos(), radians.sin()), 1)


def loop_class_margin(prototypes):
    rows = prototypes.tolist()
    smallest = math.inf
    for i, u in enumerate(rows):
        for v in rows[:i]:
            dot = sum(a * b for a, b in zip(u, v, strict=True))
            smallest = min(smallest, math.acos(max(-1.0, min(1.0, dot / math.hypot(*u) / math.hypot(*v)))))
    return math.degrees(smallest)


def loop_sample_margin(row, y):
    return row[y] - max(c for j, c in enumerate(row) if j != y)


# --- class margin


def test_class_margin_is_the_smallest_angle_between_directions():
    points = on_circle(0, 50, 180, 263) * torch.tensor([[1.0], [7.0], [0.01], [3.0]])
    assert class_margin(points) == pytest.approx(50, abs=1e-12)
    assert class_margin(on_circle(10, 190)) == pytest.approx(180, abs=1e-12)
    assert class_margin(on_circle(30, 30, 90)) == pytest.approx(0, abs=1e-7)


@given(sizes, sizes, seeds)
def test_class_margin_agrees_with_a_loop(K, d, seed):
    points = normal(K, d, seed=seed)
    assert class_margin(points) == pytest.approx(loop_class_margin(points), abs=1e-6)


@pytest.mark.parametrize("degrees", [1e-5, 1e-4, 0.01, 179.9999])
def test_class_margin_keeps_its_digits_at_both_ends(degrees):
    """The pair is off axis, so that its cosine rounds; arccos of it is off by 1e-6 degrees and more."""
    points = on_circle(33.3, 33.3 + degrees)
    assert class_margin(points) == pytest.approx(degrees, rel=1e-7)
    rounded = (points * 100).float()
    assert class_margin(rounded) == class_margin(rounded.double()) == pytest.approx(degrees, abs=1e-5)


@given(sizes, sizes, seeds, st.floats(1e-3, 1e3))
def test_class_margin_ignores_rotation_order_and_length(K, d, seed, length):
    points = normal(K, d, seed=seed)
    rotation, _ = torch.linalg.qr(normal(d, d, seed=seed + 1))
    order = torch.randperm(K, generator=torch.Generator().manual_seed(seed))
    lengths = length * (0.1 + normal(K, 1, seed=seed + 2).abs())
    assert class_margin((points * lengths @ rotation)[order]) == pytest.approx(class_margin(points), abs=1e-9)


def test_class_margin_looks_across_the_bands_of_a_large_set(monkeypatch):
    """2,500 prototypes are three bands of rows; the closest pair lies in different ones, or in the last."""
    points = normal(2500, 32, seed=0)
    for i, j in ((3, 2400), (1023, 1024), (2498, 2499)):
        planted = points.clone()
        planted[j] = planted[i] + 1e-3 * normal(32, seed=1)
        expected = torch.rad2deg(margins_module.angle(planted[i], planted[j]))
        assert class_margin(planted) == pytest.approx(float(expected), rel=1e-9)
    monkeypatch.setattr(margins_module, "_ROWS", 7)
    assert class_margin(points[:50]) == pytest.approx(loop_class_margin(points[:50]), abs=1e-9)


def test_class_margins_treats_each_set_by_itself():
    sets = normal(3, 4, 5, 6, seed=0)
    sets[1, 2, 3] = 0
    sets[2, 0, 0] = math.nan
    each = class_margins(sets)
    assert each.shape == (3, 4)
    assert each.dtype == torch.float64
    assert each[1, 2].isnan()
    assert each[2, 0].isnan()
    assert int(each.isnan().sum()) == 2
    assert each[0, 1] == pytest.approx(class_margin(sets[0, 1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_and_large_entries(dtype):
    """Squares of 300 overflow in half precision; the measure works in float64 and leaves its input alone."""
    points = (300 * on_circle(0, 45, 200)).to(dtype)
    before = points.clone()
    assert class_margin(points) == pytest.approx(45, abs=0.3)
    assert torch.equal(points, before)


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
def test_a_row_without_direction_is_refused(bad):
    points = normal(4, 3, seed=0)
    points[2] = bad
    with pytest.raises(ValueError, match="direction"):
        class_margin(points)


@pytest.mark.parametrize("points", [torch.ones(1, 3), torch.ones(3), torch.ones(3, 3, dtype=torch.int64)])
@pytest.mark.parametrize("measure", [class_margin, class_margins, pairwise_cosines, prototype_norm_ratio])
def test_what_is_no_set_of_prototypes_is_refused(measure, points):
    with pytest.raises(ValueError, match="prototypes"):
        measure(points)


@pytest.mark.parametrize("measure", [class_margin, pairwise_cosines, prototype_norm_ratio])
def test_one_set_at_a_time(measure):
    with pytest.raises(ValueError, match="prototypes"):
        measure(torch.ones(2, 3, 4))


# --- pairs and norms


def test_pairwise_cosines_lists_each_pair_once_in_order():
    found = pairwise_cosines(on_circle(0, 60, 90) * 5)
    expected = [math.cos(math.radians(a)) for a in (60, 90, 30)]
    assert found.tolist() == pytest.approx(expected, abs=1e-15)
    assert pairwise_cosines(torch.ones(6, 512)).max() <= 1


def test_norm_ratio():
    assert prototype_norm_ratio(torch.tensor([[3.0, 4.0], [0.0, 2.0], [2.5, 0.0]])) == 2.5
    assert prototype_norm_ratio(torch.tensor([[3.0, 4.0], [0.0, 0.0]])) == math.inf
    assert prototype_norm_ratio(torch.full((2, 64), 1e4, dtype=torch.float16)) == 1.0
    with pytest.raises(ValueError, match="non-finite"):
        prototype_norm_ratio(torch.tensor([[1.0, math.nan], [0.0, 2.0]]))


# --- sample margins


def test_sample_margins_by_hand():
    cosines = torch.tensor([[0.9, 0.1, -0.5], [0.2, 0.7, 0.3], [-0.2, -0.4, -0.9]])
    found = sample_margins(cosines, torch.tensor([0, 2, 1]))
    assert found.tolist() == pytest.approx([0.8, -0.4, -0.2], abs=1e-6)
    assert mean_sample_margin(cosines, torch.tensor([0, 2, 1])) == pytest.approx(0.2 / 3, abs=1e-6)


@given(st.integers(1, 9), sizes, seeds)
def test_sample_margins_agree_with_a_loop(N, K, seed):
    cosines = normal(N, K, seed=seed).tanh()
    cosines = (cosines * 4).round() / 4  # a coarse grid, so that ties are common
    target = torch.randint(K, (N,), generator=torch.Generator().manual_seed(seed))
    expected = [loop_sample_margin(row, y) for row, y in zip(cosines.tolist(), target.tolist(), strict=True)]
    assert sample_margins(cosines, target).tolist() == pytest.approx(expected, abs=1e-15)


def test_a_tie_with_the_target_is_exactly_zero():
    cosines = torch.tensor([[0.5, 0.5, 0.1], [0.5, 0.1, 0.5], [0.5, 0.5, 0.5], [-1.0, -1.0, -1.0]])
    for y in range(3):
        margins = sample_margins(cosines, torch.full((4,), y))
        assert margins[2:].tolist() == [0, 0]
    assert sample_margins(cosines, torch.tensor([0, 2, 1, 0])).tolist() == [0, 0, 0, 0]


@given(sizes, seeds, st.floats(0.01, 100))
def test_sample_margins_follow_order_and_scale(K, seed, scale):
    cosines = normal(6, K, seed=seed)
    target = torch.randint(K, (6,), generator=torch.Generator().manual_seed(seed))
    columns = torch.randperm(K, generator=torch.Generator().manual_seed(seed + 1))
    renamed = torch.argsort(columns)[target]
    margins = sample_margins(cosines, target)
    torch.testing.assert_close(sample_margins(cosines[:, columns], renamed), margins)
    torch.testing.assert_close(sample_margins(cosines * scale + 3, target), margins * scale)
    torch.testing.assert_close(sample_margins(cosines.flip(0), target.flip(0)), margins.flip(0))


def test_the_sign_says_whether_the_answer_is_right():
    scores = normal(200, 5, seed=3)
    target = torch.randint(5, (200,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(sample_margins(scores, target) > 0, scores.argmax(1) == target)


def test_classes_may_be_absent_and_batches_empty():
    cosines = normal(4, 10, seed=0)
    assert sample_margins(cosines, torch.full((4,), 7)).isfinite().all()
    assert sample_margins(torch.empty(0, 3), torch.empty(0, dtype=torch.int64)).shape == (0,)
    with pytest.raises(ValueError, match="empty"):
        mean_sample_margin(torch.empty(0, 3), torch.empty(0, dtype=torch.int64))


def test_half_precision_is_lifted_before_the_difference():
    """In bfloat16, 1 - 0.001953125 rounds to 1; in float32 it is exact."""
    cosines = torch.tensor([[1.0, 0.001953125]], dtype=torch.bfloat16)
    assert sample_margins(cosines, torch.tensor([0])).item() == 1 - 0.001953125


def test_sample_margins_carry_a_gradient_and_leave_their_input_alone():
    cosines = normal(5, 4, seed=0).requires_grad_()
    before = cosines.detach().clone()
    target = torch.tensor([0, 1, 2, 3, 0])
    assert torch.autograd.gradcheck(lambda c: sample_margins(c, target), cosines)
    assert torch.equal(cosines.detach(), before)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.tensor([0, 3]), "label 3"),
        (torch.tensor([-1, 0]), "label -1"),
        (torch.tensor([0, 1], dtype=torch.int32), "target.long"),
        (torch.tensor([[0], [1]]), "squeeze"),
        (torch.tensor([0, 1, 2]), "3 labels"),
    ],
)
def test_labels_that_do_not_fit_are_refused(target, message):
    for measure in (sample_margins, mean_sample_margin, metrics.topk_accuracy):
        with pytest.raises(ValueError, match=message):
            measure(torch.rand(2, 3), target)


def test_a_device_gives_what_the_cpu_gives(device):
    points, cosines, target = normal(40, 8, seed=0), normal(9, 40, seed=1), torch.arange(9)
    assert class_margin(points.to(device)) == pytest.approx(class_margin(points), rel=1e-9)
    assert mean_sample_margin(cosines.to(device), target.to(device)) == pytest.approx(
        mean_sample_margin(cosines, target)
    )


def test_arrays_and_lists_are_refused_by_name():
    with pytest.raises(ValueError, match="prototypes must be a floating-point tensor, got ndarray"):
        metrics.class_margin(np.eye(3))
    with pytest.raises(ValueError, match="scores must be a floating-point tensor, got list"):
        metrics.mean_sample_margin([[1.0, 0.0]], torch.tensor([0]))
