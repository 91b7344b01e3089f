"""Heads: scores, cosines, their dtypes, initial values."""

import pytest
import torch
from torch.nn import functional as F

from nbs_lib import heads
from nbs_lib.heads import CosineHead, LinearHead


def test_linear_scores(device):
    head = LinearHead(5, 3).to(device)
    features = torch.randn(4, 5, device=device)
    assert torch.equal(head(features), F.linear(features, head.prototypes, head.bias))
    assert head.prototypes.shape == (3, 5)
    assert head.bias.shape == (3,)
    assert [name for name, _ in head.named_parameters()] == ["prototypes", "bias"]


def test_linear_without_bias(device):
    head = LinearHead(5, 3, bias=False).to(device)
    features = torch.randn(4, 5, device=device)
    assert head.bias is None
    assert torch.equal(head(features), F.linear(features, head.prototypes))


def test_cosine_scores(device):
    head = CosineHead(5, 3).to(device)
    features = 7 * torch.randn(4, 5, device=device)
    want = F.cosine_similarity(features[:, None], head.prototypes[None], dim=2)
    torch.testing.assert_close(head(features), want)
    assert head.bias is None
    assert [name for name, _ in head.named_parameters()] == ["prototypes"]


def test_cosine_head_without_feature_normalisation(device):
    head = CosineHead(5, 3, normalize_features=False).to(device)
    features = 7 * torch.randn(4, 5, device=device)
    norms = features.norm(dim=1, keepdim=True)
    torch.testing.assert_close(head(features), norms * head.cosine(features))


@pytest.mark.parametrize("head", [LinearHead(5, 3), LinearHead(5, 3, bias=False), CosineHead(5, 3)])
def test_cosines_of_any_head(head, device):
    head = head.to(device)
    features = torch.randn(4, 5, device=device)
    want = F.cosine_similarity(features[:, None], head.prototypes[None], dim=2)
    torch.testing.assert_close(head.cosine(features), want)


def test_initial_values():
    """A LinearHead starts as nn.Linear does, its bias around a mean; a CosineHead starts on the unit sphere."""
    head = LinearHead(64, 400, bias_init=10.0)
    bound = 64**-0.5
    assert head.prototypes.abs().max() <= bound
    assert head.prototypes.std().item() == pytest.approx(bound / 3**0.5, rel=0.03)
    assert (head.bias - 10).abs().max() <= bound + 1e-6
    assert head.bias.std() > 0
    torch.manual_seed(1)
    ours = LinearHead(6, 4)
    torch.manual_seed(1)
    theirs = torch.nn.Linear(6, 4)
    torch.testing.assert_close(ours.prototypes, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)
    cosine_head = CosineHead(64, 400)
    torch.testing.assert_close(cosine_head.prototypes.norm(dim=1), torch.ones(400))
    assert cosine_head.prototypes.mean(0).norm() < 0.2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("head", [LinearHead(32, 7), CosineHead(32, 7), CosineHead(32, 7, normalize_features=False)])
def test_scores_are_float32_under_autocast(head, dtype, device):
    head = head.to(device)
    features = torch.randn(6, 32, device=device)
    want = head(features)
    with torch.autocast(device.type, dtype=dtype):
        assert torch.equal(head(features), want)
        assert torch.equal(head.cosine(features), head.cosine(features.float()))
        assert head(features.to(dtype)).dtype == torch.float32
    assert head.prototypes.dtype == torch.float32


def test_half_parameters_still_score_in_float32(device):
    for head in (LinearHead(8, 3), CosineHead(8, 3), CosineHead(8, 3, normalize_features=False)):
        head = head.to(device, torch.bfloat16)
        features = torch.randn(4, 8, device=device, dtype=torch.bfloat16)
        scores = head(features)
        assert scores.dtype == torch.float32
        scores.sum().backward()
        assert head.prototypes.grad.dtype == torch.bfloat16


def test_zero_feature(device):
    head = CosineHead(5, 3).to(device)
    features = torch.zeros(2, 5, device=device, requires_grad=True)
    scores = head(features)
    assert (scores == 0).all()
    scores.sum().backward()
    assert (features.grad == 0).all()
    assert (head.prototypes.grad == 0).all()


def test_build():
    assert isinstance(heads.build("linear", 5, 3, bias=False), LinearHead)
    assert isinstance(heads.build("cosine", 5, 3), CosineHead)
    with pytest.raises(ValueError, match="head must be one of 'linear', 'cosine', got 'dot'"):
        heads.build("dot", 5, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LinearHead(0, 3), "in_features must be an integer of at least 1, got 0"),
        (lambda: CosineHead(5, 1), "num_classes must be an integer of at least 2, got 1"),
        (lambda: CosineHead(5, 2.0), "num_classes must be an integer of at least 2, got 2.0"),
        (lambda: LinearHead(5, 3, bias=False, bias_init=1.0), "bias_init must be 0 when bias is False"),
        (lambda: LinearHead(5, 3, bias_init="1"), "bias_init must be a real number"),
        (lambda: LinearHead(5, 3)(torch.zeros(2, 4)), r"features must have shape \(N, 5\), got \(2, 4\)"),
        (lambda: CosineHead(5, 3)(torch.zeros(2, 5, 1)), r"features must have shape \(N, 5\), got \(2, 5, 1\)"),
        (lambda: CosineHead(5, 3).cosine(torch.zeros(5)), r"features must have shape \(N, 5\), got \(5,\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_repr():
    assert repr(LinearHead(5, 3)) == "LinearHead(in_features=5, num_classes=3, bias=True)"
    assert repr(CosineHead(5, 3)) == "CosineHead(in_features=5, num_classes=3, normalize_features=True)"


def test_state_round_trip():
    head, twin = LinearHead(5, 3), LinearHead(5, 3)
    twin.load_state_dict(head.state_dict())
    features = torch.randn(4, 5)
    assert torch.equal(head(features), twin(features))


def test_build_refuses_an_unknown_option():
    with pytest.raises(ValueError, match=r"head 'cosine' has no option 'bias': it accepts normalize_features"):
        heads.build("cosine", 4, 3, bias=True)
