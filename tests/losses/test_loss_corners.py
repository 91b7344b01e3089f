"""Corners: poles, zero features, the whole range of angles, two classes, one, no samples, wrong labels and margins."""

import math
import re

import oracles
import pytest
import torch

from nbs_lib import losses
from nbs_lib.heads import CosineHead
from nbs_lib.losses import functional

ON_COSINES = {
    "normface": {"scale": 64.0},
    "cosface": {"scale": 64.0, "margin": 0.35},
    "arcface": {"scale": 64.0, "margin": 0.5},
    "arcface-psi": {"scale": 64.0, "margin": 0.5, "beyond": "psi"},
    "arcface-easy": {"scale": 64.0, "margin": 0.5, "beyond": "easy"},
    "arcface-none": {"scale": 64.0, "margin": 0.5, "beyond": "none"},
    "sphereface": {"scale": 64.0, "margin": 4},
    "sphereface-real": {"scale": 64.0, "margin": 1.7},
    "ldam": {"scale": 64.0, "margin": 0.5},
    "unified": {"scale": 64.0, "m1": 1.35, "m2": 0.3, "m3": 0.1},
    "gm_softmax": {"scale": 64.0, "alpha1": 0.8, "beta1": -0.1, "alpha2": 0.7, "beta2": 0.2},
    "lm_softmax": {"scale": 64.0},
    "lm_softmax_total": {"scale": 64.0},
    "sample_margin": {},
}
ALL = {"ce": {}, "focal": {"gamma": 2.0}, "focal-half": {"gamma": 0.5}, **ON_COSINES}


def make(name, hyper, **common):
    return oracles.build(name.split("-")[0], **hyper, **common)


every = pytest.mark.parametrize(("name", "hyper"), ALL.items(), ids=ALL)
every_on_cosines = pytest.mark.parametrize(("name", "hyper"), ON_COSINES.items(), ids=ON_COSINES)


def value_and_gradient(criterion, scores, target):
    scores = scores.clone().requires_grad_()
    loss = criterion(scores, target)
    return loss.detach(), torch.autograd.grad(loss.sum(), scores)[0]


