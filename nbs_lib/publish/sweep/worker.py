"""What a Dask worker does: start one run as a process, watch its limits, try again where that may help, record it."""

import errno
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import nbformat
import psutil

from nbs_lib.publish.notebooks import code_cells
from nbs_lib.publish.sweep import single, store
from nbs_lib.publish.sweep.store import SweepError

ATTEMPTS = 3
"""A run whose kernel or worker dies is tried so often in all."""
LEAST_FREE = 20e6  # bytes on the disk of the results: less than this will not hold a notebook
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_POLL, _LOOK = 0.1, 1.0  # seconds between looks at the process, and at the memory of all that it has started


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Make one run and write its record; return the record without its history.

    Args:
        job: as `nbs_lib.publish.sweep.driver` makes it: the fields of a record that are known before, where the code
            and the folder of results are, resources, ``attempts`` made so far.

    Returns:
        The record; its status is "cancelled", and nothing is written, if the driver does not want the run any more.

    Raises:
        SweepError: no run can succeed: this machine does not see the folder, or the disk is full.
    """
    folder = Path(job["folder"])
    _look_at(job)
    started, begin = now(), time.monotonic()
    while True:
        job["attempts"] += 1
        tell(job, "started")
        outcome = _attempt(job)
        error = outcome["error"]
        if outcome.get("errno") in _NO_ROOM:
            store.failed_path(folder, job["key"]).unlink(missing_ok=True)  # half a notebook, which fills the disk
            raise SweepError(f"cannot write {folder}: {error['message']}")
        if not outcome.get("transient") or job["attempts"] >= ATTEMPTS:
            break
        tell(job, "again", error=error)
    if outcome["status"] == "cancelled":
        store.clear(folder, job["key"])
        return {"key": job["key"], "status": "cancelled"}
    record = record_of(job, outcome, started, time.monotonic() - begin)
    try:
        store.write(folder, record)
    except OSError as problem:
        raise SweepError(f"cannot write {folder}: {problem.strerror or problem}") from None
    return {**record, "history": []}


def now() -> str:
    """Return the time as a record has it: UTC, in ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def record_of(job: dict[str, Any], outcome: dict[str, Any], started: str, wall_time: float) -> dict[str, Any]:
    """Put a record together out of what was known before a run and what came of it."""
    context = outcome["context"]
    known = ("sweep", "key", "notebook", "parameters", "varied", "seed")
    came = ("status", "metrics", "history", "claims", "context", "error")
    return {
        "format": store.FORMAT,
        **{name: job[name] for name in known},
        **{name: outcome[name] for name in came},
        **{name: job[name] for name in ("attempts", "commit", "dirty", "code")},
        "versions": _versions(),
        "hardware": context.get("hardware") or _processor(),
        "device": context.get("device") or job["parameters"].get("device") or "cpu",
        "threads": job["resources"]["threads"],
        "started": started,
        "wall_time": round(wall_time, 3),
    }


def tell(job: dict[str, Any], what: str, **more: Any) -> None:
    """Let the driver know; outside a Dask worker nobody listens."""
    worker = _dask_worker()
    if worker is not None:
        worker.log_event(job["topic"], {"what": what, "key": job["key"], "attempt": job["attempts"], **more})


def _look_at(job: dict[str, Any]) -> None:
    """Raise SweepError unless this machine sees the folder of the sweep as the driver does, with room for results."""
    source, folder = Path(job["source"]), Path(job["folder"])
    try:
        same = hashlib.sha256(source.read_bytes()).hexdigest() == job["sha256"]
        free = shutil.disk_usage(folder).free
    except OSError:
        same, free = False, 0
    if not same:
        raise SweepError(
            f"the worker on {socket.gethostname()} does not see {folder} as the driver does: "
            "driver and workers need the repository in the same place of one shared file system"
        )
    if free < LEAST_FREE:
        raise SweepError(f"cannot write {folder}: {free / 1e6:.1f} MB are free, less than {LEAST_FREE / 1e6:.0f} MB")


def _attempt(job: dict[str, Any]) -> dict[str, Any]:
    """Start the run's process and wait for its outcome; whatever happens, none of its processes is left behind."""
    command = [sys.executable, "-m", single.__name__]
    family: list[psutil.Process] = []
    try:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
                cwd=Path(job["source"]).parent,
                env=environment(job),
                start_new_session=True,  # Ctrl-C in the driver's terminal is the driver's affair
            )
            try:
                stopped = _watch(process, job, family)
            finally:
                single.kill([*single.descendants(process.pid), *family])
                process.kill()
                process.wait()
                process.stdin.close()
            return stopped or _outcome(process.returncode, out, log)
    except OSError as error:
        return single.failure(store.LOST, type(error).__name__, str(error), transient=True) | {"errno": error.errno}


