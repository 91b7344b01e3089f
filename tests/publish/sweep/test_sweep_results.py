"""Results of a sweep: tables, intervals, figures and the published file, on records whose numbers are known."""

import dataclasses
import itertools
import math
import shutil
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import PIL.Image
import pytest

from nbs_lib import cli
from nbs_lib.publish import notebooks
from nbs_lib.publish.sweep import figures, plan, published, store, table
from nbs_lib.publish.sweep.store import SweepError

ROOT = Path(__file__).parents[3]
DESCRIPTION = """\
title: Does it depend on lr?
notebook: 13_small
grid: {scale: [quick, paper], lr: [10.0, 0.5, 2.0]}
seeds: 3
"""


def accuracy(scale: str, lr: float, seed: int) -> float:
    return 0.5 + (0.25 if scale == "paper" else 0.0) + lr / 100 + seed / 1000


def record_of(point: plan.Point, /, **changes) -> dict:
    values = point.parameters
    return {
        "format": 1,
        "sweep": "demo",
        "key": point.key,
        "notebook": "13_small",
        "parameters": values,
        "varied": point.varied,
        "seed": point.seed,
        "status": "finished",
        "metrics": {"accuracy": accuracy(values["scale"], values["lr"], values["seed"]), "class_margin": 90.0},
        "history": [],
        "claims": [],
        "context": {},
        "error": None,
        "attempts": 1,
        "commit": "0123456789abcdef",
        "dirty": False,
        "code": "",
        "versions": {
            "python": "3.11.7",
            "torch": "2.14.1",
            "torchvision": "0.29.1",
            "numpy": "2.4.6",
            "nbs_lib": "0.1.0",
        },
        "hardware": "a processor",
        "device": "cpu",
        "threads": 1,
        "started": "2026-11-30T20:00:00+00:00",
        "wall_time": 12.34,
        **changes,
    }


class Store:
    """A clone with a described sweep of 18 runs; `put` writes their records, with changes for some."""

    def __init__(self, root: Path):
        self.root = root
        self.folder = root / "out" / "sweeps" / "demo"
        self.points = plan.read(root / "book" / "sweeps" / "demo.yaml").points
        self.code = store.code_of(root / "notebooks" / "13_small.ipynb", root)

    def put(self, *numbers: int, **changes) -> None:
        for number in numbers or range(len(self.points)):
            store.write(self.folder, record_of(self.points[number], **{"code": self.code, **changes}))

    def drop(self, number: int) -> None:
        store.record_path(self.folder, self.points[number].key).unlink()


