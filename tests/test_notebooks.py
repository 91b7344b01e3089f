"""Every committed notebook keeps the rules; and every rule catches the notebook that breaks it."""

from pathlib import Path

import nbformat
import notebook_rules as rules
import pytest

from nbs_lib import claims
from nbs_lib.publish import build, ledger, notebooks

ROOT = Path(__file__).parents[1]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CHAPTERS = [path for path in PATHS if path.stem[:2].isdigit() and int(path.stem[:2]) < 90]


@pytest.mark.parametrize("rule", rules.EVERY, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook(path, rule):
    assert list(rule(notebooks.read(path))) == []


@pytest.mark.parametrize("rule", rules.CHAPTER, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter(path, rule):
    assert list(rule(notebooks.read(path))) == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_claims_are_known_and_stored(path):
    nb = notebooks.read(path)
    known = {entry.id for entry in ledger.read_claims(ROOT / "book" / "claims.yml")}
    assert rules.claim_ids(nb) - known == set()


def test_ledger_adds_up():
    """What the build will say about the committed outputs, without executing anything."""
    entries = ledger.read_claims(ROOT / "book" / "claims.yml")
    found = [verdict for path in PATHS for verdict in ledger.collect(notebooks.read(path), path.stem)]
    assert set(ledger.match(entries, found, {path.stem for path in PATHS})) == {entry.id for entry in entries}


def test_every_notebook_is_in_the_book():
    listed = build.contents((ROOT / "book" / "_toc.yml").read_text("utf8"))
    assert sorted(name for name in listed if name.startswith("notebooks/")) == [f"notebooks/{p.stem}" for p in PATHS]


def good() -> nbformat.NotebookNode:
    """A notebook that keeps every rule."""
    nb = nbformat.v4.new_notebook()
    check = """
from nbs_lib import parameters

parameters.check(globals(), scale=parameters.one_of("quick", "paper"), seed=parameters.integer(0))"""
    nb.cells = [
        nbformat.v4.new_markdown_cell("# Title\n\n> **Box.** $a$ [1](https://x.org/root/a) ![a dot](dot.png)"),
        nbformat.v4.new_code_cell(
            'scale = "quick"  # str: size\nseed = 0  # int: seed', metadata={"tags": ["parameters"]}
        ),
        nbformat.v4.new_code_cell(notebooks.setup_source() + check, metadata={"tags": ["hide-input"]}),
        *(nbformat.v4.new_code_cell(f"# NBVAL_CHECK_OUTPUT\nprint({n})") for n in range(3)),
    ]
    for count, cell in enumerate(nb.cells[1:], start=1):
        cell.execution_count = count
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="1\n")] if count > 2 else []
    return notebooks.clean(nb)


def image(**metadata) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("display_data", data={"image/png": "iVBORw0KGgo="}, metadata=metadata)


def edit(cell: int, source: str):
    return lambda nb: nb.cells[cell].update(source=source)


def output(cell: int, out: nbformat.NotebookNode):
    return lambda nb: nb.cells[cell].outputs.append(out)


