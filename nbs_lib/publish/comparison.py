"""The papers' tables beside ours: what they print, what executed notebooks report, what recorded runs came to.

A number of ours stands beside a printed one only if data set, protocol and method have the same name. Runs on other
data stand there as *nearest of ours*, without a difference, and only where their results file or notebook says so.
"""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from nbs_lib import records
from nbs_lib.publish import results
from nbs_lib.publish.notebooks import code_cells
from nbs_lib.publish.sweep import published

PAPER_COLUMNS = ("paper", "table", "dataset", "model", "setting", "method", "metric", "value", "note")
RUN_COLUMNS = ("dataset", "loss", "seed", "status")
"""Columns that make a results file one of training runs; other files belong to their chapters."""
ROW_KEYS = ("table", "dataset", "method", "metric", "value")
ROW_OPTIONS = ("setting", "data", "model", "epochs", "seeds")
"""Keys of a row that a chapter reports, or a results file holds, about one number of a paper."""
DATASETS = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
"""What the papers call the image sets that are the same here; all others stand for themselves."""
METRICS = {
    "acc": ("accuracy", 100),
    "mcls": ("class_margin", 1),
    "msamp": ("mean_sample_margin", 1),
    "All": ("accuracy", 100),
    "Many": ("accuracy_many", 100),
    "Medium": ("accuracy_medium", 100),
    "Few": ("accuracy_few", 100),
}
"""The papers' measures: the column of our runs, and the factor to the paper's unit."""


class ComparisonError(Exception):
    """A paper's table, a results file or a reported row is damaged; ``problems`` lists all of it with its places."""

    def __init__(self, problems: list[str]):
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Printed:
    """One number of a paper; ``value`` as it is printed, empty where the paper has none."""

    table: str
    title: str
    paper: str
    dataset: str
    model: str
    setting: str
    method: str
    metric: str
    value: str
    note: str

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Where in the table: data set, setting, our name of the method, measure."""
        return self.dataset, self.setting, our_name(self.table, self.method), self.metric


@dataclass(frozen=True)
class Ours:
    """One number of ours beside one of a paper, in the paper's unit.

    Attributes:
        value: the mean over runs.
        std: standard deviation over runs (ddof = 1); None for one.
        runs: how many; 0 if the reporting notebook does not say.
        epochs: of training; 0 if unknown.
        model: network of ours, if known.
        source: results file, or notebook and cell.
        link: page of the book that computed it.
        data: our data set where it is not the paper's.
        command: repeats it.
    """

    value: float
    std: float | None
    runs: int
    epochs: int
    model: str
    source: str
    link: str = ""
    data: str = ""
    command: str = ""


@dataclass(frozen=True)
class Row:
    """A number of a paper with what we have beside it."""

    printed: Printed
    live: Ours | None = None
    recorded: Ours | None = None

    @property
    def difference(self) -> float | None:
        """Ours (recorded, else live) minus the paper's; None if one is missing or the data are others."""
        ours = next((o for o in (self.recorded, self.live) if o is not None and not o.data), None)
        return ours.value - float(self.printed.value) if ours is not None and self.printed.value else None


def compare(book: Path, executed: Mapping[str, NotebookNode], defaults: Mapping[str, Any] | None = None) -> list[Row]:
    """Set the papers' tables beside our recorded and live numbers, in the papers' order.

    Args:
        book: folder with ``paper_tables`` and ``results``.
        executed: the notebooks as they ran, by stem.
        defaults: the workbench's parameters, to write the commands with; there are none without.

    Raises:
        ComparisonError: a file is damaged (names file and line), a reported row names no number of a paper (names
            notebook and cell).
    """
    problems: list[str] = []
    rows = [row for path in sorted((book / "paper_tables").glob("*.csv")) for row in _printed(path, problems)]
    table = Lookup(rows)
    recorded: dict[Printed, list[Ours]] = {}
    for path in sorted((book / "results").glob("*.csv")):
        for number, ours in _recorded(path, table, defaults, problems):
            recorded.setdefault(number, []).append(ours)
    live: dict[Printed, list[Ours]] = {}
    for stem, notebook in executed.items():
        for number, ours in _live(stem, notebook, table, problems):
            live.setdefault(number, []).append(ours)
    if problems:
        raise ComparisonError(problems)
    return [Row(row, best(live.get(row, [])), best(recorded.get(row, []))) for row in rows]


def best(found: Sequence[Ours]) -> Ours | None:
    """Return the number to show: on the paper's data, of the longest training, of most runs, the first of equals."""
    return max(found, key=lambda ours: (not ours.data, ours.epochs, ours.runs), default=None)


def our_name(table: str, method: str) -> str:
    """Name a paper's row as `results.method` names a run of ours; a name that no run has, where no run is the row.

    Table 2 leaves out "(λ = 0)", and its stars mark the best of several λ, which is no one run; Table 8 says Softmax.
    """
    if table == "margins_table2" and method not in ("CE", "Focal") and not method.endswith("*"):
        return f"{method} (λ = 0)"
    return "CE" if method == "Softmax" else method


