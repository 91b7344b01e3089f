"""Staleness: a change re-executes the notebooks that depend on it, and no others."""

from pathlib import Path

import nbformat
import pytest

from nbs_lib.publish import dependencies

FILES = {
    "__init__.py": "",
    "ground.py": "x = 1",
    "losses/__init__.py": "from nbs_lib.losses.margin import CosFace",
    "losses/margin.py": "from nbs_lib.ground import x\nCosFace = x",
    "losses/other.py": "",
    "metrics.py": "def f():\n    from nbs_lib import lazy\n    return lazy",
    "lazy.py": "import nbs_lib.deep",
    "deep.py": "import torch",
    "dynamic/__init__.py": "import importlib\n\ndef get(n):\n    importlib.import_module('.' + n, __name__)",
    "dynamic/a.py": "",
    "relative/__init__.py": "from . import near\nfrom .sub import z",
    "relative/near.py": "from ..ground import x",
    "relative/sub/__init__.py": "z = 1",
    "data/__init__.py": "",
    "claims.py": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "nbs_lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "nbs_lib" / "data" / "assets").mkdir()
    (tmp_path / "nbs_lib" / "data" / "assets" / "images.npz").write_bytes(b"123")
    (tmp_path / "requirements.txt").write_text("torch==1\n")
    (tmp_path / "book" / "results").mkdir(parents=True)
    (tmp_path / "book" / "results" / "table1.csv").write_text("a\n1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import numpy", set()),
        ("import nbs_lib", {""}),
        ("from nbs_lib import ground", {"", "ground"}),
        ("from nbs_lib import losses", {"", "losses", "losses.margin", "ground"}),
        ("from nbs_lib.losses import CosFace", {"", "losses", "losses.margin", "ground"}),
        ("import nbs_lib.losses.other as o", {"", "losses", "losses.margin", "ground", "losses.other"}),
        ("from nbs_lib import metrics", {"", "metrics", "lazy", "deep"}),
        ("from nbs_lib import dynamic", {"", "dynamic", "dynamic.a"}),
        ("from nbs_lib import relative", {"", "relative", "relative.near", "relative.sub", "ground"}),
        ("import importlib\nimportlib.import_module('nbs_lib.deep')", {"", "deep"}),
        ("def f():\n    from nbs_lib import deep", {"", "deep"}),
        ("from nbs_lib.relative import *", {"", "relative", "relative.near", "relative.sub", "ground"}),
    ],
)
def test_reached(tree, source, modules):
    expected = {f"nbs_lib.{name}".rstrip(".") for name in modules}
    assert set(dependencies.reached([source], tree)) == expected


def test_unreadable_code_reaches_everything(tree):
    assert set(dependencies.reached(["def ("], tree)) == set(dependencies.modules_of(tree))


def notebook(*sources: str, tags: list[str] | None = None) -> nbformat.NotebookNode:
    nb = nbformat.v4.new_notebook()
    metadata = {"tags": tags} if tags else {}
    nb.cells = [nbformat.v4.new_code_cell(source, metadata=metadata) for source in sources]
    return nb


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("nbs_lib/losses/margin.py", {"losses"}),
        ("nbs_lib/ground.py", {"losses"}),
        ("nbs_lib/deep.py", {"metrics"}),
        ("nbs_lib/claims.py", set()),
        ("nbs_lib/__init__.py", {"losses", "metrics", "data"}),
        ("nbs_lib/data/assets/images.npz", {"data"}),
        ("book/results/table1.csv", {"recorded"}),
        ("requirements.txt", {"losses", "metrics", "data", "recorded"}),
    ],
)
def test_a_change_makes_exactly_the_dependent_notebooks_stale(tree, changed, stale):
    books = {
        "losses": notebook("%matplotlib inline\nfrom nbs_lib import losses", "!ls"),
        "metrics": notebook("from nbs_lib.metrics import f"),
        "data": notebook("from nbs_lib import data"),
        "recorded": notebook("import pandas\npandas.read_csv('../book/results/table1.csv')"),
    }
    before = {name: dependencies.digest(nb, tree) for name, nb in books.items()}
    path = tree / changed
    path.write_bytes(path.read_bytes() + b"# 2\n")
    after = {name: dependencies.digest(nb, tree) for name, nb in books.items()}
    assert {name for name in books if before[name] != after[name]} == stale


def test_source_tags_and_parameters_count_and_outputs_do_not(tree):
    first = dependencies.digest(notebook("x = 1"), tree)
    assert first != dependencies.digest(notebook("x = 2"), tree)
    assert first != dependencies.digest(notebook("x = 1", tags=["parameters"]), tree)
    assert first != dependencies.digest(notebook("x = 1"), tree, {"x": 3})
    executed = notebook("x = 1")
    executed.cells[0].outputs = [nbformat.v4.new_output("stream", text="1")]
    executed.cells[0].execution_count = 7
    executed.metadata["papermill"] = {"duration": 1}
    assert first == dependencies.digest(executed, tree)


def test_new_module_counts_once_it_is_imported(tree):
    nb = notebook("from nbs_lib import losses")
    before = dependencies.digest(nb, tree)
    (tree / "nbs_lib" / "new.py").write_text("")
    assert dependencies.digest(nb, tree) == before
    (tree / "nbs_lib" / "losses" / "margin.py").write_text("from nbs_lib import new")
    second = dependencies.digest(nb, tree)
    (tree / "nbs_lib" / "new.py").write_text("x = 1")
    assert len({before, second, dependencies.digest(nb, tree)}) == 3
