"""Theorems of Zhou et al. 2022 by exact minimisation over free features, each with the condition it needs."""

import math

import pytest
import torch

from nbs_lib.metrics import pairwise_cosines
from nbs_lib.theory import margin_optima as optima
from nbs_lib.theory.free_features import FreeFeatures, optimise
from nbs_lib.theory.minimise import minimise, search
from nbs_lib.theory.packing import TAMMES_DEGREES, polish_tammes, simplex_etf


def assert_simplex(found: FreeFeatures, K, tolerance=2e-6):
    w, z = found.prototypes[found.best], found.features[found.best]
    assert (pairwise_cosines(w) + 1 / (K - 1)).abs().max() < tolerance
    own = (z * w.repeat_interleave(len(z) // K, 0)).sum(1)
    assert own.min() > 1 - tolerance


# --- balanced, K <= d + 1


@pytest.mark.parametrize(
    ("K", "d", "s", "a1", "b1", "a2", "b2"),
    [
        (2, 2, 1.0, 1.0, 0.0, 1.0, 0.0),
        (3, 2, 4.0, 0.9, -0.3, 0.4, 0.2),
        (4, 3, 2.0, 0.5, 0.4, 0.5, -0.1),
        (5, 7, 6.0, 1.3, 0.0, -0.5, -0.2),
        (6, 5, 3.0, 0.7, -0.1, 0.7, -0.1),
    ],
)
def test_theorem_3_2(K, d, s, a1, b1, a2, b2):
    hyper = {"alpha1": a1, "beta1": b1, "alpha2": a2, "beta2": b2}
    found = minimise("gm_softmax", K, d, scale=s, starts=3, **hyper)
    value = found.loss.min().item()
    assert value == pytest.approx(optima.gm_minimum(K, s, **hyper), abs=1e-9)
    assert_simplex(found, K)
    if a1 + b1 != a2 + b2:
        assert abs(value - optima.gm_minimum_as_printed(K, s, **hyper)) > 0.02


@pytest.mark.parametrize(
    ("name", "hyper", "minimum"),
    [
        ("normface", {}, optima.normface_minimum(5, 4.0)),
        ("cosface", {"margin": 0.1}, optima.cosface_minimum(5, 4.0, 0.1)),
        ("cosface", {"margin": 0.35}, optima.cosface_minimum(5, 4.0, 0.35)),
        ("arcface", {"margin": 0.1}, optima.arcface_minimum(5, 4.0, 0.1)),
        ("arcface", {"margin": 0.5}, optima.arcface_minimum(5, 4.0, 0.5)),
        ("sphereface", {"margin": 4}, optima.sphereface_minimum(5, 4.0)),
        ("lm_softmax", {}, optima.lm_minimum(5, 4.0)),
    ],
)
def test_proposition_3_3(name, hyper, minimum):
    """Value to 1e-7. ArcFace has a corner at its minimum."""
    found = minimise(name, 5, 4, scale=4.0, starts=4, **hyper)
    assert found.loss.min().item() == pytest.approx(minimum, abs=1e-7)
    assert found.class_margin[found.best] == pytest.approx(math.degrees(math.acos(-1 / 4)), abs=0.01)


def test_many_features_of_a_class_end_in_one_place():
    found = minimise("normface", 3, 3, scale=5.0, per_class=4, starts=1)
    assert found.loss.item() == pytest.approx(optima.normface_minimum(3, 5.0), abs=1e-9)
    assert_simplex(found, 3, tolerance=1e-5)


def test_below_the_alpha_threshold_the_collapse_wins():
    """K = 5: threshold 0.375; the paper's 1/2 is sufficient, not sharp."""
    for alpha, class_margin in ((0.36, 0.0), (0.39, 104.4775)):
        hyper = {"alpha1": alpha, "alpha2": alpha}
        found = minimise("gm_softmax", 5, 4, scale=4.0, starts=6, **hyper)
        best = min(optima.gm_minimum(5, 4.0, **hyper), optima.gm_collapsed(5, 4.0, **hyper))
        assert found.loss.min().item() == pytest.approx(best, abs=1e-7)
        assert found.class_margin[found.best].item() == pytest.approx(class_margin, abs=0.05)


# --- without the conditions


def test_beyond_d_plus_one_classes_the_scale_matters():
    """K = 8, d = 3: the square antiprism's own law, one minimum for NormFace, CosFace and LM-Softmax."""
    for s in (5.0, 20.0):
        expected = optima.finite_scale_class_margin(s)
        for name, hyper in (("normface", {}), ("cosface", {"margin": 0.2}), ("lm_softmax", {})):
            found = minimise(name, 8, 3, scale=[3.0, s], starts=2, **hyper)
            assert found.class_margin[found.best].item() == pytest.approx(expected, abs=1e-4)


def test_imbalance_breaks_the_simplex_and_a_zero_centroid_mends_it():
    """Theorem 3.5: n = (20, 4, 2, 1), NormFace s = 5: 87.76 degrees, not 109.47, unless sum_j w_j = 0."""
    shares = torch.tensor([20, 4, 2, 1])
    found = minimise("normface", 4, 3, scale=5.0, class_weights=shares, starts=2)
    assert found.class_margin[found.best].item() == pytest.approx(87.76, abs=0.005)
    mended = minimise("normface", 4, 3, scale=5.0, class_weights=shares, zero_centroid=1e3, starts=1)
    assert mended.class_margin[mended.best].item() == pytest.approx(109.471, abs=0.05)
    bound = torch.log1p(3 * torch.exp(torch.tensor(-5 * 4 / 3, dtype=torch.float64))).item()
    assert mended.loss.min().item() == pytest.approx(bound, abs=3e-4)


@pytest.mark.parametrize(
    ("name", "hyper", "rho", "measured", "tolerance"),
    [
        ("normface", {}, 100, 62.72, 0.4),
        ("normface", {}, 10, 82.60, 0.4),
        ("cosface", {"margin": 0.35}, 100, 58.77, 0.4),
        ("cosface", {"margin": 0.35}, 10, 81.61, 0.4),
        ("arcface", {"margin": 0.1}, 100, 65.86, 0.4),
        ("lm_softmax", {}, 10, 68.91, 0.4),
    ],
)
def test_table_2_without_any_data(name, hyper, rho, measured, tolerance):
    """Class margins of ResNets on long-tailed CIFAR-10 (Zhou et al. 2022, table 2) from class sizes alone, s = 5."""
    shares = torch.tensor([5000 * rho ** (-j / 9) for j in range(10)])
    found = minimise(name, 10, 16, scale=5.0, class_weights=shares, starts=2, **hyper)
    assert found.class_margin[found.best].item() == pytest.approx(measured, abs=tolerance)


@pytest.mark.parametrize("K", [3, 10])
def test_relu_features_cap_the_margin(K):
    """LM-Softmax with z >= 0: log(K-1)/s - sqrt(K/(K-1)), by Jensen's inequality on the sum over classes."""
    found = minimise("lm_softmax", K, K, scale=10.0, starts=3, nonnegative=True)
    expected = math.log(K - 1) / 10 - optima.relu_sample_margin_cap(K)
    assert found.loss.min().item() == pytest.approx(expected, abs=1e-6)
    assert found.features.min() >= 0
    w, z = found.prototypes[found.best], found.features[found.best]
    assert ((w * z).sum(1) - optima.relu_cosine_cap(K)).abs().max() < 1e-3
    assert found.sample_margin[found.best].mean().item() == pytest.approx(optima.relu_sample_margin_cap(K), abs=1e-3)


# --- packings


@pytest.mark.parametrize("N", [7, 10, 13, 24])
def test_lm_total_finds_the_packing(N):
    found = search("lm_softmax_total", N, 3)
    assert found.class_margin.max().item() == pytest.approx(TAMMES_DEGREES[N], abs=0.01)
    assert found.class_margin.max() <= TAMMES_DEGREES[N] + 1e-6


@pytest.mark.parametrize(("N", "mean_margin", "class_margin"), [(5, 1.02462, 86.63), (10, 0.60271, 61.22)])
def test_the_mean_of_lm_softmax_does_not(N, mean_margin, class_margin):
    """Its limit is the largest MEAN margin, which lies above 1 - cos of the packing, at a smaller class margin."""
    found = search("lm_softmax", N, 3, scale=4096)
    assert found.sample_margin[found.best].mean().item() == pytest.approx(mean_margin, abs=2e-4)
    assert found.class_margin[found.best].item() == pytest.approx(class_margin, abs=0.05)
    assert mean_margin > 1 - math.cos(math.radians(TAMMES_DEGREES[N])) + 0.005


@pytest.mark.parametrize("N", [7, 9, 16])
def test_finite_scale_bias_predicts_lm_total(N):
    """Gap times scale at s = 16384, from the packing's contacts alone."""
    points = torch.randn(6, N, 3, generator=torch.Generator().manual_seed(N), dtype=torch.float64)
    packing = max((polish_tammes(p) for p in points), key=lambda p: -pairwise_cosines(p).max())
    rough = optimise("lm_softmax_total", N, 3, scale_to=1.0, steps=1)
    start = FreeFeatures(packing[None], packing[None], rough.target, rough.loss, rough.class_margin)
    found = minimise("lm_softmax_total", N, 3, scale=16384.0, start=start)
    gap = (TAMMES_DEGREES[N] - found.class_margin.item()) * 16384
    assert gap == pytest.approx(optima.finite_scale_bias(packing), rel=0.005)


# --- interface


def test_a_ladder_a_start_and_fixed_prototypes():
    first = minimise("normface", 4, 3, scale=[1, 4], starts=2, seed=1)
    again = minimise("normface", 4, 3, scale=4, start=first)
    assert again.prototypes.shape == (2, 4, 3)
    torch.testing.assert_close(again.loss, first.loss, rtol=0, atol=1e-10)
    held = minimise("normface", 4, 3, scale=4, fixed_prototypes=2 * simplex_etf(4, 3), starts=1)
    torch.testing.assert_close(held.prototypes[0], simplex_etf(4, 3))
    assert_simplex(held, 4)


def test_refusals():
    with pytest.raises(ValueError, match="scale"):
        minimise("normface", 3, 2, scale=[1, -1])
    with pytest.raises(ValueError, match="do not fit"):
        minimise("normface", 3, 2, scale=1, start=minimise("normface", 4, 2, scale=1, starts=1))
    with pytest.raises(ValueError, match="above 256"):
        search("lm_softmax_total", 4, 3, scale=100)
    with pytest.raises(ValueError, match="class_weights"):
        minimise("normface", 3, 2, scale=1, class_weights=torch.ones(4))
