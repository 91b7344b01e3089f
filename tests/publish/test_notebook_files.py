"""Finding, reading, cleaning and refreshing notebook files."""

import os
import sys
from importlib import metadata

import nbformat
import pytest

from nbs_lib.publish import notebooks
from nbs_lib.publish.notebooks import NotebookError, code_cells


@pytest.fixture
def folder(tmp_path):
    for name in ("11_one", "12_two", "12_three"):
        (tmp_path / f"{name}.ipynb").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("name", ["11", "11_one", "11_one.ipynb"])
def test_find(folder, name):
    assert notebooks.find(name, folder).name == "11_one.ipynb"


def test_find_by_path(folder):
    assert notebooks.find(folder / "12_two.ipynb").name == "12_two.ipynb"


def test_find_says_what_there_is(folder):
    with pytest.raises(NotebookError, match="12 fits several notebooks: 12_three, 12_two"):
        notebooks.find("12", folder)
    with pytest.raises(NotebookError, match=r"no notebook 1 in .*; there are: 11_one, 12_three, 12_two"):
        notebooks.find("1", folder)


def test_not_a_notebook(tmp_path):
    for content in ("{}", "half", "[]"):
        (tmp_path / "a.ipynb").write_text(content)
        with pytest.raises(NotebookError, match="not a notebook"):
            notebooks.read(tmp_path / "a.ipynb")


def test_root_is_found_from_below(tiny, monkeypatch):
    monkeypatch.chdir(tiny / "notebooks")
    assert notebooks.root() == tiny


