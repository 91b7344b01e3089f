"""The build, on a book of one page and one notebook: executed once, never stale, red with a clear message."""

import re
import shutil
import time
from importlib import metadata
from pathlib import Path

import pytest

from nbs_lib import claims, cli
from nbs_lib.publish import build, notebooks
from nbs_lib.publish.build import BuildError


@pytest.fixture(scope="module")
def built(shared_tiny) -> Path:
    lines: list[str] = []
    page = build.build(shared_tiny, say=lines.append)
    assert page.is_file()
    assert lines[0] == "10_tiny: executing"
    return shared_tiny


def html(root: Path, name: str) -> str:
    return (root / "book" / "_build" / "html" / name).read_text("utf8")


@pytest.mark.slow
def test_pages_show_what_the_notebook_left(built):
    chapter = html(built, "notebooks/10_tiny.html")
    assert 'alt="A &quot;dot&quot; &amp; nothing else"' in chapter
    assert '<div class="nbs-claim" id="claim-tiny-claim"' in chapter
    assert "\\[a = b \\tag{3.5}\\]" in chapter
    two_lines = re.search(r"\\\[\s*\\begin\{aligned\}.*?\\tag\{3\.6\}\s*\\\]", chapter, re.DOTALL)
    assert two_lines
    assert "split" not in chapter[two_lines.start() - 20 : two_lines.end()]
    assert "mathjax/tex-chtml.js" in chapter
    assert (built / "book/_build/html/_static/mathjax/output/chtml/fonts/woff-v2").is_dir()


@pytest.mark.slow
def test_ledger_links_the_verdict_to_its_cell(built):
    ledger = html(built, "ledger.html")
    assert 'href="notebooks/10_tiny.html#claim-tiny-claim"' in ledger
    assert "✓ holds" in ledger
    assert "○ open" in ledger
    assert "Euclid et al. (2024): On Numbers" in ledger
    assert "\\(|{-2}|\\)" in ledger


@pytest.mark.slow
def test_second_build_does_nothing_and_fast(built):
    executed = built / "book/_build/executed/10_tiny.ipynb"
    before, lines = executed.read_bytes(), []
    start = time.monotonic()
    build.build(built, say=lines.append)
    assert time.monotonic() - start < 5
    assert lines == ["10_tiny: up to date", "nothing has changed since the book was rendered"]
    assert executed.read_bytes() == before


@pytest.mark.slow
def test_build_leaves_no_litter(built):
    left = {path.name for path in (built / "book" / "_build").iterdir()}
    assert left == {"executed", "html", "stage", ".lock"}
    assert [path.name for path in (built / "book/_build/executed").iterdir()] == ["10_tiny.ipynb"]
    assert [path.name for path in (built / "notebooks").iterdir()] == ["10_tiny.ipynb"]


@pytest.mark.slow
def test_failed_rendering_names_the_page_and_keeps_the_old_book(built):
    index = built / "book" / "index.md"
    good, old = index.read_text("utf8"), html(built, "index.html")
    index.write_text(good + "\n[nowhere](missing.md)\n")
    with pytest.raises(BuildError, match=r"index\.md.*missing"):
        build.build(built, say=str)
    assert html(built, "index.html") == old
    index.write_text(good)
    build.build(built, say=str)


@pytest.mark.slow
def test_interrupted_rendering_keeps_the_old_book(built, monkeypatch):
    old = html(built, "index.html")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(build.subprocess, "run", interrupt)
    (built / "book" / "new.txt").write_text("a change")
    with pytest.raises(KeyboardInterrupt):
        build.build(built, say=str)
    assert html(built, "index.html") == old


@pytest.mark.slow
def test_raising_notebook(tiny, make_notebook, monkeypatch, capsys):
    broken = make_notebook("before = 1\nprint(before)", "# why\n1 / 0")
    notebooks.write(broken, tiny / "notebooks" / "09_broken.ipynb")
    monkeypatch.chdir(tiny)
    with pytest.raises(SystemExit) as exit_status:
        cli.app(["build"])
    assert exit_status.value.code == 1
    error = capsys.readouterr().err
    assert "09_broken.ipynb: cell In [4] raised ZeroDivisionError: division by zero" in error
    executed = tiny / "book" / "_build" / "executed"
    assert sorted(path.name for path in executed.iterdir()) == ["09_broken.failed.ipynb", "10_tiny.ipynb"]
    assert "1\n" in notebooks.code_cells(notebooks.read(executed / "09_broken.failed.ipynb"))[2].outputs[0].text
    assert not (tiny / "book" / "_build" / "html").exists()
    # mended by removing it: the other one is not executed again
    (tiny / "notebooks" / "09_broken.ipynb").unlink()
    lines: list[str] = []
    assert set(build.execute_all(tiny, say=lines.append)) == {"10_tiny"}
    assert lines == ["10_tiny: up to date"]
    assert [path.name for path in executed.iterdir()] == ["10_tiny.ipynb"]


def test_papermill_that_writes_nothing(tiny, monkeypatch):
    monkeypatch.setattr(notebooks, "execute", lambda *_, **__: None)
    with pytest.raises(BuildError, match=r"10_tiny\.ipynb: papermill left no output"):
        build.build(tiny, say=str)


def test_papermill_that_runs_nothing(tiny, monkeypatch):
    monkeypatch.setattr(notebooks, "execute", lambda source, output, **_: shutil.copy(source, output))
    with pytest.raises(BuildError, match="has cells that did not run"):
        build.build(tiny, say=str)


