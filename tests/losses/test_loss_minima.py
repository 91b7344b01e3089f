"""Theorems of Zhou et al. 2022 as tests: what each loss is worth at the simplex, and that nothing found is lower."""

import math

import pytest
import torch

from nbs_lib import losses
from nbs_lib.geometry import cosine
from nbs_lib.losses import functional

CLASSES = [2, 3, 5, 10]


def simplex(k):
    """K unit rows in R^K with all cosines -1/(K-1)."""
    rows = torch.eye(k, dtype=torch.double) - 1 / k
    return rows / rows.norm(dim=1, keepdim=True)


def softmax_minimum(k, s, gap):
    """log(1 + (K-1) exp(-s gap)): the target logit lies ``gap`` above each of the others."""
    return math.log1p((k - 1) * math.exp(-s * gap))


MINIMA = [
    # Proposition 3.3: name, hyper-parameters, distance of the target logit from the others at the simplex
    ("normface", {}, lambda k: k / (k - 1)),
    ("sphereface", {"margin": 4}, lambda k: k / (k - 1)),
    ("sphereface", {"margin": 1.7}, lambda k: k / (k - 1)),
    ("cosface", {"margin": 0.1}, lambda k: k / (k - 1) - 0.1),
    ("cosface", {"margin": 0.35}, lambda k: k / (k - 1) - 0.35),
    *[("arcface", {"margin": 0.5, "beyond": b}, lambda k: 1 / (k - 1) + math.cos(0.5)) for b in ("linear", "psi")],
    ("unified", {"m1": 1.35, "m2": 0.3, "m3": 0.1}, lambda k: 1 / (k - 1) + math.cos(0.3) - 0.1),
]


def tangent_gradients(loss, prototypes, features):
    """Gradients along the sphere: what is left after the part that only changes lengths."""
    grads = torch.autograd.grad(loss, (prototypes, features))
    return [g - (g * x).sum(1, keepdim=True) * x for g, x in zip(grads, (prototypes, features), strict=True)]


@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize("scale", [1.0, 5.0, 20.0])
@pytest.mark.parametrize(("name", "hyper", "gap"), MINIMA)
def test_minimum_at_the_simplex(name, hyper, gap, k, scale):
    criterion = losses.build(name, scale=scale, **hyper)
    w = simplex(k)
    value = criterion(w @ w.T, torch.arange(k))
    assert value.item() == pytest.approx(softmax_minimum(k, scale, gap(k)), rel=1e-6)
    for _ in range(30):
        near, far = w + 0.2 * torch.randn_like(w), torch.randn_like(w)
        features = w + 0.2 * torch.randn_like(w)
        for prototypes in (near, far):
            assert criterion(cosine(features, prototypes), torch.arange(k)) >= value


@pytest.mark.parametrize("k", CLASSES)
def test_theorem_3_2_with_the_sign_that_is_right(k):
    """The minimum is log[exp(s(α2 - α1 + β2 - β1)) + (K-1) exp(-s(1/(K-1) + α1 + β1))]; printed with one sign off."""
    s, a1, b1, a2, b2 = 3.0, 0.9, -0.2, 0.6, -0.1
    w = simplex(k)
    value = functional.gm_softmax(w @ w.T, torch.arange(k), scale=s, alpha1=a1, beta1=b1, alpha2=a2, beta2=b2)
    tail = (k - 1) * math.exp(-s * (1 / (k - 1) + a1 + b1))
    assert value.item() == pytest.approx(math.log(math.exp(s * (a2 - a1 + b2 - b1)) + tail), rel=1e-12)
    printed = math.log(math.exp(s * (a1 - a2 + b1 - b2)) + tail)
    assert abs(value.item() - printed) > 0.02


@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize("scale", [1.0, 8.0, 64.0])
def test_lm_softmax_and_sample_margin_at_the_simplex(k, scale):
    w, target = simplex(k), torch.arange(k)
    lm = losses.LMSoftmax(scale=scale)(w @ w.T, target).item()
    assert lm == pytest.approx(math.log(k - 1) / scale - k / (k - 1), rel=1e-12)
    total = losses.LMSoftmaxTotal(scale=scale)(w @ w.T, target).item()
    assert total == pytest.approx(lm + math.log(k) / scale, rel=1e-12, abs=1e-12)  # equality in (3.6)
    assert losses.SampleMargin()(w @ w.T, target).item() == pytest.approx(-k / (k - 1), rel=1e-12)
    assert losses.ZeroCentroid()(w).item() == pytest.approx(0, abs=1e-30)


