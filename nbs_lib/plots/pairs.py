"""Pairs of numbers, row by row: a run without and with a regulariser, or the paper's figure and ours."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from nbs_lib.plots.style import LossStyle, axes_or_new, style_of


def paired_dots(
    rows: Sequence[str],
    first: ArrayLike,
    second: ArrayLike,
    *,
    labels: tuple[str, str],
    styles: Sequence[str | LossStyle] | None = None,
    ax: Axes | None = None,
    xlabel: str = "",
    reference: float | None = None,
    reference_label: str = "",
    legend: bool = True,
) -> Axes:
    """Draw two values a row on one axis: the first as an open ring, the second filled, joined by a line.

    Args:
        rows: Names of the rows, drawn from top to bottom.
        first: (rows,) values; NaN draws nothing.
        second: (rows,) values, likewise.
        labels: What first and second are, for the legend.
        styles: Loss name or style of each row, for its colour; grey if absent.
        ax: Axes to draw on; a new page-wide figure if absent.
        xlabel: Quantity and unit.
        reference: A value to mark with a vertical line, for instance an optimum or a cap.
        reference_label: Its name, written at the top of the line.
        legend: Whether to draw the legend.

    Raises:
        ValueError: If the lengths differ.
    """
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if not len(rows) == len(first) == len(second) or (styles is not None and len(styles) != len(rows)):
        raise ValueError(f"rows, first, second and styles must have one length, got {len(rows)}, {len(first)}, ...")
    ax = axes_or_new(ax, 0.8 + 0.3 * len(rows))
    colours = [style_of(style).colour for style in styles or [LossStyle("", "0.35")] * len(rows)]
    heights = np.arange(len(rows))
    for y, a, b, colour in zip(heights, first, second, colours, strict=True):
        ax.plot([a, b], [y, y], color=colour, linewidth=2.2, alpha=0.45, solid_capstyle="butt", zorder=2)
        ax.plot(a, y, "o", markersize=7, markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.8, zorder=3)
        ax.plot(b, y, "o", markersize=7.5, color=colour, zorder=4)
    ax.set_yticks(heights, rows)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(xlabel)
    if reference is not None:
        ax.axvline(reference, color="0.3", linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
        ax.annotate(
            reference_label, (reference, 1.0), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", va="bottom", fontsize=9, color="0.3",
        )  # fmt: skip
    if legend:
        ring = {"markersize": 7, "markeredgecolor": "0.35", "linestyle": "none", "marker": "o"}
        ax.plot([], [], markerfacecolor="white", markeredgewidth=1.8, label=labels[0], **ring)
        ax.plot([], [], markerfacecolor="0.35", label=labels[1], **ring)
        ax.legend()
    return ax