@every_on_cosines
@pytest.mark.parametrize("own", [1.0, 1 + 2e-7, 1 + 1e-6, -1.0, -1 - 2e-7, 0.0])
@pytest.mark.parametrize("other", [1.0, 1 + 2e-7, -1.0, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_at_the_poles(name, hyper, own, other, dtype, device):
    cosines = torch.full((3, 4), other, dtype=dtype, device=device)
    target = torch.tensor([0, 2, 3], device=device)
    cosines[range(3), target] = own
    loss, gradient = value_and_gradient(make(name, hyper), cosines, target)
    assert loss.isfinite()
    assert gradient.isfinite().all()
    assert gradient.abs().max() < 1e4


@every_on_cosines
def test_finite_over_all_angles(name, hyper, device):
    theta = torch.linspace(0, math.pi, 4001, dtype=torch.double)
    cosines = torch.stack([theta.cos(), (theta - 2).cos(), -theta.cos()], 1).float().to(device)
    target = torch.zeros(len(theta), dtype=torch.long, device=device)
    loss, gradient = value_and_gradient(make(name, hyper), cosines, target)
    assert loss.isfinite()
    assert gradient.isfinite().all()


@every_on_cosines
def test_a_zero_feature_row(name, hyper, device):
    head = CosineHead(6, 4).to(device)
    features = torch.randn(5, 6, device=device)
    features[2] = 0
    features.requires_grad_()
    target = torch.arange(5, device=device) % 4
    loss = make(name, hyper)(head(features), target)
    loss.backward()
    assert loss.isfinite()
    assert features.grad.isfinite().all()
    assert head.prototypes.grad.isfinite().all()
    assert (features.grad[2] == 0).all()
    assert (features.grad[[0, 1, 3, 4]] != 0).any()


@every_on_cosines
def test_features_on_their_prototypes_and_opposite(name, hyper, device):
    """Cosines of a vector with itself exceed 1 by rounding in almost a third of all cases; the chain stays finite."""
    head = CosineHead(64, 300).to(device)
    for sign in (1, -1):
        features = (sign * 3 * head.prototypes.detach()).requires_grad_()
        cosines = head(features)
        assert (cosines.diagonal().abs() > 1).any()
        make(name, hyper)(cosines, torch.arange(300, device=device)).backward()
        assert features.grad.isfinite().all()
        assert head.prototypes.grad.isfinite().all()


@every
def test_two_classes(name, hyper, device):
    scores = torch.tensor([[0.9, -0.8], [0.1, 0.7]], dtype=torch.double, device=device)
    loss, gradient = value_and_gradient(make(name, hyper), scores, torch.tensor([0, 1], device=device))
    assert loss.isfinite()
    assert gradient.isfinite().all()
    assert (gradient[[0, 1], [0, 1]] <= 0).all()
    assert (gradient[[0, 1], [1, 0]] >= 0).all()


def test_lm_softmax_of_two_classes_is_linear(device):
    scores = torch.tensor([[1.0, -1.0]], device=device)
    loss, gradient = value_and_gradient(losses.LMSoftmax(scale=64.0), scores, torch.tensor([0], device=device))
    assert loss.item() == -2
    assert gradient.tolist() == [[-1, 1]]


@every
def test_one_class_is_refused(name, hyper, device):
    with pytest.raises(ValueError, match="at least two classes, got K = 1"):
        make(name, hyper)(torch.zeros(3, 1, device=device), torch.zeros(3, dtype=torch.long, device=device))


@every
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_an_empty_batch(name, hyper, reduction, device):
    scores = torch.zeros(0, 4, device=device, requires_grad=True)
    total = name == "lm_softmax_total"
    criterion = make(name, hyper, **({} if total else {"reduction": reduction}))
    loss = criterion(scores, torch.zeros(0, dtype=torch.long, device=device))
    assert loss.shape == ((0,) if reduction == "none" and not total else ())
    assert loss.sum() == 0
    loss.sum().backward()
    assert scores.grad.shape == (0, 4)


@every
def test_an_absent_class(name, hyper, device):
    head = CosineHead(6, 5).to(device)
    loss = make(name, hyper)(head(torch.randn(4, 6, device=device)), torch.tensor([0, 0, 2, 4], device=device))
    loss.backward()
    assert loss.isfinite()
    assert head.prototypes.grad.isfinite().all()


@every
@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.tensor([0, 1, -1]), r"label -1, .* 0\.\.3 \(K = 4\)"),
        (torch.tensor([0, 1, 4]), r"label 4, .* 0\.\.3 \(K = 4\)"),
        (torch.tensor([0, 1, 2], dtype=torch.int32), r"int64, got int32: use target\.long\(\)"),
        (torch.tensor([0, 1, 2], dtype=torch.uint8), r"int64, got uint8: use target\.long\(\)"),
        (torch.tensor([0.0, 1.0, 2.0]), r"int64, got float32: use target\.long\(\)"),
        (torch.tensor([[0], [1], [2]]), r"shape \(N,\), got \(3, 1\): use target\.squeeze\(1\)"),
        (torch.eye(4)[:3], r"int64, got float32: use target\.argmax\(1\)"),
        (torch.eye(4, dtype=torch.long)[:3], r"shape \(N,\), got \(3, 4\)"),
        (torch.tensor([0, 1]), "3 rows but target has 2"),
        ([0, 1, 2], "target must be a tensor of class labels, got list"),
    ],
    ids=["-1", "K", "int32", "uint8", "float", "column", "one-hot", "int one-hot", "too few", "list"],
)
def test_wrong_labels(name, hyper, target, message, device):
    target = target.to(device) if isinstance(target, torch.Tensor) else target
    with pytest.raises(ValueError, match=message):
        make(name, hyper)(torch.zeros(3, 4, device=device), target)


