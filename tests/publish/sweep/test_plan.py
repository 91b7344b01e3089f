"""Descriptions of sweeps: what they multiply out to, and what is told of those that are wrong."""

import re
from pathlib import Path

import pytest

from nbs_lib.publish.notebooks import NotebookError
from nbs_lib.publish.sweep import plan
from nbs_lib.publish.sweep.store import SweepError

DEFAULTS = {"act": "report", "lr": 1.0, "scales": [1.0], "pause": 0.0, "log": "", "seed": 0}


def test_grid_zip_and_seeds_multiply(describe):
    made = plan.read(
        describe(
            "fixed: {log: a}\ngrid: {lr: [0.5, 1.0]}\n"
            "zip: [{act: [report, raise], pause: [0.0, 2.0]}, {scales: [[1.0], [2.0, 3.0], [4.0]]}]\nseeds: [3, 5]\n"
        )
    )
    assert len(made.points) == 2 * 2 * 3 * 2
    assert len({point.key for point in made.points}) == 24
    assert made.points[0].parameters == {**DEFAULTS, "log": "a", "lr": 0.5, "seed": 3}
    assert made.points[0].varied == {"lr": 0.5, "act": "report", "pause": 0.0, "scales": [1.0]}
    assert [point.seed for point in made.points[:3]] == [3, 5, 3]
    pairs = {(point.parameters["act"], point.parameters["pause"]) for point in made.points}
    assert pairs == {("report", 0.0), ("raise", 2.0)}
    assert made.title == "a test"
    assert made.notebook.stem == "13_small"


def test_seeds_as_a_count_and_none_at_all(describe):
    assert [point.seed for point in plan.read(describe("seeds: 3\n")).points] == [0, 1, 2]
    (point,) = plan.read(describe("")).points
    assert point.parameters == DEFAULTS
    assert (point.varied, point.seed) == ({}, 0)


def test_exclusions_drop_what_matches_all_values(describe):
    text = "grid: {lr: [0.5, 1.0], pause: [0.0, 1.0]}\nseeds: 2\nexclude: [{lr: 0.5, pause: 1.0}, {lr: 1.0, seed: 1}]\n"
    left = [(p.parameters["lr"], p.parameters["pause"], p.seed) for p in plan.read(describe(text)).points]
    assert left == [(0.5, 0.0, 0), (0.5, 0.0, 1), (1.0, 0.0, 0), (1.0, 1.0, 0)]


def test_keys_follow_from_all_parameters(describe):
    """The same run has the same key however it is written; another default is another run."""
    (plain,) = plan.read(describe("")).points
    (spelt,) = plan.read(describe("fixed: {lr: 1.0, act: report}\n")).points
    (other,) = plan.read(describe("fixed: {lr: 2.0}\n")).points
    assert plain.key == spelt.key != other.key
    assert re.fullmatch("[0-9a-f]{16}", plain.key)
    # sha256 of {"notebook":"n","parameters":{"a":1,"b":"x"}}, computed with sha256sum
    assert plan.key("n", {"b": "x", "a": 1}) == "09861400b62d40c2"


