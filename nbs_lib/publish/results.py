"""Results beside the paper's: its printed tables, the recorded runs, and one name for a row in both."""

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

MEASURES = {"acc": "accuracy", "mcls": "class_margin", "msamp": "mean_sample_margin"}
"""The paper's columns under this book's names: percent, degrees, cosine units."""

_NAMES = {
    "ce": "CE",
    "focal": "Focal",
    "normface": "NormFace",
    "cosface": "CosFace",
    "arcface": "ArcFace",
    "sphereface": "SphereFace",
    "ldam": "LDAM",
    "lm_softmax": "LM-Softmax",
    "lm_softmax_total": "LM-total",
}
_USUAL = {"cosface": 0.1, "arcface": 0.1, "sphereface": 0.1, "ldam": 0.5}
_USUAL_IMBALANCED = {"cosface": 0.35, "arcface": 0.1, "ldam": 0.5}
"""Margins that the paper's names leave out (appendices C.2 and C.3); on imbalanced data also s = 5, focal gamma = 1."""


def book_folder() -> Path | None:
    """Return ``book/`` of the repository around the working directory or this package; None outside a clone (Colab)."""
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[2]):
        if (folder / "book" / "paper_tables").is_dir():
            return folder / "book"
    return None


def method(cells: Mapping[str, Any]) -> str:
    """Name a run as Zhou et al. 2022 name it: ``NormFace (s = 10) + 0.5Rsm``, on imbalanced data ``LDAM (λ = 2)``.

    Tables 1 and 5 give the scale, Table 6 the weight of the zero centroid and no scale. What these names leave out is
    added only where it differs from the paper's: other margins, another scale on imbalanced data, fixed prototypes,
    smoothed labels, mixup, deferred re-weighting.

    Args:
        cells: the fields of a run's configuration, or a row of its table.
    """
    loss, imbalanced = cells["loss"], _given(cells.get("imbalance"))
    scale, margin, gamma, centre, weight, smoothing, mixup = (
        _number(cells, name)
        for name in ("scale", "margin", "gamma", "zero_centroid", "sample_margin", "label_smoothing", "mixup")
    )
    if loss == "sample_margin":
        return "Rsm"
    details = []
    if imbalanced and (centre or loss not in ("ce", "focal")):
        details.append(f"λ = {centre or 0:g}")
    if scale is not None and not (imbalanced and scale == 5):
        details.append(f"s = {scale:g}")
    if margin is not None and margin != (_USUAL_IMBALANCED if imbalanced else _USUAL).get(loss):
        details.append(f"m = {margin:g}")
    if gamma is not None and loss == "focal" and gamma != 1:
        details.append(f"γ = {gamma:g}")
    details += [f"{what} {size:g}" for what, size in (("smoothing", smoothing), ("mixup", mixup)) if size]
    if _given(cells.get("freeze_prototypes")):
        details.append(f"fixed {cells['freeze_prototypes']}")
    name = _NAMES.get(loss, loss) + (f" ({', '.join(details)})" if details else "")
    added = [(weight, "Rsm")] + ([] if imbalanced else [(centre, "Rw")])
    terms = [name, *(f"{'' if size == 1 else format(size, 'g')}{term}" for size, term in added if size)]
    return " + ".join(terms + (["DRW"] if cells.get("reweight") == "drw" else []))


def printed(table: str, dataset: str, setting: str = "") -> pd.DataFrame:
    """Read a table of the paper, one row a method: accuracy in percent, class_margin in degrees, mean_sample_margin.

    Args:
        table: file in ``book/paper_tables`` without its ending, such as ``margins_table5``.
        dataset: as the paper writes it, such as ``MNIST``.
        setting: where the table has several for the data set, such as ``step rho=100``.

    Returns:
        Rows in the paper's order; no rows outside a clone of the repository, or if the paper has none for ``dataset``.
    """
    folder = book_folder()
    if folder is None:
        return pd.DataFrame(columns=list(MEASURES.values()), dtype=float)
    cells = pd.read_csv(folder / "paper_tables" / f"{table}.csv")
    cells = cells[(cells["dataset"] == dataset) & ((cells["setting"] == setting) | (setting == ""))]
    order = cells["method"].drop_duplicates()
    wide = cells.pivot(index="method", columns="metric", values="value").rename(columns=MEASURES)
    return wide.reindex(index=order, columns=list(MEASURES.values())).astype(float)


def recorded(name: str) -> pd.DataFrame:
    """Read the rows of a recorded sweep, ``book/results/<name>.csv``; empty if the file is not here."""
    folder = book_folder()
    path = None if folder is None else folder / "results" / f"{name}.csv"
    return pd.read_csv(path, keep_default_na=False) if path is not None and path.is_file() else pd.DataFrame()


