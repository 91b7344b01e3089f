"""Losses by name, and the modules as modules."""

import copy
import inspect
import pickle

import pytest
import torch
from torch import nn

from nbs_lib import losses
from nbs_lib.losses.build import hyperparameters

MINIMAL = {
    "ce": {},
    "focal": {"gamma": 1.5},
    "normface": {"scale": 10},
    "cosface": {"scale": 10, "margin": 0.35},
    "arcface": {"scale": 10, "margin": 0.5},
    "sphereface": {"scale": 10, "margin": 4},
    "ldam": {"scale": 10, "margin": 0.5, "class_counts": (100, 10, 1)},
    "unified": {"scale": 10},
    "gm_softmax": {"scale": 10},
    "lm_softmax": {"scale": 10},
    "lm_softmax_total": {"scale": 10},
    "sample_margin": {},
    "zero_centroid": {},
}


def test_the_names():
    assert losses.available() == losses.NAMES == tuple(MINIMAL)


@pytest.mark.parametrize("name", MINIMAL)
def test_every_name_builds_a_module(name):
    criterion = losses.build(name, **MINIMAL[name])
    assert isinstance(criterion, nn.Module)
    assert not list(criterion.parameters())
    for key, value in MINIMAL[name].items():
        assert getattr(criterion, key) == value
        assert f"{key}={value}" in repr(criterion)
    twin = pickle.loads(pickle.dumps(copy.deepcopy(criterion)))
    assert repr(twin) == repr(criterion)
    assert eval(repr(criterion), vars(losses)).__class__ is criterion.__class__


@pytest.mark.parametrize("name", MINIMAL)
def test_all_settings_are_keywords_with_documented_names(name):
    cls = type(losses.build(name, **MINIMAL[name]))
    parameters = list(inspect.signature(cls).parameters.values())
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters)
    assert list(hyperparameters(name)) == [p.name for p in parameters]
    common = inspect.getmodule(cls).__doc__
    for parameter in parameters:
        assert f"{parameter.name}:" in cls.__doc__ or f"``{parameter.name}``" in common


def test_only_cross_entropy_and_focal_take_raw_scores():
    assert [name for name in losses.NAMES if not losses.expects_cosines(name)] == ["ce", "focal"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.build("arcfac", scale=1), "unknown loss 'arcfac': did you mean 'arcface'?"),
        (lambda: losses.build("zzz"), "unknown loss 'zzz': known are ce, focal"),
        (lambda: losses.expects_cosines("CE"), "unknown loss 'CE'"),
        (lambda: losses.build("cosface", scale=1, margn=1), "no hyper-parameter 'margn': did you mean 'margin'?"),
        (lambda: losses.build("ce", scale=10), "'ce' has no hyper-parameter 'scale': .*it accepts label_smoothing"),
        (lambda: losses.build("cosface", scale=1), "'cosface' needs margin"),
        (lambda: losses.build("cosface"), "'cosface' needs scale, margin"),
        (lambda: losses.build("focal"), "'focal' needs gamma"),
        (lambda: losses.build("ldam", scale=1, margin=0.5), "'ldam' needs class_counts"),
        (lambda: losses.build("lm_softmax_total", scale=1, reduction="sum"), "no hyper-parameter 'reduction'"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_public_names_are_documented():
    for name in losses.__all__:
        thing = getattr(losses, name)
        assert isinstance(thing, (tuple, int)) or thing.__doc__
    for name in losses.functional.__all__:
        doc = getattr(losses.functional, name).__doc__
        assert "et al." in doc
        assert "Args:" in doc


def test_a_criterion_trains_a_head():
    """Nothing but the public names: separable data, a few steps, all samples right."""
    from nbs_lib.heads import CosineHead

    for name in ("arcface", "ldam", "focal", "lm_softmax"):
        head = CosineHead(4, 3)
        centres = torch.eye(4)[:3]
        target = torch.arange(30) % 3
        features = centres[target] + 0.1 * torch.randn(30, 4)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.5)
        criterion = losses.build(name, **MINIMAL[name])
        for _ in range(20):
            optimizer.zero_grad()
            criterion(head(features), target).backward()
            optimizer.step()
        assert (head(features).argmax(1) == target).all(), name
