"""Margins grow with the logarithm of time: the closed law against an ODE solver and the flow of real losses."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from nbs_lib.losses import functional
from nbs_lib.theory.dynamics import cone, gradient_flow, margin_path, margin_speed
from nbs_lib.theory.free_features import random_points


@pytest.mark.parametrize(("K", "d", "margin"), [(2, 2, 0.3), (4, 4, 1.0), (5, 9, 1.25), (3, 3, 0.0)])
def test_cone_has_one_angle(K, d, margin):
    w = cone(K, d, margin)
    cosines = w @ w.T
    torch.testing.assert_close(cosines, (1 - margin) + margin * torch.eye(K, dtype=torch.float64))


@pytest.mark.parametrize(("K", "d", "margin"), [(4, 3, 0.1), (4, 4, 1.4), (4, 4, -0.1)])
def test_cone_that_does_not_exist(K, d, margin):
    with pytest.raises(ValueError, match=r"margin must lie|needs 2 <= K"):
        cone(K, d, margin)


@pytest.mark.parametrize(
    ("name", "hyper", "offset", "kind"),
    [("normface", {}, 0.0, "softmax"), ("cosface", {"margin": 0.35}, 0.35, "softmax"), ("lm_softmax", {}, 0.0, "lm")],
)
def test_speed_is_minus_the_gradient_seen_from_the_margin(name, hyper, offset, kind):
    K, scale, margin = 5, 7.0, 0.6
    w = cone(K, 6, margin).requires_grad_()
    z = w.detach().clone().requires_grad_()
    cosines = torch.nn.functional.normalize(z, dim=1) @ torch.nn.functional.normalize(w, dim=1).T
    getattr(functional, name)(cosines, torch.arange(K), scale=scale, **hyper).backward()
    with torch.no_grad():
        moved = [torch.nn.functional.normalize(p - 1e-6 * p.grad, dim=1) for p in (w, z)]
        after = moved[1] @ moved[0].T
    growth = ((after[0, 0] - after[0, 1]).item() - margin) / 1e-6
    assert growth == pytest.approx(float(margin_speed(margin, K, scale, offset=offset, kind=kind)), rel=1e-4)


@pytest.mark.parametrize("offset", [0.0, 0.35])
def test_path_solves_the_equation_of_motion(offset):
    K, scale, start = 4, 12.0, 0.05
    times, margins = margin_path(K, scale, start, offset=offset)
    at = np.geomspace(0.01, 1e3, 12)
    solved = solve_ivp(
        lambda _, g: margin_speed(g, K, scale, offset=offset), (0, 1e3), [start], "LSODA", at, rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(np.interp(at, times, margins), solved.y[0], atol=2e-4)


def test_lm_softmax_follows_the_logistic_curve():
    K, start = 5, 0.01
    kappa = K / (K - 1)
    times, margins = margin_path(K, 30.0, start, kind="lm")
    np.testing.assert_allclose(margins, kappa / (1 + (kappa / start - 1) * np.exp(-2 * kappa * times / K)), atol=1e-9)


@pytest.mark.parametrize(("name", "scale", "hyper"), [("normface", 30.0, {}), ("cosface", 20.0, {"margin": 0.35})])
def test_flow_of_the_real_loss_follows_the_path(name, scale, hyper):
    start = cone(4, 4, 0.02)
    flow = gradient_flow(name, start, start, scale, 1e4, **hyper)
    times, margins = margin_path(4, scale, 0.02, offset=hyper.get("margin", 0.0))
    np.testing.assert_allclose(flow.mean_margin, np.interp(flow.time, times, margins), atol=2e-3)
    assert flow.time[-1] == 1e4
    np.testing.assert_allclose(flow.mean_margin, flow.worst_margin, atol=1e-9)


def test_flow_from_anywhere_gains_one_unit_of_scaled_margin_per_e_fold_of_time():
    points = random_points(1, 8, 4, seed=1)[0]
    flow = gradient_flow("normface", points[:4], points[4:], 64.0, 1e6)
    gain = 64 * (flow.at(1e6) - flow.at(1e3)) / math.log(1e3)
    assert gain == pytest.approx(1.0, abs=0.08)


def test_in_float32_the_pull_of_the_target_ends_at_24_ln_2():
    def pull(gap, dtype):
        cosines = torch.tensor([[gap, 0.0]], dtype=dtype, requires_grad=True)
        functional.normface(cosines, torch.tensor([0]), scale=1.0).backward()
        return cosines.grad[0, 0].item()

    floor = 24 * math.log(2)
    assert pull(floor - 0.01, torch.float32) < 0
    assert pull(floor + 0.01, torch.float32) == 0
    assert pull(floor + 0.01, torch.float64) == pytest.approx(-math.exp(-floor - 0.01), rel=1e-6)


def test_flow_stops_when_nothing_pulls():
    start = cone(3, 3, 0.5)
    flow = gradient_flow(lambda c, y, s: (c * 0).sum(1), start, start, 5.0, 10.0)
    assert len(flow.time) == 1


def test_arguments_that_make_no_sense():
    with pytest.raises(ValueError, match="start must lie strictly between"):
        margin_path(4, 10.0, 1.5)
    with pytest.raises(ValueError, match="kind"):
        margin_path(4, 10.0, 0.5, kind="arc")
    with pytest.raises(ValueError, match="until"):
        gradient_flow("normface", cone(3, 3, 0.5), cone(3, 3, 0.5), 5.0, 0.0)
