"""The runs of a sweep as tables: one row a run; mean, spread and interval over the seeds; two parameters crossed."""

import contextlib
import difflib
import functools
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nbs_lib.publish.sweep.store import FINISHED, SweepError

PROVENANCE = ("commit", "dirty", "code", "hardware", "device", "threads", "started")
"""Fields of a record that say where its numbers come from; the versions of Python and libraries follow them."""
VERSIONS = ("python", "torch", "torchvision", "numpy", "nbs_lib")
"""What a record names the versions of."""
LEVEL, RESAMPLES, LEAST_SEEDS = 0.95, 10_000, 3
"""Of the intervals: coverage, resamples, and the fewest runs that get one."""


@dataclass(frozen=True)
class Sweep:
    """What is known of a sweep's runs.

    Attributes:
        name: of the sweep.
        folder: where its runs lie.
        records: one dictionary a run, in the order of the description; statuses of all kinds.
        title: what it asks.
        stale: keys of runs made by other code than today's.
        missing: runs of the description without a record; None if there is no description to tell.
        remarks: what else was found: damaged records, runs that are in the description no more.
    """

    name: str
    folder: Path
    records: list[Mapping[str, Any]]
    title: str = ""
    stale: Collection[str] = ()
    missing: int | None = 0
    remarks: tuple[str, ...] = field(default=())

    @property
    def varied(self) -> list[str]:
        """The parameters that the sweep varies, without the seed, in the order of the description."""
        return list(dict.fromkeys(name for record in self.records for name in record["varied"]))

    @property
    def measures(self) -> list[str]:
        """The metrics that at least one run left, under the names of their columns in `tidy`."""
        names = dict.fromkeys(name for record in self.records for name in record["metrics"])
        return [_measure_column(name, self.varied) for name in names]

    def counts(self) -> str:
        """Say how many runs there are of each kind: ``24 runs: 20 finished (2 of them stale), 1 failed; 3 missing``."""
        found = Counter(record["status"] for record in self.records)
        old = Counter(record["status"] for record in self.records if record["key"] in self.stale)
        parts = [
            f"{n} {status}" + (f" ({old[status]} of them stale)" if old[status] else "") for status, n in found.items()
        ]
        text = f"{len(self.records)} runs" + (f": {', '.join(parts)}" if parts else "")
        missing = (
            "what is missing cannot be told without a description"
            if self.missing is None
            else f"{self.missing} missing"
        )
        return "; ".join([text, *([missing] if self.missing != 0 else []), *self.remarks])


def tidy(sweep: Sweep) -> pd.DataFrame:
    """Return one row a run, failed ones too: varied parameters, seed, status, stale, metrics, wall_time, provenance.

    A metric that has the name of another column gets ``_measured`` behind it.
    """
    varied, stale = sweep.varied, set(sweep.stale)
    table = pd.DataFrame([_row(record, varied, record["key"] in stale) for record in sweep.records])
    return table.astype(dict.fromkeys(sweep.measures, float)).apply(_of_one_type)


def _row(record: Mapping[str, Any], varied: Sequence[str], stale: bool) -> dict[str, Any]:
    metrics = {_measure_column(name, varied): value for name, value in record["metrics"].items()}
    return {
        **{name: _plain(record["parameters"].get(name)) for name in varied},
        "seed": record.get("seed"),
        "status": record["status"],
        "stale": stale,
        **metrics,
        **{name: record.get(name) for name in ("wall_time", "attempts", *PROVENANCE) if name not in varied},
        **{name: version for name, version in record.get("versions", {}).items() if name not in varied},
        "error": error_text(record),
        "key": record["key"],
    }


def error_text(record: Mapping[str, Any]) -> str:
    """Return why a run did not finish, in one line: the cell's number, the error; empty for a finished run."""
    error = record.get("error")
    if not error:
        return ""
    cell = "" if error.get("cell") is None else f"cell {error['cell']}: "
    return f"{cell}{error['name']}: {error['message']}".splitlines()[0]


def _measure_column(name: str, varied: Sequence[str]) -> str:
    taken = {*varied, *PROVENANCE, *VERSIONS, "seed", "status", "stale", "wall_time", "attempts", "error", "key"}
    return f"{name}_measured" if name in taken else name


