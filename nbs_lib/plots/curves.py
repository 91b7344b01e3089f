"""Curves over the angle to the own prototype: target logits and their slopes."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from nbs_lib.plots.style import LossStyle, axes_or_new, style_of


def degree_axis(ax: Axes, low: float = 0.0, high: float = 180.0, step: float = 30.0) -> None:
    """Label the x axis of ``ax`` as an angle in degrees from ``low`` to ``high``."""
    ax.set_xlim(low, high)
    ax.set_xticks(np.arange(low, high + step / 2, step))
    ax.xaxis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:.0f}°"))


def _angle_curves(
    theta: ArrayLike,
    curves: Mapping[str, ArrayLike],
    styles: Mapping[str, str | LossStyle] | None,
    ax: Axes | None,
    ylabel: str,
    legend: bool,
) -> Axes:
    ax = axes_or_new(ax)
    degrees = np.rad2deg(np.asarray(theta, dtype=float))
    for name, values in curves.items():
        style = style_of((styles or {}).get(name, name))
        ax.plot(degrees, np.asarray(values, dtype=float), **style.line())
    degree_axis(ax)
    ax.set_xlabel(r"angle $\theta$ to the own prototype")
    ax.set_ylabel(ylabel)
    if legend:
        ax.legend()
    return ax


def target_logit_curves(
    theta: ArrayLike,
    curves: Mapping[str, ArrayLike],
    *,
    styles: Mapping[str, str | LossStyle] | None = None,
    ax: Axes | None = None,
    legend: bool = True,
) -> Axes:
    """Draw target logits (before the scale s) against the angle theta.

    Args:
        theta: Angles in radians, shape (n,), from 0 to pi.
        curves: One array (n,) per curve; the key is a loss name (its style and label come from ``LOSS_STYLES``) or any
            label that ``styles`` maps to a loss name or a ``LossStyle``.
        styles: Styles for keys that are not loss names.
        ax: Axes to draw on; a new page-wide figure if absent.
        legend: Whether to draw the legend.

    Returns:
        The axes.
    """
    return _angle_curves(theta, curves, styles, ax, r"target logit (cosine units)", legend)


def gradient_curves(
    theta: ArrayLike,
    curves: Mapping[str, ArrayLike],
    *,
    styles: Mapping[str, str | LossStyle] | None = None,
    ax: Axes | None = None,
    ylabel: str = r"slope $|\partial L/\partial\theta|$ (per radian)",
    log: bool = False,
    legend: bool = True,
) -> Axes:
    """Draw slopes against the angle theta; arguments as in :func:`target_logit_curves`.

    Args:
        theta: Angles in radians, shape (n,).
        curves: One array (n,) per curve.
        styles: Styles for keys that are not loss names.
        ax: Axes to draw on.
        ylabel: What the slope is a slope of, with its unit.
        log: Whether the y axis is logarithmic (values must be positive to be seen).
        legend: Whether to draw the legend.

    Returns:
        The axes.
    """
    ax = _angle_curves(theta, curves, styles, ax, ylabel, legend)
    if log:
        ax.set_yscale("log")
    return ax
