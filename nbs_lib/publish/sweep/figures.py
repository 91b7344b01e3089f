"""Figures of a sweep: two parameters crossed in a heat map, or one parameter along a curve, in the look of the book."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nbs_lib.plots.style import CLASS_COLOURS, DASHES, LOSS_STYLES, PAGE_WIDTH, png_bytes, use_style
from nbs_lib.plots.training import LABELS
from nbs_lib.publish.sweep.store import SweepError
from nbs_lib.publish.sweep.table import decimals, mean_and_std, pivots, save, shown

MOST_PANELS, MOST_LINES = 12, 20


def heat_map(numbers: pd.DataFrame, by: tuple[str, str]) -> Figure:
    """Draw means over seeds as colours, with mean ± std written in the cells; a panel for each combination of the rest.

    Args:
        numbers: rows of `table.summary` for one measure.
        by: the parameters of rows and columns.

    Raises:
        SweepError: no run has a value, or it would take more than 12 panels.
    """
    means, texts = pivots(numbers, by, lambda row: row["mean"]), _cell_texts(numbers, by)
    if len(means) > MOST_PANELS:
        raise SweepError(f"{len(means)} heat maps, one for each value of the other parameters; at most {MOST_PANELS}")
    low, high = _range(numbers["mean"])
    rows, columns = next(iter(means.values())).shape
    across = max(1, min(len(means), int(7 // max(columns, 2))))
    down = math.ceil(len(means) / across)
    size = (PAGE_WIDTH, 0.9 + down * (0.9 + 0.42 * rows))
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, sharex=True, sharey=True)
    for ax, (title, block) in zip(axes.flat, means.items(), strict=False):
        picture = _panel(ax, block, texts[title], (low, high))
        ax.set_title(title)
    for ax in axes.flat[len(means) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel(by[0])
    for column in range(across):  # the lowest panel of each column, where the last row is not full
        last = [ax for ax in axes[:, column] if ax.axison][-1]
        last.set_xlabel(by[1])
        last.tick_params(labelbottom=True)
    figure.colorbar(picture, ax=axes, label=label(numbers["measure"].iloc[0]), fraction=0.05)
    return figure


def _cell_texts(numbers: pd.DataFrame, by: tuple[str, str]) -> dict[str, pd.DataFrame]:
    places = decimals(numbers["mean"])
    return pivots(numbers, by, lambda row: mean_and_std(row, places))


def _range(means: pd.Series) -> tuple[float, float]:
    finite = means[np.isfinite(means)]
    if finite.empty:
        raise SweepError("nothing to draw: no run has a value")
    return float(finite.min()), float(finite.max())


def _panel(ax: Axes, block: pd.DataFrame, texts: pd.DataFrame, limits: tuple[float, float]):
    values = block.to_numpy(dtype=float)
    picture = ax.imshow(np.ma.masked_invalid(values), cmap="cividis", vmin=limits[0], vmax=limits[1], aspect="auto")
    middle = (limits[0] + limits[1]) / 2
    size = 9.5 if block.shape[1] < 6 else 8
    for (i, j), value in np.ndenumerate(values):
        colour = "black" if not value < middle else "white"  # cividis goes from dark to light; an empty cell is light
        text = (texts.iat[i, j] or "–").replace(" ± ", "\n± " if block.shape[1] > 4 else " ± ")
        ax.text(j, i, text, ha="center", va="center", color=colour, fontsize=size)
    ax.set_facecolor("0.93")
    ax.grid(False)
    ax.set_xticks(range(block.shape[1]), [shown(value) for value in block.columns])
    ax.set_yticks(range(block.shape[0]), [shown(value) for value in block.index])
    return picture


def curves(numbers: pd.DataFrame, x: str) -> Figure:
    """Draw means over seeds against one number: a line for each combination of the others, intervals as bands.

    Args:
        numbers: rows of `table.summary` for one measure.
        x: the parameter along the axis.

    Raises:
        SweepError: ``x`` is no number, no run has a value, or it would take more than 20 lines.
    """
    if not pd.api.types.is_numeric_dtype(numbers[x]) or numbers[x].dtype == bool:
        raise SweepError(f"{x} is no number, so there is no curve over it: two parameters behind --by draw a heat map")
    _range(numbers["mean"])
    rest = [name for name in numbers.columns[: list(numbers.columns).index("measure")] if name != x]
    lines = list(numbers.groupby(rest, sort=False, dropna=False)) if rest else [((), numbers)]
    if len(lines) > MOST_LINES:
        raise SweepError(f"{len(lines)} curves, one for each value of the other parameters; at most {MOST_LINES}")
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 3.8 + 0.2 * len(lines) / 2))
    for (values, points), style in zip(lines, _styles(rest, [values for values, _ in lines]), strict=True):
        points = points[points["count"] > 0].dropna(subset=[x]).sort_values(x)
        ax.plot(
            points[x], points["mean"], label=", ".join(_name(*pair) for pair in zip(rest, values, strict=True)), **style
        )
        ax.fill_between(points[x].astype(float), points["low"], points["high"], color=style["color"], alpha=0.18, lw=0)
    _number_axis(ax, numbers[x])
    ax.set_xlabel(x)
    ax.set_ylabel(label(numbers["measure"].iloc[0]))
    ax.set_title(_what_the_bands_are(numbers), fontsize=9.5)
    if rest:
        longest = max(len(text) for text in ax.get_legend_handles_labels()[1])
        figure.legend(loc="outside lower center", handlelength=4.5, ncols=max(1, min(len(lines), 90 // (longest + 9))))
    return figure


def _what_the_bands_are(numbers: pd.DataFrame) -> str:
    counts = sorted(set(numbers["count"]) - {0})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    mean = f"mean of {seeds} runs" if counts[-1] > 1 else "single runs"
    with_band = numbers["low"].notna().sum()
    if not with_band:
        return f"{mean} a point; no interval: it takes three"
    return f"{mean} a point; band: 95 % bootstrap interval" + (" where there are three" if counts[0] < 3 else "")


def _number_axis(ax: Axes, values: pd.Series) -> None:
    """Mark the values that were run; far apart and positive, they stand on a logarithmic axis."""
    places = sorted(values.dropna().unique())
    if places[0] > 0 and places[-1] >= 10 * places[0]:
        ax.set_xscale("log")
        ax.minorticks_off()
    if len(places) <= 12:
        ax.set_xticks(places, [shown(float(value)) for value in places])


def _name(parameter: str, value: object) -> str:
    """Write one part of a legend: a loss by its name in the book, another text alone, a number with its parameter."""
    if parameter == "loss" and value in LOSS_STYLES:
        return LOSS_STYLES[value].label
    return shown(value) if isinstance(value, str) and value else f"{parameter} = {shown(value)}"


def _styles(rest: Sequence[str], lines: Sequence[tuple]) -> list[dict]:
    """Give each line a look: colour and marker follow the loss (or else the first parameter), dashes all the others."""
    lead = rest.index("loss") if "loss" in rest else 0
    leads = list(dict.fromkeys(shown(line[lead]) for line in lines if line))
    others = list(dict.fromkeys(tuple(shown(value) for i, value in enumerate(line) if i != lead) for line in lines))
    dashes = ["-", *DASHES.values()]
    looks = []
    for line in lines:
        known = LOSS_STYLES.get(line[lead]) if line and rest[lead] == "loss" else None
        position = leads.index(shown(line[lead])) if line else 0
        other = others.index(tuple(shown(value) for i, value in enumerate(line) if i != lead))
        looks.append(
            {
                "color": known.colour if known else CLASS_COLOURS[position % len(CLASS_COLOURS)],
                "marker": known.marker if known else "os^DvP"[position % 6],
                "linestyle": dashes[other % len(dashes)],
                "markersize": 5,
            }
        )
    return looks


def label(measure: str) -> str:
    """Name a measure on an axis, with its unit where the book has one for it."""
    return LABELS.get(measure, measure.replace("_", " "))


def draw(numbers: pd.DataFrame, by: Sequence[str], path: Path) -> Path:
    """Write the PNG: curves over one parameter, a heat map of two.

    Raises:
        SweepError: as `heat_map` and `curves`; ``path`` does not end in .png or cannot be written.
    """
    if path.suffix != ".png":
        raise SweepError(f"{path}: the figure is a PNG, so its name must end in .png")
    with plt.rc_context():
        plt.switch_backend("agg")
        use_style()
        figure = curves(numbers, by[0]) if len(by) == 1 else heat_map(numbers, (by[0], by[1]))
        picture = png_bytes(figure)
        plt.close(figure)
    return save(path, lambda target: target.write_bytes(picture))
