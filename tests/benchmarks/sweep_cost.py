"""What a sweep costs a run, what two runs at once gain, and how soon a finished sweep is found to be finished.

A run multiplies matrices on one thread. "Directly" is a script that does the same. A sweep adds a process and a kernel
to each run, and starts its workers once. All figures need a machine that has nothing else to do: the last line of the
table says what the same work takes twice side by side, without any sweep, which is what no scheduler can beat.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat

from nbs_lib.publish import notebooks
from nbs_lib.publish.sweep import driver, plan, store

RUNS, SECONDS, FINISHED = 4, 4.0, 2000
WORK = """\
import time
import torch

torch.set_num_threads(1)
matrix = torch.eye(400)
for _ in range(products):
    matrix = matrix @ matrix"""
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextlib.contextmanager
def repository() -> Iterator[Path]:
    """A folder with a notebook to sweep; the working directory."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "book" / "sweeps").mkdir(parents=True)
        (root / "notebooks").mkdir()
        nb = nbformat.v4.new_notebook()
        nb.cells = [nbformat.v4.new_code_cell("products = 1\nseed = 0"), nbformat.v4.new_code_cell(WORK)]
        nb.cells[0].metadata["tags"] = ["parameters"]
        notebooks.write(notebooks.clean(nb), root / "notebooks" / "10_work.ipynb")
        os.chdir(root)
        try:
            yield root
        finally:
            os.chdir(before)


def describe(root: Path, name: str, products: int, seeds: int) -> Path:
    file = root / "book" / "sweeps" / f"{name}.yaml"
    file.write_text(f"title: work\nnotebook: 10\nfixed: {{products: {products}}}\nseeds: {seeds}\n")
    return file


def swept(root: Path, name: str, products: int, jobs: int) -> tuple[float, list[float]]:
    """Seconds of ``nbs sweep``, and of each of its runs."""
    describe(root, name, products, RUNS)
    begin = time.perf_counter()
    command = [sys.executable, "-c", "from nbs_lib.cli import app\nif __name__ == '__main__':\n    app()"]
    done = subprocess.run([*command, "sweep", name, "--jobs", str(jobs)], capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    assert done.returncode == 0, done.stdout + done.stderr
    return seconds, [record["wall_time"] for record in store.read(store.folder_of(name, root))]


def script(products: int, at_once: int) -> float:
    """Seconds of ``at_once`` scripts side by side that do the work of one run each."""
    begin = time.perf_counter()
    command = [sys.executable, "-c", f"products = {products}\n{WORK}"]
    processes = [subprocess.Popen(command, env=ONE_THREAD) for _ in range(at_once)]
    assert not any(process.wait() for process in processes)
    return time.perf_counter() - begin


def products_for(seconds: float) -> int:
    """How many products take so long on one thread."""
    code = f"products = 500\nimport time\n{WORK}\nb = time.perf_counter()\nfor _ in range(500): matrix @ matrix\n"
    command = [sys.executable, "-c", code + "print(time.perf_counter() - b)"]
    return int(500 * seconds / float(subprocess.run(command, env=ONE_THREAD, capture_output=True, text=True).stdout))


def finished(root: Path) -> tuple[float, float]:
    """Seconds to find out that nothing of ``FINISHED`` runs is left: of the command, and inside it."""
    made = plan.read(describe(root, "finished", 1, FINISHED))
    folder, code = store.folder_of("finished", root), store.code_of(made.notebook, root)
    (folder / "runs").mkdir(parents=True)
    history = [{"epoch": epoch, "loss": 0.123456789, "accuracy": 0.987654321} for epoch in range(100)]
    for point in made.points:
        record = {
            "format": store.FORMAT,
            "key": point.key,
            "status": store.FINISHED,
            "parameters": point.parameters,
            "varied": point.varied,
            "seed": point.seed,
            "metrics": {"accuracy": 0.5},
            "history": history,
            "error": None,
            "code": code,
            "versions": {},
            "wall_time": 1.0,
        }
        store.record_path(folder, point.key).write_text(json.dumps(record))
    begin = time.perf_counter()
    command = [sys.executable, "-c", "from nbs_lib.cli import app; app()", "sweep", "finished"]
    assert subprocess.run(command, capture_output=True).returncode == 0
    whole, begin = time.perf_counter() - begin, time.perf_counter()
    assert driver.sweep("finished", say=lambda _: None)
    return whole, time.perf_counter() - begin


def main() -> None:
    with repository() as root:
        products = products_for(SECONDS)
        whole, inside = finished(root)
        direct, together = script(products, 1), script(products, 2)
        one, runs = swept(root, "one", products, 1)
        two, _ = swept(root, "two", products + 1, 2)  # another parameter, so that nothing is finished before
        of_run = sum(runs) / RUNS
    print("| what | seconds | |\n|---|---|---|")
    print(
        f"| nothing left of {FINISHED:,} finished runs: command | {whole:.2f} | without Python's start {inside:.2f} |"
    )
    print(f"| one run directly, as a script | {direct:.2f} | |")
    print(f"| one run of a sweep | {of_run:.2f} | {of_run - direct:+.2f}: process, kernel, notebook |")
    print(f"| start and end of a sweep, once | {one - sum(runs):.2f} | workers, first imports, copy of the code |")
    print(f"| {RUNS} runs, --jobs 1 | {one:.2f} | |")
    print(f"| {RUNS} runs, --jobs 2 | {two:.2f} | {one / two:.2f} times as fast |")
    print(
        f"| two scripts at once | {together:.2f} | {2 * direct / together:.2f} times as fast as one after the other |"
    )
