"""What must hold for any batch: symmetries, orders between losses, bounds."""

import math

import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbs_lib import losses
from nbs_lib.heads import CosineHead
from nbs_lib.losses import functional

CASES = {
    "ce": {},
    "focal": {"gamma": 1.5},
    "normface": {"scale": 12.0},
    "cosface": {"scale": 12.0, "margin": 0.35},
    "arcface": {"scale": 12.0, "margin": 0.5},
    "sphereface": {"scale": 12.0, "margin": 1.7},
    "ldam": {"scale": 12.0, "margin": 0.5},
    "unified": {"scale": 12.0, "m1": 2.0, "m2": 0.3, "m3": 0.1},
    "gm_softmax": {"scale": 12.0, "alpha1": 0.8, "beta1": -0.1},
    "lm_softmax": {"scale": 12.0},
    "lm_softmax_total": {"scale": 12.0},
    "sample_margin": {},
}
every = pytest.mark.parametrize(("name", "hyper"), CASES.items(), ids=CASES)


@st.composite
def problems(draw):
    """A head on the sphere, features and labels, in float64; some problems sit exactly on their prototypes."""
    k, d, n = draw(st.integers(2, 7)), draw(st.integers(1, 5)), draw(st.integers(1, 8))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    head = CosineHead(d, k).double()
    with torch.no_grad():
        head.prototypes.copy_(torch.randn(k, d, generator=generator, dtype=torch.double))
    target = torch.randint(k, (n,), generator=generator)
    features = torch.randn(n, d, generator=generator, dtype=torch.double)
    if draw(st.booleans()):
        features = head.prototypes.detach()[target] * draw(st.sampled_from([1.0, -1.0, 0.0]))
    return head, features, target, generator


@every
@given(problem=problems())
def test_order_of_samples_and_classes_is_immaterial(name, hyper, problem):
    head, features, target, generator = problem
    criterion = oracles.build(name, **hyper)
    cosines = head(features).detach()
    want = criterion(cosines, target)
    rows = torch.randperm(len(target), generator=generator)
    torch.testing.assert_close(criterion(cosines[rows], target[rows]), want)
    if name == "ldam":
        return  # its classes differ; their counts move with them in the next test
    columns = torch.randperm(cosines.shape[1], generator=generator)
    torch.testing.assert_close(criterion(cosines[:, columns], columns.argsort()[target]), want)


@given(problem=problems())
def test_counts_belong_to_their_classes(problem):
    head, features, target, generator = problem
    cosines = head(features).detach()
    k = cosines.shape[1]
    counts = torch.randint(1, 1000, (k,), generator=generator)
    columns = torch.randperm(k, generator=generator)
    settings = {"scale": 12.0, "margin": 0.5, "reduction": "none"}
    want = functional.ldam(cosines, target, class_counts=counts.tolist(), **settings)
    moved = functional.ldam(cosines[:, columns], columns.argsort()[target], class_counts=counts[columns], **settings)
    torch.testing.assert_close(moved, want)
    # between NormFace and CosFace with the largest margin, which the rarest class has
    cosface = functional.cosface(cosines, target, scale=12.0, margin=0.5, reduction="none")
    assert (want <= cosface + 1e-9).all()
    rarest = counts[target] == counts.min()
    torch.testing.assert_close(want[rarest], cosface[rarest])
    alike = functional.ldam(cosines, target, class_counts=[7] * k, **settings)
    torch.testing.assert_close(alike, cosface)


@every
@given(problem=problems())
def test_rotations_and_lengths_are_immaterial(name, hyper, problem):
    head, features, target, generator = problem
    criterion = oracles.build(name, **hyper)
    want = criterion(head(features), target).item()
    d = features.shape[1]
    rotation = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.double)).Q
    lengths = torch.rand(len(target), 1, generator=generator, dtype=torch.double) + 0.5
    with torch.no_grad():
        head.prototypes.copy_(3 * head.prototypes @ rotation)
    got = criterion(head(lengths * features @ rotation), target).item()
    # Rounding turns c = 1 into 1 - 2e-16, where sin θ is 2e-8: the square root of rounding is what ArcFace can promise.
    assert got == pytest.approx(want, rel=1e-6, abs=1e-6)


