"""The folder of results: whole records or none, damaged files told, one driver, what a notebook left."""

import errno
import json
import math
import os

import nbformat
import pytest

from nbs_lib import claims, records
from nbs_lib.publish.sweep import store
from nbs_lib.publish.sweep.store import SweepError

RECORD = {
    "format": 1,
    "key": "a" * 16,
    "status": "finished",
    "parameters": {},
    "varied": {},
    "metrics": {"accuracy": 0.5},
    "code": "c",
    "wall_time": 1.5,
    "versions": {},
    "error": None,
}


def test_a_record_comes_back(tmp_path):
    history = [{"loss": math.inf, "list": [math.nan, 1]}]
    store.write(tmp_path, {**RECORD, "history": history})
    (read,) = store.read(tmp_path)
    assert read == {**RECORD, "history": [{"loss": None, "list": [None, 1]}]}
    assert os.listdir(tmp_path / "runs") == [f"{'a' * 16}.json"]
    assert store.current(read, "c")
    assert not store.current(read, "d")


def test_a_full_disk_leaves_the_earlier_record(tmp_path, monkeypatch):
    store.write(tmp_path, RECORD)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write(tmp_path, {**RECORD, "metrics": {}})
    assert store.read(tmp_path) == [RECORD]
    assert len(os.listdir(tmp_path / "runs")) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"format": 1, "key"', "is no JSON"),
        ("", "is no JSON"),
        ("[]", "is no record"),
        (json.dumps({**RECORD, "format": 2}), "has format 2, not 1"),
        (json.dumps(RECORD), "is no record of this name"),
        (json.dumps({**RECORD, "key": "bad", "status": "done"}), "is no record of this name"),
        (json.dumps({**RECORD, "key": "bad", "metrics": None, "code": 1}), "has no metrics, code"),
        (json.dumps({**RECORD, "key": "bad", "wall_time": "long"}), "has no wall_time"),
        (json.dumps({**RECORD, "key": "bad", "metrics": {"a": "0.5"}}), "has '0.5' where a number should be"),
        (json.dumps({**RECORD, "key": "bad", "metrics": {"a": True}}), "has True where a number should be"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_damaged_files_are_told_and_left_out(tmp_path, capsys, content, says):
    store.write(tmp_path, RECORD)
    (tmp_path / "runs" / "bad.json").write_text(content)
    told = []
    assert store.read(tmp_path, told.append) == [RECORD]
    assert told == [f"{tmp_path}/runs/bad.json: {says}; left out"]
    store.read(tmp_path)
    assert says in capsys.readouterr().err


def test_one_driver_at_a_time(tmp_path):
    folder = tmp_path / "mine"
    with (
        store.lock(folder),
        pytest.raises(SweepError, match=rf"mine is being run by process {os.getpid()} on .*; wait for it"),
        store.lock(folder),
    ):
        pass
    (folder / "lock").write_text("process 1 on elsewhere\n")  # of one that died: the system let its lock go
    with store.lock(folder):
        assert str(os.getpid()) in (folder / "lock").read_text()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SweepError, match=r"cannot write .*file/small: Not a directory"),
        store.lock(tmp_path / "file/small"),
    ):
        pass


def notebook(*bundles: dict) -> nbformat.NotebookNode:
    nb = nbformat.v4.new_notebook()
    nb.cells = [nbformat.v4.new_markdown_cell("text"), nbformat.v4.new_code_cell("")]
    nb.cells[1].outputs = [nbformat.v4.new_output("display_data", data=bundle) for bundle in bundles]
    nb.cells[1].outputs.append(nbformat.v4.new_output("stream", text="printed"))
    return nb


def test_reports_are_merged_and_later_ones_win():
    first = {"metrics": {"a": 1, "b": 2}, "history": [{"epoch": 0}], "context": {"x": 1}, "note": ""}
    second = {"metrics": {"b": 3}, "history": [], "context": {"y": 2}, "note": ""}
    claim = {"id": "one", "verdict": "holds", "measured": 5.0}
    nb = notebook({records.MIME: first}, {claims.MIME: claim}, {records.MIME: second})
    assert store.find(nb) == [first, second]
    merged = {"a": 1, "b": 3}
    context = {"x": 1, "y": 2}
    assert store.harvest(nb) == {"metrics": merged, "history": [{"epoch": 0}], "context": context, "claims": [claim]}


def test_claims_are_the_metrics_of_a_notebook_that_reports_none():
    shown = [{"id": "one", "measured": 5.0}, {"id": "two", "measured": None}, {"id": "three", "measured": "nan"}]
    harvest = store.harvest(notebook(*({claims.MIME: claim} for claim in shown)))
    assert harvest["metrics"] == {"one": 5.0}
    assert harvest["claims"] == shown
    rows = {records.MIME: {"metrics": {}, "history": [], "context": {"rows": []}, "note": ""}}
    assert store.harvest(notebook({claims.MIME: shown[0]}, rows))["metrics"] == {"one": 5.0}, "a report without metrics"


def test_the_code_of_a_run(clone):
    """It follows the cells of code and the package they import; text and outputs do not matter."""
    path = clone / "notebooks" / "13_small.ipynb"
    before = store.code_of(path, clone)
    nb = nbformat.read(path, 4)
    nb.cells.append(nbformat.v4.new_markdown_cell("a remark"))
    nbformat.write(nb, path)
    assert store.code_of(path, clone) == before
    nb.cells[2].source += "\npass"
    nbformat.write(nb, path)
    changed = store.code_of(path, clone)
    assert changed != before
    package = clone / "nbs_lib"
    package.mkdir()
    for name in ("__init__", "records", "unused"):
        (package / f"{name}.py").write_text("")
    with_package = store.code_of(path, clone)
    assert with_package != changed
    (package / "unused.py").write_text("1")
    (clone / "requirements.txt").write_text("numpy==2\n")
    assert store.code_of(path, clone) == with_package
    (package / "records.py").write_text("1")
    assert store.code_of(path, clone) != with_package


def test_the_copy_of_the_code_replaces_older_ones(clone, tmp_path):
    source = clone / "notebooks" / "13_small.ipynb"
    first = store.snapshot(tmp_path / "s", source, clone, "1" * 64)
    second = store.snapshot(tmp_path / "s", source, clone, "2" * 64)
    assert second == store.snapshot(tmp_path / "s", source, clone, "2" * 64)
    assert not first.exists()
    assert (second / "nbs_lib" / "records.py").is_file()
    assert (second / "13_small.ipynb").read_bytes() == source.read_bytes()
    assert not list(second.rglob("__pycache__"))