def _plain(value: Any) -> Any:
    """A list or mapping as text, so that rows can be grouped by it."""
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def _of_one_type(column: pd.Series) -> pd.Series:
    """Numbers, truth values or texts, not a mixture: Parquet has one type a column."""
    if column.dtype != object:
        return column
    given = [value for value in column if value is not None and value == value]
    if given and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in given):
        return column.astype(float)
    if len(given) == len(column) and all(isinstance(value, bool) for value in given):
        return column.astype(bool)
    return column.map(lambda value: "" if value is None or value != value else str(value))


def finished(table: pd.DataFrame, *, stale: bool = False) -> pd.DataFrame:
    """Return the rows of finished runs; those made by older code only if ``stale``."""
    return table[(table["status"] == FINISHED) & (stale | ~table["stale"])]


def interval(
    values: Iterable[float], level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval of the mean (percentile method): quantiles of the means of samples drawn with replacement.

    The same values give the same interval; of fewer than 3 values there is none (NaN, NaN).
    """
    values = np.asarray(list(values), dtype=float)
    if len(values) < LEAST_SEEDS:
        return math.nan, math.nan
    low, high = np.quantile(_shares(len(values), resamples, seed) @ values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@functools.lru_cache(maxsize=16)
def _shares(count: int, resamples: int, seed: int) -> np.ndarray:
    """Return what each of ``count`` values weighs in each sample drawn with replacement, (resamples, count)."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(count, np.full(count, 1 / count), size=resamples) / count


def summary(table: pd.DataFrame, by: Sequence[str], measures: Sequence[str]) -> pd.DataFrame:
    """Summarise runs over their seeds, one row a group and measure.

    Args:
        table: rows of `finished`.
        by: the parameters that make a group; groups stay in order of appearance.
        measures: columns to summarise; runs without a value (NaN) are left out and not in ``count``.

    Returns:
        ``by``, measure, mean, std (ddof = 1; NaN for one run), count, and the 95 % bootstrap interval of the mean, low
        and high (NaN below 3 runs).
    """
    rows = []
    columns = {measure: table[measure].to_numpy(dtype=float) for measure in measures}
    group = table.groupby(list(by), sort=False, dropna=False).ngroup().to_numpy() if by else np.zeros(len(table), int)
    for number in range(group.max(initial=-1) + 1):
        places = np.flatnonzero(group == number)
        chosen = table.iloc[places[0]][list(by)].to_dict()
        for measure, column in columns.items():
            values = column[places][np.isfinite(column[places])]
            low, high = interval(values)
            mean, std = (values.mean() if len(values) else np.nan), (values.std(ddof=1) if len(values) > 1 else np.nan)
            rows.append(
                {**chosen, "measure": measure, "mean": mean, "std": std, "count": len(values), "low": low, "high": high}
            )
    return pd.DataFrame(rows, columns=[*by, "measure", "mean", "std", "count", "low", "high"])


def left_free(table: pd.DataFrame, by: Sequence[str], varied: Sequence[str]) -> list[str]:
    """Return the varied parameters that ``by`` does not decide: runs that differ in them must not be averaged."""
    groups = table.groupby(list(by), dropna=False)
    return [name for name in varied if name not in by and (groups[name].nunique(dropna=False) > 1).any()]


def pivots(numbers: pd.DataFrame, by: tuple[str, str], form: Callable[[pd.Series], Any]) -> dict[str, pd.DataFrame]:
    """Cross two parameters: one table for each combination of the others, keyed by its text (empty if there are none).

    Args:
        numbers: rows of `summary` for one measure.
        by: the parameters of rows and columns; numbers in ascending order, texts in order of appearance.
        form: turns a row of ``numbers`` into the cell; cells without a run are None.
    """
    rest = [name for name in numbers.columns[: list(numbers.columns).index("measure")] if name not in by]
    rows, columns = (in_order(numbers[name]) for name in by)
    blocks: dict[str, list[list[Any]]] = {}
    for _, row in numbers.iterrows():
        text = ", ".join(f"{name} = {shown(row[name])}" for name in rest)
        block = blocks.setdefault(text, [[None] * len(columns) for _ in rows])
        block[_position(row[by[0]], rows)][_position(row[by[1]], columns)] = form(row)
    names = {"index": pd.Index(rows, name=by[0]), "columns": pd.Index(columns, name=by[1])}
    return {text: pd.DataFrame(block, dtype=object, **names) for text, block in blocks.items()}


def _position(value: Any, among: Sequence[Any]) -> int:
    """Find a value as it is shown: NaN, which stands for none, is not equal to itself."""
    return [shown(other) for other in among].index(shown(value))


def in_order(values: pd.Series) -> list[Any]:
    """Return the different values: numbers in ascending order, everything else in order of appearance."""
    found = list(values.drop_duplicates())
    return sorted(found, key=lambda value: (value != value, value)) if pd.api.types.is_numeric_dtype(values) else found


def shown(value: Any) -> str:
    """Write a parameter's value: 10 for 10.0, – for none."""
    if value is None or value == "" or value != value:
        return "–"
    short = f"{value:g}" if isinstance(value, float) else str(value)
    # two values that differ must not look alike: tables are laid out by this text
    return short if not isinstance(value, float) or float(short) == value else repr(float(value))


def decimals(values: Iterable[float]) -> int:
    """Return how many decimals show the largest value with four digits."""
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    return max(0, 3 - math.floor(math.log10(max(sizes)))) if sizes else 1


def mean_and_std(row: pd.Series, places: int) -> str:
    """Write ``88.21 ± 0.13``; one run has no spread, none no mean."""
    if not row["count"]:
        return "–"
    return f"{row['mean']:.{places}f}" + (f" ± {row['std']:.{places}f}" if row["count"] > 1 else "")


def summary_text(numbers: pd.DataFrame, by: Sequence[str], width: int) -> str:
    """Write a summary for the terminal: a line a group, as many measures as fit in ``width`` characters."""
    measures = list(dict.fromkeys(numbers["measure"]))
    columns: dict[str, list[str]] = {}
    lead = numbers[numbers["measure"] == measures[0]]
    for name in by:
        columns[name] = [shown(value) for value in lead[name]]
    columns["runs"] = [str(count) for count in lead["count"]]
    for position, measure in enumerate(measures):
        own = numbers[numbers["measure"] == measure]
        places = decimals(own["mean"])
        cells = [_with_interval(row, places) for _, row in own.iterrows()]
        if list(own["count"]) != list(lead["count"]):  # some runs have no such value
            cells = [f"{cell} ({count} runs)" for cell, count in zip(cells, own["count"], strict=True)]
        wider = {**columns, measure: cells}
        if position and len(_aligned(wider)[0]) > width:
            left = f"{len(measures) - position} more: {', '.join(measures[position:])}"
            return "\n".join([*_aligned(columns), left])
        columns = wider
    return "\n".join(_aligned(columns))


def _with_interval(row: pd.Series, places: int) -> str:
    between = "" if row["low"] != row["low"] else f" [{row['low']:.{places}f}, {row['high']:.{places}f}]"
    return mean_and_std(row, places) + between


def pivot_text(block: pd.DataFrame) -> str:
    """Write one table of `pivots` (cells are texts) for the terminal."""
    head = f"{block.index.name} \\ {block.columns.name}"
    columns = {head: [shown(value) for value in block.index]}
    columns |= {shown(name): [cell or "–" for cell in block[name]] for name in block.columns}
    return "\n".join(_aligned(columns))


def _aligned(columns: Mapping[str, Sequence[str]]) -> list[str]:
    widths = {name: max(len(name), *map(len, cells), 0) for name, cells in columns.items()}
    lines = [dict(zip(columns, columns, strict=True))]
    lines += [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return ["  ".join(line[name].ljust(widths[name]) for name in columns).rstrip() for line in lines]


def choose(kind: str, wanted: str, known: Sequence[str]) -> str:
    """Return ``wanted`` if it is one of ``known``.

    Raises:
        SweepError: it is not; names near matches, or what there is.
    """
    if wanted in known:
        return wanted
    near = difflib.get_close_matches(wanted, known, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known) or 'none'}"
    raise SweepError(f"no {kind} {wanted}; {hint}")


def save(path: Path, write: Callable[[Path], Any]) -> Path:
    """Let ``write`` make a file beside ``path``, then rename it: a reader, or a kill, never meets half a file.

    Raises:
        SweepError: it cannot be written there.
    """
    beside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(beside)
        beside.replace(path)
    except OSError as error:
        raise SweepError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return path


def save_tables(sweep: Sweep, table: pd.DataFrame, numbers: pd.DataFrame) -> list[Path]:
    """Write ``table.csv``, ``table.parquet`` (one row a run) and ``summary.csv`` into the sweep's folder."""
    return [
        save(sweep.folder / "table.csv", lambda path: table.to_csv(path, index=False, lineterminator="\n")),
        save(sweep.folder / "table.parquet", lambda path: table.to_parquet(path, index=False)),
        save(sweep.folder / "summary.csv", lambda path: numbers.to_csv(path, index=False, lineterminator="\n")),
    ]
