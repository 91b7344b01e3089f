"""``nbs sweep``: find out what is missing, have Dask run it, and say what became of it.

Dask, torch and papermill are loaded only when there is something to run.
"""

import collections
import contextlib
import hashlib
import queue
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbs_lib.publish import notebooks
from nbs_lib.publish.sweep import plan as plans
from nbs_lib.publish.sweep import store
from nbs_lib.publish.sweep.plan import Plan, Point
from nbs_lib.publish.sweep.progress import Progress, duration, error_text, label
from nbs_lib.publish.sweep.store import SweepError

LEAVE, RERUN = "leave", "rerun"
_SHOWN = 20  # lines of one kind; the rest is counted


@dataclass(frozen=True)
class Survey:
    """How a sweep stands.

    Attributes:
        finished: records of this code.
        stale: records of finished runs by other code.
        failed: records of runs that came to nothing.
        missing: points without a record.
        others: records in the folder that belong to no point: the description, or a default, was another then.
    """

    finished: list[dict[str, Any]]
    stale: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    missing: list[Point]
    others: int

    def counts(self) -> str:
        """Say in one line how many there are of each."""
        parts = {"finished": self.finished, "stale": self.stale, "failed": self.failed, "missing": self.missing}
        text = ", ".join(f"{len(found)} {name}" for name, found in parts.items() if found or name == "finished")
        return f"{text}; {self.others} in the folder are of other parameters" if self.others else text


def sweep(
    name: str,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    dry_run: bool = False,
    out: Path | None = None,
    stale: str = LEAVE,
    say: Callable[[str], None] = print,
) -> bool:
    """Run what a sweep lacks: points without a result, and those whose run failed.

    Args:
        name: of a description in ``book/sweeps``, or a path to one.
        jobs: runs at once; by default what fits on the machine, or what the scheduler's workers take.
        scheduler: address of a Dask scheduler; by default a cluster is started on this machine.
        dry_run: only say what would be run.
        out: folder for the sweeps' folders, instead of ``out/sweeps`` in the repository.
        stale: what to do with results of older code: "leave" them as they are (and say so), or "rerun".
        say: takes a line for the user.

    Returns:
        Whether every point now has a finished result of today's code.

    Raises:
        SweepError: the description has problems, another driver is at work, the cluster cannot be reached, no result
            can be written.
    """
    plan, root = plans.read(plans.find(name)), notebooks.root()
    folder, code = store.folder_of(plan.name, root, out), store.code_of(plan.notebook, root)
    if dry_run:
        found = survey(plan, folder, code)
        say(f"{plan.name}: {len(plan.points)} points: {found.counts()}")
        _list((f"would run {label(point)}" for point in _wanted(plan, found, stale)), say)
        return True
    with store.lock(folder):
        found = survey(plan, folder, code)
        say(f"{plan.name}: {len(plan.points)} points: {found.counts()}")
        wanted = _wanted(plan, found, stale)
        if wanted:
            store.clear(folder)
            with _where_it_failed(folder):
                copy = store.snapshot(folder, plan.notebook, root, code)
            basis = {"folder": str(folder), "root": str(root), "code": code, **_commit(root)}
            usual = [record["wall_time"] for record in found.finished]
            done = len(plan.points) - len(wanted)
            progress = Progress(plan.name, len(plan.points), done, sum(usual) / max(1, len(usual)), sys.stdout)
            try:
                _run_all(plan, wanted, basis, copy, jobs, scheduler, progress)
            finally:
                progress.close()
            found = survey(plan, folder, code)
    return _conclude(plan, folder, found, bool(wanted), say)


def survey(plan: Plan, folder: Path, code: str) -> Survey:
    """Compare the points of a plan with the records in its folder."""
    records = {record["key"]: record for record in store.read(folder)}
    sorted_in: dict[str, list[dict[str, Any]]] = {"finished": [], "stale": [], "failed": []}
    missing = []
    for point in plan.points:  # in their order
        record = records.pop(point.key, None)
        if record is None:
            missing.append(point)
            continue
        finished = record["status"] == store.FINISHED
        sorted_in[("finished" if store.current(record, code) else "stale") if finished else "failed"].append(record)
    return Survey(**sorted_in, missing=missing, others=len(records))


def _wanted(plan: Plan, found: Survey, stale: str) -> list[Point]:
    left = {record["key"] for record in found.finished + (found.stale if stale == LEAVE else [])}
    return [point for point in plan.points if point.key not in left]


