"""Where the results of a sweep lie, and how a record is written, read back and judged.

In ``out/sweeps/NAME/``: ``runs/KEY.ipynb`` is an executed notebook, ``runs/KEY.json`` its record,
``runs/KEY.failed.ipynb`` what ran before a failure, ``code/`` the code of the runs, ``lock`` the one driver's.
"""

import contextlib
import json
import math
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbs_lib
from nbs_lib import claims, records
from nbs_lib.publish import dependencies, notebooks
from nbs_lib.publish.notebooks import NotebookError

FORMAT = 1
FINISHED, FAILED, TIMEOUT, LOST = STATUSES = ("finished", "failed", "timeout", "lost")
"""A run that came to its end; whose cell raised; that was over its time limit; whose kernel or worker died."""


class SweepError(NotebookError):
    """A sweep cannot start, or has to stop; the message is for a person."""


def folder_of(name: str, root: Path, parent: Path | None = None) -> Path:
    """Return the folder of the sweep ``name``: below ``parent``, by default ``out/sweeps`` in the repository."""
    return (parent or root / "out" / "sweeps").resolve() / name


def record_path(folder: Path, key: str) -> Path:
    """Return where the record of a run lies."""
    return folder / "runs" / f"{key}.json"


def notebook_path(folder: Path, key: str) -> Path:
    """Return where the executed notebook of a run lies."""
    return folder / "runs" / f"{key}.ipynb"


def failed_path(folder: Path, key: str) -> Path:
    """Return where a run that failed leaves what it had computed."""
    return folder / "runs" / f"{key}.failed.ipynb"


def write(folder: Path, record: dict[str, Any]) -> None:
    """Write one record so that it is there whole or not at all, even if the power goes; NaN and infinities as null.

    Raises:
        OSError: the disk is full, or the folder cannot be written; an earlier record of the run is still there.
    """
    path = record_path(folder, record["key"])
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf8") as file:
            json.dump(_finite(record), file, ensure_ascii=False, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    entry = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


def read(folder: Path, report: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Return the records of a sweep, sorted by key; damaged files are left out and told to ``report``.

    Args:
        folder: the sweep's own folder, see `folder_of`.
        report: takes one line for each file that is no record; by default it goes to standard error.
    """
    found = []
    for path in sorted((folder / "runs").glob("*.json")):
        try:
            record = json.loads(path.read_bytes())
            fault = _fault(record, path.stem)
        except OSError as error:
            fault = f"cannot be read: {error.strerror}"
        except (ValueError, RecursionError):
            fault = "is no JSON"
        if fault:
            (report or _complain)(f"{path}: {fault}; left out")
        else:
            found.append(record)
    return found


def current(record: dict[str, Any], code: str) -> bool:
    """Whether a record was made by this code, as `code_of` names it."""
    return record["code"] == code


def code_of(notebook: Path, root: Path) -> str:
    """Return the hash of today's code: the notebook, and what it imports of the package (see `package`)."""
    return dependencies.code_digest(notebooks.read(notebook), package(root).parent)


def package(root: Path) -> Path:
    """Return the package that the notebooks of a repository import: its own, or the installed one."""
    own = root / dependencies.PACKAGE
    return own if own.is_dir() else Path(nbs_lib.__file__).parent


def clear(folder: Path, key: str = "") -> None:
    """Remove the temporary files of runs that were killed: of one run, or of all. Call it with the lock held."""
    for path in (folder / "runs").glob(f".{key}*"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the sweep's folder: one driver at a time. The system lets go of the lock of a process that is gone.

    Raises:
        SweepError: another driver holds it (the message says which), or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("a+", encoding="utf8")
    except OSError as error:
        raise SweepError(f"cannot write {folder}: {error.strerror}: {error.filename}") from None
    with file:
        try:
            import fcntl  # not on Windows, where the book can be built all the same

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            _complain("this system has no file locks; nothing keeps a second `nbs sweep` from this folder")
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise SweepError(f"{folder.name} is being run by {holder}; wait for it, or end it first") from None
        except OSError as error:  # a network file system without locks
            _complain(f"{folder / 'lock'}: {error.strerror}; nothing keeps a second `nbs sweep` from this folder")
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def find(notebook: Any) -> list[dict[str, Any]]:
    """Return what `nbs_lib.records.report` left in an executed notebook, in order."""
    return _outputs(notebook, records.MIME)


def harvest(notebook: Any) -> dict[str, Any]:
    """Gather what an executed notebook came to: metrics, history, context (later reports win) and claims.

    A notebook that reports no metrics has the measured number of each of its claims for metrics, under the claim's id.
    """
    reports, verdicts = find(notebook), _outputs(notebook, claims.MIME)
    merged: dict[str, Any] = {"metrics": {}, "history": [], "context": {}, "claims": verdicts}
    for report in reports:
        merged["metrics"].update(report.get("metrics") or {})
        merged["history"] = report.get("history") or merged["history"]
        merged["context"].update(report.get("context") or {})
    if not merged["metrics"]:
        measured = {verdict["id"]: verdict.get("measured") for verdict in verdicts}
        merged["metrics"] = {name: value for name, value in measured.items() if isinstance(value, (int, float))}
    return merged


def snapshot(folder: Path, source: Path, root: Path, code: str) -> Path:
    """Copy the notebook and the package it imports, so that runs do not see what is edited while the sweep goes on.

    Args:
        folder: the sweep's own folder.
        source: the notebook.
        root: the repository.
        code: names the copy; other copies are removed.

    Returns:
        The folder with the notebook and ``nbs_lib``.
    """
    kept = folder / "code" / code[:16]
    for old in (folder / "code").glob("*"):
        if old != kept:
            shutil.rmtree(old, ignore_errors=True)
    if not kept.is_dir():
        temporary = kept.with_name(f".{kept.name}.{os.getpid()}")
        try:
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package(root), temporary / dependencies.PACKAGE, ignore=skipped)
            shutil.copy(source, temporary)
            temporary.replace(kept)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return kept


def _outputs(notebook: Any, mime: str) -> list[dict[str, Any]]:
    """Return the data of one MIME type in the outputs of a notebook's code cells."""
    return [
        output["data"][mime]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if mime in output.get("data", {})
    ]


def _fault(record: Any, stem: str) -> str:
    """Say what is wrong with a record, or nothing."""
    if not isinstance(record, dict):
        return "is no record"
    if record.get("format") != FORMAT:
        return f"has format {record.get('format')!r}, not {FORMAT}"
    if record.get("key") != stem or record.get("status") not in STATUSES:
        return "is no record of this name"
    kinds = {"parameters": dict, "varied": dict, "metrics": dict, "code": str, "wall_time": (int, float)}
    kinds |= {"error": (dict, type(None)), "versions": dict}
    wrong = [name for name, kind in kinds.items() if not isinstance(record.get(name), kind)]
    if wrong:
        return f"has no {', '.join(wrong)}"
    measured = record["metrics"].values()
    odd = [value for value in [record["wall_time"], *measured] if value is not None and type(value) not in (int, float)]
    return f"has {odd[0]!r} where a number should be" if odd else ""


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _complain(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr, flush=True)
