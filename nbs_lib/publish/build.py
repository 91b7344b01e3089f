"""Build the book: execute what is stale, collect the verdicts, stage the pages, render them, look at the result.

Everything is made beside its place and renamed into it, so an interrupted build leaves the last good one:

    book/_build/executed/NAME.ipynb   the notebooks as they ran, each with the hash of all it depends on
    book/_build/stage/                what Jupyter Book gets: the pages of book/, the executed notebooks, ledger, tables
    book/_build/html/                 the rendered book
"""

import contextlib
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote

import yaml
from nbformat import NotebookNode, writes

from nbs_lib import claims, records
from nbs_lib.publish import comparison, comparison_page, dependencies, ledger, notebooks
from nbs_lib.publish.sweep import published

PAGES = (".md", ".ipynb", ".rst")
DATA_FOLDERS = ("paper_tables", "results", "sweeps")  # their README.md are for the repository, not pages
MARK = ".nbs-stage"  # file in html/: the hash of the stage it was rendered from
_RENDER = "from jupyter_book.cli.main import main; main()"


class BuildError(Exception):
    """The book cannot be built; the message says why, for a person."""


def build(root: Path, *, force: bool = False, say: Callable[[str], None] = print) -> Path:
    """Execute, stage, render and verify the book of the repository ``root``; return its first page.

    Args:
        root: folder with notebooks/ and book/.
        force: execute and render everything, whatever is up to date.
        say: where progress goes, a line at a time.

    Raises:
        BuildError: wrong Jupyter Book; a notebook raised (the others ran, and are kept); table of contents and pages
            differ; claims and notebooks differ; a warning while rendering; a page or an output missing afterwards.
    """
    require_jupyter_book_1()
    target = root / "book" / "_build"
    with _alone(target):
        _look_ahead(root)
        executed = execute_all(root, force=force, say=say)
        staged = stage(root, executed)
        wanted, html = _stage_digest(staged), target / "html"
        mark = html / MARK
        if force or not mark.is_file() or mark.read_text("utf8") != wanted:
            say("rendering")
            _render(staged, target, wanted)
        else:
            say("nothing has changed since the book was rendered")
    return html / "index.html"


def require_jupyter_book_1() -> None:
    """Raise unless Jupyter Book 1 is installed.

    Raises:
        BuildError: it is missing, or of another major version (2 is another program, which fetches its theme online).
    """
    remedy = "pip install 'jupyter-book>=1.0.4,<2'"
    try:
        version = metadata.version("jupyter-book")
    except metadata.PackageNotFoundError:
        raise BuildError(f"Jupyter Book is not installed: {remedy}") from None
    if version.split(".")[0] != "1":
        raise BuildError(f"Jupyter Book {version} is installed, but this book is built with version 1: {remedy}")


def execute_all(root: Path, *, force: bool = False, say: Callable[[str], None] = print) -> dict[str, NotebookNode]:
    """Execute every notebook whose copy in book/_build/executed is out of date; return all executed ones by stem.

    Raises:
        BuildError: names each notebook that raised, with cell and error; the others are executed and kept.
    """
    folder = root / "book" / "_build" / "executed"
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted((root / "notebooks").glob("*.ipynb"))
    stems = {source.stem for source in sources}
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name.split(".")[0] not in stems:  # of a killed build, or a lost notebook
            path.unlink()
    executed, problems = {}, []
    for source in sources:
        output = folder / source.name
        try:
            wanted = dependencies.digest(notebooks.read(source), root)
            if not force and _digest_of(output) == wanted:
                say(f"{source.stem}: up to date")
            else:
                say(f"{source.stem}: executing")
                start = time.monotonic()
                output.unlink(missing_ok=True)
                _execute(source, output, wanted)
                say(f"{source.stem}: executed in {time.monotonic() - start:.0f} s")
            executed[source.stem] = _sound(output)
        except notebooks.NotebookError as error:
            problems.append(str(error))
    if problems:
        raise BuildError("\n".join(problems))
    return executed


def _execute(source: Path, output: Path, wanted: str) -> None:
    """Execute into ``output``; the hash goes into the same file, so that the two cannot part."""
    passing = output.with_name(f".{output.name}")
    try:
        notebooks.execute(source, passing, failed=output.with_suffix(".failed.ipynb"))
        if passing.is_file():
            notebook = notebooks.clean(notebooks.read(passing))
            notebook.metadata["nbs"] = {"digest": wanted}
            notebooks.write(notebook, output)
    finally:
        passing.unlink(missing_ok=True)


def _digest_of(path: Path) -> str | None:
    try:
        return json.loads(path.read_text("utf8"))["metadata"]["nbs"]["digest"]
    except (OSError, ValueError, KeyError):
        return None


def _sound(path: Path) -> NotebookNode:
    """Read an executed notebook and make sure that it was executed."""
    if not path.is_file():
        raise notebooks.NotebookError(f"{path.name}: papermill left no output in {path.parent}")
    notebook = notebooks.read(path)
    cells = [cell for cell in notebooks.code_cells(notebook) if cell.source.strip()]
    if not cells or any(cell.execution_count is None for cell in cells) or not any(cell.outputs for cell in cells):
        raise notebooks.NotebookError(f"{path.name}: the executed copy has cells that did not run, or no output at all")
    notebook.metadata.pop("nbs", None)
    return notebook


