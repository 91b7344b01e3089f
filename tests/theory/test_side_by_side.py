"""Losses that share a batch: each sees its own rows, and finds what it would find alone."""

import math

import pytest
import torch

from nbs_lib.losses import functional
from nbs_lib.theory.free_features import named_loss, optimise
from nbs_lib.theory.side_by_side import gm_settings, groups, minimise_gm, side_by_side


def test_each_loss_sees_its_own_share():
    cosines = torch.rand(6, 4, dtype=torch.float64) * 2 - 1
    target = torch.tensor([0, 1, 2, 3, 0, 1])
    losses = [named_loss("normface"), named_loss("cosface", margin=0.3), named_loss("lm_softmax")]
    joined = side_by_side(losses)(cosines, target, 5.0)
    for i, loss in enumerate(losses):
        rows = slice(2 * i, 2 * i + 2)
        torch.testing.assert_close(joined[rows], loss(cosines[rows], target[rows], 5.0))
    with pytest.raises(ValueError, match="does not split evenly among 3 losses"):
        side_by_side(losses)(cosines[:5], target[:5], 5.0)


def test_settings_are_those_of_gm_softmax():
    cosines = torch.rand(4, 3, dtype=torch.float64) * 2 - 1
    target = torch.tensor([0, 1, 2, 0])
    settings = {"scale": [4.0, 9.0], "alpha1": [0.7, 1.0], "beta1": [0.1, -0.2], "beta2": [0.3, 0.0]}
    values = gm_settings(settings)(cosines, target, 0.5)
    for i in range(2):
        one = {name: column[i] for name, column in settings.items() if name != "scale"}
        rows = slice(2 * i, 2 * i + 2)
        alone = functional.gm_softmax(
            cosines[rows], target[rows], scale=settings["scale"][i] / 2, **one, reduction="none"
        )
        torch.testing.assert_close(values[rows], alone)


@pytest.mark.parametrize("settings", [{}, {"scale": [1.0], "alpha1": [1.0, 2.0]}, {"gamma": [1.0]}])
def test_settings_that_make_no_sense(settings):
    with pytest.raises(ValueError, match="settings must be"):
        gm_settings(settings)


def test_groups_take_a_result_apart():
    found = optimise(
        side_by_side([named_loss("normface"), named_loss("lm_softmax")]), 3, 2, scale_to=4.0, starts=4, steps=5
    )
    first, second = groups(found, 2)
    torch.testing.assert_close(torch.cat([first.loss, second.loss]), found.loss)
    assert first.prototypes.shape == (2, 3, 2)
    with pytest.raises(ValueError, match="groups"):
        groups(found, 3)


def test_two_settings_reach_their_own_minimum():
    # Zhou et al. 2022, Theorem 3.2 with the sign of its proof's last line
    settings = {
        "scale": [3.0, 8.0],
        "alpha1": [1.0, 0.6],
        "beta1": [-0.2, 0.1],
        "alpha2": [1.0, 0.4],
        "beta2": [-0.2, 0.0],
    }
    K = 4
    for i, found in enumerate(minimise_gm(settings, K, 3, steps=500)):
        s, a1, b1, a2, b2 = (settings[name][i] for name in ("scale", "alpha1", "beta1", "alpha2", "beta2"))
        least = math.log(math.exp(s * (a2 - a1 + b2 - b1)) + (K - 1) * math.exp(-s * (1 / (K - 1) + a1 + b1)))
        assert found.loss[found.best].item() == pytest.approx(least, abs=1e-7)
