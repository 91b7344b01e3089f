"""Simplex, Riesz energy and the table of best packings, against their defining properties and our own search."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbs_lib.metrics import class_margin
from nbs_lib.theory.packing import (
    TAMMES_DEGREES,
    TAMMES_SOURCE,
    best_known_angle,
    log_riesz_energy,
    polish_tammes,
    riesz_energy,
    simplex_angle,
    simplex_etf,
)


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("K", "d"), [(2, 1), (2, 5), (3, 2), (4, 3), (5, 9), (10, 9), (101, 100)])
def test_simplex_has_equal_cosines_and_no_mean(K, d):
    points = simplex_etf(K, d)
    assert points.shape == (K, d)
    expected = torch.full((K, K), -1 / (K - 1), dtype=torch.float64).fill_diagonal_(1)
    torch.testing.assert_close(points @ points.T, expected, rtol=0, atol=1e-13)
    assert points.sum(0).abs().max() < 1e-12
    assert class_margin(points) == pytest.approx(simplex_angle(K), abs=1e-9)


def test_simplex_angles_of_the_paper():
    """96.37 and 90.57 in Zhou et al. 2022, which cut off after two digits."""
    assert simplex_angle(2) == 180
    assert simplex_angle(3) == pytest.approx(120)
    assert math.floor(simplex_angle(10) * 100) / 100 == 96.37
    assert math.floor(simplex_angle(100) * 100) / 100 == 90.57


@pytest.mark.parametrize(("K", "d"), [(1, 3), (5, 3), (2, 0)])
def test_no_simplex(K, d):
    with pytest.raises(ValueError, match="simplex_etf"):
        simplex_etf(K, d)
    with pytest.raises(ValueError, match="K"):
        simplex_angle(1)


# --- Riesz energy


@given(st.integers(2, 6), st.integers(2, 4), st.floats(0.1, 20), st.integers(0, 2**20))
def test_riesz_energy_agrees_with_a_loop(K, d, t, seed):
    points = normal(K, d, seed=seed)
    unit = [[x / math.hypot(*row) for x in row] for row in points.tolist()]
    expected = sum(math.dist(u, v) ** -t for u, v in itertools.permutations(unit, 2))
    assert riesz_energy(points, t).item() == pytest.approx(expected, rel=1e-9)
    assert log_riesz_energy(torch.stack((points, 2 * points)), t).tolist() == pytest.approx([math.log(expected)] * 2)


@pytest.mark.parametrize("t", [0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize(("K", "d"), [(2, 2), (3, 2), (4, 3), (4, 6), (6, 5)])
def test_lemma_2_1_the_simplex_has_least_energy(K, d, t):
    """All its distances are sqrt(2K/(K-1)); no random or shaken set comes below, and its slope is zero."""
    simplex = simplex_etf(K, d).requires_grad_()
    energy = riesz_energy(simplex, t)
    assert energy.item() == pytest.approx(K * (K - 1) * (2 * K / (K - 1)) ** (-t / 2), rel=1e-12)
    (slope,) = torch.autograd.grad(energy, simplex)
    assert slope.abs().max() < 1e-12
    others = torch.cat((normal(200, K, d, seed=0), simplex.detach() + 0.05 * normal(200, K, d, seed=1)))
    assert (riesz_energy(others, t) > energy).all()


def test_a_negative_exponent_has_no_unique_optimum():
    """At t = -2 two doubled antipodes tie with the tetrahedron: Lemma 2.1 needs t > 0."""
    doubled = torch.tensor([[1.0, 0, 0], [1, 0, 0], [-1, 0, 0], [-1, 0, 0]], dtype=torch.float64)
    assert riesz_energy(doubled, -2).item() == pytest.approx(32)
    assert riesz_energy(simplex_etf(4, 3), -2).item() == pytest.approx(32)
    assert riesz_energy(doubled, 2).item() == math.inf


def test_the_root_of_the_energy_tends_to_the_smallest_distance():
    """Eq. (2.4) with the 1/t it needs: E_t^(1/t) -> 1/min distance, while E_t itself tends to 0 for large distances."""
    points = simplex_etf(4, 3)
    distance = math.sqrt(8 / 3)
    assert log_riesz_energy(points, 4000.0).item() / 4000 == pytest.approx(-math.log(distance), abs=1e-3)
    assert riesz_energy(points, 4000.0).item() == 0


# --- best packings


def test_exact_entries():
    table = {n: math.cos(math.radians(a)) for n, a in TAMMES_DEGREES.items()}
    assert table[4] == pytest.approx(-1 / 3)
    assert TAMMES_DEGREES[5] == TAMMES_DEGREES[6] == 90
    assert 3 * table[7] ** 3 - 9 * table[7] ** 2 - 3 * table[7] + 1 == pytest.approx(0, abs=1e-13)
    assert 7 * table[8] ** 2 + 2 * table[8] - 1 == pytest.approx(0, abs=1e-13)
    assert table[9] == pytest.approx(1 / 3)
    assert 7 * table[10] ** 3 - 4 * table[10] ** 2 - 2 * table[10] + 1 == pytest.approx(0, abs=1e-13)
    assert TAMMES_DEGREES[11] == TAMMES_DEGREES[12] == pytest.approx(math.degrees(math.atan(2)))
    assert math.radians(TAMMES_DEGREES[13]) == pytest.approx(0.997224, abs=1e-6)
    assert math.radians(TAMMES_DEGREES[14]) == pytest.approx(0.971635, abs=1e-6)


def test_the_table_is_complete_falls_and_names_its_sources():
    assert list(TAMMES_DEGREES) == list(TAMMES_SOURCE) == list(range(2, 25))
    angles = list(TAMMES_DEGREES.values())
    assert all(a >= b for a, b in itertools.pairwise(angles))
    assert all(TAMMES_SOURCE.values())
    # Fejes Toth's upper bound, reached by 3, 4, 6 and 12 points
    for n, a in list(TAMMES_DEGREES.items())[1:]:
        omega = math.pi * n / (6 * (n - 2))
        bound = math.degrees(math.acos((1 / math.tan(omega) ** 2 - 1) / 2))
        assert a <= bound + 1e-9
        assert (n in (3, 4, 6, 12)) == (a > bound - 1e-9)


def test_the_snub_cube_by_its_vertices():
    """N = 24: even permutations of (1, 1/t, t) with an even number of plus signs, odd ones with an odd number."""
    t = 1.8392867552141612  # tribonacci constant
    points = []
    for order in itertools.permutations(range(3)):
        odd = sum(a > b for a, b in itertools.combinations(order, 2)) % 2
        for signs in itertools.product((1, -1), repeat=3):
            if signs.count(1) % 2 == odd:
                points.append([signs[i] * (1, 1 / t, t)[i] for i in order])
    assert len(points) == 24
    assert class_margin(torch.tensor(points, dtype=torch.float64)) == pytest.approx(TAMMES_DEGREES[24], abs=1e-12)


@pytest.mark.parametrize("N", [3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 22, 24])
def test_our_own_search_reaches_the_table_and_no_more(N):
    """The typed entries have seven decimals, so 1e-7 is their rounding."""
    found = []
    for points in normal(16, N, 3, seed=1):
        found.append(class_margin(polish_tammes(points)))
        assert found[-1] <= TAMMES_DEGREES[N] + 1e-7
        if found[-1] >= TAMMES_DEGREES[N] - 1e-7:
            return
    pytest.fail(f"best of {len(found)} searches: {max(found)}")


def test_polish_works_in_other_dimensions_and_never_spoils_a_packing():
    petersen = max(class_margin(polish_tammes(points)) for points in normal(6, 10, 4, seed=0))
    assert petersen == pytest.approx(best_known_angle(10, 4), abs=1e-6)
    simplex = simplex_etf(6, 5)
    assert class_margin(polish_tammes(3 * simplex.float())) >= class_margin(simplex.float()) - 1e-9
    with pytest.raises(ValueError, match="prototypes"):
        polish_tammes(torch.ones(1, 3))


def test_best_known_angle_by_its_cases():
    assert best_known_angle(4, 3) == best_known_angle(4, 10) == pytest.approx(simplex_angle(4))
    assert best_known_angle(7, 2) == pytest.approx(360 / 7)
    assert best_known_angle(8, 3) == TAMMES_DEGREES[8]
    assert best_known_angle(6, 4) == best_known_angle(8, 4) == 90
    assert best_known_angle(10, 4) == pytest.approx(80.406, abs=5e-4)
    assert best_known_angle(9, 4) is None
    assert best_known_angle(25, 3) is None
    assert best_known_angle(3, 1) is None
    with pytest.raises(ValueError, match="best_known_angle"):
        best_known_angle(1, 3)
