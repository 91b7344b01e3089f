"""Where a number comes from, and the tables of recorded runs that say so."""

import csv
import hashlib
import io
import math
import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning_fabric
import numpy as np
import pandas as pd
import torch
import torchvision

RUN_PARTS = (
    "geometry.py",
    "validation.py",
    "heads.py",
    "losses",
    "metrics",
    "data",
    "models",
    "checkpoints.py",
    "train.py",
    "config.py",
    "run.py",
    "recognition.py",
)
"""Files and folders of the package that decide the numbers of a training run."""
COLUMNS = ("dataset", "loss", "seed", "status")
"""Columns without which a table is not one of runs."""


def code_identity(parts: tuple[str, ...] = RUN_PARTS) -> str:
    """First 12 hexadecimal digits of a SHA-256 over the sources of this package in ``parts``, files or folders."""
    root, digest = Path(__file__).parent, hashlib.sha256()
    for part in parts:
        for file in sorted((root / part).rglob("*.py")) if (root / part).is_dir() else [root / part]:
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def processor() -> str:
    """Name of this machine's processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def environment(device: torch.device | str = "cpu", threads: int = 0) -> dict[str, Any]:
    """Hardware, threads, versions, identity of the code, date (UTC)."""
    device = torch.device(device)
    return {
        "hardware": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "cores": os.cpu_count(),
        "torch_threads": threads or torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "lightning_fabric": lightning_fabric.__version__,
        "numpy": np.__version__,
        "code": _CODE,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def cell(value: Any) -> str:
    """Text of one cell of a table: the same for a value and for what is read back."""
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def read_table(path: Path | None) -> pd.DataFrame:
    """All cells of a table of runs as text; an empty table if there is no file, or nothing in it.

    A last row that breaks off, without an end of line, is left out: that run is made again.

    Raises:
        ValueError: the file is no CSV, not a table of runs, or damaged; the message names it.
    """
    if path is None or not path.exists():
        return pd.DataFrame()
    try:
        text = path.read_bytes().decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as a CSV file: {error}. Move it away or name another") from error
    if not rows:
        return pd.DataFrame()
    header, *rows = rows
    missing = [name for name in COLUMNS if name not in header]
    if missing or len(set(header)) < len(header):
        what = f"it has no column {', '.join(missing)}" if missing else "a column is there twice"
        raise ValueError(f"{path} is not a table of runs: {what}. Move it away or name another file")
    if rows and not text.endswith(("\n", "\r")):
        last = dict(zip(header, rows[-1], strict=False))
        if _fault(header, rows[-1]) or not last.get("date", "Z").endswith("Z"):
            rows.pop()
    for number, row in enumerate(rows, 1):
        if fault := _fault(header, row):
            raise ValueError(f"{path} is damaged: row {number} {fault}. Remove that row to have its run made again")
    return pd.DataFrame(rows, columns=header, dtype=str)


def _fault(header: list[str], row: list[str]) -> str:
    """What is wrong with a row, or nothing."""
    if len(row) != len(header):
        return f"has {len(row)} cells, the header {len(header)}"
    cells = dict(zip(header, row, strict=True))
    empty = [name for name in ("accuracy", "date") if cells.get(name) == ""]
    return f"is finished but has no {', '.join(empty)}" if cells["status"] == "finished" and empty else ""


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write beside the target, then rename: a reader, or a kill, never meets half a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", newline="", encoding="utf-8") as file:
            table.to_csv(file, index=False, lineterminator="\n")
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def append(table: pd.DataFrame, row: dict[str, Any], missing: dict[str, Any]) -> pd.DataFrame:
    """``table`` with one more row; older rows get the value in ``missing`` (or nothing) in columns that are new."""
    if not table.empty:
        table = table.assign(**{name: cell(missing.get(name)) for name in row if name not in table})
    added = pd.DataFrame([{name: cell(value) for name, value in row.items()}])
    return pd.concat([table, added], ignore_index=True).fillna("")


def find(table: pd.DataFrame, wanted: dict[str, Any], missing: dict[str, Any]) -> int | None:
    """First row whose cells are ``wanted``; a column that the table lacks counts as its value in ``missing``."""
    if table.empty:
        return None
    same = pd.Series(True, index=table.index)
    for name, value in wanted.items():
        found = table[name] if name in table else cell(missing[name])
        same &= found == cell(value)
    return int(same.idxmax()) if same.any() else None


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """``table`` with columns of numbers as numbers (empty cells NaN), of True and False as booleans."""

    def convert(column: pd.Series) -> pd.Series:
        if column.isin(["True", "False"]).all():
            return column == "True"
        numbers = pd.to_numeric(column.where(column != ""), errors="coerce")
        return (
            numbers if len(column) and (numbers.notna() == (column != "")).all() and numbers.notna().any() else column
        )

    return table.apply(convert)


# Taken when the module is loaded: a long run must name the code it runs, not what is on disk when it ends.
_CODE = code_identity()