def by_method(runs: pd.DataFrame) -> pd.DataFrame:
    """Average finished runs over their seeds, one row a method, in order of appearance; the longest runs count.

    Args:
        runs: rows as ``nbs_lib.run.run_all`` returns them or `recorded` reads them.

    Returns:
        accuracy in percent, class_margin in degrees, mean_sample_margin, and seeds (how many), epochs.
    """
    columns = [*MEASURES.values(), "seeds", "epochs"]
    if runs.empty:
        return pd.DataFrame(columns=columns, dtype=float)
    rows = runs[runs["status"] == "finished"].copy()
    rows["method"] = [method(cells) for cells in rows.to_dict("records")]
    rows["epochs"] = rows["epochs"].astype(int)
    rows = rows[rows["epochs"] == rows.groupby("method")["epochs"].transform("max")].copy()
    rows[list(MEASURES.values())] = rows[list(MEASURES.values())].astype(float)
    rows["accuracy"] *= 100
    groups = rows.groupby("method", sort=False)
    means = groups[list(MEASURES.values())].mean()
    return means.assign(seeds=groups["seed"].nunique(), epochs=groups["epochs"].max())[columns]


def rows(
    methods: pd.DataFrame, table: str, dataset: str, *, data: str, setting: str = "", model: str = ""
) -> list[dict[str, Any]]:
    """Turn a chapter's live numbers into rows for the page "Paper and here".

    The chapter leaves them with ``records.report({}, context={"rows": rows(...)})``. What the paper's table lacks is
    left out; outside a clone of the repository there are no rows.

    Args:
        methods: as `by_method` gives them.
        table: file in ``book/paper_tables`` without its ending.
        dataset: data set of the paper's rows, as the paper writes it.
        data: data set of ours, as :func:`nbs_lib.data.load` knows it; if it is another one, the page shows the number
            as nearest of ours, without a difference.
        setting: where the table has several for the data set.
        model: network of ours.
    """
    paper = printed(table, dataset, setting)
    place = {"table": table, "dataset": dataset, "setting": setting, "data": data, "model": model}
    return [
        {**place, "method": name, "metric": metric, "value": round(float(numbers[measure]), 4)}
        | {"epochs": int(numbers["epochs"]), "seeds": int(numbers["seeds"])}
        for name, numbers in methods.iterrows()
        for metric, measure in MEASURES.items()
        if name in paper.index and math.isfinite(numbers[measure]) and math.isfinite(paper.loc[name, measure])
    ]


def by_scale(methods: Iterable[str]) -> list[str]:
    """Sort names of methods by their scale s, those without one first; otherwise the order stays."""

    def scale(name: str) -> float:
        found = re.search(r"\(s = ([\d.]+)", name)
        return float(found[1]) if found else 0.0

    return sorted(methods, key=scale)


def beside(rows: Iterable[str] | None = None, **sources: pd.DataFrame) -> pd.DataFrame:
    """Lay tables of methods beside each other, as text for the page: a column a measure and source, a row a method.

    Args:
        rows: the methods to show, in this order; by default those of all sources, in order of first appearance.
        **sources: tables as `printed` or `by_method` give them; the keyword heads their columns.

    Returns:
        "–" where a source has no value; "+ 0.5Rsm" under the method it is added to. One source needs no heading.
    """
    shown = {"accuracy": ("accuracy (%)", "{:.2f}"), "class_margin": ("class margin (°)", "{:.1f}")}
    shown["mean_sample_margin"] = ("mean sample margin", "{:.3f}")
    order = list(dict.fromkeys(name for table in sources.values() for name in table.index) if rows is None else rows)
    columns = {}
    for measure, (title, form) in shown.items():
        for source, table in sources.items():
            numbers = table[measure].reindex(order)
            columns[title, source] = ["–" if value != value else form.format(value) for value in numbers]
    names, above = [], ""
    for name in order:
        loss, _, added = name.partition(" + ")
        names.append((f"↳ + {added}" if added and loss == above else name).replace(" ", "\u00a0"))
        above = loss
    table = pd.DataFrame(columns, index=names)
    return table.droplevel(1, axis=1) if len(sources) == 1 else table


def _number(cells: Mapping[str, Any], name: str) -> float | None:
    return float(cells[name]) if _given(cells.get(name)) else None


def _given(value: Any) -> bool:
    """Whether a cell holds something: tables read back have "" or NaN where a configuration has None."""
    return value is not None and value != "" and value == value
