"""Results beside the paper's: its printed tables, the recorded runs, and one name for a row in both."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

MEASURES = {"acc": "accuracy", "mcls": "class_margin", "msamp": "mean_sample_margin"}
"""The paper's columns under this book's names: percent, degrees, cosine units."""

_NAMES = {
    "ce": "CE",
    "normface": "NormFace",
    "cosface": "CosFace",
    "arcface": "ArcFace",
    "sphereface": "SphereFace",
    "lm_softmax": "LM-Softmax",
    "lm_softmax_total": "LM-total",
}


def book_folder() -> Path | None:
    """Return ``book/`` of the repository around the working directory or this package; None outside a clone (Colab)."""
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[2]):
        if (folder / "book" / "paper_tables").is_dir():
            return folder / "book"
    return None


def method(cells: Mapping[str, Any]) -> str:
    """Name a run as Tables 1 and 5 of Zhou et al. 2022 name it, such as ``NormFace (s = 10) + 0.5Rsm``.

    What the paper's names leave out is added only where it differs: a margin other than 0.1, fixed prototypes.

    Args:
        cells: the fields of a run's configuration, or a row of its table.
    """
    details = []
    if _given(cells.get("scale")):
        details.append(f"s = {float(cells['scale']):g}")
    if _given(cells.get("margin")) and float(cells["margin"]) != 0.1:
        details.append(f"m = {float(cells['margin']):g}")
    if _given(cells.get("freeze_prototypes")):
        details.append(f"fixed {cells['freeze_prototypes']}")
    weight = float(cells.get("sample_margin") or 0)
    regulariser = f"{'' if weight == 1 else format(weight, 'g')}Rsm" if weight else ""
    if cells["loss"] == "sample_margin":
        return "Rsm"
    name = _NAMES.get(cells["loss"], cells["loss"]) + (f" ({', '.join(details)})" if details else "")
    return f"{name} + {regulariser}" if regulariser else name


def printed(table: str, dataset: str) -> pd.DataFrame:
    """Read a table of the paper, one row a method: accuracy in percent, class_margin in degrees, mean_sample_margin.

    Args:
        table: file in ``book/paper_tables`` without its ending, such as ``margins_table5``.
        dataset: as the paper writes it, such as ``MNIST``.

    Returns:
        Rows in the paper's order; no rows outside a clone of the repository, or if the paper has none for ``dataset``.
    """
    folder = book_folder()
    if folder is None:
        return pd.DataFrame(columns=list(MEASURES.values()), dtype=float)
    cells = pd.read_csv(folder / "paper_tables" / f"{table}.csv")
    cells = cells[cells["dataset"] == dataset]
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


def _given(value: Any) -> bool:
    """Whether a cell holds something: tables read back have "" or NaN where a configuration has None."""
    return value is not None and value != "" and value == value
