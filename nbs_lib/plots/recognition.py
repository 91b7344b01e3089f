"""Verification and retrieval: scores of pairs, ROC curves over a logarithmic axis, measures with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from nbs_lib.plots.style import CLASS_COLOURS, LossStyle, axes_or_new, style_of

if TYPE_CHECKING:  # drawing needs the fields only, and no torch
    from nbs_lib.metrics import Roc

GENUINE, IMPOSTOR = CLASS_COLOURS[0], CLASS_COLOURS[3]


def score_histograms(
    scores: Sequence[float],
    genuine: Sequence[bool],
    *,
    thresholds: Mapping[str, float] | None = None,
    bins: int = 60,
    ax: Axes | None = None,
) -> Axes:
    """Draw the densities of genuine (filled) and impostor scores (outlined), and thresholds as vertical lines.

    Args:
        scores: (P,) cosines.
        genuine: (P,) whether a pair shows one identity.
        thresholds: For each label the score from which a pair is accepted.
        bins: Number of equal-width bins over the range of the scores.
        ax: Axes to draw on; a new page-wide figure if absent.
    """
    ax = axes_or_new(ax)
    scores, genuine = np.asarray(scores, dtype=float), np.asarray(genuine, dtype=bool)
    edges = np.linspace(scores.min(), scores.max(), bins + 1)
    shown = (("impostor pairs", ~genuine, IMPOSTOR, {"histtype": "step", "linewidth": 1.8}),)
    shown += (("genuine pairs", genuine, GENUINE, {"alpha": 0.45}),)
    for label, kind, colour, how in shown:
        ax.hist(scores[kind], edges, density=True, color=colour, label=f"{kind.sum():,} {label}", **how)
    top = ax.get_ylim()[1]
    for number, (label, threshold) in enumerate((thresholds or {}).items()):
        ax.axvline(threshold, color="0.25", linewidth=1.2, linestyle=(0, (4, 2)))
        place, behind = top * (1.02 + 0.09 * number), {"facecolor": "white", "edgecolor": "none", "pad": 1}
        ax.text(threshold, place, f"{label} ", fontsize=9, ha="right", va="bottom", color="0.25", bbox=behind)
    ax.set_ylim(0, top * (1.02 + 0.09 * len(thresholds or {})))
    ax.set_xlabel("score of a pair (cosine)")
    ax.set_ylabel("density (1 / cosine)")
    return ax


def roc_curves(
    curves: Mapping[str, Roc],
    *,
    bands: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]] | None = None,
    styles: Mapping[str, str | LossStyle] | None = None,
    lowest: float | None = None,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw TAR against FAR, FAR logarithmic from the smallest that the impostor pairs resolve.

    Args:
        curves: For each run its ROC curve; keys are loss names or labels that ``styles`` knows.
        bands: For each run false-accept rates, lower and upper bounds of TAR there.
        styles: Styles for keys that are not loss names.
        lowest: Left end of the axis; by default one over the number of impostor pairs.
        legend: Whether to draw the legend.
        ax: Axes to draw on; a new page-wide figure if absent.
    """
    ax = axes_or_new(ax)
    left = lowest or max(1 / curve.impostors for curve in curves.values())
    for name, curve in curves.items():
        style = style_of((styles or {}).get(name, name))
        far, tar = np.asarray(curve.far, dtype=float), np.asarray(curve.tar, dtype=float)
        seen = np.geomspace(left, 1, 200)
        ax.plot(seen, tar[np.searchsorted(far, seen * (1 + 1e-9), side="right") - 1], **style.line())
        if bands and name in bands:
            ax.fill_between(*map(np.asarray, bands[name]), color=style.colour, alpha=0.2, linewidth=0)
    ax.set_xscale("log")
    ax.set(xlim=(left, 1), ylim=(0, 1.01))
    ax.set_xlabel("false-accept rate (FAR)")
    ax.set_ylabel("true-accept rate (TAR)")
    if legend:
        ax.legend(loc="lower right")
    return ax


def interval_dots(
    rows: Mapping[str, tuple[float, float, float]],
    *,
    styles: Mapping[str, str | LossStyle] | None = None,
    xlabel: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw a measure of several runs as dots with intervals, the first on top.

    Args:
        rows: For each label the value, its lower and its upper bound.
        styles: Style of each label; by default black dots.
        xlabel: Name and unit of the measure.
        ax: Axes to draw on; a new page-wide figure of fitting height if absent.
    """
    ax = axes_or_new(ax, 0.26 * len(rows) + 0.8)
    for place, (name, (value, low, high)) in enumerate(rows.items()):
        style = style_of((styles or {}).get(name, name))
        ax.plot([low, high], [place, place], color=style.colour, linewidth=1.6, alpha=0.7, solid_capstyle="butt")
        ax.plot(value, place, marker=style.marker, color=style.colour, markersize=6)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(xlabel)
    return ax
