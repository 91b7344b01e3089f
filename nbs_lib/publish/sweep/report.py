"""``nbs results NAME``: find the runs of a sweep, say what is there and what is not, write tables, figure, CSV file."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from nbs_lib.publish import notebooks
from nbs_lib.publish.notebooks import NotebookError
from nbs_lib.publish.sweep import plan, published, store, table
from nbs_lib.publish.sweep.store import SweepError
from nbs_lib.publish.sweep.table import Sweep


def load(name: str, parent: Path | None = None) -> Sweep:
    """Read the runs of a sweep and compare them with its description and with today's code.

    Args:
        name: of a description in ``book/sweeps``, of a folder in ``parent``, or the path of a description.
        parent: folder of the sweeps' folders; by default ``out/sweeps`` in the repository.

    Raises:
        SweepError: no such sweep (with near matches), no runs in it, or a description with mistakes.
    """
    root = notebooks.root()
    described = [path.stem for path in sorted((root / "book" / "sweeps").glob("*.yaml"))]
    stored = [path.parent.name for path in sorted(store.folder_of(name, root, parent).parent.glob("*/runs"))]
    if Path(name).suffix not in (".yaml", ".yml"):
        table.choose("sweep", name, list(dict.fromkeys([*described, *stored])))
    planned = plan.read(plan.find(name)) if name in described or Path(name).suffix in (".yaml", ".yml") else None
    name = planned.name if planned else name
    folder, remarks = store.folder_of(name, root, parent), []
    records = store.read(folder, remarks.append)
    if not records:
        raise SweepError(
            "\n".join([f"sweep {name} has no runs in {folder}: start it with `nbs sweep {name}`", *remarks])
        )
    if planned is None:
        sweep = Sweep(name, folder, sorted(records, key=_place), missing=None)
        source = _notebook(str(records[0].get("notebook")))
    else:
        found = {record["key"]: record for record in records}
        kept = [found.pop(point.key) for point in planned.points if point.key in found]
        if found:
            remarks.append(f"{len(found)} left out that the description has no more")
        if not kept:
            raise SweepError(f"sweep {name} has no runs of its description yet: start it with `nbs sweep {name}`")
        sweep = Sweep(name, folder, kept, planned.title, missing=len(planned.points) - len(kept))
        source = planned.notebook
    code = store.code_of(source, root) if source else ""
    stale = {record["key"] for record in sweep.records if not store.current(record, code)}
    return replace(sweep, stale=stale, remarks=tuple(remarks))


def _place(record: dict[str, Any]) -> list[tuple[bool, Any]]:
    """Sort runs by their varied parameters, numbers as numbers, then by seed."""
    values = [*record["varied"].values(), record.get("seed")]
    return [(True, value) if isinstance(value, (int, float)) else (False, str(value)) for value in values]


def _notebook(name: str) -> Path | None:
    try:
        return notebooks.find(name)
    except NotebookError:
        return None


def show(
    name: str,
    *,
    by: Sequence[str] = (),
    measure: str | None = None,
    where: Sequence[str] = (),
    out: Path | None = None,
    png: Path | None = None,
    publish: bool = False,
    nearest: Sequence[str] | None = None,
    keep_stale: bool = False,
    incomplete: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Print the results of a sweep and write what is asked for.

    Args:
        name: of the sweep, as in `load`.
        by: one parameter, for curves over it, or two, for a table and heat map of one against the other.
        measure: the one to show; by default all in the summary, accuracy (or the first there is) with ``by``.
        where: ``NAME=VALUE`` texts; only runs with these values are shown.
        out: folder of the sweeps' folders, as in `load`.
        png: file for the figure.
        publish: write ``book/results/NAME.csv``.
        nearest: (table, data set) of the paper that the published rows are the nearest of ours to.
        keep_stale: count runs made by other code than today's in.
        incomplete: publish although runs are missing, failed or stale.
        say: takes the lines of the report.

    Raises:
        SweepError: no such sweep, parameter or measure; nothing finished; what is asked for cannot be drawn, written or
            published. The tables of the runs there are have been written.
    """
    sweep = load(name, out)
    for parameter in by:
        table.choose("varied parameter", parameter, sweep.varied)
    if len(by) > 2 or len(set(by)) < len(by):
        raise SweepError(f"--by takes one or two different parameters, got {' '.join(by)}")
    if measure is not None:
        table.choose("measure", measure, sweep.measures)
    runs = table.tidy(sweep)
    good = table.finished(runs, stale=keep_stale)
    numbers = table.summary(good, sweep.varied, sweep.measures)
    say(f"{sweep.name}: {sweep.title}".rstrip(": ") + f"\n{sweep.counts()}")
    written = table.save_tables(sweep, runs, numbers)
    for line in _left_out(sweep, runs, keep_stale):
        say(line)
    if good.empty:
        hint = "" if keep_stale or not runs["stale"].any() else " of today's code: --stale keep shows the stale ones"
        raise SweepError(f"sweep {sweep.name} has no finished run{hint}")
    chosen = _where(good, where, sweep.varied)
    if by:
        _cross(chosen, sweep, by, measure, png, say)
    else:
        _summarise(chosen, sweep, measure, png, say)
    say(", ".join(_shown(path) for path in written))
    if publish:
        say(published.publish(sweep, notebooks.root(), nearest=nearest, keep_stale=keep_stale, incomplete=incomplete))


