"""The target logit over the whole of [0, π], its branches and its slopes at the poles."""

import math

import oracles
import pytest
import torch

from nbs_lib.losses import target_logit

THETA = torch.linspace(0, math.pi, 20_001, dtype=torch.double)
MARGINS = [0.0, 0.1, 0.5, 1.0, math.pi / 2]
FACTORS = [1.0, 1.35, 1.5, 1.7, 2.0, 3.0, 4.0, 16.0, 20.0]


def curve(theta=THETA, dtype=torch.double, **hyper):
    return target_logit(torch.cos(theta).to(dtype), **hyper).double()


def slope(cosine, dtype=torch.double, **hyper):
    leaf = torch.tensor([cosine], dtype=dtype, requires_grad=True)
    value = target_logit(leaf, **hyper)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.item(), gradient.item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("beyond", ["linear", "psi"])
def test_arcface_never_rises(margin, beyond, dtype):
    steps = curve(dtype=dtype, m2=margin, beyond=beyond).diff()
    assert steps.max() <= (1e-15 if dtype == torch.float64 else 3e-7)


@pytest.mark.parametrize("margin", [0.5, 1.0])
def test_what_each_branch_does(margin):
    """The documented steps: 0.117 down (0.382 for m = 1), none, 0.479 up (0.841), and the rise of the plain formula."""
    rise = {b: curve(m2=margin, beyond=b).diff() for b in ("linear", "psi", "easy", "none")}
    step_down = margin * math.sin(margin) + math.cos(margin) - 1
    assert rise["linear"].min().item() == pytest.approx(-step_down, abs=2e-4)
    assert rise["psi"].abs().max() < 2e-4
    assert rise["easy"].max().item() == pytest.approx(math.sin(margin), abs=2e-4)
    plain = curve(m2=margin, beyond="none")
    assert plain[-1].item() == pytest.approx(-math.cos(margin), abs=1e-12)
    assert plain.min().item() == pytest.approx(-1, abs=1e-7)
    assert plain[-1] > plain.min() + 0.1


@pytest.mark.parametrize("beyond", ["linear", "psi", "easy", "none"])
@pytest.mark.parametrize("margin", MARGINS)
def test_arcface_is_the_formula(margin, beyond):
    inner = THETA[(THETA + margin - math.pi).abs() > 1e-6]
    inner = inner[(inner - math.pi / 2).abs() > 1e-6]
    want = torch.tensor([oracles.arcface_logit(t, margin, beyond) for t in inner.tolist()], dtype=torch.double)
    torch.testing.assert_close(curve(inner, m2=margin, beyond=beyond), want, rtol=0, atol=2e-12)


@pytest.mark.parametrize("factor", FACTORS)
def test_psi(factor):
    got = curve(m1=factor)
    want = torch.tensor([oracles.psi(factor * t) for t in THETA.tolist()], dtype=torch.double)
    torch.testing.assert_close(got[:-1], want[:-1], rtol=0, atol=1e-10)
    assert got.diff().max() <= 1e-12
    assert (got <= torch.cos(THETA) + 1e-12).all()
    if factor.is_integer():
        assert got[-1].item() == pytest.approx(1 - 2 * factor, abs=1e-12)  # psi(π)
    assert curve(dtype=torch.float32, m1=factor).diff().max() <= 2e-6 * factor


@pytest.mark.parametrize("factor", [2.0, 3.0, 1.35, 20.0])
def test_unified_keeps_falling_with_every_margin_at_once(factor):
    got = curve(m1=factor, m2=0.4, m3=0.2)
    want = torch.tensor([oracles.psi(factor * t + 0.4) - 0.2 for t in THETA.tolist()], dtype=torch.double)
    torch.testing.assert_close(got[:-1], want[:-1], rtol=0, atol=1e-10)
    assert got.diff().max() <= 1e-12
    plain = torch.cos(factor * THETA + 0.4) - 0.2
    torch.testing.assert_close(curve(m1=factor, m2=0.4, m3=0.2, beyond="none")[1:-1], plain[1:-1], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "hyper",
    [{"m2": m, "beyond": b} for m in MARGINS for b in ("linear", "psi", "easy", "none")]
    + [{"m1": f, "m2": m} for f in FACTORS for m in (0.0, 0.2, 1.0)],
)
def test_condition_of_the_lower_bound(hyper):
    """Zhou et al. 2022, (3.2): the target logit is at most cos(m2) cos θ - m3, on all of [0, π]."""
    for m3 in (0.0, 0.3):
        bound = math.cos(hyper.get("m2", 0.0)) * torch.cos(THETA) - m3
        assert (curve(m3=m3, **hyper) <= bound + 1e-12).all()


