"""Closed forms at points where they can be checked by hand, by other code, or by their own definition."""

import math

import numpy as np
import pytest
import torch

from nbs_lib.losses import functional
from nbs_lib.metrics import class_margin
from nbs_lib.theory import margin_optima as optima
from nbs_lib.theory.packing import TAMMES_DEGREES, polish_tammes, simplex_etf


def at_simplex(K, loss, **hyper):
    """Mean loss of the simplex with each feature on its prototype: the definition of the closed forms."""
    w = simplex_etf(K, K - 1)
    return loss(w @ w.T, torch.arange(K), **hyper).item()


@pytest.mark.parametrize("K", [2, 3, 10, 100])
@pytest.mark.parametrize("s", [0.5, 5.0, 64.0])
def test_minima_are_the_losses_at_the_simplex(K, s):
    assert optima.normface_minimum(K, s) == pytest.approx(at_simplex(K, functional.normface, scale=s), abs=1e-12)
    assert optima.sphereface_minimum(K, s) == pytest.approx(
        at_simplex(K, functional.sphereface, scale=s, margin=4), abs=1e-9
    )
    assert optima.cosface_minimum(K, s, 0.35) == pytest.approx(
        at_simplex(K, functional.cosface, scale=s, margin=0.35), abs=1e-12
    )
    assert optima.arcface_minimum(K, s, 0.5) == pytest.approx(
        at_simplex(K, functional.arcface, scale=s, margin=0.5), abs=1e-5 * s
    )
    assert optima.lm_minimum(K, s) == pytest.approx(at_simplex(K, functional.lm_softmax, scale=s), abs=1e-12)
    hyper = {"alpha1": 0.9, "beta1": -0.2, "alpha2": 0.6, "beta2": 0.1}
    assert optima.gm_minimum(K, s, **hyper) == pytest.approx(
        at_simplex(K, functional.gm_softmax, scale=s, **hyper), abs=1e-12
    )


def test_lm_values_of_the_paper_sheet():
    """K = 10: log(9)/s - 10/9 at s = 5, 10, 64."""
    assert [round(optima.lm_minimum(10, s), 3) for s in (5, 10, 64)] == [-0.672, -0.891, -1.077]


def test_the_printed_bound_is_no_bound():
    """With a1 + b1 > a2 + b2 the printed value lies above what the simplex reaches; without a difference they agree."""
    hyper = {"alpha1": 1.0, "beta1": 0.0, "alpha2": 0.8, "beta2": -0.1}
    reached = at_simplex(4, functional.gm_softmax, scale=3.0, **hyper)
    assert optima.gm_minimum_as_printed(4, 3.0, **hyper) > reached + 0.5
    assert optima.gm_minimum_as_printed(4, 3.0) == optima.gm_minimum(4, 3.0) == optima.normface_minimum(4, 3.0)


@pytest.mark.parametrize("K", [3, 5, 10])
def test_simplex_and_collapse_change_places_at_the_threshold(K):
    threshold = optima.alpha_threshold(K)
    for alpha, simplex_wins in ((threshold - 0.01, False), (threshold + 0.01, True)):
        hyper = {"alpha1": alpha, "alpha2": alpha}
        collapsed = torch.full((K, K), -1.0, dtype=torch.float64)
        loss = functional.gm_softmax(collapsed, torch.arange(K), scale=4.0, **hyper).item()
        assert optima.gm_collapsed(K, 4.0, **hyper) == pytest.approx(loss, abs=1e-12)
        assert (optima.gm_minimum(K, 4.0, **hyper) < loss) == simplex_wins
    at = {"alpha1": threshold, "alpha2": threshold}
    assert optima.gm_minimum(K, 4.0, **at) == pytest.approx(optima.gm_collapsed(K, 4.0, **at), abs=1e-12)


def test_arcface_collapse_of_the_sheet():
    """K = 5, s = 4, m = 1.2: the collapse costs 0.272, the simplex 0.297; they tie at m = 1.1864."""
    alpha = math.cos(1.2)
    assert optima.gm_collapsed(5, 4.0, alpha1=alpha, alpha2=alpha) == pytest.approx(0.272, abs=5e-4)
    assert optima.arcface_minimum(5, 4.0, 1.2) == pytest.approx(0.297, abs=5e-4)
    assert math.acos(optima.alpha_threshold(5)) == pytest.approx(1.1864, abs=5e-5)


def test_caps():
    assert optima.max_sample_margin(10) == pytest.approx(1.1111, abs=5e-5)
    assert optima.relu_sample_margin_cap(10) == pytest.approx(1.0541, abs=5e-5)
    assert optima.relu_cosine_cap(10) == pytest.approx(0.9487, abs=5e-5)
    for K in (2, 3, 10):  # simplex prototypes over orthonormal features attain both
        w = torch.zeros(K, K, dtype=torch.float64)
        w += torch.eye(K) - 1 / K
        w /= w.norm(dim=1, keepdim=True)
        assert w[0, 0] == pytest.approx(optima.relu_cosine_cap(K))
        assert w[0, 0] - w[1, 0] == pytest.approx(optima.relu_sample_margin_cap(K))