@given(problem=problems())
def test_margins_only_add(problem):
    head, features, target, _ = problem
    cosines = head(features).detach()
    normface = functional.normface(cosines, target, scale=12.0, reduction="none")
    for name in ("cosface", "arcface", "sphereface", "ldam", "unified"):
        loss = oracles.build(name, reduction="none", **CASES[name])(cosines, target)
        assert (loss >= normface - 1e-6).all(), name
    assert (functional.lm_softmax(cosines, target, scale=12.0, reduction="none") * 12 <= normface + 1e-9).all()


@given(problem=problems(), gamma=st.floats(0, 5))
def test_focal_lies_below_cross_entropy(problem, gamma):
    head, features, target, _ = problem
    scores = 10 * head(features).detach()
    ce = functional.cross_entropy(scores, target, reduction="none")
    focal = functional.focal(scores, target, gamma=gamma, reduction="none")
    assert (focal >= 0).all()
    assert (focal <= ce * (1 + 1e-12)).all()
    torch.testing.assert_close(focal, (1 - torch.exp(-ce)) ** gamma * ce, rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(functional.focal(scores, target, gamma=0, reduction="none"), ce)


@given(counts=st.lists(st.integers(1, 10**6), min_size=2, max_size=8), beta=st.sampled_from([0, 0.9, 0.9999, 1 - 1e-9]))
def test_class_balanced_weights(counts, beta):
    weights = functional.class_balanced_weights(counts, beta=beta)
    effective = [sum(beta**i for i in range(n)) if n < 2000 else (1 - beta**n) / (1 - beta) for n in counts]
    want = torch.tensor([1 / e for e in effective], dtype=torch.double)
    torch.testing.assert_close(weights, want / want.mean(), rtol=1e-6, atol=0)
    order = torch.tensor(counts).argsort()
    assert (weights[order].diff() <= 1e-12).all(), "the rarer, the heavier"


@given(problem=problems(), scale=st.floats(0.1, 100))
def test_bounds(problem, scale):
    head, features, target, _ = problem
    cosines = head(features).detach()
    k = cosines.shape[1]
    r_sm = losses.SampleMargin(reduction="none")(cosines, target)
    assert (r_sm.abs() <= 2 + 1e-12).all()
    lm = functional.lm_softmax(cosines, target, scale=scale, reduction="none")
    assert (lm >= r_sm - 1e-12).all()
    assert (lm <= r_sm + math.log(k - 1) / scale + 1e-12).all()
    assert (functional.normface(cosines, target, scale=scale, reduction="none") >= 0).all()
    assert 0 <= losses.ZeroCentroid()(head.prototypes).item() <= 1 + 1e-12


@given(seed=st.integers(0, 2**31), k=st.integers(2, 6), scale=st.floats(0.5, 64))
def test_lower_bound_of_lm_softmax_in_a_balanced_batch(seed, k, scale):
    """log(K-1)/s - K/(K-1) needs one feature per class and d >= K - 1; without balance it can be undercut."""
    generator = torch.Generator().manual_seed(seed)
    head = CosineHead(k, k).double()
    with torch.no_grad():
        head.prototypes.copy_(torch.randn(k, k, generator=generator, dtype=torch.double))
    features = torch.randn(k, k, generator=generator, dtype=torch.double)
    loss = functional.lm_softmax(head(features), torch.arange(k), scale=scale)
    assert loss.item() >= math.log(k - 1) / scale - k / (k - 1) - 1e-12


@given(problem=problems())
def test_gradients_are_finite(problem):
    head, features, target, _ = problem
    for name, hyper in CASES.items():
        leaf = features.clone().requires_grad_()
        head.zero_grad()
        oracles.build(name, **hyper)(head(leaf), target).backward()
        assert leaf.grad.isfinite().all(), name
        assert head.prototypes.grad.isfinite().all(), name


@given(problem=problems())
def test_a_margin_never_reaches_the_scores(problem):
    """Evaluation sees the cosines, before and after any loss has looked at them, in either mode."""
    head, features, target, _ = problem
    before = head(features)
    for name, hyper in CASES.items():
        oracles.build(name, **hyper)(head(features), target)
        assert torch.equal(head(features), before)
        assert torch.equal(head.eval()(features), before)
        assert torch.equal(head.train().cosine(features), before)