@pytest.mark.parametrize("factor", [3.0, 4.0])
def test_plain_multiples_break_that_condition(factor):
    """Why a factor on the angle needs psi: cos(4θ) lies up to 2 above cos θ."""
    assert (curve(m1=factor, beyond="none") - torch.cos(THETA)).max() > 1.4


POLES = [
    # hyper-parameters, value at c = 1, slope there, value at c = -1, slope there
    ({"m2": 0.5}, math.cos(0.5), math.cos(0.5), -1 - 0.5 * math.sin(0.5), 1.0),
    ({"m2": 0.5, "beyond": "none"}, math.cos(0.5), math.cos(0.5), -math.cos(0.5), math.cos(0.5)),
    ({"m2": 0.5, "beyond": "easy"}, math.cos(0.5), math.cos(0.5), -1.0, 1.0),
    ({"m2": 0.5, "beyond": "psi"}, math.cos(0.5), math.cos(0.5), math.cos(0.5) - 2, math.cos(0.5)),
    ({"m2": 0.0}, 1.0, 1.0, -1.0, 1.0),
    ({"m1": 4.0}, 1.0, 16.0, -7.0, 16.0),
    ({"m1": 3.0}, 1.0, 9.0, -5.0, 9.0),
    ({"m1": 2.0, "beyond": "none"}, 1.0, 4.0, 1.0, -4.0),
    ({"m1": 1.5}, 1.0, 2.25, -2.0, 2.25),
    ({"m1": 1.5, "beyond": "none"}, 1.0, 2.25, 0.0, 0.0),
    ({"m1": 20.0}, 1.0, 400.0, -39.0, 400.0),
    ({"m1": 2.0, "m2": 0.5}, math.cos(0.5), 4 * math.cos(0.5), math.cos(0.5) - 4, 4 * math.cos(0.5)),
    ({"m3": 0.3}, 0.7, 1.0, -1.3, 1.0),
]


@pytest.mark.parametrize(("hyper", "top", "top_slope", "bottom", "bottom_slope"), POLES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_poles(hyper, top, top_slope, bottom, bottom_slope, dtype):
    """Exact values and the documented finite slopes at c = ±1, and the same just outside, where rounding may lead."""
    for outside in (0.0, 2e-7, 1e-6):
        stretch = outside * max(top_slope, bottom_slope, 1) * 2 + 1e-6
        value, gradient = slope(1 + outside, dtype, **hyper)
        assert value == pytest.approx(top, abs=stretch)
        assert gradient == pytest.approx(top_slope, rel=1e-3, abs=1e-3)
        value, gradient = slope(-1 - outside, dtype, **hyper)
        assert value == pytest.approx(bottom, abs=stretch)
        assert gradient == pytest.approx(bottom_slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hyper", [{"m2": 0.5}, {"m1": 1.7}, {"m1": 4.0}, {"m1": 20.0}, {"m1": 2.0, "m2": 0.3}])
def test_slope_close_to_the_pole(hyper, dtype):
    """m1 sin(m1 θ + m2) / sin θ down to the last number below 1: no digits lost to 1 - c²."""
    one = torch.ones((), dtype=dtype)
    just_below = torch.nextafter(one, -one).item()
    m1, m2 = hyper.get("m1", 1.0), hyper.get("m2", 0.0)
    for c in (just_below, *(1 - torch.logspace(-6, -2, 41, dtype=torch.double)).to(dtype).tolist()):
        sine = math.sqrt((1 - c) * (1 + c))
        want = m1 * math.sin(m1 * math.atan2(sine, c) + m2) / sine
        value, gradient = slope(c, dtype, **hyper)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-11
        assert gradient == pytest.approx(want, rel=tolerance)
        assert value == pytest.approx(math.cos(m1 * math.atan2(sine, c) + m2), abs=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised(dtype):
    cosines = torch.tensor([1.0, 0.5, -1.0], dtype=dtype)
    got = target_logit(cosines, m2=0.5)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, target_logit(cosines.float(), m2=0.5))


def test_errors():
    c = torch.zeros(3)
    with pytest.raises(ValueError, match=r"beyond must be one of .*'psi'.* got 'hard'"):
        target_logit(c, m2=0.5, beyond="hard")
    with pytest.raises(ValueError, match="m1 = 1 only, got m1 = 2"):
        target_logit(c, m1=2, beyond="linear")