def test_interrupted_execution_leaves_nothing(tiny, monkeypatch):
    def interrupt(source, output, **_):
        output.write_text("{ half a notebook")
        raise KeyboardInterrupt

    monkeypatch.setattr(notebooks, "execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build.build(tiny, say=str)
    assert list((tiny / "book" / "_build" / "executed").iterdir()) == []


@pytest.mark.parametrize("version", ["2.0.0", "2.1.0a1", "0.15.1"])
def test_other_jupyter_book(tiny, monkeypatch, capsys, version):
    monkeypatch.setattr(metadata, "version", lambda _: version)
    monkeypatch.chdir(tiny)
    with pytest.raises(SystemExit) as exit_status:
        cli.app(["build"])
    assert exit_status.value.code == 1
    assert (
        f"error: Jupyter Book {version} is installed, but this book is built with version 1" in capsys.readouterr().err
    )


def test_no_jupyter_book(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(BuildError, match="Jupyter Book is not installed: pip install"):
        build.require_jupyter_book_1()


def executed_tiny(tiny: Path) -> dict:
    """The notebook with the outputs it would have, without running it."""
    notebook = notebooks.read(tiny / "notebooks" / "10_tiny.ipynb")
    bundle = claims.check("tiny-claim", holds=True).mime_bundle()
    notebooks.code_cells(notebook)[2].outputs = [{"output_type": "display_data", "data": bundle, "metadata": {}}]
    return {"10_tiny": notebooks.nbformat.from_dict(notebook)}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda toc: toc.replace("- file: ledger\n", ""), "book/_toc.yml does not list the page ledger"),
        (lambda toc: toc + "- file: guide/more\n", "book/_toc.yml lists guide/more, which does not exist"),
        (lambda toc: toc.replace("10_tiny", "11_other"), "lists notebooks/11_other, which does not exist\n.*10_tiny"),
        (lambda toc: toc + "- file: ledger.md\n", "lists ledger twice"),
        (lambda _: "- a\n", "_toc.yml: missing, or without a root page"),
        (lambda _: "a: [\n", "_toc.yml: not YAML"),
    ],
)
def test_table_of_contents(tiny, edit, says):
    toc = tiny / "book" / "_toc.yml"
    toc.write_text(edit(toc.read_text()))
    with pytest.raises(BuildError, match=says):
        build.stage(tiny, executed_tiny(tiny))


def test_a_missing_page_is_told_before_anything_is_executed(tiny, monkeypatch):
    def executed(*_, **__):
        raise AssertionError("executed first")

    monkeypatch.setattr(build, "execute_all", executed)
    toc = tiny / "book" / "_toc.yml"
    toc.write_text(toc.read_text() + "- file: guide/more\n")
    with pytest.raises(BuildError, match="lists guide/more, which does not exist"):
        build.build(tiny)


def test_readme_of_a_data_folder_is_no_page_but_data_are_staged(tiny):
    (tiny / "book" / "results").mkdir()
    (tiny / "book" / "results" / "README.md").write_text("# For the repository\n")
    (tiny / "book" / "results" / "table.csv").write_text("a\n")
    staged = build.stage(tiny, executed_tiny(tiny))
    assert "results/table.csv" in staged
    assert "results/README.md" not in staged


def test_claims_that_do_not_fit_stop_the_build(tiny):
    (tiny / "book" / "claims.yml").write_text((tiny / "book" / "claims.yml").read_text().replace("tiny-claim", "other"))
    with pytest.raises(BuildError, match=r"no statement 'tiny-claim' in claims\.yml\n.*'other' names chapter 10_tiny"):
        build.stage(tiny, executed_tiny(tiny))


def test_repository_address_becomes_buttons(tiny):
    (tiny / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org/book.git"\n')
    config = build.yaml.safe_load(build.stage(tiny, executed_tiny(tiny))["_config.yml"])
    assert config["repository"]["url"] == "https://example.org/book"
    assert config["launch_buttons"]["colab_url"].startswith("https://colab")
    assert config["html"]["home_page_in_navbar"] is True


def test_any_change_of_the_stage_changes_its_digest(tiny):
    staged = build.stage(tiny, executed_tiny(tiny))
    first = build._stage_digest(staged)
    assert first == build._stage_digest(dict(staged))
    assert first != build._stage_digest({**staged, "index.md": b"# Other\n"})
    assert first != build._stage_digest({**staged, "new.csv": b""})


def test_pages_with_docstrings_depend_on_the_package(tiny, monkeypatch):
    read: list[str] = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.name) or b"")
    build._stage_digest({"index.md": b"autodoc is fine"})
    assert read == ["sphinx_ext.py"]
    build._stage_digest({"api.md": b".. automodule:: nbs_lib.claims"})
    assert "claims.py" in read


def test_verify(tmp_path):
    (tmp_path / "a.html").write_text('<h1>A</h1><a href="b.html#claim-x">x</a><a href="https://x.org/y">y</a>')
    (tmp_path / "b.html").write_text('<h1>B</h1><i id="claim-x"></i><img src="no.png">')
    (tmp_path / "c.html").write_text("")
    with pytest.raises(BuildError) as caught:
        build.verify(tmp_path, ["a", "b", "c", "d"])
    assert str(caught.value).splitlines() == [
        "c: the rendered page is missing or empty",
        "d: the rendered page is missing or empty",
        "b.html: link to no.png, which does not exist",
    ]
    (tmp_path / "b.html").write_text("<h1>B</h1>")
    with pytest.raises(BuildError, match=r"link to b\.html#claim-x, where no such claim stands"):
        build.verify(tmp_path, ["a", "b"])


def test_two_builds_at_once(tiny):
    with build._alone(tiny / "book" / "_build"), pytest.raises(BuildError, match="another build is running"):
        build.build(tiny, say=str)
