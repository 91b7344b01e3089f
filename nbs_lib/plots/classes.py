"""One number a class, and how often the class was seen in training."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from nbs_lib.plots.style import LossStyle, axes_or_new, style_of

MOST_NAMES = 30
"""With more classes their names no longer fit on an axis; their numbers then do."""


def class_accuracies(
    accuracies: Mapping[str, Sequence[float | None]],
    names: Sequence[str],
    counts: Sequence[int] | None = None,
    *,
    styles: Mapping[str, str | LossStyle] | None = None,
    ax: Axes | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the accuracy of each class, one row of markers a run, with the training images of each class under its name.

    Args:
        accuracies: for each run K shares in [0, 1], or None where there are no test images; keys are loss names or
            labels that ``styles`` knows.
        names: the K class names, in the order to draw.
        counts: training images of each class.
        styles: styles for keys that are not loss names.
        ax: axes to draw on; a new page-wide figure if absent.
        legend: whether to draw the legend.

    Raises:
        ValueError: a run without a value for each class.
    """
    ax = axes_or_new(ax, 3.2)
    places = np.arange(len(names))
    for name, values in accuracies.items():
        if len(values) != len(names):
            raise ValueError(f"run {name!r} has {len(values)} accuracies for {len(names)} classes")
        style = style_of((styles or {}).get(name, name))
        shares = [np.nan if value is None else 100 * value for value in values]
        look = style.line() | {"linestyle": ":", "linewidth": 1, "markersize": 7 if len(names) <= MOST_NAMES else 4}
        ax.plot(places, shares, marker=style.marker, **look)
    if len(names) <= MOST_NAMES:
        shown = [f"{name}\n{n:,}" for name, n in zip(names, counts, strict=True)] if counts else names
        ax.set_xticks(places, shown, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_xlabel("class, and its training images" if counts and len(names) <= MOST_NAMES else "class")
    ax.set_ylabel("test accuracy (%)")
    ax.set_ylim(-3, 103)
    if legend:
        ax.legend()
    return ax