@every
def test_wrong_scores(name, hyper):
    target = torch.tensor([0, 1])
    criterion = make(name, hyper)
    with pytest.raises(ValueError, match="scores must be a floating-point tensor, got int64"):
        criterion(torch.zeros(2, 3, dtype=torch.long), target)
    with pytest.raises(ValueError, match=r"scores must have shape \(N, K\), got \(2,\)"):
        criterion(torch.zeros(2), target)


def test_validate_false_skips_only_the_range():
    criterion = losses.CrossEntropy(validate=False)
    with pytest.raises(ValueError, match="int64"):
        criterion(torch.zeros(2, 3), torch.tensor([0, 1], dtype=torch.int32))
    with pytest.raises(IndexError):  # torch's own check on the CPU; a device assert on CUDA
        criterion(torch.zeros(2, 3), torch.tensor([0, 3]))


@pytest.mark.parametrize(
    ("name", "hyper", "message"),
    [
        ("arcface", {"scale": 64, "margin": 28.6}, "margin must be between 0 and 1.5708 radians, got 28.6"),
        ("unified", {"scale": 64, "m2": 30}, "m2 must be between 0 and 1.5708 radians, got 30"),
        ("arcface", {"scale": 64, "margin": -0.1}, "margin must be .* radians, got -0.1"),
        ("arcface", {"scale": 64, "margin": 0.5, "beyond": "hard"}, "beyond must be one of"),
        ("cosface", {"scale": 64, "margin": 20}, "margin must be between 0 and 2, got 20: it is subtracted"),
        ("cosface", {"scale": 64, "margin": -0.1}, "margin must be between 0 and 2, got -0.1"),
        ("sphereface", {"scale": 64, "margin": 0.5}, "margin must be at least 1, got 0.5: it multiplies the angle"),
        ("sphereface", {"scale": 64, "margin": math.inf}, "margin must be positive and finite, got inf"),
        ("unified", {"scale": 64, "m1": 0.5}, "m1 must be at least 1, got 0.5"),
        ("unified", {"scale": 64, "m3": 3}, "m3 must be between 0 and 2, got 3"),
        ("unified", {"scale": 64, "m1": 2, "beyond": "linear"}, "defined for m1 = 1 only, got m1 = 2"),
        ("normface", {"scale": 0}, "scale must be positive and finite, got 0"),
        ("normface", {"scale": -1.0}, "scale must be positive and finite, got -1.0"),
        ("lm_softmax", {"scale": math.inf}, "scale must be positive and finite, got inf"),
        ("lm_softmax", {"scale": math.nan}, "scale must be a real number, got nan"),
        ("lm_softmax_total", {"scale": "10"}, r"scale must be a real number, got '10' \(str\)"),
        ("cosface", {"scale": True, "margin": 0.1}, r"scale must be a real number, got True \(bool\)"),
        ("gm_softmax", {"scale": 10, "alpha1": math.nan}, "alpha1 must be a real number"),
        ("focal", {"gamma": -0.1}, "got -0.1: 0 is cross-entropy"),
        ("focal", {"gamma": math.nan}, "gamma must be a real number, got nan"),
        ("ldam", {"scale": 5, "margin": 3, "class_counts": (9, 1, 1)}, "margin must be between 0 and 2, got 3"),
        ("ldam", {"scale": 5, "margin": 0.5, "class_counts": (9, 0, 1)}, "class_counts .* got 0 for class 1"),
        ("ldam", {"scale": 5, "margin": 0.5, "class_counts": (9, 1.5, 1)}, "class_counts .* got 1.5 for class 1"),
        ("ldam", {"scale": 5, "margin": 0.5, "class_counts": 9}, "class_counts must be a sequence of whole numbers"),
        ("ce", {"label_smoothing": 1.1}, "label_smoothing must be between 0 and 1, got 1.1"),
        ("ce", {"reduction": "average"}, "reduction must be one of 'mean', 'sum', 'none', got 'average'"),
    ],
)
def test_wrong_hyperparameters(name, hyper, message):
    """The module refuses them when it is made, the function on the call, with the same words."""
    with pytest.raises(ValueError, match=message):
        losses.build(name, **hyper)
    function = {"ce": "cross_entropy"}.get(name, name)
    with pytest.raises(ValueError, match=message):
        getattr(functional, function)(torch.zeros(2, 3), torch.tensor([0, 1]), **hyper)


