"""Values against the loop oracles, gradients against finite differences, for every loss and every branch."""

import math

import oracles
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from nbs_lib import losses
from nbs_lib.losses import functional

COUNTS = (5000, 1200, 300, 50, 7)
CASES = [
    ("ce", {}),
    ("ce", {"label_smoothing": 0.1}),
    *[("focal", {"gamma": gamma}) for gamma in (0, 0.5, 1.0, 2.0)],
    ("normface", {"scale": 10.0}),
    ("cosface", {"scale": 10.0, "margin": 0.35}),
    ("arcface", {"scale": 10.0, "margin": 0.5}),
    ("arcface", {"scale": 10.0, "margin": 1.2, "beyond": "psi"}),
    ("arcface", {"scale": 10.0, "margin": 1.2, "beyond": "easy"}),
    ("arcface", {"scale": 10.0, "margin": 1.2, "beyond": "none"}),
    ("sphereface", {"scale": 10.0, "margin": 4}),
    ("sphereface", {"scale": 10.0, "margin": 1.7}),
    ("sphereface", {"scale": 10.0, "margin": 20}),
    ("ldam", {"scale": 10.0, "margin": 0.5, "class_counts": COUNTS}),
    ("unified", {"scale": 10.0, "m1": 1.0, "m2": 0.4, "m3": 0.2}),
    ("unified", {"scale": 10.0, "m1": 2.0, "m2": 0.4, "m3": 0.2}),
    ("unified", {"scale": 10.0, "m1": 1.35, "m2": 0.4, "m3": 0.2}),
    ("unified", {"scale": 10.0, "m1": 3.0, "m2": 0.4, "m3": 0.2, "beyond": "none"}),
    ("gm_softmax", {"scale": 10.0, "alpha1": 0.9, "beta1": -0.2, "alpha2": 0.6, "beta2": 0.1}),
    ("lm_softmax", {"scale": 10.0}),
    ("sample_margin", {}),
]
IDS = [f"{name}-{'-'.join(map(str, hyper.values()))}" for name, hyper in CASES]


def batch(device, n=12, k=5):
    cosines = (torch.rand(n, k, dtype=torch.double) * 1.9 - 0.95).to(device)
    return cosines, torch.arange(n, device=device) % k


def expected(name, hyper, cosines, target):
    rows = zip(cosines.tolist(), target.tolist(), strict=True)
    return torch.tensor([getattr(oracles, name)(row, y, **hyper) for row, y in rows], dtype=torch.double)


@pytest.mark.parametrize(("name", "hyper"), CASES, ids=IDS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_value_is_the_oracles(name, hyper, reduction, device):
    cosines, target = batch(device)
    want = expected(name, hyper, cosines, target)
    want = {"none": want, "mean": want.mean(), "sum": want.sum()}[reduction]
    got = losses.build(name, reduction=reduction, **hyper)(cosines, target)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("name", "hyper"), CASES, ids=IDS)
def test_float32_value_is_the_oracles(name, hyper, device):
    cosines, target = batch(device)
    cosines = cosines.float()
    got = losses.build(name, reduction="none", **hyper)(cosines, target)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.cpu().double(), expected(name, hyper, cosines, target), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "hyper"), CASES, ids=IDS)
def test_first_and_second_derivatives(name, hyper, device):
    cosines, target = batch(device, n=6)
    criterion = losses.build(name, reduction="none", **hyper)
    leaf = cosines.requires_grad_()
    assert gradcheck(lambda c: criterion(c, target), leaf)
    assert gradgradcheck(lambda c: criterion(c, target), leaf)


def test_total_sums_over_samples_and_classes(device):
    cosines, target = batch(device)
    got = losses.LMSoftmaxTotal(scale=7.0)(cosines, target)
    assert got.item() == pytest.approx(oracles.lm_softmax_total(cosines.tolist(), target.tolist(), 7.0), rel=1e-12)
    assert gradcheck(lambda c: functional.lm_softmax_total(c, target, scale=7.0), cosines.requires_grad_())


