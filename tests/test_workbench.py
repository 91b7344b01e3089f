"""The workbench: its knobs are those of a run, raw papermill can turn them, and a run that fails says so."""

import ast
import dataclasses
from pathlib import Path

import nbformat
import papermill
import pytest
from papermill.exceptions import PapermillExecutionError

from nbs_lib import models, parameters, provenance, records, run, train
from nbs_lib.data import corrupt
from nbs_lib.publish import notebooks

ROOT = Path(__file__).parents[1]
PATH = ROOT / "notebooks" / "90_workbench.ipynb"
FAST = {"limit_per_class": 20, "epochs": 1, "batch_size": 32, "threads": 1, "device": "cpu"}
RENAMED = {
    "scale": "scale_s",
    "margin": "margin_m",
    "gamma": "focal_gamma",
    "sample_margin": "sample_margin_mu",
    "zero_centroid": "zero_centroid_lambda",
}


@pytest.fixture(scope="module")
def specs():
    return notebooks.parameter_specs(notebooks.read(PATH))


def test_every_field_of_a_run_is_a_knob(specs):
    fields = {RENAMED.get(field.name, field.name) for field in dataclasses.fields(run.RunConfig)}
    assert set(specs) == fields | {"results", "checkpoint"}


def test_every_knob_reaches_the_run():
    """The cell that makes the configuration reads each parameter once, under the name it has there."""
    source = next(c.source for c in notebooks.code_cells(notebooks.read(PATH)) if "run.RunConfig(" in c.source)
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    (made,) = [call for call in calls if ast.unparse(call.func) == "run.RunConfig"]
    (chosen,) = [call for call in calls if ast.unparse(call.func) == "run.loss_settings"]
    found = {}
    for call in (made, chosen):
        for keyword in call.keywords:
            names = [node.id for node in ast.walk(keyword.value) if isinstance(node, ast.Name)]
            if keyword.arg:
                found[keyword.arg] = names
    assert found == {f.name: [RENAMED.get(f.name, f.name)] for f in dataclasses.fields(run.RunConfig)}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("loss", tuple(run.LOSSES)),
        ("model", models.available()),
        ("optimizer", train.OPTIMIZERS),
        ("schedule", train.SCHEDULES),
        ("precision", train.PRECISIONS),
        ("imbalance", ("", *corrupt.IMBALANCES)),
        ("label_noise", ("", *corrupt.NOISES)),
        ("reweight", ("", "drw")),
        ("freeze_prototypes", ("", "simplex")),
    ],
)
def test_choices_are_those_of_the_package(specs, name, known):
    assert specs[name].kind == parameters.one_of(*known).kind


def test_defaults_are_the_quick_run():
    cells = notebooks.code_cells(notebooks.read(PATH))
    values = parameters.literal_assignments(cells[0].source)
    for name, default in dataclasses.asdict(run.quick_config()).items():
        if name not in ("scale", "margin", "gamma"):
            assert values[RENAMED.get(name, name)] == (0 if default is None else default), name


@pytest.mark.parametrize("loss", run.LOSSES)
def test_a_loss_needs_nothing_but_its_name(loss):
    config = run.RunConfig(loss=loss, **run.loss_settings(loss, scale=None, margin=None, gamma=None))
    for name in ("scale", "margin", "gamma"):
        assert (getattr(config, name) is not None) == (name in run.LOSSES[loss])
    assert run.loss_settings("ce", scale=5.0, margin=0.1) == {}
    assert run.loss_settings("cosface", scale=5.0, margin=0.0) == {"scale": 5.0, "margin": 0.0}


def execute(folder, **values):
    """Through papermill, as a user calls it, and nothing of ours."""
    with notebooks.own_kernel() as kernel:
        return papermill.execute_notebook(
            PATH, folder / "out.ipynb", {**FAST, **values}, kernel_name=kernel, progress_bar=False, cwd=folder
        )


def record_of(notebook):
    (found,) = [
        output.data[records.MIME]
        for cell in notebooks.code_cells(notebook)
        for output in cell.outputs
        if records.MIME in output.get("data", {})
    ]
    return found


@pytest.mark.slow
def test_whole_numbers_table_checkpoint_and_record(tmp_path):
    values = {"loss": "ldam", "scale_s": 20, "imbalance": "step", "imbalance_ratio": 4, "reweight": "drw", "epochs": 2}
    values |= {"reweight_from": 0.5, "results": "runs.csv", "checkpoint": "run.ckpt"}
    first = execute(tmp_path, **values)
    found = record_of(first)
    table = provenance.typed(provenance.read_table(tmp_path / "runs.csv"))
    assert table[["loss", "scale", "margin", "imbalance_ratio"]].values.tolist() == [["ldam", 20.0, 0.5, 4.0]]
    assert found["metrics"]["accuracy_few"] == pytest.approx(table.loc[0, "accuracy_few"], rel=1e-5)
    assert found["context"]["per_class"]["train_images"] == [20] * 5 + [5] * 5
    assert found["context"]["config"]["scale"] == 20.0
    assert [epoch["epoch"] for epoch in found["history"]] == [0, 1]
    again = record_of(execute(tmp_path, **values))
    assert again == found, "resumed from the checkpoint of a run that is complete"
    assert len(provenance.read_table(tmp_path / "runs.csv")) == 1


@pytest.mark.slow
def test_a_run_that_diverges_is_an_error_with_its_row_kept(tmp_path):
    with pytest.raises(PapermillExecutionError, match=r"the run diverged: .* at step .*Try a lower lr"):
        execute(tmp_path, lr=1.0e30, clip=0.0, results="runs.csv", epochs=3)
    assert provenance.read_table(tmp_path / "runs.csv")["status"].tolist() == ["diverged"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"loss": "arcfac"}, "did you mean 'arcface'"),
        ({"imbalance_ratio": 10}, "imbalance_ratio is 10.0; allowed: 1.0, because imbalance is ''"),
        ({"scale_x": 1.0}, "scale_x: no such parameter; did you mean scale_s"),
    ],
)
def test_a_wrong_knob_stops_before_the_run(tmp_path, values, says):
    with pytest.raises(PapermillExecutionError, match=says):
        execute(tmp_path, **values)
    ran = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert "run.run(config" not in "".join(c.source for c in notebooks.code_cells(ran) if c.execution_count)
