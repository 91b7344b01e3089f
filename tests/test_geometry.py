"""Unit vectors, cosines, angles."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from nbs_lib.geometry import angle, at_least_float32, cosine, unit


@pytest.mark.parametrize(
    ("dtype", "raised"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32,) * 2, (torch.float64,) * 2],
)
def test_at_least_float32(dtype, raised):
    x = torch.ones(2, dtype=dtype)
    assert at_least_float32(x).dtype == raised
    assert (at_least_float32(x) is x) == (dtype == raised)


def test_unit_has_length_one_and_the_same_direction(device):
    x = torch.randn(50, 7, device=device) * torch.logspace(-10, 10, 50, device=device)[:, None]
    torch.testing.assert_close(unit(x).norm(dim=1), torch.ones(50, device=device))
    torch.testing.assert_close(unit(x) * x.norm(dim=1, keepdim=True), x)


def test_unit_gradient(device):
    x = torch.randn(4, 5, dtype=torch.double, device=device, requires_grad=True)
    assert gradcheck(unit, x)
    assert gradgradcheck(unit, x)


def test_unit_of_zero(device):
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1e-30, 0.0]], device=device, requires_grad=True)
    value = unit(x)
    torch.testing.assert_close(value, torch.tensor([[0.0, 0.0], [0.6, 0.8], [0.0, 0.0]], device=device))
    (value * torch.tensor([[1e6, -1e6]], device=device)).sum().backward()
    assert (x.grad[[0, 2]] == 0).all()
    assert x.grad.isfinite().all()
    assert (x.grad[1] != 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_vectors_too_long_for_their_own_norm(dtype, device):
    x = torch.full((2, 512), 2000.0, dtype=dtype, device=device)
    assert unit(x).dtype == torch.float32
    torch.testing.assert_close(unit(x), torch.full((2, 512), 512**-0.5, device=device))


def test_cosine(device):
    x, w = torch.randn(6, 5, device=device), torch.randn(4, 5, device=device)
    want = torch.nn.functional.cosine_similarity(x[:, None].double(), w[None].double(), dim=2)
    torch.testing.assert_close(cosine(x, w).double(), want, rtol=0, atol=5e-7)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert torch.equal(cosine(x, w), cosine(x.clone(), w.clone()))
        assert cosine(x.bfloat16(), w.bfloat16()).dtype == torch.float32
    assert torch.equal(cosine(x, w), cosine(x, w))


@pytest.mark.parametrize("theta", [0.0, 1e-8, 1e-4, 0.3, math.pi / 2, 3.0, math.pi - 1e-8, math.pi])
def test_angle_is_exact_over_the_whole_range(theta, device):
    """arccos of the cosine has nothing left of an angle of 1e-8; this form has all its digits."""
    u = torch.tensor([2.0, 0.0], dtype=torch.double, device=device)
    v = 5 * torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.double, device=device)
    assert angle(u, v).item() == pytest.approx(theta, rel=1e-7, abs=1e-15)
    assert angle(u.float(), v.float()).dtype == torch.float64
    if 0.01 < theta < 3.1:
        assert angle(u, v).item() == pytest.approx(theta, rel=1e-14)


def test_angle_broadcasts(device):
    u, v = torch.randn(6, 1, 3, device=device), torch.randn(4, 3, device=device)
    want = torch.arccos(torch.nn.functional.cosine_similarity(u.double(), v.double(), dim=-1))
    torch.testing.assert_close(angle(u, v), want)