def test_float32_floor():
    """Beyond 24 ln 2 the target's gradient is exactly zero in float32, and not before."""
    for offset, vanished in ((-0.01, False), (0.01, True)):
        margin = torch.tensor([[optima.FLOAT32_FLOOR + offset, 0.0]], requires_grad=True)
        torch.nn.functional.cross_entropy(margin, torch.tensor([0])).backward()
        assert (margin.grad[0, 0] == 0) == vanished


# --- finite scale


def test_antiprism_values_of_the_sheet():
    expected = {5: 72.625, 10: 73.684, 20: 74.271, 30: 74.467, 40: 74.565, 64: 74.675, 400: 74.829}
    for s, degrees in expected.items():
        assert optima.finite_scale_class_margin(s) == pytest.approx(degrees, abs=5.1e-4)
    assert optima.finite_scale_constant() == pytest.approx(11.726, abs=5e-4)


def test_the_law_is_the_limit_of_the_exact_value():
    for s in (1e3, 1e4, 1e5):
        law = TAMMES_DEGREES[8] - optima.finite_scale_constant() / s
        assert optima.finite_scale_class_margin(s) == pytest.approx(law, abs=100 / s**2 + 1e-6)
    richardson = 2 * optima.finite_scale_class_margin(128) - optima.finite_scale_class_margin(64)
    assert richardson == pytest.approx(TAMMES_DEGREES[8], abs=0.002)


def test_the_general_law_contains_the_antiprism():
    points = normal_packing(8)
    assert optima.finite_scale_bias(points) == pytest.approx(optima.finite_scale_constant(), abs=1e-4)


def normal_packing(N, d=3, starts=4):
    generator = torch.Generator().manual_seed(N)
    found = [polish_tammes(torch.randn(N, d, generator=generator, dtype=torch.float64)) for _ in range(starts)]
    return max(found, key=class_margin)


@pytest.mark.parametrize(("N", "d"), [(4, 3), (6, 3), (12, 3), (5, 4)])
def test_one_kind_of_contact_has_no_bias(N, d):
    assert optima.finite_scale_bias(normal_packing(N, d)) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("N", [7, 9, 10, 16])
def test_the_general_law_against_a_direct_minimum(N):
    """Move the packing to the minimum of log sum exp(s c_ij) by plain Newton steps along the sphere, then compare."""
    points = normal_packing(N)
    s = 20_000.0
    w = points.numpy().copy()
    for _ in range(60):
        w = newton_step(w, s)
    moved = class_margin(torch.from_numpy(w))
    assert (class_margin(points) - moved) * s == pytest.approx(optima.finite_scale_bias(points), rel=0.005, abs=0.02)


def newton_step(w, s):
    """One damped Newton step on f(x) = (1/s) log sum_{i<j} exp(s w_i . w_j), w = (w + B x) / |w + B x|."""
    n, d = w.shape
    frames = np.stack([np.linalg.svd(row[None])[2][1:] for row in w])  # (n, d-1, d), tangent to each point
    i, j = np.triu_indices(n, 1)
    cosines = (w[i] * w[j]).sum(1)
    p = np.exp(s * (cosines - cosines.max()))
    p /= p.sum()
    m = n * (d - 1)
    rates = np.zeros((len(i), n, d - 1))
    rates[np.arange(len(i)), i] = np.einsum("kad,kd->ka", frames[i], w[j])
    rates[np.arange(len(i)), j] = np.einsum("kad,kd->ka", frames[j], w[i])
    rates = rates.reshape(len(i), m)
    slope = p @ rates
    bend = s * (rates.T * p) @ rates - s * np.outer(slope, slope)
    for k, (a, b) in enumerate(zip(i, j, strict=True)):  # curvature of each cosine itself
        mixed = p[k] * frames[a] @ frames[b].T
        rows, columns = slice(a * (d - 1), (a + 1) * (d - 1)), slice(b * (d - 1), (b + 1) * (d - 1))
        bend[rows, columns] += mixed
        bend[columns, rows] += mixed.T
        bend[rows, rows] -= p[k] * cosines[k] * np.eye(d - 1)
        bend[columns, columns] -= p[k] * cosines[k] * np.eye(d - 1)
    values, vectors = np.linalg.eigh(bend)
    step = -vectors @ ((vectors.T @ slope) / np.maximum(np.abs(values), 1e-3))
    step *= min(1.0, 0.5 / s / max(np.abs(step).max(), 1e-300) * 4)
    moved = w + np.einsum("na,nad->nd", step.reshape(n, d - 1), frames)
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


@pytest.mark.parametrize("K", [1, 0, 2.5, True])
def test_numbers_of_classes_that_make_no_sense(K):
    for formula in (optima.max_sample_margin, optima.alpha_threshold, optima.relu_cosine_cap):
        with pytest.raises(ValueError, match="K"):
            formula(K)
    with pytest.raises(ValueError, match="K"):
        optima.normface_minimum(K, 1.0)


def test_other_refusals():
    with pytest.raises(ValueError, match="scale"):
        optima.normface_minimum(3, 0.0)
    with pytest.raises(ValueError, match="radians"):
        optima.arcface_minimum(3, 1.0, 28.6)
    with pytest.raises(ValueError, match="scale"):
        optima.finite_scale_class_margin(-1)
