"""Checks of what callers pass in, and the one reduction all losses share.

Every failure is a ``ValueError`` that names the argument, the value found and, where there is one, the fix. Shapes and
dtypes cost nothing to check; values held in a tensor (are the labels in range?) make a CUDA device wait, so that check
alone can be switched off.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real

import torch
from torch import Tensor

REDUCTIONS = ("mean", "sum", "none")


def _dtype_of(value: object) -> str:
    return str(value.dtype).removeprefix("torch.") if isinstance(value, Tensor) else type(value).__name__


def check_real(name: str, value: float) -> float:
    """Return ``value`` if it is a real number other than NaN (``bool`` is not a number here), else raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise ValueError(f"{name} must be a real number, got {value!r} ({type(value).__name__})")
    return value


def check_positive(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number above zero, else raise ValueError."""
    if not 0 < check_real(name, value) < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return value


def check_in(name: str, value: float, low: float, high: float, *, unit: str = "", hint: str = "") -> float:
    """Return ``value`` if ``low <= value <= high``, else raise ValueError.

    Args:
        name: the argument's name, for the message.
        value: what was passed.
        low: smallest allowed value.
        high: largest allowed value.
        unit: unit of the argument, such as "radians"; named in the message.
        hint: how to put it right; added to the message.
    """
    if not low <= check_real(name, value) <= high:
        bounds = f"between {low:g} and {high:g}" if high < math.inf else f"at least {low:g}"
        raise ValueError(
            f"{name} must be {bounds}{' ' + unit if unit else ''}, got {value!r}{': ' + hint if hint else ''}"
        )
    return value


def check_radians(name: str, value: float) -> float:
    """Return an angular margin if it lies in [0, π/2], else raise a ValueError that asks for radians."""
    hint = "angles are in radians, so write math.radians(...) for degrees"
    return check_in(name, value, 0, math.pi / 2, unit="radians", hint=hint)


def check_cosine_margin(name: str, value: float) -> float:
    """Return an additive cosine margin if it lies in [0, 2], by which two cosines can differ, else raise ValueError."""
    return check_in(name, value, 0, 2, hint="it is subtracted from a cosine, 0.1 to 0.4 is usual")


def check_factor(name: str, value: float) -> float:
    """Return a factor on the angle if it is finite and at least 1, else raise ValueError."""
    return check_in(name, check_positive(name, value), 1, math.inf, hint="it multiplies the angle")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``, else raise ValueError."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_reduction(reduction: str) -> str:
    """Return ``reduction`` if it is "mean", "sum" or "none", else raise ValueError."""
    return check_choice("reduction", reduction, REDUCTIONS)


def check_target(target: Tensor, num_classes: int, *, validate: bool = True) -> None:
    """Raise ValueError unless ``target`` is an int64 vector of labels 0..num_classes-1.

    The range is looked at only if ``validate``: on CUDA this waits for the device, once.
    """
    if not isinstance(target, Tensor):
        raise ValueError(f"target must be a tensor of class labels, got {type(target).__name__}")
    if target.dtype != torch.int64:
        fix = "target.argmax(1)" if target.is_floating_point() and target.ndim == 2 else "target.long()"
        raise ValueError(f"target must be int64, got {_dtype_of(target)}: use {fix}")
    if target.ndim != 1:
        fix = ": use target.squeeze(1)" if target.ndim == 2 and target.shape[1] == 1 else ""
        raise ValueError(f"target must have shape (N,), got {tuple(target.shape)}{fix}")
    if validate and target.numel():
        low, high = torch.aminmax(target)
        if (low < 0) | (high >= num_classes):
            wrong = low.item() if low < 0 else high.item()
            raise ValueError(
                f"target holds label {wrong}, but labels must lie in 0..{num_classes - 1} (K = {num_classes})"
            )


def check_scores(scores: Tensor, target: Tensor, *, validate: bool = True) -> None:
    """Raise ValueError unless ``scores`` (N, K), K >= 2, and ``target`` (N,) fit each other.

    Args:
        scores: floating-point scores or cosines, one row a sample.
        target: int64 labels on the same device.
        validate: also check that all labels lie in 0..K-1, which waits for a CUDA device.
    """
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        raise ValueError(f"scores must be a floating-point tensor, got {_dtype_of(scores)}")
    if scores.ndim != 2:
        raise ValueError(f"scores must have shape (N, K), got {tuple(scores.shape)}")
    if scores.shape[1] < 2:
        raise ValueError(f"scores must have at least two classes, got K = {scores.shape[1]}")
    check_target(target, scores.shape[1], validate=False)
    if target.shape[0] != scores.shape[0]:
        raise ValueError(f"scores has {scores.shape[0]} rows but target has {target.shape[0]} labels")
    if target.device != scores.device:
        raise ValueError(f"scores lie on {scores.device} but target on {target.device}: use target.to(scores.device)")
    if validate:
        check_target(target, scores.shape[1])


def check_per_sample(name: str, value: float | Tensor, rows: int) -> None:
    """Raise ValueError unless ``value`` is a real number or a floating-point tensor (rows,), one value a sample."""
    if not isinstance(value, Tensor):
        check_real(name, value)
    elif not value.is_floating_point() or value.shape != (rows,):
        raise ValueError(
            f"{name} must be a number or a floating-point tensor of shape ({rows},), "
            f"got {_dtype_of(value)} of shape {tuple(value.shape)}"
        )


def check_scale(scale: float | Tensor, rows: int) -> None:
    """Raise ValueError unless ``scale`` is a positive number or a floating-point tensor (rows,)."""
    if isinstance(scale, Tensor):
        check_per_sample("scale", scale, rows)
    else:
        check_positive("scale", scale)


def check_class_counts(class_counts: Sequence[int] | Tensor, num_classes: int | None = None) -> None:
    """Raise ValueError unless ``class_counts`` holds a whole number >= 1 for each of two classes or more.

    Args:
        class_counts: a sequence of whole numbers; or a tensor (K,), of which only the shape is checked, as its values
            would make a CUDA device wait.
        num_classes: K, if it is known.
    """
    if isinstance(class_counts, Tensor):
        if class_counts.ndim != 1:
            raise ValueError(f"class_counts must have shape (K,), got {tuple(class_counts.shape)}")
    elif isinstance(class_counts, (str, bytes)) or not isinstance(class_counts, Sequence):
        raise ValueError(f"class_counts must be a sequence of whole numbers, got {class_counts!r}")
    else:
        for label, count in enumerate(class_counts):
            if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
                raise ValueError(f"class_counts must hold whole numbers of at least 1, got {count!r} for class {label}")
    if len(class_counts) != (num_classes or max(len(class_counts), 2)):
        wanted = f"one number for each of the {num_classes} classes" if num_classes else "at least two classes"
        raise ValueError(f"class_counts must hold {wanted}, got {len(class_counts)}")


def check_prototypes(prototypes: Tensor) -> None:
    """Raise ValueError unless ``prototypes`` is a floating-point tensor (..., K, d) with K >= 2."""
    if not isinstance(prototypes, Tensor) or not prototypes.is_floating_point():
        raise ValueError(f"prototypes must be a floating-point tensor, got {_dtype_of(prototypes)}")
    if prototypes.ndim < 2 or prototypes.shape[-2] < 2 or prototypes.shape[-1] < 1:
        raise ValueError(f"prototypes must have shape (K, d) with K >= 2, got {tuple(prototypes.shape)}")


def reduce(loss: Tensor, reduction: str) -> Tensor:
    """Reduce a loss per sample (N,) to its "mean", its "sum", or leave it ("none").

    The mean of an empty batch is 0, still connected to the graph, where ``torch.mean`` gives NaN.
    """
    check_reduction(reduction)
    if reduction == "none":
        return loss
    if reduction == "sum" or loss.numel() == 0:
        return loss.sum()
    return loss.mean()