class Lookup:
    """The papers' numbers by place; each place in a table is one number."""

    def __init__(self, rows: Iterable[Printed]):
        self.rows: dict[tuple[str, ...], Printed] = {}
        self.tables: dict[str, list[Printed]] = {}
        for row in rows:
            self.rows[row.table, *row.place] = row
            self.tables.setdefault(row.table, []).append(row)

    def of_run(self, dataset: str, setting: str, method: str, table: str = "") -> Iterator[Printed]:
        """Yield the numbers that a run of ours stands beside: in all tables, or in one."""
        for name in [table] if table else self.tables:
            for metric in METRICS:
                if row := self.rows.get((name, dataset, setting, method, metric)):
                    yield row

    def of_row(self, cells: Mapping[str, Any]) -> Printed:
        """Return the number that a reported row names.

        Raises:
            ValueError: there is none, or its setting must be told.
        """
        if cells["table"] not in self.tables:
            raise ValueError(f"no table {cells['table']!r} in book/paper_tables")
        names = ("dataset", "method", "metric", *(["setting"] if cells.get("setting") else []))
        found = [r for r in self.tables[cells["table"]] if all(getattr(r, name) == cells[name] for name in names)]
        if len(found) == 1:
            return found[0]
        told = ", ".join(f"{name} {cells[name]!r}" for name in names)
        if found:
            raise ValueError(f"{told} is in {cells['table']} more than once: name its setting")
        raise ValueError(f"{cells['table']} has no number with {told}")


def _printed(path: Path, problems: list[str]) -> Iterator[Printed]:
    where: dict[tuple[str, ...], int] = {}
    for line, cells in _read(path, PAPER_COLUMNS, problems):
        if cells["value"] and _number(cells["value"]) is None:
            problems.append(f"{_name(path)}, line {line}: value {cells['value']!r} is no number")
            continue
        texts = {
            name: cells[name] for name in ("paper", "dataset", "model", "setting", "method", "metric", "value", "note")
        }
        row = Printed(table=path.stem, title=cells["table"], **texts)
        first = where.setdefault((row.dataset, row.setting, row.method, row.metric), line)
        if first != line:
            problems.append(
                f"{_name(path)}, line {line}: {row.method}, {row.metric} is there twice, first in line {first}"
            )
        yield row


def _recorded(
    path: Path, table: Lookup, defaults: Mapping[str, Any] | None, problems: list[str]
) -> Iterator[tuple[Printed, Ours]]:
    lines = list(_read(path, (), problems))
    columns = lines[0][1] if lines else {}
    if all(name in columns for name in ROW_KEYS):
        for line, cells in lines:
            yield from _stated(cells, table, f"{_name(path)}, line {line}", problems, source=path.name)
    elif all(name in columns for name in RUN_COLUMNS):
        yield from _of_runs(path, lines, table, defaults, problems)


def _of_runs(
    path: Path,
    lines: Sequence[tuple[int, dict[str, str]]],
    table: Lookup,
    defaults: Mapping[str, Any] | None,
    problems: list[str],
) -> Iterator[tuple[Printed, Ours]]:
    """Gather runs that differ in their seed alone, and set their means beside the paper's numbers."""
    alike: dict[tuple[str, ...], list[tuple[int, dict[str, str]]]] = {}
    decides = [name for name in (*published.FIELDS, published.NEAREST) if name not in ("seed", "device", "threads")]
    for line, cells in lines:
        if cells["status"] == "finished":
            alike.setdefault(tuple(cells.get(name, "") for name in decides), []).append((line, cells))
    for runs in alike.values():
        line, cells = runs[0]
        try:
            place, method = _place(cells), results.method(cells)
            if place[2] and place[0] not in {row.dataset for row in table.tables.get(place[2], [])}:
                raise ValueError(f"nearest {cells[published.NEAREST]!r} is no table and data set of book/paper_tables")
        except ValueError as error:
            problems.append(f"{_name(path)}, line {line}: {error}")
            continue
        for row in table.of_run(*place[:2], method, place[2]):
            column, factor = METRICS[row.metric]
            values = [_cell(run, column, f"{_name(path)}, line {number}", problems) for number, run in runs]
            values = [factor * value for value in values if value is not None]
            if values:
                yield (
                    row,
                    Ours(
                        statistics.fmean(values),
                        statistics.stdev(values) if len(values) > 1 else None,
                        len(values),
                        int(float(cells.get("epochs") or 0)),
                        cells.get("model", ""),
                        path.name,
                        data="" if not place[2] else cells["dataset"],
                        command=_command(cells, defaults),
                    ),
                )


