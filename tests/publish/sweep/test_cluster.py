"""Where runs go: how many at once, on which GPUs, and what is said about a scheduler."""

import subprocess
import time

import psutil
import pytest
from distributed.versions import error_message

from nbs_lib.publish.sweep import cluster
from nbs_lib.publish.sweep.plan import Resources
from nbs_lib.publish.sweep.store import SweepError


@pytest.mark.parametrize(
    ("resources", "gpus", "jobs"),
    [
        ({}, [], 8),
        ({"threads": 3}, [], 2),
        ({"threads": 99}, [], 1),
        ({"memory_gb": 3.0}, [], 5),
        ({"gpus": 1}, ["0", "1"], 2),
        ({"gpus": 2}, ["0", "1", "2"], 1),
        ({"gpus": 0.5}, ["0", "1"], 4),
        ({"gpus": 0.1}, ["0", "1"], 8),
    ],
)
def test_runs_at_once(monkeypatch, resources, gpus, jobs):
    """8 cores, 16 GB: cores, memory and GPUs each set a limit; a run has its GPU for itself unless it says less."""
    monkeypatch.setattr(cluster, "CPU_COUNT", 8)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("M", (), {"total": 16e9}))
    assert cluster.default_jobs(Resources(**resources), gpus) == jobs


def test_shares_of_gpus():
    assert cluster._shares(1, ["0", "3"]) == ["0", "3"]
    assert cluster._shares(2, ["0", "1", "2", "3", "4"]) == ["0,1", "2,3"]
    assert cluster._shares(0.5, ["0", "1"]) == ["0", "1", "0", "1"]
    assert cluster._shares(1 / 3, ["a"]) == ["a", "a", "a"]
    with pytest.raises(SweepError, match="a run needs 2 GPUs, and this machine shows 1"):
        cluster._shares(2, ["0"])


def test_gpus_of_this_machine(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-abc")
    assert cluster.visible_gpus() == ["2", "GPU-abc"]
    for nothing in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", nothing)
        assert cluster.visible_gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, listed))
    assert cluster.visible_gpus() == ["0", "1"]

    def missing(*_arguments, **_options):
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(subprocess, "run", missing)
    assert cluster.visible_gpus() == []


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SweepError, match="this machine shows none"), cluster.connect(None, None, Resources(gpus=1)):
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with (
        pytest.raises(SweepError, match="2 jobs of 1 GPUs do not fit on 1: at most 1"),
        cluster.connect(None, 2, Resources(gpus=1)),
    ):
        pass


def test_a_scheduler_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 1.0)
    begin = time.monotonic()
    with (
        pytest.raises(SweepError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9: "),
        cluster.connect("tcp://127.0.0.1:9", None, Resources()),
    ):
        pass
    assert time.monotonic() - begin < 8


def test_differing_versions_are_named():
    """Dask's own table for a worker with another Python."""
    here = {"host": {"python": "3.11.7.final.0"}, "packages": {"dask": "1", "distributed": "1", "python": "3.11"}}
    there = {**here, "packages": {**here["packages"], "python": "3.12", "distributed": "2"}}
    table = error_message(here, {"w": there}, here)["warning"]
    note = cluster._mismatch(table)
    assert note.startswith("note: client, scheduler and workers have different versions of ")
    assert "python" in note
    assert "distributed" in note
    assert "dask," not in note
    assert "\n" not in note


@pytest.mark.parametrize(
    ("status", "tables", "says"),
    [
        ("<html>plots", "", "dashboard: http://h:1/status"),
        ("<p>Dask needs bokeh>=3.1.0", "<html>", "workers and tasks: http://h:1/info/main/workers.html (plain tables"),
        ("", "", "scheduler: tcp://h:2"),
    ],
)
def test_a_link_is_given_only_if_it_answers(monkeypatch, status, tables, says):
    pages = {"http://h:1/status": status, "http://h:1/info/main/workers.html": tables}
    monkeypatch.setattr(cluster, "_page", pages.get)
    scheduler = type("S", (), {"address": "tcp://h:2"})
    client = type("C", (), {"dashboard_link": "http://h:1/status", "scheduler": scheduler})
    (line,) = cluster._links(client)
    assert line.startswith(says)


def test_a_page_that_is_not_there():
    assert cluster._page("http://127.0.0.1:9/status") == ""