def _watch(process: subprocess.Popen, job: dict[str, Any], family: list[psutil.Process]) -> dict[str, Any] | None:
    """Wait for the process; return the outcome if a limit, or the driver, ends it before it ends itself."""
    memory, minutes = job["resources"]["memory_gb"], job["resources"]["minutes"]
    begin, looked = time.monotonic(), 0.0
    process.stdin.write(json.dumps(job).encode() + b"\n")
    process.stdin.flush()
    while True:
        try:
            process.wait(_POLL)
            return None
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - begin
        if _is_cancelled():
            return single.failure("cancelled", "Cancelled", "the driver has ended")
        if minutes and elapsed > 60 * minutes:
            return _over(job, process, store.TIMEOUT, "TimeLimit", f"not done after {minutes:g} minutes")
        if elapsed - looked > _LOOK:
            looked = elapsed
            family[:] = [psutil.Process(process.pid), *single.descendants(process.pid)]
            if memory and (used := _memory(family)) > memory * 1e9:
                message = f"{used / 1e9:.2f} GB in use, more than {memory:g}"
                return _over(job, process, store.FAILED, "MemoryLimit", message)


def _over(job: dict[str, Any], process: subprocess.Popen, status: str, name: str, message: str) -> dict[str, Any]:
    """End a run that is over one of its limits, keep what it had computed, and return the outcome."""
    single.kill([*single.descendants(process.pid), psutil.Process(process.pid)])
    process.wait()
    folder, cell = Path(job["folder"]), None
    for part in (folder / "runs").glob(f".{job['key']}.{process.pid}.ipynb"):
        kept = part.replace(store.failed_path(folder, job["key"]))
        cell = _running_cell(kept)
    return single.failure(status, name, message, cell)


def _running_cell(path: Path) -> int | None:
    """Return the execution count that the cell has, or would have, in which a run was stopped."""
    try:
        cells = code_cells(nbformat.read(path, as_version=4))
    except (OSError, ValueError, nbformat.ValidationError):
        return None
    states = [cell.metadata.get("papermill", {}).get("status") for cell in cells]
    return states.index("running") + 1 if "running" in states else None


def _memory(processes: list[psutil.Process]) -> int:
    """Return the bytes that processes hold; pages that they share are counted once, where the system tells."""

    def held(process: psutil.Process) -> int:
        try:
            full = process.memory_full_info()
        except psutil.Error:
            return 0
        return getattr(full, "pss", 0) or full.rss

    return sum(held(process) for process in processes)


def _outcome(status: int, out: IO[bytes], log: IO[bytes]) -> dict[str, Any]:
    """Read what the run's process left; a process that was killed leaves nothing."""
    out.seek(0)
    log.seek(0)
    try:
        return json.loads(out.read())
    except ValueError:
        last = (log.read().decode("utf8", "replace").strip().splitlines() or [f"exit status {status}"])[-1]
    if status < 0:
        return single.failure(store.LOST, "Killed", f"the run's process ended by signal {-status}", transient=True)
    return single.failure(store.FAILED, "StartError", last)


def environment(job: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a run: its threads, the GPUs it may see, the copy of the code it uses."""
    resources = job["resources"]
    path = [str(Path(job["source"]).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = {**os.environ, "NBS_PROGRESS": "0", "PYTHONPATH": os.pathsep.join(path)}
    found.update(dict.fromkeys(_THREADS, str(resources["threads"])))
    worker = _dask_worker()
    if not resources["gpus"]:
        found["CUDA_VISIBLE_DEVICES"] = ""
    elif job["devices"] and worker is not None:  # of a cluster of our own; other workers bring their own setting
        found["CUDA_VISIBLE_DEVICES"] = job["devices"][int(worker.name)]
    return found


def _dask_worker() -> Any | None:
    if "distributed" in sys.modules:
        from distributed import get_worker

        try:
            return get_worker()
        except ValueError:
            pass
    return None


def _is_cancelled() -> bool:
    """Whether Dask has given this task up: the driver cancelled it, or is gone."""
    worker = _dask_worker()
    if worker is None:
        return False
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("torch", "torchvision", "numpy", "nbs_lib"):
        try:
            found[name] = metadata.version(name.replace("_", "-"))
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
