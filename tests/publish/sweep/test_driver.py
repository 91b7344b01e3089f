"""A sweep as a user runs it: whole, interrupted, resumed, on this machine and through a scheduler."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import alive, end, family, records, runs_below, wait_for

from nbs_lib.publish.sweep import plan, store


def log(clone: Path) -> list[str]:
    """The seeds of the runs that began, in order."""
    path = clone / "log"
    return sorted(path.read_text().split()) if path.exists() else []


def statuses(clone: Path) -> dict[int, str]:
    return {record["seed"]: record["status"] for record in records(clone)}


def pretend(clone: Path, file: Path, **changes) -> None:
    """Write records for all points of a description, as if they had run."""
    made = plan.read(file)
    folder, code = store.folder_of(made.name, clone), store.code_of(made.notebook, clone)
    (folder / "runs").mkdir(parents=True)
    for point in made.points:
        record = {
            **{name: getattr(point, name) for name in ("key", "parameters", "varied", "seed")},
            "format": 1,
            "sweep": made.name,
            "notebook": "13_small",
            "status": "finished",
            "metrics": {"accuracy": 0.5},
            "history": [{"epoch": i, "loss": 0.1} for i in range(20)],
            "claims": [],
            "context": {},
            "error": None,
            "attempts": 1,
            "code": code,
            "versions": {},
            "wall_time": 1.0,
            **changes,
        }
        store.record_path(folder, point.key).write_text(json.dumps(record))


def test_dry_run(nbs, describe, clone):
    describe("grid: {lr: [0.5, 1.0]}\nseeds: 12\n")
    status, out, err = nbs("sweep", "small", "--dry-run")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "small: 24 points: 0 finished, 24 missing"
    assert lines[1] == "would run lr=0.5 seed=0"
    assert lines[-1] == "… and 4 more"
    assert not (clone / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["none"], 1, "error: no sweep none in "),
        (["bad"], 1, "line 3: gird: no such key; did you mean grid?"),
        (["small", "--jobs", "0"], 2, "expected a whole number of at least 1, got '0'"),
        (["small", "--out", "notebooks/13_small.ipynb"], 1, "error: cannot write "),
        (["small", "--scheduler", "nonsense://x"], 1, "error: no Dask scheduler answers at nonsense://x: "),
    ],
)
def test_mistakes_run_nothing(nbs, describe, clone, arguments, status, says):
    describe("gird: {lr: [1.0]}\n", "bad")
    describe("")
    begin = time.monotonic()
    found = nbs("sweep", *arguments)
    assert found[0] == status
    assert says in found[2]
    assert "Traceback" not in found[2]
    assert time.monotonic() - begin < 20
    assert not records(clone)


def test_nothing_left_of_2000_is_found_out_soon(nbs, describe, clone):
    """Without loading what runs would need."""
    pretend(clone, describe("grid: {lr: [0.5, 1.0], pause: [0.0, 1.0]}\nseeds: 500\n"))
    code = (
        "import sys, time\nfrom nbs_lib.publish.sweep import driver\n"
        "assert driver.sweep('small')\n"
        "heavy = {'torch', 'distributed', 'dask', 'papermill', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "seconds = time.process_time()\nassert seconds < 2, seconds"  # of this process, whatever else goes on
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "2000 finished; 34 min of runs" in done.stdout


def test_results_of_older_code_are_told_and_never_taken_for_new_ones(nbs, describe, clone):
    pretend(clone, describe("seeds: 3\n"), code="older")
    status, out, _ = nbs("sweep", "small")
    assert status == 1
    assert "3 results were made by other code: `--stale rerun` makes them again" in out
    _, out, _ = nbs("sweep", "small", "--dry-run", "--stale", "rerun")
    assert out.count("would run") == 3
    _, out, _ = nbs("sweep", "small", "--dry-run")
    assert "would run" not in out


def test_records_that_belong_to_no_point(nbs, describe, clone):
    pretend(clone, describe("seeds: 3\n"))
    describe("seeds: 2\n")
    status, out, _ = nbs("sweep", "small")
    assert status == 0
    assert "2 finished; 1 in the folder are of other parameters" in out


@pytest.mark.slow
def test_a_sweep_a_failure_and_its_repair(nbs, describe, clone):
    """Failures are told last, with cell and error; a second call runs what failed, and only that."""
    describe("fixed: {log: log}\nzip: [{act: [report, raise], lr: [0.5, 1.0]}]\nseeds: 1\n")
    status, out, err = nbs("sweep", "small", "--jobs", "1")
    assert (status, err) == (1, "")
    assert "started act=report lr=0.5 seed=0\n" in out
    assert re.search(r"finished act=report lr=0\.5 seed=0: accuracy 0\.125 \(.* s\); 1 of 2 done, 0 running", out)
    assert re.search(r"http://127\.0\.0\.1:\d+/", out)
    last = out.splitlines()[-2:]
    assert last[0] == "failed act=raise lr=1.0 seed=0: cell In [4] raised ValueError: seed 0 is unlucky"
    assert "raise ValueError" in Path(last[1].strip()).read_text()
    nbs("sweep", "small", "--jobs", "1")
    assert log(clone) == ["0", "0", "0"]


@pytest.mark.slow
def test_kill_of_the_driver(nbs, describe, clone):
    """Everything it started dies, what was finished stays, a second driver may not start before, one after it may."""
    describe("fixed: {log: log}\nzip: [{pause: [0.0, 0.5, 60.0]}]\nseeds: 1\n")
    driver = nbs.start("sweep", "small", "--jobs", "1")
    wait_for(lambda: len(log(clone)) == 3)
    status, _, err = nbs("sweep", "small")
    assert status == 1
    assert f"error: small is being run by process {driver.pid} on " in err
    below = family(driver.pid)
    assert len(below) >= 3  # a worker, the run, the kernel
    end(driver)
    wait_for(lambda: not alive(below), 5)
    driver.wait()
    assert [record["status"] for record in records(clone)] == ["finished", "finished"]
    describe("fixed: {log: log}\nzip: [{pause: [0.0, 0.5, 0.25]}]\nseeds: 1\n")
    status, out, _ = nbs("sweep", "small", "--jobs", "1")
    assert status == 0
    assert "3 finished" in out
    assert len(log(clone)) == 4
    assert not list((clone / "out/sweeps/small/runs").glob(".*"))


@pytest.mark.slow
def test_kill_of_a_worker(nbs, describe, clone):
    """The run that it had is made again, the other results stay."""
    describe("fixed: {log: log, pause: 1.0}\nseeds: 2\n")
    driver = nbs.start("sweep", "small", "--jobs", "1")
    wait_for(lambda: len(log(clone)) == 2)
    (run,) = runs_below(driver.pid)
    run.parent().kill()
    out, err = driver.communicate(timeout=60)
    assert (driver.returncode, err) == (0, "")
    assert re.search(r"again seed=\d: KilledWorker: the worker that ran it died", out)
    assert sorted(record["attempts"] for record in records(clone)) == [1, 2]
    assert len(log(clone)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "says"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_termination_and_interruption(nbs, describe, clone, number, status, says):
    """A terminal sends Ctrl-C to all processes of the session; one line is told, none of them stays."""
    describe("fixed: {log: log, pause: 60.0}\nseeds: 2\n")
    driver = nbs.start("sweep", "small", "--jobs", "1")
    wait_for(lambda: log(clone))
    below = family(driver.pid)
    os.killpg(driver.pid, number) if number == signal.SIGINT else driver.terminate()
    _, err = driver.communicate(timeout=20)
    assert driver.returncode == status
    assert err == f"error: {says}; what was finished before is kept\n"
    wait_for(lambda: not alive(below), 3)
    assert not records(clone)


@pytest.fixture
def scheduler_and_worker(clone):
    """A `dask scheduler` and a `dask worker` as processes on loopback: the address of one, the number of the other."""
    address_file = clone / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    local = ["--host", "127.0.0.1", "--scheduler-file", str(address_file)]
    started = [
        subprocess.Popen([*dask, "scheduler", *local, "--port", "0", "--dashboard-address", "127.0.0.1:0"], **options)
    ]
    wait_for(address_file.exists)
    address = json.loads(address_file.read_text())["address"]
    worker = ["worker", address, "--host", "127.0.0.1", "--nthreads", "1", "--dashboard-address", "127.0.0.1:0"]
    started.append(subprocess.Popen([*dask, *worker, "--local-directory", str(clone / "dask")], **options))
    yield address, started[1].pid
    for process in started:
        for child in family(process.pid):
            child.kill()
        process.kill()
        process.wait()


@pytest.mark.slow
def test_through_a_scheduler(nbs, describe, clone, scheduler_and_worker):
    """Its workers run the sweep; when the driver is killed, what it had started ends soon as well."""
    scheduler, worker = scheduler_and_worker
    describe("fixed: {log: log, pause: 0.0}\nseeds: 2\n")
    status, out, err = nbs("sweep", "small", "--scheduler", scheduler)
    assert (status, err) == (0, "")
    assert f"at {scheduler}" in out
    assert statuses(clone) == {0: "finished", 1: "finished"}
    assert log(clone) == ["0", "1"]

    describe("fixed: {log: log2, pause: 60.0}\nseeds: 1\n", "long")
    driver = nbs.start("sweep", "long", "--scheduler", scheduler)
    wait_for((clone / "log2").exists)
    (run,) = runs_below(worker)
    end(driver)
    wait_for(lambda: not alive([run]), 20)
    assert not records(clone, "long")