def test_write_is_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "deep" / "a.txt"
    notebooks.write_text("old", target)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(type(target), "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        notebooks.write_text("new", target)
    assert target.read_text() == "old\n"
    assert [path.name for path in target.parent.iterdir()] == ["a.txt"]


def test_specs_come_from_the_check_call_else_from_the_defaults(make_notebook):
    nb = make_notebook()
    assert notebooks.parameter_specs(nb)["lr"].problem(11.0) == "expected at most 10.0, got 11.0"
    code_cells(nb)[1].source = "import math"
    specs = notebooks.parameter_specs(nb)
    assert {name: spec.kind for name, spec in specs.items()} == {
        "scale": "text",
        "lr": "a real number",
        "flag": "True or False",
        "seed": "a whole number",
    }
    code_cells(nb)[0].source = "lr = 2 * 0.5"
    with pytest.raises(NotebookError, match="literals only"):
        notebooks.parameter_specs(nb)


def test_clean_removes_what_differs_between_runs(make_notebook):
    nb = make_notebook("print(1)", "print(1)", "2")
    first = notebooks.clean(nb)
    nb.metadata.update(papermill={"duration": 1}, widgets={}, kernelspec={"name": "mine", "display_name": "Mine"})
    for cell in nb.cells:
        cell.id = os.urandom(4).hex()
        cell.metadata.update(papermill={"duration": 1}, execution={"a": 1}, collapsed=True)
    nb.cells.insert(2, nbformat.v4.new_code_cell("# Parameters", metadata={"tags": ["injected-parameters"]}))
    assert notebooks.clean(nb) == first
    assert notebooks.clean(first) == first
    assert len({cell.id for cell in first.cells}) == len(first.cells)
    nbformat.validate(first)


def test_clean_numbers_cells_and_joins_prints():
    nb = nbformat.v4.new_notebook()
    stream = {"output_type": "stream", "name": "stdout", "text": "a\n"}
    error = {"output_type": "stream", "name": "stderr", "text": "e\n"}
    result = nbformat.v4.new_output("execute_result", data={"text/plain": "1"}, execution_count=40)
    cell = nbformat.v4.new_code_cell("x", execution_count=40)
    cell.outputs = [nbformat.from_dict(out) for out in (stream, stream, error, stream)] + [result]
    nb.cells = [nbformat.v4.new_code_cell("y", execution_count=3), cell, nbformat.v4.new_code_cell("z")]
    cleaned = code_cells(notebooks.clean(nb))
    assert [c.execution_count for c in cleaned] == [1, 2, None]
    assert [out.get("text") for out in cleaned[1].outputs] == ["a\na\n", "e\n", "a\n", None]
    assert cleaned[1].outputs[-1].execution_count == 2


def test_setup_installs_from_the_projects_address_and_keeps_torch(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org/book"\n')
    source = notebooks.setup_source(tmp_path)
    compile(source, "setup", "exec")
    assert 'package = "nbs-lib @ git+https://example.org/book"' in source
    assert '("torch", "torchvision", "numpy")' in source
    assert all(len(line) <= 120 for line in source.splitlines())
    assert source.startswith(notebooks.SETUP_MARK)


def test_setup_without_an_address_says_how_to_install(tmp_path, monkeypatch):
    source = notebooks.setup_source(tmp_path)
    exec(source, {})  # nbs_lib is here: nothing happens
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="pip install -e"):
        exec(source, {})


def test_setup_pins_what_is_installed(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org/book"\n')
    calls = []
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("subprocess.run", lambda command, check: calls.append(command))
    exec(notebooks.setup_source(tmp_path), {})
    assert calls[0][:5] == [sys.executable, "-m", "pip", "install", "-q"]
    assert calls[0][5] == "nbs-lib @ git+https://example.org/book"
    assert f"torch=={metadata.version('torch')}" in calls[0]


def test_refresh_brings_the_setup_text_up_to_date(tiny, make_notebook, monkeypatch):
    monkeypatch.chdir(tiny)
    nb = make_notebook()
    own = code_cells(nb)[1].source.split("\n\nfrom nbs_lib import", 1)[1]
    (tiny / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org/book"\n')
    updated = code_cells(notebooks._with_setup(nb))[1].source
    assert updated == notebooks.setup_source(tiny) + "\nfrom nbs_lib import" + own
    (tiny / "pyproject.toml").unlink()
    assert code_cells(notebooks._with_setup(notebooks._with_setup(nb)))[1].source == code_cells(nb)[1].source


@pytest.mark.slow
def test_refresh_writes_only_what_a_reader_would_see_change(tiny, monkeypatch):
    monkeypatch.chdir(tiny)
    path = tiny / "notebooks" / "10_tiny.ipynb"
    assert notebooks.refresh(path)
    written = path.stat().st_mtime_ns
    assert "tiny-claim" in path.read_text("utf8")
    assert "papermill" not in path.read_text("utf8")
    assert not notebooks.refresh(path)
    assert path.stat().st_mtime_ns == written
    assert [p.name for p in path.parent.iterdir()] == ["10_tiny.ipynb"]


@pytest.mark.slow
def test_refresh_refuses_warnings(tiny, make_notebook, monkeypatch):
    monkeypatch.chdir(tiny)
    path = tiny / "notebooks" / "10_tiny.ipynb"
    notebooks.write(make_notebook("import warnings\n\nwarnings.warn('careful')"), path)
    before = path.read_bytes()
    with pytest.raises(NotebookError, match=r"10_tiny\.ipynb: code cell 3 wrote to stderr: .*careful"):
        notebooks.refresh(path)
    assert path.read_bytes() == before


def test_own_kernel_is_this_interpreter(monkeypatch):
    from jupyter_client.kernelspec import KernelSpecManager

    monkeypatch.setenv("JUPYTER_PATH", "elsewhere")
    with notebooks.own_kernel() as name:
        assert KernelSpecManager().get_kernel_spec(name).argv[0] == sys.executable
    assert os.environ["JUPYTER_PATH"] == "elsewhere"


def test_a_mistyped_path_is_no_other_notebook(tiny, monkeypatch):
    monkeypatch.chdir(tiny)
    for name in ("nowhere/10_tiny.ipynb", "/nowhere/10_tiny.ipynb", "book/10"):
        with pytest.raises(NotebookError, match=f"no notebook {name}"):
            notebooks.find(name)
    for name in ("10", "10_tiny.ipynb", "notebooks/10_tiny", "notebooks/10_tiny.ipynb"):
        assert notebooks.find(name).resolve() == tiny / "notebooks" / "10_tiny.ipynb"


def test_a_malformed_check_is_named(make_notebook):
    nb = make_notebook()
    code_cells(nb)[1].source = "limit = 3\nparameters.check(globals(), lr=real(limit))"
    with pytest.raises(NotebookError, match=r"parameters\.check is malformed"):
        notebooks.parameter_specs(nb)
