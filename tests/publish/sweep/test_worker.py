"""One run as a worker makes it: limits, deaths, a full disk; nothing of it is left running."""

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from conftest import alive, family, records, wait_for

from nbs_lib.publish.sweep import single, store, worker
from nbs_lib.publish.sweep.store import SweepError

pytestmark = pytest.mark.slow


def files(job) -> set[str]:
    return {path.name.replace(job["key"], "KEY") for path in (Path(job["folder"]) / "runs").iterdir()}


def text(path: Path) -> str:
    return "\n".join(str(cell.get("outputs", "")) for cell in nbformat.read(path, 4).cells)


def test_a_run_leaves_notebook_and_record(make_job, clone, monkeypatch):
    """And computes with its own copy of the code, its own number of threads, and no GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    job = make_job("{threads: 3}", lr=2.0, seed=4)
    record = worker.run(job)
    (stored,) = records(clone)
    assert record == {**stored, "history": []}
    assert stored["metrics"] == {"accuracy": 4.5, "odd": None}
    assert stored["history"] == [{"epoch": 0}]
    assert stored["context"] == {"images": 3}
    assert (stored["status"], stored["attempts"], stored["threads"], stored["error"]) == ("finished", 1, 3, None)
    assert stored["parameters"] == job["parameters"]
    assert stored["seed"] == 4
    assert set(stored["versions"]) == {"python", "torch", "torchvision", "numpy", "nbs_lib"}
    assert stored["hardware"]
    assert 0.1 < stored["wall_time"] < 60
    assert files(job) == {"KEY.json", "KEY.ipynb"}
    copy = Path(job["source"]).parent
    assert f"{copy}/nbs_lib/__init__.py 3 none" in text(store.notebook_path(Path(job["folder"]), job["key"]))


def test_a_cell_that_raises_is_not_tried_again(make_job, clone):
    job = make_job(act="raise", seed=2, log="log")
    worker.run(job)
    (stored,) = records(clone)
    assert stored["status"] == "failed"
    assert stored["error"] == {"cell": 4, "name": "ValueError", "message": "seed 2 is unlucky"}
    assert stored["attempts"] == 1
    assert (clone / "log").read_text() == "2\n"
    assert files(job) == {"KEY.json", "KEY.failed.ipynb"}


def test_over_the_time_limit_all_its_processes_are_killed(make_job, clone):
    job = make_job("{minutes: 0.1}", act="fork", pause=60.0)
    begin = time.monotonic()
    worker.run(job)
    assert 6 < time.monotonic() - begin < 15
    (stored,) = records(clone)
    assert stored["status"] == "timeout"
    assert stored["error"] == {"cell": 4, "name": "TimeLimit", "message": "not done after 0.1 minutes"}
    assert files(job) == {"KEY.json", "KEY.failed.ipynb"}
    assert not [p for p in psutil.process_iter() if lives_in(p, clone)]


def test_a_run_that_ends_leaves_no_process(make_job, clone):
    """Not even one that its notebook has put into a session of its own."""
    assert worker.run(make_job(act="fork", pause=2.5))["status"] == "finished"
    assert not [p for p in psutil.process_iter() if lives_in(p, clone)]


def lives_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return (
            process.status() != psutil.STATUS_ZOMBIE
            and Path(process.cwd()).is_relative_to(folder)
            and (process.pid != os.getpid())
        )
    except psutil.Error:
        return False


def test_over_the_memory_limit(make_job, clone):
    job = make_job("{memory_gb: 0.3}", act="fill memory", pause=60.0)
    worker.run(job)
    (stored,) = records(clone)
    assert (stored["status"], stored["error"]["name"], stored["error"]["cell"]) == ("failed", "MemoryLimit", 4)
    assert "GB in use, more than 0.3" in stored["error"]["message"]


def test_a_kernel_that_dies_once(make_job, clone):
    worker.run(make_job(act="kill once", log="log"))
    (stored,) = records(clone)
    assert (stored["status"], stored["attempts"], stored["metrics"]["accuracy"]) == ("finished", 2, 0.25)
    assert (clone / "log").read_text() == "0\n0\n"


def test_a_kernel_that_cannot_start(make_job, clone):
    job = make_job()
    (Path(job["source"]).parent / "ipykernel_launcher.py").write_text("raise SystemExit('no kernel today')\n")
    worker.run(job)
    (stored,) = records(clone)
    assert (stored["status"], stored["attempts"], stored["error"]["name"]) == ("lost", 3, "KernelError")
    assert "Kernel died" in stored["error"]["message"]
    assert files(job) == {"KEY.json", *(files(job) & {"KEY.failed.ipynb"})}


def test_a_process_that_cannot_start_says_why(make_job, clone):
    job = make_job()
    (Path(job["source"]).parent / "psutil.py").write_text("raise ImportError('psutil is broken')\n")
    worker.run(job)
    (stored,) = records(clone)
    assert (stored["status"], stored["attempts"]) == ("failed", 1)
    assert stored["error"] == {"cell": None, "name": "StartError", "message": "ImportError: psutil is broken"}


def test_the_run_dies_with_whoever_started_it(make_job):
    """kill -9 of the worker's process: the run's process and its kernel go at once."""
    job = make_job(pause=60.0, log="log")
    code = f"from nbs_lib.publish.sweep import worker; worker.run({job!r})"
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: (Path(job["root"]) / "log").exists())
    below = family(process.pid)
    assert len(below) >= 2
    process.kill()
    process.wait()
    wait_for(lambda: not alive(below), 3)


def test_a_disk_that_fills_up_while_a_run_writes(make_job, clone):
    """A real full disk: 30 MB in memory, a notebook of 40. The run before it is safe, and the sweep is told to stop."""
    disk = clone / "out"
    disk.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", disk]).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        worker.run(make_job())
        job = make_job(act="fill disk")
        with pytest.raises(SweepError, match=r"cannot write .*out/sweeps/small: .*No space left on device"):
            worker.run(job)
        (stored,) = records(clone)
        assert stored["status"] == "finished"
        assert len(files(job)) == 2, "half a notebook is left"
        (disk / "block").write_bytes(bytes(shutil.disk_usage(disk).free - 1_000_000))
        with pytest.raises(SweepError, match=r"1\.0 MB are free, less than 20 MB"):
            worker.run(job)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_record_that_cannot_be_written_stops_the_sweep(make_job, monkeypatch):
    """Also where no file system can be mounted: the run is over, its record finds no room."""
    job = make_job()
    monkeypatch.setattr(worker, "_attempt", lambda _: single.failure(store.FAILED, "ValueError", "no"))

    def full(_folder, _record):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "write", full)
    with pytest.raises(SweepError, match=r"cannot write .*: No space left on device"):
        worker.run(job)


def test_other_errors_of_the_system_are_tried_again(make_job, clone, monkeypatch):
    refused = []

    def refuse(*_arguments, **_options):
        refused.append(1)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    worker.run(make_job())
    (stored,) = records(clone)
    assert (stored["status"], stored["attempts"], len(refused)) == ("lost", 3, 3)
    assert "Too many open files" in stored["error"]["message"]


@pytest.mark.parametrize("change", ["gone", "other"])
def test_a_machine_that_sees_other_files(make_job, change):
    job = make_job()
    source = Path(job["source"])
    source.unlink() if change == "gone" else source.write_text("{}")
    with pytest.raises(SweepError, match=r"does not see .* as the driver does: .* one shared file system"):
        worker.run(job)


@pytest.mark.parametrize(
    ("gpus", "devices", "name", "seen"),
    [
        (0, [], 0, ""),
        (1, ["0", "1"], 1, "1"),
        (2, ["0,1", "2,3"], 1, "2,3"),
        (1, [], "tcp", "7"),
        (0.5, ["0", "0"], 1, "0"),
    ],
)
def test_gpus_a_run_sees(make_job, monkeypatch, gpus, devices, name, seen):
    """Its own of a local cluster; what the worker has of its own anywhere else; none if it asks for none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setattr(worker, "_dask_worker", lambda: type("W", (), {"name": name}))
    job = make_job(f"{{gpus: {gpus}}}") | {"devices": devices}
    assert worker.environment(job)["CUDA_VISIBLE_DEVICES"] == seen
