"""Networks by name: widths, equivalences, refusals."""

import pytest
import torch
from torch import nn

from nbs_lib import models
from nbs_lib.models.small import Halve


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", models.available())
def test_features_have_the_promised_width(name, channels):
    net = models.build(name, channels, 32)
    features = net(torch.randn(2, channels, 32, 32))
    assert features.shape == (2, net.out_features)
    assert (features >= 0).all(), "every network here ends in a ReLU (or the mean of one)"
    features.sum().backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize("name", ["paper_cnn", "mini_cnn"])
def test_width_and_size_can_be_chosen(name):
    net = models.build(name, 1, 28, feature_dim=7)
    assert net(torch.randn(3, 1, 28, 28)).shape == (3, 7)
    assert net.out_features == 7


def test_paper_cnn_is_the_network_of_the_paper():
    """Conv32-BN-ReLU-Pool-Conv64-BN-ReLU-Pool-Linear, written in the paper's order, is the same function."""
    torch.manual_seed(0)
    net = models.build("paper_cnn", 1, 28)
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    x = images = torch.randn(5, 1, 28, 28)
    for convolution, norm in zip(convolutions, norms, strict=True):
        x = nn.functional.max_pool2d(norm(convolution(x)).relu(), 2)
    linear, norm = next(m for m in net.modules() if isinstance(m, nn.Linear)), list(net.modules())[-2]
    expected = norm(linear(x.flatten(1))).relu()
    torch.testing.assert_close(net(images), expected)
    assert [tuple(c.weight.shape) for c in convolutions] == [(32, 1, 3, 3), (64, 32, 3, 3)]
    assert linear.weight.shape == (128, 64 * 7 * 7)


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 9), (2, 2)])
def test_halving_is_average_pooling(channels, side):
    images = torch.randn(3, channels, side, side)
    torch.testing.assert_close(Halve()(images), nn.functional.avg_pool2d(images, 2))


@pytest.mark.parametrize("name", models.available())
def test_memory_format_changes_nothing(name):
    net = models.build(name, 3, 32).eval()
    images = torch.randn(2, 3, 32, 32)
    plain = net(images)
    last = net.to(memory_format=torch.channels_last)(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(plain, last, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mini_cn", 1, 28), "'mini_cn'.*did you mean 'mini_cnn'"),
        ((None, 1, 28), "known"),
        (("mini_cnn", 0, 28), "in_channels.*0"),
        (("mini_cnn", 1, 7), "image_size.*at least 8.*7"),
        (("paper_cnn", 1, 28.0), "image_size.*28.0"),
        (("mini_cnn", 1, 28, 0), "feature_dim.*0"),
        (("resnet18", 3, 32, 64), "feature_dim of 'resnet18' is 512.*64"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        models.build(*arguments)


def test_weights_follow_torchs_generator():
    def first(seed):
        torch.manual_seed(seed)
        return next(models.build("mini_cnn", 1, 28).parameters())

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))
