"""Means over seeds with their intervals, one row a method."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from nbs_lib.plots.style import LossStyle, axes_or_new, style_of


def seed_intervals(
    rows: Sequence[str],
    mean: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    styles: Sequence[str | LossStyle],
    single: Sequence[ArrayLike] = (),
    filled: Sequence[bool] | None = None,
    ax: Axes | None = None,
    xlabel: str = "",
    names: bool = True,
) -> Axes:
    """Draw one mean a row with its interval as a bar, from top to bottom.

    Args:
        rows: names of the rows.
        mean: (rows,) means.
        low: (rows,) lower bounds; NaN draws no bar.
        high: (rows,) upper bounds.
        styles: loss name or style of each row, for colour and marker.
        single: for each row the values behind the mean, drawn as small ticks.
        filled: which markers are filled; all if absent.
        ax: axes to draw on; a new page-wide figure if absent.
        xlabel: quantity and unit.
        names: whether the rows' names stand on the axis.

    Raises:
        ValueError: the lengths differ.
    """
    mean, low, high = (np.asarray(values, dtype=float) for values in (mean, low, high))
    lengths = {len(x) for x in (rows, mean, low, high, styles, *([single] if len(single) else []))}
    if len(lengths) != 1:
        raise ValueError(f"rows, mean, low, high, styles and single must have one length, got {sorted(lengths)}")
    ax = axes_or_new(ax, 0.8 + 0.26 * len(rows))
    for y, style in enumerate(map(style_of, styles)):
        full = filled is None or filled[y]
        ax.plot([low[y], high[y]], [y, y], color=style.colour, linewidth=2.6, alpha=0.45, solid_capstyle="butt")
        if len(single):
            ax.plot(single[y], np.full(len(single[y]), y), "|", color=style.colour, markersize=6, alpha=0.8)
        look = {"markerfacecolor": style.colour if full else "white", "markeredgecolor": style.colour}
        ax.plot(mean[y], y, style.marker, markersize=7, markeredgewidth=1.6, zorder=4, **look)
    ax.set_yticks(np.arange(len(rows)), rows if names else [""] * len(rows))
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel(xlabel)
    return ax
