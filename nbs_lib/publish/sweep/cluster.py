"""Where the runs go: a Dask cluster on this machine, or a scheduler that exists already."""

import contextlib
import importlib.util
import logging
import os
import signal
import subprocess
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask
import distributed
import psutil
from dask.system import CPU_COUNT
from distributed.scheduler import KilledWorker

from nbs_lib.publish.sweep.plan import Resources
from nbs_lib.publish.sweep.store import SweepError

PATIENCE = 10.0  # seconds to wait for a scheduler to answer
GPU = "GPU"
"""Dask's usual name of the resource; `dask worker --resources GPU=1` says how much a worker has."""
__all__ = ["GPU", "PATIENCE", "Cluster", "KilledWorker", "connect", "default_jobs", "visible_gpus"]


@dataclass(frozen=True)
class Cluster:
    """A connected cluster.

    Attributes:
        client: Dask's.
        devices: for each worker of our own cluster the GPUs it may use; empty if workers know for themselves.
        notes: lines for the user: where it is, what to look out for.
    """

    client: distributed.Client
    devices: list[str]
    notes: list[str]


class _NoInterrupt(distributed.WorkerPlugin):
    """Ctrl-C reaches every process of a terminal; our workers leave it to the driver, which ends them in order."""

    def setup(self, worker: Any) -> None:
        signal.signal(signal.SIGINT, lambda _number, _frame: None)


@contextlib.contextmanager
def connect(scheduler: str | None, jobs: int | None, resources: Resources) -> Iterator[Cluster]:
    """Start a cluster of ``jobs`` workers here, one run each; or join the scheduler at an address.

    Raises:
        SweepError: the address cannot be reached, or no GPU is there for runs that ask for one.
    """
    with contextlib.ExitStack() as stack:
        # what Dask logs when workers and schedulers come and go is told by the sweep, in its own words
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        yield (_join(scheduler, resources, stack) if scheduler else _start(jobs, resources, stack))


def default_jobs(resources: Resources, gpus: list[str]) -> int:
    """Return how many runs fit on this machine at once, by cores, memory and GPUs; at least one.

    Raises:
        SweepError: a run needs more GPUs than there are.
    """
    most = CPU_COUNT // resources.threads
    if resources.memory_gb:
        most = min(most, int(psutil.virtual_memory().total / (resources.memory_gb * 1e9)))
    if resources.gpus:
        most = min(most, len(_shares(resources.gpus, gpus)))
    return max(1, most)


def visible_gpus() -> list[str]:
    """Return the CUDA devices that this process may use, by number or name, without loading torch."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip() and name.strip() != "-1"]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number, _ in enumerate(line for line in listed.splitlines() if line.startswith("GPU"))]


def _shares(wanted: float, gpus: list[str]) -> list[str]:
    """Deal GPUs out: for each run that fits at once what goes into its CUDA_VISIBLE_DEVICES."""
    if wanted < 1:
        return [name for _ in range(int(1 / wanted + 1e-9)) for name in gpus]
    size = int(wanted)
    shares = [",".join(gpus[i : i + size]) for i in range(0, len(gpus) - size + 1, size)]
    if not shares:
        raise SweepError(f"a run needs {size} GPU{'s' * (size > 1)}, and this machine shows {len(gpus) or 'none'}")
    return shares


def _start(jobs: int | None, resources: Resources, stack: contextlib.ExitStack) -> Cluster:
    gpus = visible_gpus() if resources.gpus else []
    if resources.gpus and not gpus:
        raise SweepError("a run needs a GPU, and this machine shows none: set gpus to 0, or give a --scheduler")
    fitting = default_jobs(resources, gpus)
    jobs = jobs or fitting
    shares = _shares(resources.gpus, gpus) if resources.gpus else []
    if shares and jobs > len(shares):
        raise SweepError(f"{jobs} jobs of {resources.gpus:g} GPUs do not fit on {len(gpus)}: at most {len(shares)}")
    # The driver counts the attempts of a run itself; a task waits with the scheduler, not with a worker that may die.
    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.scheduler.worker-saturation": 1.0}
    stack.enter_context(dask.config.set(settings))
    local = distributed.LocalCluster(
        n_workers=jobs,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=0,  # runs are processes of their own, and have their own limit
        silence_logs=logging.CRITICAL,
        resources={GPU: resources.gpus} if resources.gpus else None,
    )
    stack.callback(local.close, timeout=5)
    client = stack.enter_context(distributed.Client(local))
    client.register_plugin(_NoInterrupt())
    notes = [f"{jobs} run{'s' * (jobs > 1)} at once, {resources.threads} thread{'s' * (resources.threads > 1)} each"]
    if jobs > fitting:
        notes.append(f"note: {fitting} would fit on this machine's {CPU_COUNT} cores, memory and GPUs")
    return Cluster(client, shares, [*notes, *_links(client)])


def _join(address: str, resources: Resources, stack: contextlib.ExitStack) -> Cluster:
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client = stack.enter_context(distributed.Client(address, timeout=PATIENCE))
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SweepError(f"no Dask scheduler answers at {address}: {said}") from None
    workers = client.scheduler_info(n_workers=-1)["workers"]
    notes = [
        f"{len(workers)} worker{'s' * (len(workers) != 1)} at {address}" + ("" if workers else "; waiting for some")
    ]
    notes += [_mismatch(str(w.message)) for w in caught if "Mismatched versions" in str(w.message)]
    crowded = max((worker["nthreads"] for worker in workers.values()), default=1)
    if crowded > 1:
        notes.append(f"note: a worker takes up to {crowded} runs at once; `dask worker --nthreads 1` takes one")
    if resources.gpus and workers and not any(w["resources"].get(GPU, 0) >= resources.gpus for w in workers.values()):
        raise SweepError(
            f"a run needs {resources.gpus:g} GPU, and no worker offers it: start them with "
            "`dask worker --resources GPU=1`"
        )
    return Cluster(client, [], [*notes, *_links(client)])


def _mismatch(table: str) -> str:
    """Write Dask's table of differing versions in one line: which packages they are."""
    cells = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    names = [name for name in cells if name and name != "Package"]
    return f"note: client, scheduler and workers have different versions of {', '.join(names)}; see `pip list` on each"


def _links(client: distributed.Client) -> list[str]:
    """Give the pages of the scheduler that answer: the dashboard, which needs bokeh there, or the plain tables."""
    base = client.dashboard_link.rpartition("/")[0]
    page = _page(f"{base}/status")
    if page and "needs bokeh" not in page:
        return [f"dashboard: {base}/status"]
    if _page(f"{base}/info/main/workers.html"):
        hint = "" if importlib.util.find_spec("bokeh") else "; `pip install bokeh` for the dashboard"
        return [f"workers and tasks: {base}/info/main/workers.html (plain tables{hint})"]
    return [f"scheduler: {client.scheduler.address}"]


def _page(address: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=2) as answer:
            return answer.read(10_000).decode("utf8", "replace")
    except (OSError, ValueError):
        return ""


def task_resources(resources: Resources) -> dict[str, Any] | None:
    """Return what Dask must find on a worker for one run."""
    return {GPU: resources.gpus} if resources.gpus else None
