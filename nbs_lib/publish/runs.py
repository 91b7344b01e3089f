"""One notebook with other parameters: read them as the notebook declares them, name the output, execute."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from nbs_lib import parameters
from nbs_lib.publish import notebooks
from nbs_lib.publish.notebooks import NotebookError


def values_for(source: Path, typed: Iterable[tuple[str, str]] = (), file: Path | None = None) -> dict[str, Any]:
    """Return the parameters to pass to a notebook, validated against what it declares.

    Args:
        source: the notebook.
        typed: (name, text) pairs from a command line; the text is read as the declared type (``1`` as 1.0 for a real).
        file: YAML mapping of names to values; types are strict there. ``typed`` wins over it.

    Raises:
        ParameterError: lists every unknown name, wrong type and value out of range.
        NotebookError: the notebook has no parameters cell, or the file is no YAML mapping.
    """
    specs = notebooks.parameter_specs(notebooks.read(source))
    values = _from_yaml(file) if file else {}
    problems = []
    for name, text in typed:
        try:
            values[name] = specs[name].parse(text) if name in specs else text
        except ValueError as error:
            problems.append(f"{name}: {error}")
            values.pop(name, None)
    parameters.raise_problems(problems + parameters.find_problems(values, specs, complete=False))
    return values


def default_name(source: Path, values: dict[str, Any]) -> str:
    """Name the output after the notebook and its parameters: ``13_sample_margin-seed=1.ipynb``, or a hash of many."""
    if not values:
        return f"{source.stem}-defaults.ipynb"
    settings = "-".join(f"{name}={value}" for name, value in values.items())
    if len(settings) > 80 or not re.fullmatch(r"[\w.=+-]+", settings):
        settings = hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:10]
    return f"{source.stem}-{settings}.ipynb"


def run(
    name: str | Path,
    typed: Iterable[tuple[str, str]] = (),
    *,
    file: Path | None = None,
    output: str | Path | None = None,
    bar: bool = False,
) -> Path:
    """Execute the notebook ``name`` with parameters; return where the executed copy is.

    Args:
        name: ``13``, ``13_sample_margin`` or a path.
        typed: (name, text) pairs, as in `values_for`.
        file: YAML file of parameters, as in `values_for`.
        output: file or folder (one that exists, or a text ending in a slash) for the executed copy; by default in the
            working directory, named after the parameters. It replaces an earlier run of the same name, never a notebook
            of the book.
        bar: show papermill's progress bar.

    Raises:
        ParameterError: the parameters are not what the notebook declares; nothing has run.
        NotebookError: no such notebook, or the output cannot be there (nothing has run); or the notebook raised: names
            the cell and the error, and the file with what ran before.
    """
    source = notebooks.find(name)
    values = values_for(source, typed, file)
    output = _output_path(output, default_name(source, values))
    _refuse_output(output, source)
    # in the working directory, as papermill does: a parameter may name a file or folder relative to it
    notebooks.execute(source, output, values, folder=Path.cwd(), bar=bar)
    return output


def _output_path(wanted: str | Path | None, name: str) -> Path:
    path = Path(wanted or "")
    if path.is_dir() or str(wanted).endswith(("/", os.sep)):
        return path / name
    return path if path.suffix == ".ipynb" else path.with_name(f"{path.name}.ipynb")


def _refuse_output(output: Path, source: Path) -> None:
    """Raise NotebookError if the output would replace a notebook of the book or cannot be written; make its folder."""
    folders = {source.resolve().parent}
    with contextlib.suppress(NotebookError):  # outside a clone there is no book to protect
        folders.add((notebooks.root() / "notebooks").resolve())
    try:
        if output.exists() and folders & {output.resolve().parent, output.parent.resolve()}:
            raise NotebookError(f"{output} is a notebook of the book: choose another output with -o")
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotebookError(f"cannot write {output}: {error.strerror}: {error.filename}") from None
    if output.is_dir() or not os.access(output.parent, os.W_OK):
        raise NotebookError(f"cannot write {output}: it is a folder, or its folder is write-protected")


def _from_yaml(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text("utf8"))
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: undecodable bytes, an impossible date
        raise NotebookError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise NotebookError(f"{file}: must hold parameters, one 'name: value' a line")
    return values