def _look_ahead(root: Path) -> None:
    """Find a table of contents that names a missing page before minutes of execution, not after them."""
    pages = [f"notebooks/{path.name}" for path in (root / "notebooks").glob("*.ipynb")]
    pages += ["ledger.md", f"{comparison_page.NAME}.md"]
    _check_contents(_own_files(root / "book") | dict.fromkeys(pages, b""), all_listed=False)


def _own_files(book: Path) -> dict[str, bytes]:
    """Return what lies in book/ and goes to the stage as it is, path to content."""
    found = {}
    for path in sorted(book.rglob("*")):
        name = path.relative_to(book)
        hidden = any(part.startswith(".") for part in name.parts) or name.parts[0] == "_build"
        if path.is_file() and not hidden and not (name.parts[0] in DATA_FOLDERS and path.suffix in PAGES):
            found[name.as_posix()] = path.read_bytes()
    return found


def stage(root: Path, executed: dict[str, NotebookNode]) -> dict[str, bytes]:
    """Return the sources of the book, path to content: book/, the executed notebooks, pages made of them, _config.

    Raises:
        BuildError: the table of contents names a page that is missing, or leaves one out; the ledger does not add up; a
            table of a paper or of recorded runs is damaged.
    """
    book = root / "book"
    staged = _own_files(book)
    for stem, notebook in executed.items():
        staged[f"notebooks/{stem}.ipynb"] = writes(_without_records(notebook)).encode()
    entries, by_id = _verdicts(book, executed) if (book / "claims.yml").is_file() else ([], {})
    if entries:
        staged["ledger.md"] = _ledger_page(book, entries, by_id).encode()
    if (book / "paper_tables").is_dir():
        staged[f"{comparison_page.NAME}.md"] = _comparison_page(root, executed, entries, by_id).encode()
    staged["_config.yml"] = _config(root).encode()
    _check_contents(staged)
    return staged


def _without_records(notebook: NotebookNode) -> NotebookNode:
    """Drop the records of claims and reports: they are in the pages made of them now. A report keeps an id for links.

    MyST-NB warns about every MIME type it does not know.
    """
    notebook = copy.deepcopy(notebook)
    outputs = [output for cell in notebooks.code_cells(notebook) for output in cell.outputs]
    reports = 0
    for output in outputs:
        data = output.get("data", {})
        data.pop(claims.MIME, None)
        if data.pop(records.MIME, None) is not None:
            reports += 1
            data["text/html"] = f'<div id="{comparison.anchor(reports)}">{data.get("text/html", "")}</div>'
    return notebook


def _verdicts(
    book: Path, executed: dict[str, NotebookNode]
) -> tuple[list[ledger.Entry], dict[str, list[ledger.Found]]]:
    """Read the statements, and bring the notebooks' verdicts to them."""
    try:
        entries = ledger.read_claims(book / "claims.yml")
        found = [verdict for stem, notebook in executed.items() for verdict in ledger.collect(notebook, stem)]
        return entries, ledger.match(entries, found, set(executed))
    except ledger.LedgerError as error:
        raise BuildError("\n".join(error.problems)) from None


def _ledger_page(book: Path, entries: list[ledger.Entry], by_id: dict[str, list[ledger.Found]]) -> str:
    guide = "guide/how_to_read.md"
    shown_guide = guide if (book / guide).is_file() else ""
    return ledger.page(entries, by_id, bibliography=book / "references.bib", guide=shown_guide)


def _comparison_page(
    root: Path,
    executed: dict[str, NotebookNode],
    entries: list[ledger.Entry],
    by_id: dict[str, list[ledger.Found]],
) -> str:
    book, workbench = root / "book", root / "notebooks" / f"{published.WORKBENCH}.ipynb"
    defaults = notebooks.parameter_defaults(notebooks.read(workbench)) if workbench.is_file() else None
    try:
        rows = comparison.compare(book, executed, defaults)
    except comparison.ComparisonError as error:
        raise BuildError("\n".join(error.problems)) from None
    sweeps = [path.stem for path in sorted((book / "sweeps").glob("*.yaml"))]
    return comparison_page.page(
        rows, entries=entries, verdicts=by_id, sweeps=sweeps, bibliography=book / "references.bib"
    )


def _config(root: Path) -> str:
    """Return _config.yml, with the repository's address and its buttons where pyproject.toml gives one."""
    path = root / "book" / "_config.yml"
    if not path.is_file():
        raise BuildError(f"{path}: no such file")
    try:
        config = yaml.safe_load(path.read_text("utf8"))
    except yaml.YAMLError as error:
        raise BuildError(f"{path}: not YAML: {error}") from None
    address = notebooks.repository_address(root)
    if address:
        config["repository"] = {"url": address.removesuffix(".git"), "path_to_book": "", "branch": "main"}
        config["launch_buttons"] = {"colab_url": "https://colab.research.google.com"}
        config["html"] = {**config.get("html", {}), "use_repository_button": True}
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


