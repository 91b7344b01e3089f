"""Half precision: the losses are a float32 island, whatever comes in and whatever autocast surrounds them.

Tolerances, s = 64. From the same half-precision features, a step under autocast differs from one in float32 by rounding
only (1e-5 relative). If autocast runs the backbone too, its features carry half a unit in the last place of the
half format, 2^-12 (fp16) or 2^-9 (bf16) of themselves; a cosine moves by about as much, the loss by up to s times that.
"""

import oracles
import pytest
import torch
from torch import nn

from nbs_lib import losses
from nbs_lib.heads import CosineHead, LinearHead

CASES = {
    "ce": {},
    "focal": {"gamma": 1.5},
    "normface": {"scale": 64.0},
    "cosface": {"scale": 64.0, "margin": 0.35},
    "arcface": {"scale": 64.0, "margin": 0.5},
    "sphereface": {"scale": 64.0, "margin": 4},
    "ldam": {"scale": 64.0, "margin": 0.5},
    "unified": {"scale": 64.0, "m1": 1.35, "m2": 0.3, "m3": 0.1},
    "gm_softmax": {"scale": 64.0, "alpha1": 0.8, "beta1": -0.1},
    "lm_softmax": {"scale": 64.0},
    "lm_softmax_total": {"scale": 64.0},
    "sample_margin": {},
}
HALF = [torch.float16, torch.bfloat16]
every = pytest.mark.parametrize(("name", "hyper"), CASES.items(), ids=CASES)
half = pytest.mark.parametrize("dtype", HALF, ids=["fp16", "bf16"])


def gradients(loss, *leaves):
    return torch.autograd.grad(loss, leaves)


@every
@half
@pytest.mark.parametrize("head_type", [CosineHead, LinearHead])
def test_autocast_changes_nothing_after_the_features(name, hyper, dtype, head_type, device):
    head = head_type(32, 10).to(device)
    features = (20 * torch.randn(16, 32, device=device)).to(dtype).requires_grad_()
    target = torch.arange(16, device=device) % 10
    criterion = oracles.build(name, **hyper)
    with torch.autocast(device.type, dtype=dtype):
        scores = head(features)
        loss = criterion(scores, target)
    assert scores.dtype == loss.dtype == torch.float32
    exact = features.detach().float().requires_grad_()
    want = criterion(head(exact), target)
    torch.testing.assert_close(loss, want, rtol=1e-5, atol=1e-5)
    got_p, got_f = gradients(loss, head.prototypes, features)
    want_p, want_f = gradients(want, head.prototypes, exact)
    assert got_p.dtype == torch.float32
    torch.testing.assert_close(got_p, want_p, rtol=1e-4, atol=1e-5 * want_p.abs().max().item())
    torch.testing.assert_close(got_f, want_f.to(dtype), rtol=0.01, atol=0.01 * want_f.abs().max().item())


@every
@half
def test_half_scores_are_raised(name, hyper, dtype, device):
    scores = (torch.rand(8, 5, device=device) * 2 - 1).to(dtype).requires_grad_()
    target = torch.arange(8, device=device) % 5
    exact = scores.detach().float().requires_grad_()
    got, want = (oracles.build(name, **hyper)(x, target) for x in (scores, exact))
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, want)
    (got_s,), (want_s,) = gradients(got, scores), gradients(want, exact)
    assert got_s.dtype == dtype
    torch.testing.assert_close(got_s, want_s.to(dtype))


@every
@half
def test_a_backbone_under_autocast(name, hyper, dtype, device):
    backbone, head = nn.Linear(24, 32).to(device), CosineHead(32, 10).to(device)
    inputs, target = torch.randn(64, 24, device=device), torch.arange(64, device=device) % 10
    criterion = oracles.build(name, **hyper)
    want = criterion(head(backbone(inputs)), target)
    with torch.autocast(device.type, dtype=dtype):
        got = criterion(head(backbone(inputs)), target)
    tolerance = {torch.float16: 2.0**-12, torch.bfloat16: 2.0**-9}[dtype]
    # psi and unified are steeper than the cosine, by m1² = 16 at most.
    steepness = {"sphereface": 16, "unified": 2}.get(name, 1)
    scale = hyper.get("scale", 1.0) if not name.startswith("lm") else 1.0
    assert (got - want).abs().item() <= 4 * tolerance * scale * steepness
    assert got.isfinite()


@every
@half
def test_weights_stay_float32_and_move(name, hyper, dtype, device):
    backbone, head = nn.Linear(24, 32).to(device), CosineHead(32, 10).to(device)
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
    before = head.prototypes.detach().clone()
    with torch.autocast(device.type, dtype=dtype):
        loss = oracles.build(name, **hyper)(
            head(backbone(torch.randn(64, 24, device=device))), torch.arange(64, device=device) % 10
        )
    loss.backward()
    optimizer.step()
    assert head.prototypes.dtype == head.prototypes.grad.dtype == torch.float32
    assert (head.prototypes != before).any(1).all()


@half
def test_large_half_features_do_not_overflow(dtype, device):
    """512 entries of 2000: their sum of squares leaves fp16's range (65504) thirty thousand times over."""
    head = CosineHead(512, 4).to(device)
    features = torch.full((2, 512), 2000.0, dtype=dtype, device=device)
    with torch.autocast(device.type, dtype=dtype):
        cosines = head(features)
    assert cosines.isfinite().all()
    torch.testing.assert_close(cosines, head(torch.ones(2, 512, device=device)), rtol=1e-5, atol=1e-6)


def test_float64_stays_float64(device):
    head = CosineHead(6, 4).double().to(device)
    features = torch.randn(5, 6, dtype=torch.double, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = losses.ArcFace(scale=64, margin=0.5)(head(features), torch.arange(5, device=device) % 4)
    assert loss.dtype == torch.float64


@half
def test_zero_centroid_of_half_prototypes(dtype, device):
    prototypes = torch.randn(5, 3, device=device).to(dtype)
    with torch.autocast(device.type, dtype=dtype):
        got = losses.ZeroCentroid()(prototypes)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, losses.ZeroCentroid()(prototypes.float()))