@pytest.mark.parametrize("normalize", [True, False])
def test_zero_centroid(normalize, device):
    prototypes = torch.randn(4, 3, dtype=torch.double, device=device, requires_grad=True)
    got = losses.ZeroCentroid(normalize=normalize)(prototypes)
    assert got.item() == pytest.approx(oracles.zero_centroid(prototypes.tolist(), normalize), rel=1e-12)
    assert gradcheck(losses.ZeroCentroid(normalize=normalize), prototypes)
    several = functional.zero_centroid_loss(torch.stack([prototypes, 2 * prototypes]), normalize=normalize)
    torch.testing.assert_close(several, got * torch.tensor([1.0, 1.0 if normalize else 4.0]).to(got))


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("normface", {}),
        ("cosface", {"margin": 0.3}),
        ("arcface", {"margin": 0.3}),
        ("sphereface", {"margin": 4}),
        ("ldam", {"margin": 0.4, "class_counts": COUNTS}),
    ],
)
def test_a_scale_per_sample(name, hyper, device):
    """With the norms as scale these are the losses without feature normalisation, A-Softmax above all."""
    cosines, target = batch(device)
    scale = torch.rand(len(target), dtype=torch.double, device=device) * 5
    function = getattr(functional, name)
    got = function(cosines, target, scale=scale, reduction="none", **hyper)
    rows = zip(cosines.tolist(), target.tolist(), scale.tolist(), strict=True)
    want = [getattr(oracles, name)(row, y, scale=s, **hyper) for row, y, s in rows]
    torch.testing.assert_close(got.cpu(), torch.tensor(want, dtype=torch.double), rtol=1e-11, atol=1e-12)
    leaves = cosines.requires_grad_(), scale.requires_grad_()
    assert gradcheck(lambda c, s: function(c, target, scale=s, **hyper), leaves)


def test_sphereface_module_takes_the_norms(device):
    cosines, target = batch(device)
    norms = torch.rand(len(target), dtype=torch.double, device=device) + 1
    got = losses.SphereFace(margin=3, scale=None)(cosines, target, norms)
    torch.testing.assert_close(got, functional.sphereface(cosines, target, margin=3, scale=norms))
    with pytest.raises(ValueError, match="norms"):
        losses.SphereFace(margin=3, scale=None)(cosines, target)
    with pytest.raises(ValueError, match="norms"):
        losses.SphereFace(margin=3, scale=8.0)(cosines, target, norms)


def test_gm_softmax_with_parameters_per_sample(device):
    cosines, target = batch(device)
    drawn = torch.rand(4, len(target), dtype=torch.double, device=device)
    names = ("alpha1", "beta1", "alpha2", "beta2")
    got = functional.gm_softmax(cosines, target, scale=3.0, reduction="none", **dict(zip(names, drawn, strict=True)))
    rows = zip(cosines.tolist(), target.tolist(), *drawn.tolist(), strict=True)
    want = [oracles.gm_softmax(row, y, 3.0, *hyper) for row, y, *hyper in rows]
    torch.testing.assert_close(got.cpu(), torch.tensor(want, dtype=torch.double), rtol=1e-11, atol=1e-12)


def test_gm_softmax_without_target_is_lm_softmax(device):
    cosines, target = batch(device)
    leaf, twin = cosines.clone().requires_grad_(), cosines.clone().requires_grad_()
    got = functional.gm_softmax(leaf, target, scale=3.0, beta2=-math.inf) / 3
    want = functional.lm_softmax(twin, target, scale=3.0)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*(torch.autograd.grad(x, y)[0] for x, y in ((got, leaf), (want, twin))))


@pytest.mark.parametrize(
    ("hyper", "member", "member_hyper"),
    [
        ({"m1": 1.7}, "sphereface", {"margin": 1.7}),
        ({"m1": 4}, "sphereface", {"margin": 4}),
        ({"m2": 0.7}, "arcface", {"margin": 0.7}),
        ({"m2": 0.7, "beyond": "easy"}, "arcface", {"margin": 0.7, "beyond": "easy"}),
        ({"m3": 0.35}, "cosface", {"margin": 0.35}),
        ({}, "normface", {}),
    ],
)
def test_unified_contains_its_members(hyper, member, member_hyper, device):
    cosines, target = batch(device)
    got = functional.unified(cosines, target, scale=9.0, **hyper)
    torch.testing.assert_close(got, getattr(functional, member)(cosines, target, scale=9.0, **member_hyper))


def test_vmap_over_problems(device):
    """Batches of independent problems, as the search for packings runs them."""
    cosines = torch.rand(3, 6, 5, dtype=torch.double, device=device)
    target = torch.randint(5, (3, 6), device=device)
    for name, hyper in [c for c in CASES if c[0] != "zero_centroid"]:
        criterion = losses.build(name, validate=False, **hyper)
        together = torch.func.vmap(torch.func.grad(criterion))(cosines, target)
        one_by_one = torch.stack([torch.func.grad(criterion)(c, y) for c, y in zip(cosines, target, strict=True)])
        torch.testing.assert_close(together, one_by_one)