BROKEN = [
    (rules.one_parameters_cell_first, lambda nb: nb.cells[1].metadata.tags.clear()),
    (rules.one_parameters_cell_first, lambda nb: nb.cells[3].metadata.update(tags=["parameters"])),
    (rules.one_parameters_cell_first, lambda nb: nb.cells.insert(1, nbformat.v4.new_code_cell("1"))),
    (rules.one_parameters_cell_first, edit(1, "scale = str('quick')  # no literal")),
    (rules.one_parameters_cell_first, edit(1, "scale = 'quick'\nseed = 0  # int")),
    (rules.set_up_next, lambda nb: nb.cells.pop(2)),
    (rules.set_up_next, lambda nb: nb.cells[2].update(source="import os\n" + nb.cells[2].source)),
    (rules.set_up_next, lambda nb: nb.cells[2].update(source=notebooks.setup_source())),
    (rules.set_up_next, lambda nb: nb.cells[2].metadata.clear()),
    (rules.set_up_next, edit(1, "scale = 'quik'  # str\nseed = 0  # int")),
    (rules.set_up_next, edit(1, "scale = 'quick'  # str\nsede = 0  # int")),
    (rules.executed_in_order, lambda nb: nb.cells[3].update(execution_count=None)),
    (rules.executed_in_order, lambda nb: nb.cells[3].update(execution_count=9)),
    (rules.no_errors_or_warnings, output(3, nbformat.v4.new_output("error", ename="E", evalue="", traceback=[]))),
    (rules.no_errors_or_warnings, output(3, nbformat.v4.new_output("stream", name="stderr", text="warning"))),
    (rules.clean, lambda nb: nb.metadata.update(papermill={"duration": 1})),
    (rules.clean, lambda nb: nb.metadata.update(widgets={})),
    (rules.clean, lambda nb: nb.metadata.kernelspec.update(name="my-env")),
    (rules.clean, lambda nb: nb.cells[3].metadata.update(execution={"iopub.status.busy": "2024"})),
    (rules.no_absolute_paths, edit(3, "open('/home/me/x')")),
    (rules.no_absolute_paths, edit(3, r"open('C:\\data')")),
    (rules.no_absolute_paths, output(3, nbformat.v4.new_output("stream", text="/usr/lib/python3/x.py:3: UserWarning"))),
    (rules.no_paths_upwards, edit(3, "open('../book/results/a.csv')")),
    (rules.plain_markdown, edit(0, "# T\n\n```{note}\nx\n```")),
    (rules.plain_markdown, edit(0, "# T\n\n:::{figure} x.png\n:::")),
    (rules.plain_markdown, edit(0, "# T\n\nsee {cite}`zhou-2022`")),
    (rules.plain_markdown, edit(0, "# T\n\n(label)=\n## U")),
    (rules.plain_markdown, edit(0, "Title")),
    (rules.pictures_have_words, edit(0, "# T ![](x.png)")),
    (rules.pictures_have_words, output(3, image())),
    (rules.pictures_have_words, output(3, nbformat.v4.new_output("display_data", data={"text/html": "<img src='x'>"}))),
    (rules.short_cells, edit(3, "x = 1\n" * 21)),
    (rules.small, output(3, nbformat.v4.new_output("stream", text="x" * 800_000))),
    (rules.checked_outputs, lambda nb: nb.cells[3].update(outputs=[])),
    (rules.standard_parameters, edit(1, "scale = 'paper'  # str\nseed = 0  # int")),
]


@pytest.mark.parametrize("rule", rules.EVERY + rules.CHAPTER, ids=lambda rule: rule.__name__)
def test_good_notebook_keeps(rule):
    nb = good()
    nb.cells[3].outputs.append(image(**{"image/png": {"alt": "a dot"}}))
    assert list(rule(nb)) == []


@pytest.mark.parametrize(("rule", "spoil"), BROKEN, ids=[f"{n}-{r.__name__}" for n, (r, _) in enumerate(BROKEN)])
def test_rule_catches(rule, spoil):
    nb = good()
    spoil(nb)
    assert list(rule(nb)) != []


def test_every_rule_is_shown_to_catch_something():
    assert {rule for rule, _ in BROKEN} == set(rules.EVERY + rules.CHAPTER)


def test_claim_ids_from_code_and_output():
    nb = good()
    nb.cells[3].source = 'claims.check(\n    "zhou-a-1", holds=True)'
    bundle = claims.check("zhou-b-2", holds=True).mime_bundle()
    nb.cells[4].outputs = [nbformat.from_dict({"output_type": "display_data", "data": bundle, "metadata": {}})]
    assert rules.claim_ids(nb) == {"zhou-a-1", "zhou-b-2"}