def _check_contents(staged: dict[str, bytes], *, all_listed: bool = True) -> None:
    """Compare the table of contents with the pages there are; Jupyter Book would drop either with a mere warning."""
    pages = {name.rpartition(".")[0] for name in staged if name.endswith(PAGES)}
    listed = contents(staged.get("_toc.yml", b"").decode())
    problems = [f"book/_toc.yml lists {name}, which does not exist" for name in listed if name not in pages]
    unlisted = sorted(pages - set(listed)) if all_listed else []
    problems += [f"book/_toc.yml does not list the page {name}" for name in unlisted]
    problems += [f"book/_toc.yml lists {name} twice" for name in dict.fromkeys(listed) if listed.count(name) > 1]
    if problems:
        raise BuildError("\n".join(problems))


def contents(toc: str) -> list[str]:
    """Return the pages that a _toc.yml lists, in order, without suffixes.

    Raises:
        BuildError: not YAML, or without a root page.
    """
    try:
        tree = yaml.safe_load(toc)
    except yaml.YAMLError as error:
        raise BuildError(f"book/_toc.yml: not YAML: {error}") from None
    if not isinstance(tree, dict) or "root" not in tree:
        raise BuildError("book/_toc.yml: missing, or without a root page")

    def walk(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            yield from (str(node[key]) for key in ("root", "file") if key in node)
            node = list(node.values())
        if isinstance(node, list):
            for child in node:
                yield from walk(child)

    return [re.sub(r"\.(md|ipynb|rst)$", "", name) for name in walk(tree)]


def _stage_digest(staged: dict[str, bytes]) -> str:
    """Hash all that the rendered pages depend on: with docstrings in them, that is the package's source as well."""
    whole = hashlib.sha256()
    inputs = {f"stage/{name}": content for name, content in staged.items()}
    documented = any(re.search(rb"\bauto(module|function|class)::", content) for content in staged.values())
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")) if documented else [package / "publish" / "sphinx_ext.py"]:
        inputs[str(path.relative_to(package))] = path.read_bytes()
    for distribution in ("jupyter-book", "sphinx", "myst-nb", "sphinx-book-theme"):
        inputs[distribution] = metadata.version(distribution).encode()
    for name, content in sorted(inputs.items()):
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def _render(staged: dict[str, bytes], target: Path, wanted: str) -> None:
    """Write the stage, render it from scratch beside the old book, verify it, and put it in place."""
    source, passing, html = target / "stage", target / "passing", target / "html"
    for folder in (source, passing):
        shutil.rmtree(folder, ignore_errors=True)
    for name, content in staged.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    command = ["build", str(source), "--path-output", str(passing), "-W", "--keep-going", "-q"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _RENDER, *command],
        cwd=source,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise BuildError("rendering failed:\n" + _complaints(done.stdout + done.stderr, source))
    rendered = passing / "_build" / "html"
    verify(rendered, contents(staged["_toc.yml"].decode()))
    (rendered / MARK).write_text(wanted, "utf8")
    old = target / "old"
    shutil.rmtree(old, ignore_errors=True)
    if html.exists():
        html.rename(old)
    rendered.rename(html)
    for folder in (old, passing):
        shutil.rmtree(folder, ignore_errors=True)


def _complaints(output: str, source: Path) -> str:
    """Keep the lines of Sphinx's output that say what is wrong, with paths as in the repository."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", output).replace(f"{source}{os.sep}", "book/_build/stage/")
    lines = [line for line in text.splitlines() if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line)]
    return "\n".join(lines or text.strip().splitlines()[-20:])


def verify(html: Path, pages: list[str]) -> None:
    """Make sure that every page of the table of contents was rendered and that its local links lead somewhere.

    Raises:
        BuildError: a page is missing or empty; a link or picture leads to no file, or to no place on the linked page.
    """
    problems, texts = [], {}
    for name in pages:
        path = html / f"{name}.html"
        text = path.read_text("utf8") if path.is_file() else ""
        texts[path.resolve()] = text
        if "<h1" not in text:
            problems.append(f"{name}: the rendered page is missing or empty")
    for path, text in list(texts.items()):
        for link in sorted(set(re.findall(r'(?:href|src)="([^"]*)"', text))):
            address, _, fragment = unquote(link).partition("#")
            if re.match(r"[a-z]+:|//", address) or "{" in address:
                continue
            goal = (path.parent / address.partition("?")[0]).resolve() if address else path
            if not goal.exists():
                problems.append(f"{path.relative_to(html.resolve())}: link to {link}, which does not exist")
            elif fragment.startswith("claim-") and f'id="{fragment}"' not in texts.get(goal, ""):
                problems.append(f"{path.relative_to(html.resolve())}: link to {link}, where no such claim stands")
    if problems:
        raise BuildError("\n".join(problems))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the build folder: two builds at once would tear each other's files."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        with contextlib.suppress(ImportError):  # no such lock on Windows
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BuildError(f"another build is running in {folder}") from None
        yield
