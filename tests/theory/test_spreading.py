import math

import pytest
import torch

from nbs_lib.metrics import class_margin, pairwise_cosines
from nbs_lib.theory.free_features import FreeFeatures
from nbs_lib.theory.minimise import minimise
from nbs_lib.theory.packing import TAMMES_DEGREES, polish_tammes, riesz_energy, simplex_etf
from nbs_lib.theory.spreading import contact_stress, fejes_toth_bound, finite_scale_constant, minimise_riesz


def antiprism() -> torch.Tensor:
    """Best packing of eight points: two squares, one turned by 45 degrees, at height +-h, h^2 = 1/(1 + 2 sqrt 2)."""
    height = math.sqrt(1 / (1 + 2 * math.sqrt(2)))
    turn = torch.arange(8, dtype=torch.float64) * math.pi / 4
    level = torch.tensor([height, -height], dtype=torch.float64).repeat(4)
    radius = math.sqrt(1 - height**2)
    return torch.stack((radius * turn.cos(), radius * turn.sin(), level), 1)


OCTAHEDRON = torch.cat((torch.eye(3), -torch.eye(3))).double()


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


def test_stress_balances_the_antiprism():
    w = antiprism()
    assert math.isclose(class_margin(w), TAMMES_DEGREES[8], abs_tol=1e-9)
    pairs, weights, angle = contact_stress(w)
    assert len(pairs) == 16
    assert math.isclose(float(weights.sum()), 1, abs_tol=1e-12)
    assert math.isclose(angle, TAMMES_DEGREES[8], abs_tol=1e-9)
    # in-square and cross contacts carry weights in the ratio 1 + 1/sqrt 2: the derivative of the two cosines by h^2
    assert math.isclose(float(weights.max() / weights.min()), 1 + 1 / math.sqrt(2), rel_tol=1e-6)
    push = torch.zeros(8, 3).double()
    for (i, j), weight in zip(pairs.tolist(), weights, strict=True):
        push[i] += weight * w[j]
        push[j] += weight * w[i]
    assert (push - (push * w).sum(1, keepdim=True) * w).abs().max() < 1e-8


def test_constant_of_the_antiprism_is_the_closed_form():
    c = (2 * math.sqrt(2) - 1) / 7
    shift = math.log(1 + 1 / math.sqrt(2)) / (2 + 1 / math.sqrt(2))  # of the largest cosine, times s
    expected = math.degrees(shift / math.sqrt(1 - c * c))
    assert math.isclose(finite_scale_constant(antiprism()), expected, rel_tol=1e-7)
    assert math.isclose(expected, 11.726, abs_tol=5e-4)


@pytest.mark.parametrize("points", [OCTAHEDRON, simplex_etf(4, 3), simplex_etf(5, 4)])
def test_equal_contacts_have_no_bias(points):
    assert abs(finite_scale_constant(points)) < 1e-9


def test_the_law_predicts_minima_at_finite_scale():
    # N = 7 has no closed form of ours: the minimiser of LM-total at s = 2000 is the independent measurement
    packing = polish_tammes(minimise_riesz(7, 3, [16, 64, 256], starts=8))
    assert math.isclose(class_margin(packing), TAMMES_DEGREES[7], abs_tol=1e-6)
    start = FreeFeatures(packing[None], packing[None], torch.arange(7), torch.zeros(1), torch.zeros(1))
    found = minimise("lm_softmax_total", 7, 3, scale=2000.0, start=start)
    gap = TAMMES_DEGREES[7] - float(found.class_margin[0])
    assert math.isclose(2000 * gap, finite_scale_constant(packing), rel_tol=1e-3)


def test_points_out_of_balance_are_refused():
    with pytest.raises(ValueError, match="no locally best packing"):
        contact_stress(torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]))