def test_degrees_are_told_to_become_radians():
    with pytest.raises(ValueError, match=re.escape("math.radians(...)")):
        losses.ArcFace(scale=64, margin=28.6)


@pytest.mark.parametrize("wrong", [torch.ones(3), torch.ones(2, 1), torch.ones(2, dtype=torch.long)])
def test_wrong_scale_per_sample(wrong):
    with pytest.raises(ValueError, match=r"scale must be a number or a floating-point tensor of shape \(2,\)"):
        functional.normface(torch.zeros(2, 3), torch.tensor([0, 1]), scale=wrong)


def test_a_reassigned_hyperparameter_is_checked_on_the_next_call():
    criterion = losses.ArcFace(scale=64, margin=0.5)
    criterion.margin = 28.6
    with pytest.raises(ValueError, match="radians"):
        criterion(torch.zeros(2, 3), torch.tensor([0, 1]))


@every
@pytest.mark.parametrize("scale", [1.0, 64.0])
def test_inputs_are_not_modified(name, hyper, scale, device):
    hyper = {**hyper, "scale": scale} if "scale" in hyper else hyper
    scores = torch.rand(6, 4, device=device)
    target = torch.arange(6, device=device) % 4
    before, labels = scores.clone(), target.clone()
    for leaf in (scores, scores.clone().requires_grad_()):
        make(name, hyper)(leaf, target)
        assert torch.equal(leaf.detach(), before)
        assert leaf._version == 0
    assert torch.equal(target, labels)
    make(name, hyper)(scores[:, :1].expand(6, 4), target)  # overlapping memory could not be written at all
    assert torch.equal(scores, before)


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("cosface", {"margin": 0.0}),
        ("ldam", {"margin": 0.0}),
        *[("arcface", {"margin": 0.0, "beyond": b}) for b in ("linear", "psi", "easy", "none")],
        ("sphereface", {"margin": 1}),
        ("sphereface", {"margin": 1.0}),
        ("unified", {}),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 30.0, 64.0])
def test_no_margin_is_normface_bit_for_bit(name, hyper, scale, device):
    cosines = torch.rand(50, 7, device=device) * 2 - 1
    cosines[0, 0], cosines[1, 1], cosines[2, 2] = 1.0, -1.0, 1 + 2e-7
    target = torch.arange(50, device=device) % 7
    got = value_and_gradient(oracles.build(name, scale=scale, **hyper), cosines, target)
    want = value_and_gradient(losses.NormFace(scale=scale), cosines, target)
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])


def test_normface_of_scale_one_is_cross_entropy(device):
    cosines, target = torch.rand(9, 4, device=device), torch.arange(9, device=device) % 4
    assert torch.equal(losses.NormFace(scale=1)(cosines, target), losses.CrossEntropy()(cosines, target))


@every
def test_scores_of_any_layout(name, hyper, device):
    scores, target = torch.rand(6, 4, device=device), torch.arange(6, device=device) % 4
    strided = torch.stack([scores, scores], 2)[:, :, 0]
    assert not strided.is_contiguous()
    torch.testing.assert_close(make(name, hyper)(strided, target), make(name, hyper)(scores, target))
    torch.testing.assert_close(make(name, hyper)(scores.T.contiguous().T, target), make(name, hyper)(scores, target))


