"""Two prototypes on the circle, and what a margin leaves to each class while it trains."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Wedge

from nbs_lib.plots.style import LossStyle, axes_or_new, style_of

_CLASSES = ("#4a4a4a", "#8a8a8a")  # greys: the colour belongs to the loss


def decision_circle(
    opening: float, band: float, *, style: str | LossStyle, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the unit circle between two prototypes: each class's region, and the band a margin keeps between them.

    Args:
        opening: angle between the two prototypes, radians, in (0, pi].
        band: angle of the band around their bisector, radians, from 0 (the plain boundary) to ``opening`` (all of it).
        style: loss name or style: its colour fills the band.
        ax: axes to draw on.
        title: title; by default the loss's name and the band in degrees.

    Raises:
        ValueError: an angle out of range.
    """
    if not 0 < opening <= math.pi + 1e-9 or not 0 <= band <= opening + 1e-9:
        raise ValueError(f"needs 0 < opening <= pi and 0 <= band <= opening, got opening={opening}, band={band}")
    ax = axes_or_new(ax, 3.0)
    style = style_of(style)
    middle, half, rim = 90.0, math.degrees(opening) / 2, math.degrees(band) / 2
    for number, (low, high) in enumerate(((middle - half, middle - rim), (middle + rim, middle + half))):
        ax.add_patch(Wedge((0, 0), 1, low, high, color=_CLASSES[number], alpha=0.22, linewidth=0))
        ax.add_patch(Wedge((0, 0), 1, low, high, width=0.045, color=_CLASSES[number], linewidth=0))
    if band > 0:
        ax.add_patch(Wedge((0, 0), 1, middle - rim, middle + rim, color=style.colour, alpha=0.30, linewidth=0))
        ax.add_patch(Wedge((0, 0), 1, middle - rim, middle + rim, width=0.045, color=style.colour, linewidth=0))
    ax.plot([0, 0], [0, 1.06], color="0.25", linewidth=1.2, linestyle=(0, (3, 2)))
    for number, degrees in enumerate((middle - half, middle + half)):
        tip = np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])
        arrow = {"arrowstyle": "-|>", "color": _CLASSES[number], "linewidth": 2.2, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", 1.02 * tip, (0, 0), arrowprops=arrow)
        ax.text(*(1.19 * tip), f"$w_{number + 1}$", ha="center", va="center", fontsize=11, color=_CLASSES[number])
    ax.set(xlim=(-1.32, 1.32), ylim=(min(-0.04, 1.3 * math.cos(opening / 2)) - 0.05, 1.12), aspect="equal")
    ax.set_axis_off()
    ax.set_title(f"{style.label}: {2 * rim:.0f}°" if title is None else title, loc="center")
    return ax
