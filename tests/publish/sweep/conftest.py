"""A small repository whose notebook does as its parameters say, and no torch: a run costs a kernel's start."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from nbs_lib.publish import notebooks
from nbs_lib.publish.sweep import plan, single, store

PARAMETERS = """\
act = "report"  # str: what to do
lr = 1.0  # float: learning rate
scales = [1.0]  # list: scales
pause = 0.0  # float: seconds to wait
log = ""  # str: file that gets a line a run
seed = 0  # int: seed"""
CHECK = """\
from nbs_lib import claims, parameters, records
from nbs_lib.parameters import integer, list_of, one_of, real, text

parameters.check(
    globals(),
    act=one_of("report", "raise", "kill once", "fork", "fill memory", "fill disk"),
    lr=real(0.0, 10.0),
    scales=list_of(real()),
    pause=real(0.0),
    log=text(),
    seed=integer(0),
)"""
ACT = """\
import os
import signal
import subprocess
import time
from pathlib import Path

lines = Path(log).read_text().splitlines() if log and Path(log).exists() else []
if log:
    with open(log, "a") as file:
        print(seed, file=file)
first = not lines
if act == "raise":
    raise ValueError(f"seed {seed} is unlucky")
if act == "kill once" and first:
    os.kill(os.getpid(), signal.SIGKILL)
if act == "fork":
    subprocess.Popen(["sleep", "60"], start_new_session=True)
if act == "fill memory":
    block = bytearray(400_000_000)
    block[:] = b"x" * len(block)
if act == "fill disk":
    print("x" * 40_000_000)
time.sleep(pause)"""
REPORT = """\
import nbs_lib

print(nbs_lib.__file__, os.environ["OMP_NUM_THREADS"], os.environ["CUDA_VISIBLE_DEVICES"] or "none")
records.report({"accuracy": lr / 2, "odd": float("nan")}, history=[{"epoch": 0}], context={"images": 3})
records.report({"accuracy": lr / 4 + seed})"""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the notebook 13_small; the working directory."""
    root = tmp_path / "clone"
    (root / "book" / "sweeps").mkdir(parents=True)
    nb = nbformat.v4.new_notebook()
    nb.cells = [nbformat.v4.new_code_cell(source) for source in (PARAMETERS, CHECK, ACT, REPORT)]
    nb.cells[0].metadata["tags"] = ["parameters"]
    notebooks.write(notebooks.clean(nb), root / "notebooks" / "13_small.ipynb")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def describe(clone: Path) -> Callable[..., Path]:
    """Write ``book/sweeps/NAME.yaml`` with a title, the notebook and the given text."""

    def write(text: str, name: str = "small") -> Path:
        file = clone / "book" / "sweeps" / f"{name}.yaml"
        file.write_text(f"title: a test\nnotebook: 13\n{text}")
        return file

    return write


@pytest.fixture
def make_job(clone: Path, describe: Callable[..., Path]) -> Callable[..., dict[str, Any]]:
    """What the driver hands to a worker for the first point of a sweep with these fixed parameters."""

    def make(resources: str = "{}", **fixed: Any) -> dict[str, Any]:
        made = plan.read(describe(f"fixed: {fixed}\nresources: {resources}\n"))
        folder, code = store.folder_of("small", clone), store.code_of(made.notebook, clone)
        source = store.snapshot(folder, made.notebook, clone, code) / made.notebook.name
        (point,) = made.points
        return {
            **{name: getattr(point, name) for name in ("key", "parameters", "varied", "seed")},
            "sweep": "small",
            "notebook": "13_small",
            "source": str(source),
            "folder": str(folder),
            "root": str(clone),
            "commit": "",
            "dirty": False,
            "code": code,
            "attempts": 0,
            "devices": [],
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
            "resources": made.resources.model_dump(),
            "topic": "test",
        }

    return make


class Nbs:
    """``nbs`` as a process in the clone, in a session of its own as in a terminal."""

    def __init__(self, root: Path) -> None:
        self.root, self.started = root, []

    def start(self, *arguments: str) -> subprocess.Popen:
        command = [
            sys.executable,
            "-c",
            "from nbs_lib.cli import app\nif __name__ == '__main__':\n    app()",
            *arguments,
        ]
        streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        # a shell that runs the tests in the background has them, and all they start, ignore Ctrl-C
        ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            process = subprocess.Popen(command, cwd=self.root, **streams, text=True, start_new_session=True)
        finally:
            signal.signal(signal.SIGINT, ignored)
        self.started.append(process)
        return process

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err


@pytest.fixture
def nbs(clone: Path) -> Iterator[Nbs]:
    made = Nbs(clone)
    yield made
    for process in made.started:
        for child in family(process.pid):
            child.kill()
        process.kill()
        process.communicate()


def family(pid: int) -> list[psutil.Process]:
    """All processes below one."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def runs_below(pid: int) -> list[psutil.Process]:
    """The processes of single runs below one."""

    def is_run(process: psutil.Process) -> bool:
        try:
            return single.__name__ in process.cmdline()
        except psutil.Error:  # gone, or a zombie
            return False

    return [process for process in family(pid) if is_run(process)]


def wait_for(what: Callable[[], Any], seconds: float = 40) -> Any:
    """What ``what`` returns as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing came of it in {seconds} s")


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    def lives(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [process for process in processes if lives(process)]


def records(root: Path, name: str = "small") -> list[dict[str, Any]]:
    return store.read(store.folder_of(name, root))


def end(process: subprocess.Popen, number: int = signal.SIGKILL) -> None:
    os.kill(process.pid, number)