def _shown(path: Path) -> str:
    """Write a path from here, if it is below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _left_out(sweep: Sweep, runs: pd.DataFrame, keep_stale: bool) -> list[str]:
    lines = []
    for _, row in runs[runs["status"] != store.FINISHED].head(5).iterrows():
        setting = ", ".join(f"{name} = {table.shown(row[name])}" for name in [*sweep.varied, "seed"])
        lines.append(f"{row['status']}: {setting}: {row['error']}".rstrip(": "))
    stale = int((runs["stale"] & (runs["status"] == store.FINISHED)).sum())
    if stale:
        what = "counted in" if keep_stale else "left out; --stale keep counts them in"
        lines.append(f"{stale} finished runs are stale (made by other code than today's): {what}")
    return lines


def _where(runs: pd.DataFrame, conditions: Sequence[str], varied: Sequence[str]) -> pd.DataFrame:
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals:
            raise SweepError(f"--where takes NAME=VALUE, got {condition}")
        table.choose("varied parameter", name, varied)
        texts = runs[name].map(table.shown)
        table.choose(f"run with {name} =", value, list(texts.drop_duplicates()))
        runs = runs[texts == value]
    return runs


def _summarise(
    runs: pd.DataFrame, sweep: Sweep, measure: str | None, png: Path | None, say: Callable[[str], None]
) -> None:
    if not sweep.measures:
        raise SweepError(f"the runs of sweep {sweep.name} left no metrics")
    numbers = table.summary(runs, sweep.varied, [measure] if measure else sweep.measures)
    say(table.summary_text(numbers, sweep.varied, shutil.get_terminal_size((120, 24)).columns))
    say(_legend(numbers))
    if png is not None:
        free = [name for name in sweep.varied if runs[name].nunique(dropna=False) > 1]
        if len(free) not in (1, 2):
            raise SweepError(f"name what to draw with --by, one or two of: {', '.join(sweep.varied)}")
        _draw(runs, sweep, free, measure, png, say)


def _cross(
    runs: pd.DataFrame,
    sweep: Sweep,
    by: Sequence[str],
    measure: str | None,
    png: Path | None,
    say: Callable[[str], None],
) -> None:
    measure = measure or _usual(sweep)
    numbers = table.summary(runs, [*by, *table.left_free(runs, by, sweep.varied)], [measure])
    if len(by) == 1:
        say(table.summary_text(numbers, list(numbers.columns[: list(numbers.columns).index("measure")]), 10_000))
    else:
        places = table.decimals(numbers["mean"])
        say(measure)
        for title, block in table.pivots(numbers, (by[0], by[1]), lambda row: table.mean_and_std(row, places)).items():
            say("\n".join([*([title] if title else []), table.pivot_text(block)]))
    say(_legend(numbers, intervals=len(by) == 1))
    if png is not None:
        _draw(runs, sweep, by, measure, png, say)


def _draw(
    runs: pd.DataFrame, sweep: Sweep, by: Sequence[str], measure: str | None, png: Path, say: Callable[[str], None]
) -> None:
    from nbs_lib.publish.sweep import figures

    groups = [*by, *table.left_free(runs, by, sweep.varied)]
    say(f"{figures.draw(table.summary(runs, groups, [measure or _usual(sweep)]), by, png)}")


def _usual(sweep: Sweep) -> str:
    if not sweep.measures:
        raise SweepError(f"the runs of sweep {sweep.name} left no metrics")
    return "accuracy" if "accuracy" in sweep.measures else sweep.measures[0]


def _legend(numbers: pd.DataFrame, intervals: bool = True) -> str:
    """Say what the numbers are: the summary has intervals in brackets, a table of two parameters has not."""
    counts = sorted(set(numbers["count"]))
    if counts[-1] < 2:
        return "single runs: no spread and no interval"
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    text = f"mean ± standard deviation over {runs} runs (seeds)"
    if intervals and counts[-1] >= table.LEAST_SEEDS:
        text += ", [95 % bootstrap interval of the mean]"
    return text + (
        f"; no interval below {table.LEAST_SEEDS} runs" if intervals and counts[0] < table.LEAST_SEEDS else ""
    )