@pytest.fixture
def demo(tmp_path, monkeypatch, make_notebook) -> Store:
    (tmp_path / "book" / "sweeps").mkdir(parents=True)
    shutil.copytree(ROOT / "book" / "paper_tables", tmp_path / "book" / "paper_tables")
    (tmp_path / "book" / "sweeps" / "demo.yaml").write_text(DESCRIPTION)
    notebooks.write(make_notebook("print(lr)"), tmp_path / "notebooks" / "13_small.ipynb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return Store(tmp_path)


def nbs(*arguments: str) -> int:
    with pytest.raises(SystemExit) as status:
        cli.app(["results", *arguments])
    return status.value.code


def exact_interval(values: list[float]) -> tuple[float, float]:
    """Percentiles of the bootstrap's own distribution, every one of the n^n samples counted once."""
    means = sorted(statistics.fmean(sample) for sample in itertools.product(values, repeat=len(values)))
    return means[math.floor(0.025 * len(means))], means[math.ceil(0.975 * len(means)) - 1]


# --- intervals and summaries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], [0.3, -1.0, 7.5, 2.0], [3.0, 1.0, 4.0, 1.5, 9.0]])
def test_the_interval_is_that_of_all_samples(values):
    low, high = table.interval(values)
    exact_low, exact_high = exact_interval(values)
    spread = max(values) - min(values)
    assert low == pytest.approx(exact_low, abs=0.03 * spread)
    assert high == pytest.approx(exact_high, abs=0.03 * spread)
    assert (low, high) == table.interval(values), "the same values, the same interval"


def test_of_many_values_it_is_the_normal_one():
    values = np.random.default_rng(1).normal(5, 2, size=400)
    half = 1.96 * values.std() / math.sqrt(400)
    assert table.interval(values) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


def test_two_values_have_no_interval():
    assert all(math.isnan(end) for end in table.interval([1.0, 2.0]))


def test_summary_by_hand():
    runs = pd.DataFrame({"lr": [3.0, 2.0, 3.0, 3.0, None], "x": [1.0, 5.0, 2.0, 6.0, 7.0]})
    numbers = table.summary(runs, ["lr"], ["x"])
    assert numbers["mean"].tolist() == [3.0, 5.0, 7.0], "in order of appearance"
    assert numbers["std"].iloc[0] == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert math.isnan(numbers["std"].iloc[1])
    assert numbers["count"].tolist() == [3, 1, 1]
    assert numbers.loc[0, ["low", "high"]].tolist() == [1.0, 6.0]
    assert "–" in table.summary_text(numbers, ["lr"], 80), "a parameter without a value"


def test_a_run_without_a_value_is_not_counted():
    runs = pd.DataFrame({"lr": [1.0] * 4, "x": [1.0, math.nan, 3.0, math.nan], "y": [1.0] * 4})
    numbers = table.summary(runs, ["lr"], ["y", "x"])
    assert numbers["count"].tolist() == [4, 2]
    assert numbers["mean"].tolist() == [1.0, 2.0]
    assert "2.000 ± 1.414 (2 runs)" in table.summary_text(numbers, ["lr"], 120)


def test_parameters_walked_together_are_no_blocks_of_their_own():
    runs = pd.DataFrame({"loss": ["ce", "ce", "lm", "lm"], "s": [0, 0, 5, 5], "lr": [1, 2, 1, 2], "wd": [1, 2, 1, 2]})
    assert table.left_free(runs, ["loss", "lr"], ["loss", "s", "lr", "wd"]) == []
    assert table.left_free(runs, ["loss"], ["loss", "s", "lr", "wd"]) == ["lr", "wd"]


# --- what is there, what is not ------------------------------------------------------------------------------------


def test_one_row_a_run_in_csv_and_parquet(demo, capsys):
    demo.put()
    demo.put(4, status="failed", metrics={}, error={"cell": 5, "name": "ValueError", "message": "no\nmore"})
    assert nbs("demo") == 0
    runs = pd.read_csv(demo.folder / "table.csv")
    assert len(runs) == 18
    assert runs.columns[:7].tolist() == ["scale", "lr", "seed", "status", "stale", "accuracy", "class_margin"]
    assert (runs["scale"].tolist(), runs["lr"].tolist()[::3]) == (["quick"] * 9 + ["paper"] * 9, [10.0, 0.5, 2.0] * 2)
    for _, run in runs[runs["status"] == "finished"].iterrows():
        assert run["accuracy"] == pytest.approx(accuracy(run["scale"], run["lr"], run["seed"]))
    assert runs["error"].dropna().tolist() == ["cell 5: ValueError: no"]
    parquet = pd.read_parquet(demo.folder / "table.parquet")
    pd.testing.assert_frame_equal(parquet.drop(columns="error"), runs.drop(columns="error"), check_dtype=False)
    assert pd.read_csv(demo.folder / "summary.csv")["count"].tolist() == [3, 3, 2, 2, *[3] * 8]
    out = capsys.readouterr().out
    assert "demo: Does it depend on lr?\n18 runs: 17 finished, 1 failed\n" in out
    assert "failed: scale = quick, lr = 0.5, seed = 1: cell 5: ValueError: no" in out
    assert "0.6010 ± 0.0010 [0.6000, 0.6020]" in out
    assert "no interval below 3 runs" in out


def test_missing_stale_foreign_and_damaged_runs_are_counted_and_left_out(demo, capsys):
    demo.put()
    demo.drop(17)
    demo.put(0, 1, code="older", metrics={"accuracy": 0.0})
    foreign = record_of(demo.points[2], code=demo.code, key="f" * 16)
    store.write(demo.folder, foreign)
    (demo.folder / "runs" / "0000.json").write_text("{")
    assert nbs("demo") == 0
    out = capsys.readouterr().out
    assert "17 runs: 17 finished (2 of them stale); 1 missing;" in out
    assert "0000.json: is no JSON; left out; 1 left out that the description has no more" in out
    assert "2 finished runs are stale (made by other code than today's): left out; --stale keep counts them in" in out
    assert pd.read_csv(demo.folder / "summary.csv")["mean"].iloc[0] == pytest.approx(0.602), "of the run that is left"
    assert nbs("demo", "--stale", "keep") == 0
    assert pd.read_csv(demo.folder / "summary.csv")["mean"].iloc[0] == pytest.approx(0.602 / 3)


def test_editing_the_notebook_makes_every_run_stale(demo, capsys, make_notebook):
    demo.put()
    notebooks.write(make_notebook("print(2 * lr)"), demo.root / "notebooks" / "13_small.ipynb")
    assert nbs("demo") == 1
    shown = capsys.readouterr()
    assert "18 finished (18 of them stale)" in shown.out
    assert "error: sweep demo has no finished run of today's code: --stale keep shows the stale ones" in shown.err


def test_runs_without_a_description_are_shown_and_not_published(demo, capsys):
    demo.put()
    (demo.root / "book" / "sweeps" / "demo.yaml").unlink()
    assert nbs("demo", "--publish") == 1
    shown = capsys.readouterr()
    assert "what is missing cannot be told without a description" in shown.out
    assert "an unknown number missing" in shown.err
    runs = pd.read_csv(demo.folder / "table.csv")
    assert runs["lr"].tolist()[::3] == [0.5, 2.0, 10.0] * 2, "numbers in order"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["demmo"], "no sweep demmo; did you mean demo?"),
        (["xyz"], "no sweep xyz; there are: demo"),
        (["demo", "--measure", "acuracy"], "no measure acuracy; did you mean accuracy?"),
        (["demo", "--by", "lrr"], "no varied parameter lrr; did you mean lr?"),
        (["demo", "--by", "flag"], "no varied parameter flag; there are: scale, lr"),
        (["demo", "--by", "lr", "lr"], "--by takes one or two different parameters, got lr lr"),
        (["demo", "--where", "lr"], "--where takes NAME=VALUE, got lr"),
        (["demo", "--where", "lr=11"], "no run with lr = 11; there are: 10, 0.5, 2"),
        (["demo", "--by", "scale", "--png", "x.png"], "scale is no number, so there is no curve over it"),
        (["demo", "--publish", "--nearest", "table6", "MNIST"], "no table of a paper table6; did you mean"),
        (["demo", "--publish", "--nearest", "margins_table6", "Imbalanced CIFAR"], "did you mean Imbalanced CIFAR-10"),
        (["demo", "--by", "lr", "--png", "x.pdf"], "x.pdf: the figure is a PNG"),
        (["demo", "--by", "lr", "--png", "notebooks/13_small.ipynb/x.png"], "cannot write notebooks/13_small.ipynb/x"),
    ],
)
def test_mistakes_are_one_line(demo, capsys, arguments, says):
    demo.put()
    assert nbs(*arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert says in error
    assert not list(demo.root.glob("**/*.png"))


def test_a_sweep_that_never_ran(demo, capsys):
    assert nbs("demo") == 1
    assert "sweep demo has no runs in" in capsys.readouterr().err


# --- two parameters, and figures -----------------------------------------------------------------------------------


def test_pivot_of_any_two_parameters(demo, capsys):
    demo.put()
    demo.put(6, 7, 8, status="failed", metrics={})
    assert nbs("demo", "--by", "scale", "lr") == 0
    out = capsys.readouterr().out
    lines = out[out.index("accuracy\n") :].splitlines()
    assert lines[1].split() == ["scale", "\\", "lr", "0.5", "2", "10"]
    assert lines[2] == "quick       0.5060 ± 0.0010  –                0.6010 ± 0.0010"
    assert lines[3] == "paper       0.7560 ± 0.0010  0.7710 ± 0.0010  0.8510 ± 0.0010"
    assert lines[4] == "mean ± standard deviation over 3 runs (seeds)", "no brackets where there are none"


def test_what_is_not_named_is_never_averaged_over(demo, capsys):
    (demo.root / "book" / "sweeps" / "demo.yaml").write_text(
        DESCRIPTION.replace("scale:", "flag: [true, false], scale:")
    )
    demo = Store(demo.root)
    demo.put()
    assert nbs("demo", "--by", "scale", "lr") == 0
    out = capsys.readouterr().out
    assert "flag = True\n" in out
    assert "flag = False\n" in out
    assert nbs("demo", "--by", "scale", "lr", "--where", "flag=True") == 0
    assert "flag = " not in capsys.readouterr().out.replace("flag = True, ", "")


def drawn(path: Path) -> np.ndarray:
    with PIL.Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def test_figures_are_written_and_differ_with_the_numbers(demo):
    demo.put()
    assert nbs("demo", "--by", "scale", "lr", "--png", "out/heat.png") == 0
    assert nbs("demo", "--by", "lr", "--png", "out/curve.png", "--measure", "accuracy") == 0
    first = {path.name: path.read_bytes() for path in (demo.root / "out").glob("*.png")}
    assert set(first) == {"heat.png", "curve.png"}
    assert drawn(demo.root / "out" / "heat.png").std() > 20
    assert nbs("demo", "--png", "out/heat.png") == 0, "two varied parameters need no --by"
    assert (demo.root / "out" / "heat.png").read_bytes() == first["heat.png"], "the same numbers, the same bytes"
    demo.put(0, metrics={"accuracy": 0.1})
    assert nbs("demo", "--by", "scale", "lr", "--png", "out/heat.png") == 0
    assert (demo.root / "out" / "heat.png").read_bytes() != first["heat.png"]


def summary_of(**columns) -> pd.DataFrame:
    frame = pd.DataFrame(columns)
    frame["x"] = np.arange(len(frame), dtype=float)
    return table.summary(pd.concat([frame, frame]), list(columns), ["x"])


def texts_of(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_the_heat_map_writes_its_values():
    numbers = summary_of(a=["p", "p", "q", "q"], b=[1.0, 2.0, 1.0, 2.0])
    figure = figures.heat_map(numbers, ("a", "b"))
    assert texts_of(figure) == [f"{mean}.000 ± 0.000" for mean in range(4)]
    figure = figures.heat_map(numbers.drop(index=1), ("a", "b"))
    assert texts_of(figure)[1] == "–"
    with pytest.raises(SweepError, match="nothing to draw"):
        figures.heat_map(numbers.assign(mean=math.nan), ("a", "b"))


def test_bands_are_the_intervals_and_few_runs_have_none():
    runs = pd.DataFrame({"loss": ["ce"] * 6 + ["mine"] * 2, "lr": [1.0] * 3 + [20.0] * 3 + [1.0, 20.0]})
    runs["x"] = [1.0, 2.0, 6.0, 2.0, 2.0, 5.0, 3.0, 4.0]
    figure = figures.curves(table.summary(runs, ["loss", "lr"], ["x"]), "lr")
    (ax,) = figure.axes
    assert ax.lines[0].get_ydata().tolist() == [3.0, 3.0]
    band = ax.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1.0, 6.0)
    assert "band: 95 % bootstrap interval where there are three" in ax.get_title()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["softmax CE", "mine"]
    assert ax.get_xscale() == "log"


@pytest.mark.parametrize("draw", [figures.curves, lambda numbers, x: figures.heat_map(numbers, ("c", x))])
def test_too_much_for_one_figure_is_refused(draw):
    numbers = summary_of(a=[0.0] * 21, b=list(range(21)), c=["x"] * 21)
    with pytest.raises(SweepError, match=r"21 (curves|heat maps), one for each value of the other parameters"):
        draw(numbers, "a")


# --- book/results --------------------------------------------------------------------------------------------------


def published_rows(root: Path) -> pd.DataFrame:
    return pd.read_csv(root / "book" / "results" / "demo.csv", keep_default_na=False)


def test_published_rows_have_parameters_metrics_and_provenance_and_no_paths(demo, capsys):
    demo.put()
    assert nbs("demo", "--publish", "--nearest", "margins_table6", "Imbalanced CIFAR-10") == 0
    rows = published_rows(demo.root)
    assert rows.columns.tolist() == [
        *("scale", "lr", "flag", "seed", "status", "accuracy", "class_margin", "wall_time"),
        *published.PROVENANCE,
        "nearest",
    ]
    assert rows["seed"].tolist() == [0, 1, 2] * 6
    assert rows["nearest"].unique().tolist() == ["margins_table6: Imbalanced CIFAR-10"]
    first = rows.iloc[0]
    assert (first["date"], first["commit"], first["wall_time"]) == ("2026-11-30T20:00:00Z", "0123456789ab", 12.3)
    assert first["code"] == demo.code[:12]
    assert str(demo.root) not in (demo.root / "book" / "results" / "demo.csv").read_text()
    before = (demo.root / "book" / "results" / "demo.csv").read_bytes()
    demo.put(3, dirty=True)
    assert nbs("demo", "--publish", "--nearest", "margins_table6", "Imbalanced CIFAR-10") == 0
    changed = [a != b for a, b in zip(before.split(b"\n"), demo_lines(demo), strict=True)]
    assert changed.count(True) == 1, "one run made again changes one line"
    assert "0123456789ab+changes" in demo_lines(demo)[4].decode()


def demo_lines(demo: Store) -> list[bytes]:
    return (demo.root / "book" / "results" / "demo.csv").read_bytes().split(b"\n")


def test_publishing_refuses_what_is_not_complete_and_says_how_much_that_is(demo, capsys):
    demo.put()
    demo.drop(17)
    demo.drop(16)
    demo.put(0, status="timeout", metrics={})
    demo.put(1, 2, 3, code="older")
    assert nbs("demo", "--publish") == 1
    error = capsys.readouterr().err
    assert "demo.csv is not written: 2 missing, 1 failed, 3 stale. Run `nbs sweep demo` first" in error
    assert "--incomplete; --stale keep publishes stale runs too" in error
    assert not (demo.root / "book" / "results").exists()
    assert nbs("demo", "--publish", "--incomplete") == 0
    assert len(published_rows(demo.root)) == 12
    assert "12 rows; 2 missing, 1 failed, 3 stale" in capsys.readouterr().out
    assert nbs("demo", "--publish", "--incomplete", "--stale", "keep") == 0
    assert set(published_rows(demo.root)["code"]) == {"older", demo.code[:12]}


def test_the_workbench_publishes_the_columns_of_a_run(demo):
    """What a run reports as its configuration goes before what it was given: a loss knows its usual scale."""
    from nbs_lib.run import Record, RunConfig, environment

    config = RunConfig(loss="normface", scale=10.0, clip=None)
    varied = {"loss": "normface", "scale_s": 0.0}
    parameters = {**varied, "clip": 0.0, "results": "out.csv"}
    changes = {"varied": varied, "parameters": parameters, "context": {"config": config.cells()}}
    cells = published._row(record_of(demo.points[0], notebook="90_workbench", **changes))
    row = Record(config, {"accuracy": 0.5, "class_margin": 90.0}, [], environment(), 1.0).row()
    assert [name for name in cells if name not in ("nbs_lib", "commit")] == list(row)
    assert (cells["scale"], cells["clip"], cells["margin"], cells["bias"]) == ("10.0", "", "", "False")
    typed = published.parameters_of(cells)
    assert {name: typed.get(name) for name in ("loss", "scale_s", "margin_m", "clip", "bias")} == {
        "loss": "normface",
        "scale_s": "10.0",
        "margin_m": None,
        "clip": "0",
        "bias": "false",
    }


def test_every_field_of_a_run_has_a_parameter_of_the_workbench():
    from nbs_lib.run import RunConfig

    fields = [field.name for field in dataclasses.fields(RunConfig)]
    assert list(published.FIELDS) == fields
    workbench = notebooks.parameter_defaults(notebooks.read(ROOT / "notebooks" / "90_workbench.ipynb"))
    assert {*published.FIELDS.values()} - {*workbench} <= {"mixup"}
    assert {*workbench} - {*published.FIELDS.values()} == {"results", "checkpoint"}


def test_a_published_file_is_read_as_recorded_runs_are(demo, monkeypatch):
    """The rows of `run_all` and those of a sweep go through the same functions."""
    from nbs_lib import provenance
    from nbs_lib.publish import results
    from nbs_lib.run import RunConfig

    for number, scale in enumerate((10.0, 20.0)):
        for seed in (0, 1):
            config = RunConfig(loss="normface", scale=scale, seed=seed).cells()
            metrics = {"accuracy": 0.9 + seed / 10, "class_margin": 80.0, "mean_sample_margin": 0.5}
            demo.put(3 * number + seed, context={"config": config}, metrics=metrics)
    assert nbs("demo", "--publish", "--incomplete") == 0
    monkeypatch.setattr(results, "book_folder", lambda: demo.root / "book")
    table_ = results.by_method(results.recorded("demo"))
    assert table_.index.tolist() == ["NormFace (s = 10)", "NormFace (s = 20)"]
    assert table_["accuracy"].tolist() == pytest.approx([95.0, 95.0])
    assert table_["seeds"].tolist() == [2, 2]
    assert len(provenance.read_table(demo.root / "book" / "results" / "demo.csv")) == 4


def test_a_private_path_stays_private(demo, capsys):
    point = demo.points[0]
    values = {
        **point.parameters,
        "dataset": "folder:/home/me/faces",
        "results": "/home/me/x.csv",
        "file": "/home/me/a.txt",
    }
    cells = published.configuration(record_of(point, parameters=values))
    assert cells["dataset"].startswith("folder:faces#")
    assert "results" not in cells
    assert cells["file"] == "a.txt"
    from nbs_lib.run import RunConfig

    assert cells["dataset"] == RunConfig(dataset="folder:/home/me/faces").cells()["dataset"]


def test_a_varied_parameter_goes_before_a_column_of_the_same_name():
    point = plan.Point("k", {"threads": 2, "scale": "quick", "lr": 1.0, "seed": 0}, {"threads": 2}, 0)
    record = record_of(point, metrics={"python": 1.0})
    rows = table.tidy(table.Sweep("s", Path("."), [record]))
    assert rows.loc[0, "threads"] == 2, "the parameter, not the threads the run was given"
    assert rows.loc[0, "python_measured"] == 1.0
    assert rows.loc[0, "python"] == "3.11.7"


def test_values_that_differ_do_not_look_alike():
    assert table.shown(10.0) == "10"
    assert table.shown(0.1) != table.shown(0.1000001)


def test_a_table_of_another_kind_is_not_overwritten(demo, capsys):
    demo.put()
    other = demo.root / "book" / "results" / "demo.csv"
    other.parent.mkdir()
    other.write_text("points,angle\n4,109.47\n")
    assert nbs("demo", "--publish") == 1
    assert "demo.csv is no table of runs, and is not overwritten" in capsys.readouterr().err
    assert other.read_text() == "points,angle\n4,109.47\n"
