"""Training curves and reliability diagrams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from nbs_lib.plots.style import LossStyle, axes_or_new, style_of

if TYPE_CHECKING:  # drawing needs the four fields only, and no torch
    from nbs_lib.metrics import ReliabilityBins

LABELS = {
    "loss": "training loss",
    "accuracy": "test accuracy (share)",
    "train_accuracy": "training accuracy (share)",
    "class_margin": "class margin (degrees)",
    "mean_sample_margin": "mean sample margin (cosine units)",
    "prototype_norm_ratio": "largest / smallest prototype norm",
    "lr": "learning rate",
}
"""Axis labels of the quantities a training history holds."""


def training_curves(
    histories: Mapping[str, Sequence[Mapping[str, float]]],
    key: str = "loss",
    *,
    x: str = "epoch",
    styles: Mapping[str, str | LossStyle] | None = None,
    ax: Axes | None = None,
    reference: float | None = None,
    reference_label: str = "",
    log: bool = False,
    legend: bool = True,
) -> Axes:
    """Draw one quantity of several training histories, epoch by epoch.

    Args:
        histories: For each run a sequence of records (a ``train.History`` is one), each with ``x`` and ``key``; records
            without ``key`` are skipped, so a quantity may be measured every few epochs. Keys are loss names or labels
            that ``styles`` knows.
        key: The quantity to draw.
        x: The horizontal quantity.
        styles: Styles for keys that are not loss names.
        ax: Axes to draw on; a new page-wide figure if absent.
        reference: A value to mark with a horizontal line, for instance an optimum.
        reference_label: Its name in the legend.
        log: Whether the y axis is logarithmic.
        legend: Whether to draw the legend.

    Raises:
        ValueError: If no record of a run holds ``key``.
    """
    ax = axes_or_new(ax)
    for name, history in histories.items():
        style = style_of((styles or {}).get(name, name))
        points = [(record[x], record[key]) for record in history if key in record]
        if not points:
            raise ValueError(f"key {key!r} is in no record of run {name!r}")
        xs, ys = zip(*points, strict=True)
        every = max(1, len(points) // 8)
        ax.plot(xs, ys, marker=style.marker, markevery=every, markersize=5, **style.line())
    if reference is not None:
        ax.axhline(reference, color="0.3", linewidth=1.2, linestyle=(0, (4, 2)), label=reference_label or None)
    if log:
        ax.set_yscale("log")
    ax.set_xlabel(x)
    ax.set_ylabel(LABELS.get(key, key.replace("_", " ")))
    if legend:
        ax.legend()
    return ax


def reliability_diagram(
    bins: ReliabilityBins, *, style: str | LossStyle = "ce", ax: Axes | None = None, label: str | None = None
) -> Axes:
    """Draw accuracy against confidence, bin by bin, with the gap to the diagonal and the share of samples in each bin.

    Args:
        bins: Edges (B+1,), mean confidence (B,), accuracy (B,) and count (B,) of each bin; empty bins are left out.
        style: Loss name or style that gives the colour.
        ax: Axes to draw on; a new square-ish figure if absent.
        label: Name of the run, written with the expected calibration error into the title.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax, 4.2)
    edges, confidence, accuracy, count = (
        np.asarray(values, dtype=float) for values in (bins.edges, bins.confidence, bins.accuracy, bins.count)
    )
    used = count > 0
    left, width = edges[:-1][used], np.diff(edges)[used]
    style = style_of(style)
    ax.plot([0, 1], [0, 1], color="0.35", linewidth=1.2, linestyle=(0, (4, 2)), label="perfect calibration")
    ax.bar(
        left, accuracy[used], width, align="edge", color=style.colour, alpha=0.55, edgecolor="white", label="accuracy"
    )
    low = np.minimum(accuracy[used], confidence[used])
    gap = np.abs(accuracy[used] - confidence[used])
    ax.bar(left, gap, width, bottom=low, align="edge", fill=False, edgecolor="#d55e00", hatch="////", label="gap", lw=0)
    share = count / max(count.sum(), 1)
    error = float(np.sum(share[used] * gap))
    ax.plot(confidence[used], accuracy[used], linestyle="none", marker=style.marker, color=style.colour, markersize=5)
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("confidence (largest probability)")
    ax.set_ylabel("accuracy (share of correct samples)")
    ax.set_title(f"{label + ': ' if label else ''}ECE {100 * error:.1f} %")
    ax.legend(loc="upper left")
    return ax
