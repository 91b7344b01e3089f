"""What every committed notebook keeps to, as functions from a notebook to complaints."""

import re
from collections.abc import Callable, Iterator

from nbformat import NotebookNode

from nbs_lib import claims, parameters
from nbs_lib.publish import notebooks
from nbs_lib.publish.notebooks import code_cells, tags

HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
MYST = re.compile(r"^\s*(?:`{3,}|~{3,}|:{3,})\s*\{|\{[a-z][a-z:.-]*\}`|^\([\w .-]+\)=\s*$|^:{3,}", re.MULTILINE)
ABSOLUTE = re.compile(
    r"(?<![\w:/.])/(?:home|root|Users|tmp|work|usr|opt|mnt|content|var)/|\b[A-Z]:\\\\?\w|site-packages"
)

Rule = Callable[[NotebookNode], Iterator[str]]


def one_parameters_cell_first(nb: NotebookNode) -> Iterator[str]:
    cells = code_cells(nb)
    tagged = [number for number, cell in enumerate(cells) if "parameters" in tags(cell)]
    if tagged != [0]:
        yield f"the first code cell, and no other, is tagged 'parameters'; tagged: {tagged}"
        return
    values = parameters.literal_assignments(cells[0].source)
    if not values:
        yield "the parameters cell holds literal assignments only"
    for line in cells[0].source.splitlines():
        if line.strip() and "#" not in line:
            yield f"each parameter has a comment on its line: {line}"


def set_up_next(nb: NotebookNode) -> Iterator[str]:
    cells = code_cells(nb)
    setup = cells[1].source if len(cells) > 1 else ""
    if not setup.startswith(notebooks.setup_source()):
        yield "the second code cell starts with the set-up text (`nbs refresh` brings it up to date)"
    if not HIDDEN & set(tags(cells[1]) if len(cells) > 1 else []):
        yield "the set-up cell is tagged 'hide-input'"
    specs = parameters.declared(setup)
    values = parameters.literal_assignments(cells[0].source) or {}
    if not specs:
        yield "the set-up cell calls parameters.check(globals(), ...)"
    yield from parameters.find_problems(values, specs)


def executed_in_order(nb: NotebookNode) -> Iterator[str]:
    counts = [cell.execution_count for cell in code_cells(nb)]
    if counts != list(range(1, len(counts) + 1)):
        yield f"executed from top to bottom; counts: {counts}"


def no_errors_or_warnings(nb: NotebookNode) -> Iterator[str]:
    for number, cell in enumerate(code_cells(nb), start=1):
        for output in cell.outputs:
            if output.output_type == "error":
                yield f"code cell {number} raised {output.ename}"
            if output.get("name") == "stderr":
                yield f"code cell {number} wrote to stderr: {output.text[:80]!r}"


def clean(nb: NotebookNode) -> Iterator[str]:
    if notebooks.clean(nb) != nb:
        yield "free of volatile metadata, as `nbs refresh` leaves it"
    if "widgets" in nb.metadata or any("widget" in mime for _, mime, _ in pieces(nb)):
        yield "free of widgets"


def no_absolute_paths(nb: NotebookNode) -> Iterator[str]:
    texts = [(number, cell.source) for number, cell in enumerate(nb.cells)]
    texts += [(n, text) for n, mime, text in pieces(nb) if mime == "stream" or mime.startswith("text/")]
    for number, text in texts:
        if found := ABSOLUTE.search(text):
            yield f"cell {number} names an absolute path: {text[max(0, found.start() - 20) : found.end() + 20]!r}"


def no_paths_upwards(nb: NotebookNode) -> Iterator[str]:
    for number, cell in enumerate(code_cells(nb), start=1):
        if re.search(r"[\"']\.\./", cell.source):
            yield f"code cell {number} reads a path from '../': papermill runs it in another folder"


def plain_markdown(nb: NotebookNode) -> Iterator[str]:
    for number, cell in enumerate(nb.cells):
        if cell.cell_type == "markdown" and (found := MYST.search(cell.source)):
            yield f"cell {number} holds MyST that Jupyter and Colab show as raw text: {found.group()!r}"
    first = nb.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith("# "):
        yield "the first cell is Markdown and starts with the title, '# ...'"


def pictures_have_words(nb: NotebookNode) -> Iterator[str]:
    for number, cell in enumerate(nb.cells):
        if cell.cell_type == "markdown" and re.search(r"!\[\s*\]\(", cell.source):
            yield f"cell {number}: picture without alternative text"
        for output in cell.get("outputs", []):
            for mime in output.get("data", {}):
                if mime.startswith("image/") and not output.metadata.get(mime, {}).get("alt"):
                    yield f"cell {number}: figure without alternative text: show it with plots.show(figure, alt=...)"
    for number, mime, text in pieces(nb):
        if mime == "text/html" and re.search(r"<img(?![^>]*\balt=)", text):
            yield f"cell {number}: <img> without alt"


def short_cells(nb: NotebookNode) -> Iterator[str]:
    for number, cell in enumerate(code_cells(nb), start=1):
        lines = len(cell.source.splitlines())
        # the parameters, one a line with its comment, are what a reader came for
        if lines > 20 and not (HIDDEN | {"parameters"}) & set(tags(cell)):
            yield f"code cell {number} has {lines} lines: make it a function of nbs_lib, or hide its input"


def small(nb: NotebookNode) -> Iterator[str]:
    size = len(notebooks.nbformat.writes(nb).encode())
    if size >= 800_000:
        yield f"smaller than 800 kB; it has {size // 1000}"


def checked_outputs(nb: NotebookNode) -> Iterator[str]:
    """Chapters only: nbval compares at least three cells."""
    marked = [c for c in code_cells(nb) if "NBVAL_CHECK_OUTPUT" in c.source or _nbval_tag(c)]
    if sum(bool(cell.outputs) for cell in marked) < 3:
        yield "at least three cells marked NBVAL_CHECK_OUTPUT have stored outputs"


def standard_parameters(nb: NotebookNode) -> Iterator[str]:
    """Chapters only: what sweeps and readers rely on."""
    values = parameters.literal_assignments(code_cells(nb)[0].source) or {}
    if values.get("scale") != "quick" or values.get("seed") != 0 or values.get("device", "auto") != "auto":
        yield 'parameters scale = "quick" and seed = 0, and device = "auto" if there is one'


def pieces(nb: NotebookNode) -> Iterator[tuple[int, str, str]]:
    """Yield (cell, MIME type or 'stream', text) of every output."""
    for number, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                yield number, "stream", output.text
            for mime, data in output.get("data", {}).items():
                yield number, mime, data if isinstance(data, str) else str(data)


def claim_ids(nb: NotebookNode) -> set[str]:
    """Return the ids that the notebook checks, in its code and in its outputs."""
    ids = {
        output.data[claims.MIME]["id"]
        for cell in code_cells(nb)
        for output in cell.outputs
        if claims.MIME in output.get("data", {})
    }
    return ids | {
        found for cell in code_cells(nb) for found in re.findall(r"claims\.check\(\s*\"([^\"]+)\"", cell.source)
    }


def _nbval_tag(cell: NotebookNode) -> bool:
    return any(tag.lower().replace("_", "-") == "nbval-check-output" for tag in tags(cell))


EVERY: tuple[Rule, ...] = (
    one_parameters_cell_first,
    set_up_next,
    executed_in_order,
    no_errors_or_warnings,
    clean,
    no_absolute_paths,
    no_paths_upwards,
    plain_markdown,
    pictures_have_words,
    short_cells,
    small,
)
CHAPTER: tuple[Rule, ...] = (checked_outputs, standard_parameters)
