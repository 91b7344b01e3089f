"""The notebooks: find one, read its declared parameters, execute it with papermill, clean what it leaves behind."""

import contextlib
import copy
import hashlib
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from nbs_lib import parameters

PARAMETERS_TAG = "parameters"
_KEPT_CELL_METADATA = ("tags", "mystnb", "slideshow")
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "name": "python", "pygments_lexer": "ipython3"},
}
SETUP_MARK = "# Set-up, the same in every chapter"
_INSTALL = (
    SETUP_MARK
    + """: installs nbs_lib where it is missing (Colab); torch and numpy stay as they are.
from importlib import invalidate_caches, metadata, util

if util.find_spec("nbs_lib") is None:
    import subprocess
    import sys

    present = {{d.name: d.version for d in metadata.distributions()}}
    keep = [f"{{name}}=={{present[name]}}" for name in ("torch", "torchvision", "numpy") if name in present]
    package = "nbs-lib @ git+{address}"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package, *keep], check=True)
    invalidate_caches()
"""
)
_EXPLAIN = (
    SETUP_MARK
    + """.
from importlib import util

if util.find_spec("nbs_lib") is None:
    raise ModuleNotFoundError("nbs_lib is not installed: run `pip install -e .` in a clone of this book's repository")
"""
)


class NotebookError(Exception):
    """A notebook is missing, malformed, or raised while it ran; the message is one to three lines for a person."""


class CellError(NotebookError):
    """A cell raised: ``cell`` is its execution count, ``name`` the error's class, ``message`` what it says."""

    def __init__(self, text: str, cell: int | None, name: str, message: str):
        super().__init__(text)
        self.cell, self.name, self.message = cell, name, message


class KernelError(NotebookError):
    """The kernel died or did not start: no fault of a cell's code that could be told."""


def root() -> Path:
    """Return the repository: the nearest folder, from the working directory upwards, with notebooks/ and book/.

    Raises:
        NotebookError: there is none.
    """
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[2]):
        if (folder / "notebooks").is_dir() and (folder / "book").is_dir():
            return folder
    raise NotebookError("no folder here or above holds notebooks/ and book/: run this inside a clone of the book")


def setup_source(repository: Path | None = None) -> str:
    """Return the text every chapter's set-up cell starts with; its own imports and `parameters.check` come after it.

    With ``[project.urls] Repository`` in pyproject.toml the cell installs from there, else it says how to install.
    """
    address = repository_address(repository or root())
    return _INSTALL.format(address=address) if address else _EXPLAIN


def repository_address(repository: Path) -> str | None:
    """Return ``[project.urls] Repository`` of pyproject.toml, if it is there."""
    path = repository / "pyproject.toml"
    urls = tomllib.loads(path.read_text("utf8")).get("project", {}).get("urls", {}) if path.is_file() else {}
    return {key.lower(): value for key, value in urls.items()}.get("repository")


def find(name: str | Path, folder: Path | None = None) -> Path:
    """Return the notebook called ``13``, ``13_sample_margin``, ``13_sample_margin.ipynb``, or at that path.

    Only a bare name, or one in the notebooks' own folder, may be abbreviated.

    Raises:
        NotebookError: none, or several, fit.
    """
    if Path(name).suffix == ".ipynb" and Path(name).is_file():
        return Path(name)
    folder = folder or root() / "notebooks"
    if Path(name).name != str(Path(name)) and Path(name).parent.resolve() != folder.resolve():
        raise NotebookError(f"no notebook {name}")  # a mistyped path must not run a notebook from elsewhere
    stems = {p.stem: p for p in sorted(folder.glob("*.ipynb"))}
    wanted = Path(name).name.removesuffix(".ipynb")
    fitting = [stems[wanted]] if wanted in stems else [p for s, p in stems.items() if s.startswith(f"{wanted}_")]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise NotebookError(f"{name} fits several notebooks: {', '.join(p.stem for p in fitting)}")
    raise NotebookError(f"no notebook {name} in {folder}; there are: {', '.join(stems) or 'none'}")


def read(path: Path) -> NotebookNode:
    """Read a notebook (format 4).

    Raises:
        NotebookError: the file is not a notebook.
    """
    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, KeyError, AttributeError, nbformat.ValidationError) as error:
        raise NotebookError(f"{path}: not a notebook: {str(error).splitlines()[0]}") from None


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook so that the file is there whole or not at all."""
    write_text(nbformat.writes(notebook), path)


def write_text(text: str, path: Path) -> None:
    """Write a text file through a temporary one in the same folder, and rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text if text.endswith("\n") else text + "\n", "utf8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the code cells in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: NotebookNode) -> list[str]:
    """Return a cell's tags."""
    return cell.metadata.get("tags", [])


def parameter_defaults(notebook: NotebookNode) -> dict[str, Any]:
    """Return the parameters and the values that the cell tagged ``parameters`` gives them.

    Raises:
        NotebookError: the cell is missing, or holds more than assignments of literals.
    """
    cell = next((c for c in code_cells(notebook) if PARAMETERS_TAG in tags(c)), None)
    defaults = None if cell is None else parameters.literal_assignments(cell.source)
    if defaults is None:
        raise NotebookError("the notebook needs a first code cell tagged 'parameters' that assigns literals only")
    return defaults


