import math

import pytest
import torch

from nbs_lib.geometry import unit
from nbs_lib.metrics import class_margin, pairwise_cosines
from nbs_lib.theory.packing import TAMMES_DEGREES, simplex_etf
from nbs_lib.theory.sample_margin import (
    best_features,
    largest_sample_margins,
    printed_features,
    three_class_optimum,
)

# A best packing of five points in R^3: a square and its pole, all contacts at 90 degrees.
PYRAMID = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]], dtype=torch.float64)


def random_prototypes(K: int, d: int, seed: int = 0) -> torch.Tensor:
    return unit(torch.randn(K, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


@pytest.mark.parametrize("seed", range(5))
def test_best_features_in_the_plane_beat_a_fine_grid_of_directions(seed):
    w = random_prototypes(3, 2, seed)
    turn = torch.linspace(0, 2 * math.pi, 100_001, dtype=torch.float64)[:-1]
    cosines = torch.stack((turn.cos(), turn.sin()), 1) @ w.T
    for y, margin in enumerate(best_features(w).margins.tolist()):
        others = [j for j in range(3) if j != y]
        best = float((cosines[:, y] - cosines[:, others].amax(1)).max())
        # next to the best direction the margin has a corner, of slope 2 at most
        assert best - 1e-9 <= margin <= best + 2 * math.pi / 1e5


@pytest.mark.parametrize(("K", "d"), [(4, 3), (6, 4), (12, 3), (5, 9)])
def test_best_features_have_a_certificate(K, d):
    """A feature is best if its margin equals the distance to some point of the hull: compare with a slow search."""
    w = random_prototypes(K, d, seed=K)
    found = best_features(w)
    for y in range(K):
        others = torch.cat((w[:y], w[y + 1 :]))
        # Frank-Wolfe: every iterate is a point of the hull, so its distance is an upper bound of any feature's margin
        point = others.mean(0)
        for step in range(4000):
            corner = others[((point - w[y]) @ others.T).argmin()]
            point = point + 2 / (step + 2) * (corner - point)
        assert float(found.margins[y]) == pytest.approx(float((w[y] - point).norm()), abs=5e-3)
        assert found.margins[y] <= (w[y] - point).norm() + 1e-9


def test_a_doubled_prototype_has_margin_zero():
    w = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=torch.float64)
    found = best_features(w)
    assert found.margins[:2].tolist() == [0.0, 0.0]
    assert float(found.margins[2]) == pytest.approx(math.sqrt(2), abs=1e-9)
    assert not found.features.isnan().any()


def test_printed_features_fall_short_at_the_square_pyramid():
    """By hand: a corner of the square sees the pole and two corners at 90 degrees; their mean is pole / 3."""
    assert printed_features(PYRAMID).margins.tolist() == pytest.approx(
        [1.0] + 4 * [1 / math.sqrt(1 + 1 / 9)], abs=1e-12
    )
    assert best_features(PYRAMID).margins.tolist() == pytest.approx(5 * [1.0], abs=1e-9)


@pytest.mark.parametrize(("K", "d"), [(2, 2), (3, 2), (5, 4), (10, 12)])
def test_printed_features_are_right_at_the_simplex(K, d):
    w = simplex_etf(K, d)
    assert (printed_features(w).features - w).abs().max() < 1e-12
    assert (best_features(w).features - w).abs().max() < 1e-7


@pytest.mark.parametrize(("K", "d"), [(2, 2), (3, 2), (4, 3), (5, 6), (8, 7)])
def test_smallest_margin_is_largest_at_the_simplex(K, d):
    """Proposition 2.3."""
    found = largest_sample_margins(K, d, starts=2)
    assert float(found.margins.min()) == pytest.approx(K / (K - 1), abs=1e-9)
    assert (pairwise_cosines(found.prototypes) + 1 / (K - 1)).abs().max() < 1e-6
    assert (found.features - found.prototypes).abs().max() < 1e-6


@pytest.mark.parametrize("K", [5, 6, 8, 9, 10, 12])
def test_smallest_margin_beyond_the_simplex_is_a_packing(K):
    """Theorem 2.2 with the value 1 - cos of the best-known angle."""
    found = largest_sample_margins(K, 3, starts=6)
    assert float(found.margins.min()) == pytest.approx(1 - math.cos(math.radians(TAMMES_DEGREES[K])), abs=1e-8)
    assert class_margin(found.prototypes) == pytest.approx(TAMMES_DEGREES[K], abs=1e-4)
    assert (found.features - found.prototypes).abs().max() < 1e-5


def test_three_classes_are_a_simplex_only_if_balanced():
    assert three_class_optimum(1 / 3) == pytest.approx((120, 1.5), abs=1e-9)
    angles, values = zip(*(three_class_optimum(p) for p in (0.34, 0.4, 0.5, 0.75, 0.99)), strict=True)
    assert list(angles) == sorted(angles, reverse=True)
    assert angles[0] < 119.9
    assert min(values) > 1.5


@pytest.mark.parametrize("share", [0.4, 0.6, 0.8])
def test_three_class_optimum_against_a_grid_of_triangles(share):
    weights = torch.tensor([share, (1 - share) / 2, (1 - share) / 2], dtype=torch.float64)
    angle, value = three_class_optimum(share)
    best = 0.0
    for a in range(0, 181, 4):
        for b in range(180, 361, 4):
            turn = torch.deg2rad(torch.tensor([0.0, a, b], dtype=torch.float64))
            margins = best_features(torch.stack((turn.cos(), turn.sin()), 1)).margins
            best = max(best, float(weights @ margins))
    assert best <= value + 1e-9
    assert best == pytest.approx(value, abs=2e-3)
    found = largest_sample_margins(3, 3, weights=weights)
    assert float(weights @ found.margins) == pytest.approx(value, abs=1e-6)
    assert class_margin(found.prototypes) == pytest.approx(angle, abs=1e-3)


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="K=1"):
        largest_sample_margins(1, 3)
    with pytest.raises(ValueError, match=r"weights must be \(4,\)"):
        largest_sample_margins(4, 3, weights=torch.ones(3) / 3)
    with pytest.raises(ValueError, match="share must lie in"):
        three_class_optimum(1.0)
