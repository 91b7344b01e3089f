"""Histograms of cosines and of sample margins, one outline per run, on bins that all runs share."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from nbs_lib.plots.style import LossStyle, axes_or_new, style_of


def _histograms(
    values: Mapping[str, ArrayLike],
    styles: Mapping[str, str | LossStyle] | None,
    ax: Axes | None,
    bins: int,
    limits: tuple[float, float] | None,
    xlabel: str,
    legend: bool,
) -> Axes:
    if not values:
        raise ValueError("values must hold at least one array of samples, got none")
    ax = axes_or_new(ax, 3.2)
    arrays = {name: np.asarray(v, dtype=float).ravel() for name, v in values.items()}
    if limits is None:
        limits = (min(v.min() for v in arrays.values()), max(v.max() for v in arrays.values()))
        limits = (limits[0] - 1e-6, limits[1] + 1e-6)
    edges = np.linspace(*limits, bins + 1)
    for name, array in arrays.items():
        style = style_of((styles or {}).get(name, name))
        # each curve is a share of its own samples, so that runs of different size compare
        weights = np.full(array.shape, 100 / max(array.size, 1))
        share = np.histogram(np.clip(array, *limits), bins=edges, weights=weights)[0]
        ax.stairs(share, edges, fill=True, color=style.colour, alpha=0.16)
        ax.stairs(share, edges, color=style.colour, linestyle=style.linestyle, linewidth=1.8, label=style.label)
    ax.set_xlim(*limits)
    ax.set_ylim(bottom=0)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("share of samples (%)")
    if legend:
        ax.legend()
    return ax


def cosine_histograms(
    values: Mapping[str, ArrayLike],
    *,
    styles: Mapping[str, str | LossStyle] | None = None,
    ax: Axes | None = None,
    bins: int = 50,
    limits: tuple[float, float] | None = (-1.0, 1.0),
    xlabel: str = r"cosine to the own prototype, $\cos\theta_y$",
    cap: float | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the distribution of cosines, one outline per key.

    Args:
        values: Arrays of cosines, one per run; keys are loss names or labels that ``styles`` knows.
        styles: Styles for keys that are not loss names.
        ax: Axes to draw on; a new page-wide figure if absent.
        bins: Number of bins, the same for all runs.
        limits: Range of the x axis; None takes the range of the data. Values outside fall in the outermost bin.
        xlabel: Which cosine it is.
        cap: A value no sample can pass (for instance sqrt((K-1)/K) with ReLU features); drawn as a vertical line.
        legend: Whether to draw the legend.

    Raises:
        ValueError: If ``values`` is empty.
    """
    ax = _histograms(values, styles, ax, bins, limits, xlabel, legend)
    return _draw_cap(ax, cap)


def sample_margin_histograms(
    values: Mapping[str, ArrayLike],
    *,
    styles: Mapping[str, str | LossStyle] | None = None,
    ax: Axes | None = None,
    bins: int = 50,
    limits: tuple[float, float] | None = None,
    cap: float | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the distribution of sample margins (cosine units); arguments as in :func:`cosine_histograms`.

    Zero is marked: a sample to its left is misclassified.
    """
    xlabel = "sample margin (cosine units)"
    ax = _histograms(values, styles, ax, bins, limits, xlabel, legend)
    low, high = ax.get_xlim()
    if low < 0 < high:
        ax.axvline(0, color="0.35", linewidth=1)
    return _draw_cap(ax, cap)


def _draw_cap(ax: Axes, cap: float | None) -> Axes:
    if cap is not None:
        low, high = ax.get_xlim()
        ax.set_xlim(low, max(high, cap + 0.03 * (high - low)))
        ax.axvline(cap, color="0.2", linewidth=1.2, linestyle=(0, (4, 2)))
        ax.annotate(
            f"cap {cap:.3f} ",
            (cap, 0.97),
            xycoords=("data", "axes fraction"),
            ha="right",
            va="top",
            fontsize=9,
            color="0.2",
        )
    return ax
