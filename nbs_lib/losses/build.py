"""Losses by name, for strings that come from notebooks, sweeps and the command line."""

import difflib
import inspect

from torch import nn

from nbs_lib.losses.margin import LDAM, ArcFace, CosFace, GMSoftmax, NormFace, SphereFace, UnifiedMargin
from nbs_lib.losses.regularizers import SampleMargin, ZeroCentroid
from nbs_lib.losses.softmax import CrossEntropy, Focal, LMSoftmax, LMSoftmaxTotal

_CLASSES: dict[str, type[nn.Module]] = {
    "ce": CrossEntropy,
    "focal": Focal,
    "normface": NormFace,
    "cosface": CosFace,
    "arcface": ArcFace,
    "sphereface": SphereFace,
    "ldam": LDAM,
    "unified": UnifiedMargin,
    "gm_softmax": GMSoftmax,
    "lm_softmax": LMSoftmax,
    "lm_softmax_total": LMSoftmaxTotal,
    "sample_margin": SampleMargin,
    "zero_centroid": ZeroCentroid,
}
NAMES = tuple(_CLASSES)


def available() -> tuple[str, ...]:
    """Names that :func:`build` knows."""
    return NAMES


def _class(name: str) -> type[nn.Module]:
    if name not in _CLASSES:
        close = difflib.get_close_matches(str(name), NAMES, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown loss {name!r}: {hint}known are {', '.join(NAMES)}")
    return _CLASSES[name]


def hyperparameters(name: str) -> dict[str, inspect.Parameter]:
    """The keyword arguments that :func:`build` accepts for ``name``, in order, with their defaults."""
    return {key: p for key, p in inspect.signature(_class(name)).parameters.items() if p.kind is p.KEYWORD_ONLY}


def build(name: str, **hyper: object) -> nn.Module:
    """Make the loss called ``name``.

    Args:
        name: one of :data:`NAMES`.
        hyper: its keyword arguments, such as ``scale=10, margin=0.35``.

    Raises:
        ValueError: for an unknown name or keyword (the message has the closest one), a missing one, a bad value.
    """
    accepted = hyperparameters(name)
    for key in hyper:
        if key not in accepted:
            close = difflib.get_close_matches(key, accepted, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(f"loss {name!r} has no hyper-parameter {key!r}: {hint}it accepts {', '.join(accepted)}")
    missing = [key for key, p in accepted.items() if p.default is p.empty and key not in hyper]
    if missing:
        raise ValueError(f"loss {name!r} needs {', '.join(missing)}: build({name!r}, {missing[0]}=...)")
    return _class(name)(**hyper)


def expects_cosines(name: str) -> bool:
    """Whether the loss wants cosines (a :class:`~nbs_lib.heads.CosineHead`) rather than raw scores.

    Raises:
        ValueError: for an unknown name.
    """
    return getattr(_class(name), "on_cosines", True)