def _place(cells: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the data set and the setting that a run has in a paper, and the one table it stands in (empty: any).

    Raises:
        ValueError: the cell ``nearest`` is not "table: data set", or a ratio is no number.
    """
    setting = "balanced"
    if kind := cells.get("imbalance"):
        if (ratio := _number(cells.get("imbalance_ratio"))) is None:
            raise ValueError(f"imbalance {kind!r} without a number in imbalance_ratio")
        setting = f"{kind.replace('_', '-')} rho={ratio:g}"
    if nearest := cells.get(published.NEAREST):
        name, colon, dataset = nearest.partition(": ")
        if not colon:
            raise ValueError(f"nearest must be 'table: data set', got {nearest!r}")
        return dataset, setting, name
    whole = not cells.get("limit_per_class") and not cells.get("label_noise")
    dataset = DATASETS.get(cells["dataset"], "") if whole else ""
    return f"Imbalanced {dataset}" if kind and dataset else dataset, setting, ""


def _live(stem: str, notebook: NotebookNode, table: Lookup, problems: list[str]) -> Iterator[tuple[Printed, Ours]]:
    count = 0
    for number, cell in enumerate(code_cells(notebook), start=1):
        for output in cell.outputs:
            record = output.get("data", {}).get(records.MIME)
            if record is None:
                continue
            count += 1
            link = f"notebooks/{stem}.html#{anchor(count)}"
            place, command = f"{stem}, cell {number}", f"nbs run {stem.partition('_')[0]} -o out/"
            for row in (record.get("context") or {}).get("rows") or []:
                yield from _stated(row, table, place, problems, source=place, link=link, command=command)


def anchor(number: int) -> str:
    """Return the HTML id of a notebook's reports, counted from 1, in its page."""
    return f"record-{number}"


def _stated(cells: Any, table: Lookup, place: str, problems: list[str], **where: str) -> Iterator[tuple[Printed, Ours]]:
    """Read a row that says itself which number of a paper it stands beside."""
    try:
        if not isinstance(cells, Mapping) or any(name not in cells for name in ROW_KEYS):
            raise ValueError(f"a row needs {', '.join(ROW_KEYS)}, got {cells!r}")
        row, value = table.of_row(cells), _number(cells["value"])
        if value is None and cells["value"] not in (None, ""):
            raise ValueError(f"value {cells['value']!r} is no number")
        told = {name: cells.get(name) or default for name, default in (("seeds", 0), ("epochs", 0), ("model", ""))}
        data = cells.get("data") or ""
        runs, epochs = int(told["seeds"]), int(told["epochs"])
    except ValueError as error:
        problems.append(f"{place}: {error}")
        return
    if value is not None:
        own = (row.dataset, row.dataset.removeprefix("Imbalanced "))
        data = "" if DATASETS.get(data, data) in own else str(data)
        yield row, Ours(value, None, runs, epochs, str(told["model"]), data=data, **where)


def _command(cells: Mapping[str, str], defaults: Mapping[str, Any] | None) -> str:
    """Write what repeats a run: the workbench with the parameters that are not its defaults; empty if it cannot."""
    given = published.parameters_of(cells)
    beyond = [name for name, text in given.items() if name not in (defaults or {}) and _number(text) != 0]
    if not defaults or beyond:
        return ""
    words = [
        f"-p {name} {text}" for name, text in given.items() if name in defaults and not _same(text, defaults[name])
    ]
    return " ".join(["nbs run 90", *words, "-o out/"])


def _same(text: str, default: Any) -> bool:
    if isinstance(default, bool):
        return text == str(default).lower()
    number = _number(text)
    return number == default if number is not None and isinstance(default, (int, float)) else text == str(default)


def _read(path: Path, needed: Sequence[str], problems: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file with their line numbers; what is damaged is told and left out."""
    try:
        reader = csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""), strict=True)
        header = next(reader, [])
        wrong = [f"has no column {name}" for name in needed if name not in header]
        wrong += [f"has the column {name} twice" for name in dict.fromkeys(header) if header.count(name) > 1]
        if wrong or not header:
            problems.append(f"{_name(path)}, line 1: {', '.join(wrong) or 'is empty'}")
            return
        for row in reader:
            if row and len(row) != len(header):
                problems.append(
                    f"{_name(path)}, line {reader.line_num}: {len(row)} cells, the header has {len(header)}"
                )
            elif row:
                yield reader.line_num, dict(zip(header, row, strict=True))
    except UnicodeDecodeError as error:
        problems.append(f"{_name(path)}: not UTF-8 text: {error.reason} at byte {error.start}")
    except csv.Error as error:
        problems.append(f"{_name(path)}, line {reader.line_num}: {error}")


def _cell(cells: Mapping[str, str], column: str, place: str, problems: list[str]) -> float | None:
    """Return the number in a cell, None if it is empty; anything else is told."""
    text = cells.get(column, "")
    number = _number(text)
    if text and number is None:
        problems.append(f"{place}: {column} {text!r} is no number")
    return number


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _name(path: Path) -> str:
    return f"book/{path.parent.name}/{path.name}"
