import math

import pytest
import torch

from nbs_lib.metrics import class_margin, pairwise_cosines
from nbs_lib.theory.packing import TAMMES_DEGREES, riesz_energy, simplex_etf
from nbs_lib.theory.spreading import fejes_toth_bound, minimise_riesz


@pytest.mark.parametrize(("K", "d", "t"), [(2, 2, 0.5), (4, 3, 1.0), (4, 5, 8.0), (6, 5, 2.0)])
def test_the_simplex_has_the_least_riesz_energy(K, d, t):
    points = minimise_riesz(K, d, t, starts=2)
    assert pairwise_cosines(points).add(1 / (K - 1)).abs().max() < 1e-6
    assert math.isclose(float(riesz_energy(points, t)), float(riesz_energy(simplex_etf(K, d), t)), rel_tol=1e-12)


def test_five_points_change_shape_with_the_exponent():
    bipyramid = pairwise_cosines(minimise_riesz(5, 3, 1.0))  # two poles and a triangle on the equator
    assert torch.allclose(bipyramid.sort().values, torch.tensor([-1.0] + 3 * [-0.5] + 6 * [0.0]).double(), atol=1e-5)
    pyramid = pairwise_cosines(minimise_riesz(5, 3, 40.0))  # an apex that sees the four others alike, no antipodes
    assert pyramid.min() > -0.99


def test_large_exponents_approach_the_best_packing():
    points = minimise_riesz(8, 3, [4, 16, 64, 256, 1024])
    assert 0 < TAMMES_DEGREES[8] - class_margin(points) < 0.1


def test_bad_riesz_arguments_are_named():
    with pytest.raises(ValueError, match="K must be at least 2"):
        minimise_riesz(1, 3, 1.0)
    with pytest.raises(ValueError, match="t must be"):
        minimise_riesz(4, 3, -2.0)


def test_fejes_toth_bounds_every_packing_and_is_met_by_the_regular_ones():
    for N in range(3, 25):
        slack = fejes_toth_bound(N) - TAMMES_DEGREES[N]
        assert abs(slack) < 1e-9 if N in (3, 4, 6, 12) else slack > 0.1, N
    with pytest.raises(ValueError, match="at least 3"):
        fejes_toth_bound(2)
