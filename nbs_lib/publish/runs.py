"""One notebook with other parameters: read them as the notebook declares them, name the output, execute."""

import hashlib
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
    output: Path | None = None,
    bar: bool = False,
) -> Path:
    """Execute the notebook ``name`` with parameters; return where the executed copy is.

    Args:
        name: ``13``, ``13_sample_margin`` or a path.
        typed: (name, text) pairs, as in `values_for`.
        file: YAML file of parameters, as in `values_for`.
        output: file, or existing folder, for the executed copy; by default in the working directory, named after the
            parameters. It replaces an earlier run of the same name, never a notebook of the book.
        bar: show papermill's progress bar.

    Raises:
        ParameterError: the parameters are not what the notebook declares; nothing has run.
        NotebookError: no such notebook, or it raised: names the cell and the error, and the file with what ran before.
    """
    source = notebooks.find(name)
    values = values_for(source, typed, file)
    if output is None or output.is_dir():
        output = (output or Path()) / default_name(source, values)
    output = output if output.suffix == ".ipynb" else output.with_name(f"{output.name}.ipynb")
    if output.resolve().parent == source.resolve().parent and output.exists():
        raise NotebookError(f"{output} is a notebook of the book: choose another output with -o")
    # in the working directory, as papermill does: a parameter may name a file or folder relative to it
    notebooks.execute(source, output, values, folder=Path.cwd(), bar=bar)
    return output


def _from_yaml(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text("utf8"))
    except (OSError, yaml.YAMLError) as error:
        raise NotebookError(f"{file}: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise NotebookError(f"{file}: must hold parameters, one 'name: value' a line")
    return values
