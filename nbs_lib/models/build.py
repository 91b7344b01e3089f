"""Backbones by name, for strings that come from a configuration."""

import difflib
from collections.abc import Callable

from torch import nn
from torchvision.models import resnet18, resnet34

from nbs_lib.models.small import MiniCNN, PaperCNN


def _resnet(make: Callable[..., nn.Module], in_channels: int) -> nn.Module:
    """A torchvision ResNet with the stem for small images: one 3x3 convolution, no pooling before the first stage."""
    net = make(weights=None)
    net.conv1 = nn.Conv2d(in_channels, 64, kernel_size=3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    net.out_features = net.fc.in_features
    net.fc = nn.Identity()
    return net


# name -> (own feature width, smallest image side, whether the width can be chosen)
_MODELS = {
    "paper_cnn": (128, 4, True),
    "mini_cnn": (64, 8, True),
    "resnet18": (512, 8, False),
    "resnet34": (512, 8, False),
}


def available() -> tuple[str, ...]:
    """Names that :func:`build` knows."""
    return tuple(_MODELS)


def build(name: str, in_channels: int, image_size: int, feature_dim: int | None = None) -> nn.Module:
    """Make the backbone ``name`` with fresh weights from torch's global generator.

    Args:
        name: one of :func:`available`.
        in_channels: channels of the images, 1 or 3 as a rule.
        image_size: height and width of the images in pixels.
        feature_dim: width d of the features; None takes the network's own (its ``out_features``).

    Returns:
        A module that maps images (N, C, H, W) to features (N, d) and says d in ``out_features``.

    Raises:
        ValueError: an unknown name (the message offers the nearest one), an image too small for the network's pooling,
            or a feature width that the network cannot have.
    """
    if name not in _MODELS:
        near = difflib.get_close_matches(str(name), _MODELS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown model {name!r}: {hint}known are {', '.join(_MODELS)}")
    own, smallest, free = _MODELS[name]
    if not isinstance(in_channels, int) or in_channels < 1:
        raise ValueError(f"in_channels must be a positive integer, got {in_channels!r}")
    if not isinstance(image_size, int) or image_size < smallest:
        raise ValueError(f"image_size must be an integer of at least {smallest} for {name!r}, got {image_size!r}")
    if feature_dim is not None and (not isinstance(feature_dim, int) or feature_dim < 1):
        raise ValueError(f"feature_dim must be a positive integer or None, got {feature_dim!r}")
    if feature_dim not in (None, own) and not free:
        raise ValueError(f"feature_dim of {name!r} is {own} by construction, got {feature_dim!r}")
    width = feature_dim or own
    if name == "paper_cnn":
        return PaperCNN(in_channels, image_size, width)
    if name == "mini_cnn":
        return MiniCNN(in_channels, image_size, width)
    return _resnet({"resnet18": resnet18, "resnet34": resnet34}[name], in_channels)