def _commit(root: Path) -> dict[str, Any]:
    """Return the git commit of the repository, and whether tracked files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": "", "dirty": True}


@contextlib.contextmanager
def _where_it_failed(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SweepError(f"cannot write {folder}: {error.strerror or error}") from None


def _run_all(
    plan: Plan,
    wanted: list[Point],
    basis: dict[str, Any],
    copy: Path,
    jobs: int | None,
    scheduler: str | None,
    progress: Progress,
) -> None:
    """Hand the points to Dask and follow what happens until none is left.

    Raises:
        SweepError: no run can succeed any more: the disk is full, workers see other folders, the scheduler is gone.
    """
    from nbs_lib.publish.sweep import cluster

    source = copy / plan.notebook.name
    basis = {
        **basis,
        "sweep": plan.name,
        "notebook": plan.notebook.stem,
        "source": str(source),
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "resources": plan.resources.model_dump(),
        "topic": f"nbs-{uuid.uuid4().hex}",
    }
    with cluster.connect(scheduler, jobs, plan.resources) as place:
        for note in place.notes:
            progress.say(note)
        basis["devices"] = place.devices
        at_once = jobs if scheduler and jobs else len(wanted)
        _Round(place.client, basis, progress, cluster.task_resources(plan.resources)).run(wanted, at_once)


class _Round:
    """One round of runs: submits them, takes Dask's events in one queue, tries lost ones again."""

    def __init__(self, client: Any, basis: dict[str, Any], progress: Progress, resources: dict | None) -> None:
        self.client, self.basis, self.progress, self.resources = client, basis, progress, resources
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        self.points: dict[str, Point] = {}
        self.attempts: dict[str, int] = {}
        self.futures: dict[str, Any] = {}

    def run(self, wanted: list[Point], at_once: int) -> None:
        self.points = {point.key: point for point in wanted}
        self.attempts = dict.fromkeys(self.points, 0)
        waiting = collections.deque(wanted)
        self.client.subscribe_topic(self.basis["topic"], lambda event: self.events.put(event[1]))
        try:
            while waiting or self.futures:
                while waiting and len(self.futures) < at_once:
                    self._submit(waiting.popleft())
                self._take()
                self.progress.tick()
        finally:
            # workers see that their task is gone, and end the run's process
            self.client.cancel(list(self.futures.values()))

    def _submit(self, point: Point) -> None:
        from nbs_lib.publish.sweep import worker

        job = {
            **self.basis,
            "key": point.key,
            "parameters": point.parameters,
            "varied": point.varied,
            "seed": point.seed,
            "attempts": self.attempts[point.key],
        }
        name = f"{self.basis['topic']}-{point.key}-{job['attempts']}"
        future = self.client.submit(worker.run, job, key=name, pure=False, resources=self.resources)
        self.futures[point.key] = future
        future.add_done_callback(lambda done: self.events.put((point.key, done)))

    def _take(self) -> None:
        """Wait a moment for the next event, and deal with it."""
        try:
            event = self.events.get(timeout=0.5)
        except queue.Empty:
            return
        if isinstance(event, tuple):
            self._ended(*event)
            return
        point = self.points[event["key"]]
        if event["what"] == "started":
            self.attempts[point.key] = max(event["attempt"], self.attempts[point.key])
            self.progress.started(point, event["attempt"])
        else:
            self.progress.again(point, event["error"])

    def _ended(self, key: str, future: Any) -> None:
        from nbs_lib.publish.sweep import cluster

        point = self.points[key]
        del self.futures[key]
        if future.status == "finished":
            self.progress.ended(point, future.result())
            return
        if future.status != "error":
            raise SweepError("the connection to the scheduler is lost; what was finished before is kept")
        problem = future.exception()
        if isinstance(problem, cluster.KilledWorker):
            self._lost(point, getattr(problem, "allowed_failures", 0) + 1)
        elif isinstance(problem, SweepError):
            raise SweepError(str(problem))
        else:
            raise SweepError(f"the workers cannot run this sweep: {type(problem).__name__}: {problem}")

    def _lost(self, point: Point, times: int) -> None:
        """Try a run whose worker died once more, or record that it is lost."""
        from nbs_lib.publish.sweep import single, worker

        self.attempts[point.key] = max(self.attempts[point.key], times)
        outcome = single.failure(store.LOST, "KilledWorker", "the worker that ran it died")
        if self.attempts[point.key] < worker.ATTEMPTS:
            self.progress.again(point, outcome["error"])
            self._submit(point)
            return
        known = {**self.basis, "key": point.key, "parameters": point.parameters, "varied": point.varied}
        known |= {"seed": point.seed, "attempts": self.attempts[point.key]}
        record = worker.record_of(known, outcome, worker.now(), 0.0)
        folder = Path(self.basis["folder"])
        with _where_it_failed(folder):
            store.write(folder, record)
        self.progress.ended(point, record)


def _conclude(plan: Plan, folder: Path, found: Survey, ran: bool, say: Callable[[str], None]) -> bool:
    """Say how the sweep stands; what went wrong comes last."""
    total = sum(record["wall_time"] for record in found.finished)
    say(f"{found.counts()}; {duration(total)} of runs; results in {folder / 'runs'}")
    if found.stale:
        say(f"{len(found.stale)} results were made by other code: `--stale rerun` makes them again")
    _list((f"{r['status']} {label(r)}: {error_text(r['error'])}\n  {_left(folder, r)}" for r in found.failed), say)
    return len(found.finished) == len(plan.points)


def _left(folder: Path, record: dict[str, Any]) -> Path:
    """Return the file that shows most of a run that failed."""
    kept = store.failed_path(folder, record["key"])
    return kept if kept.exists() else store.record_path(folder, record["key"])


def _list(lines: Iterable[str], say: Callable[[str], None]) -> None:
    lines = list(lines)
    for line in lines[:_SHOWN]:
        say(line)
    if len(lines) > _SHOWN:
        say(f"… and {len(lines) - _SHOWN} more")