def test_focal_at_the_ends_of_the_probability(device):
    """p = 1 to the last bit, where (1 - p)^γ has an infinite slope if γ < 1; p = 0, where the slope is that of CE."""
    scores = torch.tensor([[400.0, 0, 0], [0, 400, 0]], device=device)
    for gamma in (0.0, 0.5, 1.0, 2.0):
        loss, gradient = value_and_gradient(
            losses.Focal(gamma=gamma, reduction="none"), scores, torch.tensor([0, 0], device=device)
        )
        assert loss.tolist() == [0, 400]
        torch.testing.assert_close(gradient, torch.tensor([[0.0, 0, 0], [-1, 1, 0]], device=device))


def test_ldam_wants_a_count_for_each_class():
    criterion = losses.LDAM(scale=5, margin=0.5, class_counts=[10, 1])
    with pytest.raises(ValueError, match="one number for each of the 3 classes, got 2"):
        criterion(torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="at least two classes, got 1"):
        losses.LDAM(scale=5, margin=0.5, class_counts=[10])
    with pytest.raises(ValueError, match=r"shape \(K,\), got \(1, 2\)"):
        functional.ldam(
            torch.zeros(1, 2), torch.tensor([0]), scale=5, margin=0.5, class_counts=torch.ones(1, 2, dtype=torch.long)
        )


def test_counts_may_be_reassigned(device):
    cosines, target = torch.rand(4, 2, device=device), torch.tensor([0, 1, 1, 0], device=device)
    criterion = losses.LDAM(scale=5, margin=0.5, class_counts=[10, 1])
    criterion(cosines, target)
    criterion.class_counts = (1, 10)
    got = criterion(cosines, target)
    torch.testing.assert_close(got, losses.LDAM(scale=5, margin=0.5, class_counts=[1, 10])(cosines, target))
    criterion.class_counts = (1, 0)
    with pytest.raises(ValueError, match="got 0 for class 1"):
        criterion(cosines, target)


def test_ties_share_the_gradient_of_the_sample_margin(device):
    cosines = torch.tensor([[0.9, 0.1, 0.1, -0.5]], device=device)
    _, gradient = value_and_gradient(losses.SampleMargin(), cosines, torch.tensor([0], device=device))
    assert gradient.tolist() == [[-1, 0.5, 0.5, 0]]


def test_the_gradient_of_lm_softmax_does_not_vanish(device):
    """The weights over the other classes sum to one at any margin; NormFace's target gradient is exactly 0 here."""
    cosines, target = torch.tensor([[1.0, -0.5, -0.5]], device=device), torch.tensor([0], device=device)
    _, lm = value_and_gradient(losses.LMSoftmax(scale=64.0), cosines, target)
    _, normface = value_and_gradient(losses.NormFace(scale=64.0), cosines, target)
    torch.testing.assert_close(lm, torch.tensor([[-1.0, 0.5, 0.5]], device=device))
    assert normface[0, 0] == 0


@pytest.mark.parametrize("wrong", [torch.ones(3), torch.ones(1, 3), torch.ones(2, 3, dtype=torch.long), [1.0]])
def test_zero_centroid_refuses(wrong):
    with pytest.raises(ValueError, match="prototypes must"):
        losses.ZeroCentroid()(wrong)


def test_zero_centroid_of_a_zero_prototype(device):
    prototypes = torch.tensor([[0.0, 0.0], [3.0, 4.0]], device=device, requires_grad=True)
    loss = losses.ZeroCentroid()(prototypes)
    loss.backward()
    assert loss.item() == pytest.approx(0.25)
    assert prototypes.grad.isfinite().all()


def test_a_module_refuses_a_scale_per_sample():
    with pytest.raises(ValueError, match="scale must be a number here; one a sample is for the function"):
        losses.CosFace(scale=torch.tensor(10.0), margin=0.1)
