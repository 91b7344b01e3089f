"""One run in a process of its own: a job on standard input, the outcome on standard output.

Started as ``python -m nbs_lib.publish.sweep.single``. The process dies, kernel and all, as soon as
standard input ends, that is when whoever started it is gone.
"""

import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import psutil

from nbs_lib.publish import notebooks
from nbs_lib.publish.sweep import store


def execute(job: dict[str, Any]) -> dict[str, Any]:
    """Execute the job's notebook into the store and return the outcome: status, what it reported, error.

    ``transient`` says whether another try may help: the kernel died or did not start, or the system refused something.
    """
    folder, key = Path(job["folder"]), job["key"]
    output, failed = store.notebook_path(folder, key), store.failed_path(folder, key)
    try:
        notebook = notebooks.execute(
            Path(job["source"]), output, job["parameters"], folder=Path(job["root"]), failed=failed
        )
        return {"status": store.FINISHED, **store.harvest(notebook), "error": None}
    except notebooks.CellError as error:
        return failure(store.FAILED, error.name, error.message, error.cell)
    except notebooks.KernelError as error:
        return failure(store.LOST, "KernelError", str(error), transient=True)
    except OSError as error:
        full = {"errno": error.errno}
        return failure(store.LOST, type(error).__name__, str(error), transient=True) | full


def failure(
    status: str, name: str, message: str, cell: int | None = None, *, transient: bool = False
) -> dict[str, Any]:
    """Return the outcome of a run that came to nothing."""
    error = {"cell": cell, "name": name, "message": message}
    nothing: dict[str, Any] = {"metrics": {}, "history": [], "claims": [], "context": {}}
    return {"status": status, **nothing, "error": error, "transient": transient}


def descendants(pid: int) -> list[psutil.Process]:
    """Return all processes below one; none if it is gone. Kernels lead sessions of their own, so no group holds all."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def kill(processes: list[psutil.Process]) -> None:
    """Kill processes, those that are gone already and those whose number has a new owner excepted."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()


def _die_with_parent() -> None:
    os.read(0, 1)  # nothing comes any more: it returns when the other end is closed
    kill(descendants(os.getpid()))
    os._exit(1)


def main() -> None:
    """Read the job, execute it, print the outcome as JSON."""
    job = json.loads(sys.stdin.buffer.readline())
    # the outcome goes where stdout was; what libraries and kernels print goes to stderr
    answer = os.fdopen(os.dup(1), "w", encoding="utf8")
    os.dup2(2, 1)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    outcome = execute(job)
    with answer:
        json.dump(outcome, answer)


if __name__ == "__main__":
    main()