@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize(
    ("name", "hyper"),
    [("normface", {}), ("cosface", {"margin": 0.35}), ("sphereface", {"margin": 4}), ("lm_softmax", {})],
)
def test_the_simplex_is_stationary(name, hyper, k):
    w, z = simplex(k).requires_grad_(), simplex(k).requires_grad_()
    loss = losses.build(name, scale=5.0, **hyper)(z @ w.T, torch.arange(k))
    for gradient in tangent_gradients(loss, w, z):
        assert gradient.abs().max() < 1e-12


def test_zero_centroid_extremes():
    same = torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.3, 0.4]])
    assert losses.ZeroCentroid()(same).item() == pytest.approx(1)
    opposite = torch.tensor([[3.0, 4.0], [-6.0, -8.0]])
    assert losses.ZeroCentroid()(opposite).item() == pytest.approx(0, abs=1e-12)
    assert losses.ZeroCentroid(normalize=False)(opposite).item() == pytest.approx(6.25)


def test_the_papers_lambda():
    """λ = 1 in the paper's tables is a factor of 100 on |w̄|²."""
    w = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert losses.PAPER_LAMBDA * 1 * losses.ZeroCentroid()(w).item() == pytest.approx(50)


def random_cosines(n=40, k=6, d=3):
    return cosine(torch.randn(n, d, dtype=torch.double), torch.randn(k, d, dtype=torch.double)), torch.arange(n) % k


def test_equation_3_6():
    """Total >= mean + log(N)/s, by concavity of the logarithm."""
    for scale in (1.0, 10.0, 64.0):
        cosines, target = random_cosines()
        total = functional.lm_softmax_total(cosines, target, scale=scale)
        assert total >= functional.lm_softmax(cosines, target, scale=scale) + math.log(len(target)) / scale


def test_limits_of_large_scale():
    """(3.5'): the total tends to minus the smallest margin; sample by sample LM-Softmax tends to R_sm."""
    cosines, target = random_cosines()
    margins = -losses.SampleMargin(reduction="none")(cosines, target)
    for scale in (1e2, 1e4, 1e6):
        total = functional.lm_softmax_total(cosines, target, scale=scale)
        assert abs(total + margins.min()) <= math.log(40 * 5) / scale
        rows = functional.lm_softmax(cosines, target, scale=scale, reduction="none")
        assert ((rows + margins).abs() <= math.log(5) / scale + 1e-12).all()


def test_lm_softmax_is_the_limit_of_cosface():
    """(CosFace - s m)/s tends to LM-Softmax as m grows; margins below 1.3 leave e^{-14} at m = 2, s = 20."""
    cosines, target = random_cosines()
    cosines = cosines * 0.65
    got = (functional.cosface(cosines, target, scale=20.0, margin=2.0) - 40.0) / 20.0
    assert got.item() == pytest.approx(functional.lm_softmax(cosines, target, scale=20.0).item(), abs=1e-6)


@pytest.mark.parametrize("hyper", [{"m2": 0.5}, {"m1": 2.0}, {"m3": 0.3}, {"m1": 1.35, "m2": 0.3, "m3": 0.1}])
def test_lower_bound_of_the_unified_loss(hyper):
    """(3.2): replacing the target logit by cos(m2) cos θ - m3 gives a smaller loss, for every sample."""
    cosines, target = random_cosines(n=400)
    loss = functional.unified(cosines, target, scale=7.0, reduction="none", **hyper)
    alpha, beta = math.cos(hyper.get("m2", 0.0)), -hyper.get("m3", 0.0)
    bound = functional.gm_softmax(
        cosines, target, scale=7.0, alpha1=alpha, beta1=beta, alpha2=alpha, beta2=beta, reduction="none"
    )
    assert (loss >= bound - 1e-12).all()