def parameter_specs(notebook: NotebookNode) -> dict[str, parameters.Spec]:
    """Return what each parameter may be: from the `parameters.check` call, else from the defaults' own types.

    Raises:
        NotebookError: the parameters cell is missing, or not literals only; the `parameters.check` call is malformed.
    """
    defaults = parameter_defaults(notebook)
    for other in code_cells(notebook):
        try:
            if specs := parameters.declared(other.source):
                return specs
        except SyntaxError:
            continue  # a cell with magics
        except (ValueError, TypeError) as error:
            raise NotebookError(f"the notebook's parameters.check is malformed: {error}") from None
    guesses = {bool: parameters.boolean, int: parameters.integer, float: parameters.real}
    return {name: guesses.get(type(value), parameters.text)() for name, value in defaults.items()}


@contextlib.contextmanager
def own_kernel() -> Iterator[str]:
    """Give a kernel name that starts this very interpreter, whatever other kernels the machine has installed."""
    from ipykernel.kernelspec import write_kernel_spec

    before = os.environ.get("JUPYTER_PATH")
    with tempfile.TemporaryDirectory(prefix="nbs-kernel-") as folder:
        write_kernel_spec(Path(folder, "kernels", "python3"), extra_arguments=["--log-level=CRITICAL"])
        os.environ["JUPYTER_PATH"] = folder + (os.pathsep + before if before else "")
        try:
            yield "python3"
        finally:
            os.environ.pop("JUPYTER_PATH") if before is None else os.environ.update(JUPYTER_PATH=before)


def execute(
    source: Path,
    output: Path,
    values: dict[str, Any] | None = None,
    *,
    folder: Path | None = None,
    failed: Path | None = None,
    bar: bool = False,
) -> NotebookNode:
    """Execute ``source`` with papermill in ``folder`` (default: beside it) and write ``output``, whole or not at all.

    When a cell raises, or the run is interrupted, what was computed so far is kept as ``failed`` (default: ``output``
    with ``.failed`` before its suffix).

    Raises:
        CellError: names the notebook, the cell and the error.
        KernelError: the kernel died or did not start.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    output.parent.mkdir(parents=True, exist_ok=True)
    failed = failed or output.with_suffix(".failed.ipynb")
    temporary = output.with_name(f".{output.stem}.{os.getpid()}.ipynb")
    try:
        with own_kernel() as kernel:
            notebook = papermill.execute_notebook(
                str(source),
                str(temporary),
                values or {},
                kernel_name=kernel,
                progress_bar=bar,
                cwd=str(folder or source.resolve().parent),
            )
        temporary.replace(output)
        failed.unlink(missing_ok=True)
        return notebook
    except PapermillExecutionError as error:
        text = _what_failed(source, error) + f"\n  what ran before it: {failed}"
        raise CellError(text, error.exec_count, error.ename, error.evalue) from None
    except (RuntimeError, TimeoutError) as error:  # nbclient: the kernel died, or did not start
        raise KernelError(f"{source.name}: {type(error).__name__}: {str(error).splitlines()[0]}") from None
    finally:
        if temporary.exists():
            temporary.replace(failed)


def _what_failed(source: Path, error: Any) -> str:
    first_line = next((line for line in error.source.splitlines() if line.strip()), "")
    return (
        f"{source.name}: cell In [{error.exec_count}] raised {error.ename}: {error.evalue}\n"
        f"  the cell begins: {first_line}"
    )


def clean(notebook: NotebookNode) -> NotebookNode:
    """Return a copy without what differs between runs and machines: timings, widgets, kernel names, random ids."""
    notebook = copy.deepcopy(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(_METADATA)
    notebook.cells = [c for c in notebook.cells if not {"injected-parameters", "papermill-error-cell-tag"} & {*tags(c)}]
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        cell.metadata = NotebookNode({k: v for k, v in cell.metadata.items() if k in _KEPT_CELL_METADATA and v})
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:8]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    for count, cell in enumerate(code_cells(notebook), start=1):
        if cell.execution_count is not None:
            cell.execution_count = count
        cell.outputs = _merge_streams(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
    return notebook


def _merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join neighbouring prints: how a stream was cut into messages is chance."""
    merged: list[NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def refresh(path: Path) -> bool:
    """Execute a committed notebook at its defaults and write it back, cleaned, if a reader would see a difference.

    Returns:
        Whether the file was written.

    Raises:
        NotebookError: a cell raised, or wrote to stderr (a warning does not belong in a page).
    """
    committed = read(path)
    with tempfile.TemporaryDirectory(prefix="nbs-refresh-") as folder:
        updated = clean(_with_setup(committed))
        source, output = Path(folder, path.name), Path(folder, "executed.ipynb")
        write(updated, source)
        executed = clean(execute(source, output, folder=path.resolve().parent))
    for count, cell in enumerate(code_cells(executed), start=1):
        for out in cell.outputs:
            if out.output_type == "stream" and out.name == "stderr":
                raise NotebookError(f"{path.name}: code cell {count} wrote to stderr: {out.text.strip()}")
    if nbformat.writes(executed).rstrip() == path.read_text("utf8").rstrip():
        return False
    write(executed, path)
    return True


def _with_setup(notebook: NotebookNode) -> NotebookNode:
    """Bring the set-up text of a chapter up to date (the repository's address may have changed)."""
    notebook = copy.deepcopy(notebook)
    current = setup_source()
    for cell in code_cells(notebook):
        if cell.source.startswith(SETUP_MARK):
            # the template ends where its one if-block does: at the first later line that is not indented
            body = cell.source.split("is None:\n", 1)[-1]
            rest = re.split(r"\n(?=\S)", body, maxsplit=1)
            cell.source = (current + ("\n" + rest[1] if len(rest) > 1 else "")).strip()
    return notebook