def test_resources(describe):
    made = plan.read(describe("resources: {threads: 2, gpus: 0.5, memory_gb: 1, minutes: 0.5}\n"))
    assert made.resources.model_dump() == {"threads": 2, "gpus": 0.5, "memory_gb": 1.0, "minutes": 0.5}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("gird: {lr: [1.0]}", 3, "gird: no such key; did you mean grid?"),
        ("resources: {thread: 2}", 3, "resources.thread: no such key; did you mean threads?"),
        ("resources:\n  threads: 0", 4, "resources.threads: expected greater than or equal to 1, got 0"),
        ("resources: {gpus: 1.5}", 3, "resources.gpus: more than one GPU must be a whole number, got 1.5"),
        ("resources: {minutes: -1}", 3, "resources.minutes: expected greater than 0, got -1"),
        ("fixed: {lrr: 1.0}", 3, "fixed.lrr: no such parameter; did you mean lr?"),
        ("grid:\n  lr: [1.0]\n  sede: [1, 2]", 5, "grid.sede: no such parameter; did you mean seed?"),
        ("zip:\n- act: [raise]\n  lrr: [1.0]", 5, "zip[0].lrr: no such parameter; did you mean lr?"),
        ("fixed: {lr: fast}", 3, "fixed.lr: expected a real number, got 'fast' (str)"),
        ("fixed: {lr: 1e-3}", 3, "YAML reads 1e-3 as text: write 0.001"),
        ("fixed: {lr: 11.0}", 3, "fixed.lr: expected at most 10.0, got 11.0"),
        ("grid:\n  lr:\n  - 1.0\n  - true", 6, "grid.lr[1]: expected a real number, got True (bool)"),
        ("grid: {act: [report, rase]}", 3, "grid.act[1]: expected one of 'report'"),
        ("grid: {scales: [1.0]}", 3, "grid.scales[0]: expected a list of a real number, got 1.0 (float)"),
        ("grid: {lr: 1.0}", 3, "grid.lr: expected a valid list, got 1.0"),
        ("grid: {}", 3, "grid: is empty: name a parameter, or leave the key out"),
        ("grid: {lr: []}", 3, "grid.lr: is empty: it makes no point"),
        ("zip: [{}]", 3, "zip[0]: is empty: it makes no point"),
        ("seeds: []", 3, "seeds: is empty: it makes no point"),
        ("seeds: 0", 3, "seeds: is empty: it makes no point"),
        ("seeds: [0, one]", 3, "seeds: expected a count, or a list of whole numbers"),
        ("seeds: [0, -1]", 3, "seeds[1]: expected at least 0, got -1"),
        ("zip: [{lr: [1.0, 2.0], act: [raise]}]", 3, "zip[0]: the lists must be equally long: lr has 2, act has 1"),
        ("grid: {lr: [1.0, 2.0, 1.0]}", 3, "grid.lr[2]: the same point twice, entries 1 and 3: lr = 1.0"),
        ("seeds: [4, 4]", 3, "seeds[1]: the same point twice, entries 1 and 2: seed = 4"),
        ("zip: [{lr: [1.0, 1.0], act: [raise, raise]}]", 3, "zip[0]: the same point twice, entries 1 and 2: lr = 1.0"),
        ("fixed: {lr: 1.0}\ngrid: {lr: [2.0]}", 4, "grid.lr[0]: lr is given more than once"),
        ("grid: {seed: [2]}\nseeds: 2", 4, "seeds[1]: seed is given more than once"),
        ("grid: {lr: [1.0]}\ngrid: {lr: [2.0]}", 3, "grid: is there twice, and again in line 4"),
        ("grid: {lr: [1.0]}\nexclude: [{lr: 2.0}]", 4, "exclude[0]: no point has these values"),
        ("grid: {lr: [1.0]}\nexclude: [{lr: 1.0}]", 4, "exclude: leaves no point"),
        ("grid: {lr: [1.0]}\nexclude: [{pause: 1.0}]", 4, "exclude[0].pause: pause does not vary in this sweep"),
        ("grid: {lr: [1.0]}\nexclude: [{}]", 4, "exclude[0]: is empty: it would drop every point"),
        ("seeds: 1000000000000", 1, "points, more than 100,000"),
        ("grid: {lr: [0.0, -0.0]}", 3, "grid.lr[1]: the same point twice"),
        ("resources: {gpus: .inf}", 3, "resources.gpus: more than one GPU must be a whole number"),
        ("seeds: 100001", 1, "makes 100,001 points, more than 100,000"),
    ],
)
def test_mistakes_are_named_with_file_line_and_key(describe, text, line, says):
    file = describe(text + "\n")
    with pytest.raises(SweepError) as error:
        plan.read(file)
    head, problem = str(error.value).splitlines()
    assert head == f"{file}: 1 problem"
    assert problem.startswith(f"  - line {line}: ")
    assert says in problem


def test_all_mistakes_at_once_in_the_order_of_the_file(clone, describe):
    file = describe("grid:\n  rl: [1.0]\n  lr: [fast]\nseeds: x\nresources: {gpu: 1}\n")
    with pytest.raises(SweepError, match="4 problems") as error:
        plan.read(file)
    assert re.findall(r"line (\d+): ([\w.\[\]]+):", str(error.value)) == [
        ("4", "grid.rl"),
        ("5", "grid.lr[0]"),
        ("6", "seeds"),
        ("7", "resources.gpu"),
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "must hold title, notebook, grid"),
        ("- 1", "must hold title, notebook, grid"),
        ("title: [", "while parsing"),
        ("title: " + "[" * 3000, "nested too deeply"),
        ("title: t\nnotebook: ''", "line 2: notebook: is empty"),
        ("notebook: 13", "title: is missing"),
        ("title: t", "notebook: is missing"),
        ("title: t\nnotebook: 14", "line 2: notebook: no notebook 14"),
        ("title: t\nnotebook: [13]", "line 2: notebook: expected a number, a name or a path"),
    ],
)
def test_files_that_describe_nothing(clone, content, says):
    file = clone / "x.yaml"
    file.write_text(content)
    with pytest.raises(SweepError) as error:
        plan.read(file)
    assert says in str(error.value)
    assert "x.yaml" in str(error.value)


def test_a_notebook_beside_the_description(clone, tmp_path):
    (tmp_path / "own.ipynb").write_bytes((clone / "notebooks" / "13_small.ipynb").read_bytes())
    (tmp_path / "own.yaml").write_text("title: t\nnotebook: own.ipynb\n")
    assert plan.read(tmp_path / "own.yaml").notebook == tmp_path / "own.ipynb"


def test_find(clone, describe, tmp_path):
    file = describe("")
    assert plan.find("small") == file
    assert plan.find(file) == file
    with pytest.raises(NotebookError, match=r"no sweep smal in .*; there are: small"):
        plan.find("smal")
    with pytest.raises(NotebookError, match=r"no sweep a/b\.yaml: there is no such file"):
        plan.find("a/b.yaml")


ROOT = Path(__file__).parents[3]
DESCRIPTIONS = sorted((ROOT / "book" / "sweeps").glob("*.yaml"))


@pytest.mark.parametrize("file", DESCRIPTIONS, ids=lambda file: file.stem)
def test_the_books_descriptions_are_valid(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert plan.read(file).points


def test_the_guide_shows_the_example_as_it_is():
    guide = (ROOT / "book" / "guide" / "sweep.md").read_text("utf8")
    shown = re.findall(r"^```yaml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)[0]
    assert shown == (ROOT / "book" / "sweeps" / "example_rsm.yaml").read_text("utf8")
