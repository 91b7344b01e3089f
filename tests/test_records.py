"""Records left in a notebook's output: complete, plain JSON, readable, and refused when they could not be stored."""

import json
import math

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

from nbs_lib import records

RUN = {
    "metrics": {"accuracy": 0.86254321, "ece": math.nan, "epochs": 6},
    "history": [{"epoch": 0, "loss": 2.3, "class_margin": math.inf}, {"epoch": 1, "loss": 1.9}],
    "context": {"class_counts": (1000, 10), "dataset": "fashion_mini"},
    "note": "two epochs",
}


def reported(**run):
    """What a notebook's cell would hold: the bundle, taken on its way to the front end."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("IPython.get_ipython", lambda: "a notebook")
        patch.setattr("IPython.display.display", lambda bundle, raw: seen.append(bundle))
        records.report(run.pop("metrics"), **run)
    return seen[0]


def test_the_record_is_complete_and_strict_json():
    bundle = reported(**RUN)
    stored = json.loads(json.dumps(bundle[records.MIME], allow_nan=False))
    assert stored == {
        "metrics": {"accuracy": 0.86254321, "ece": None, "epochs": 6},
        "history": [{"epoch": 0, "loss": 2.3, "class_margin": None}, {"epoch": 1, "loss": 1.9}],
        "context": {"class_counts": [1000, 10], "dataset": "fashion_mini"},
        "note": "two epochs",
    }


def test_what_is_left_out_is_empty():
    assert reported(metrics={"a": 1.0})[records.MIME] == {
        "metrics": {"a": 1.0}, "history": [], "context": {}, "note": ""
    }  # fmt: skip


def test_numbers_of_numpy_and_torch():
    metrics = {"a": np.float32(0.5), "b": torch.tensor(2), "c": np.int64(3), "d": torch.tensor(0.25).double()}
    context = {"counts": torch.tensor([1, 2]), "rows": np.array([[0.5, np.nan]])}
    stored = reported(metrics=metrics, context=context)[records.MIME]
    assert stored["metrics"] == {"a": 0.5, "b": 2, "c": 3, "d": 0.25}
    assert stored["context"] == {"counts": [1, 2], "rows": [[0.5, None]]}


def test_text_and_table_for_the_reader():
    bundle = reported(metrics={"accuracy": 0.862543, "ece": math.nan, "<b>": 3}, note="a < b")
    assert bundle["text/plain"] == "accuracy  0.8625\nece       –\n<b>       3\na < b"
    assert bundle["text/html"].count("<tr>") == 3
    assert "&lt;b&gt;" in bundle["text/html"]
    assert "<caption>a &lt; b</caption>" in bundle["text/html"]


def test_outside_a_notebook_the_text_is_printed(capsys):
    assert records.report({"accuracy": 0.5}) is None
    assert capsys.readouterr().out == "accuracy  0.5\n"


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ({"metrics": {"acc": "0.5"}}, r"metrics\['acc'\] must be one number, got '0.5'"),
        ({"metrics": {"acc": True}}, r"metrics\['acc'\] must be one number, got True"),
        ({"metrics": {"acc": torch.zeros(2)}}, r"metrics\['acc'\] must be one number"),
        ({"metrics": {"acc": object()}}, r"metrics\['acc'\] cannot be stored as JSON"),
        ({"metrics": {}, "history": [{"loss": {1, 2}}]}, r"history\[0\]\['loss'\] cannot be stored as JSON: \{1, 2\}"),
        ({"metrics": {}, "context": {"path": [b"x"]}}, r"context\['path'\]\[0\] cannot be stored .* \(bytes\)"),
    ],
)
def test_what_cannot_be_stored_is_named(run, says):
    with pytest.raises(TypeError, match=says):
        records.report(run.pop("metrics"), **run)


def test_a_kernel_stores_it_in_the_cell(tmp_path):
    """Through a real kernel: the MIME type survives, and nothing is shown twice."""
    source = "from nbs_lib import records\nrecords.report({'accuracy': 0.5}, history=[{'epoch': 0}])"
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(nb, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    (output,) = nb.cells[0].outputs
    assert output.data[records.MIME]["metrics"] == {"accuracy": 0.5}
    assert output.data[records.MIME]["history"] == [{"epoch": 0}]


def test_a_whole_number_beyond_the_reals_has_no_value(capsys):
    records.report({"b": 10**400})
    assert capsys.readouterr().out.split() == ["b", "–"]
