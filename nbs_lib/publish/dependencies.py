"""What a notebook's result depends on: its own cells, the nbs_lib modules it reaches, their data files, the lock.

Modules are found by reading import statements, also those inside functions, without running anything. Where reading
cannot tell (an import by computed name), the whole package counts: a page may be executed once too often, never too
seldom.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from nbs_lib.publish.notebooks import code_cells, tags

PACKAGE = "nbs_lib"
RECORDED = ("results", "paper_tables")  # folders of book/ that a chapter may read numbers from
_MODULE_NAME = re.compile(rf"{PACKAGE}(?:\.\w+)*")


def digest(notebook: NotebookNode, root: Path, values: dict[str, Any] | None = None) -> str:
    """Return a hash that changes whenever the executed notebook could.

    It covers the cells' sources and tags, ``values`` (the parameters passed), every module and data file of the package
    that the code reaches, the recorded numbers if it reads them, requirements.txt and the Python version.
    """
    parts: list[tuple[str, bytes]] = [("python", f"{sys.version_info[:2]}{sorted((values or {}).items())}".encode())]
    for number, cell in enumerate(notebook.cells):
        parts.append((f"cell {number} {cell.cell_type} {tags(cell)}", cell.source.encode()))
    sources = ["\n".join(_plain_lines(cell.source)) for cell in code_cells(notebook)]
    modules = reached(sources, root)
    files = {*modules.values(), *_assets(modules, root), root / "requirements.txt"}
    mentions = "\n".join([*sources, *(path.read_text("utf8") for path in modules.values())])
    for folder in RECORDED:
        found = [path for path in (root / "book" / folder).glob("**/*") if path.is_file()]
        if re.search(rf"[\"'/]{folder}\b", mentions) or any(path.name in mentions for path in found):
            files.update(found)
    return _hash(parts + _contents(files, root))


def code_digest(notebook: NotebookNode, root: Path) -> str:
    """Return a hash of what computes a notebook's numbers: its code cells, the package's modules and data it reaches.

    Unlike `digest` it says nothing of the text, the lock or recorded numbers: changing those makes no result stale.
    """
    sources = ["\n".join(_plain_lines(cell.source)) for cell in code_cells(notebook)]
    modules = reached(sources, root)
    cells = [(f"cell {number}", cell.source.encode()) for number, cell in enumerate(code_cells(notebook))]
    return _hash(cells + _contents({*modules.values(), *_assets(modules, root)}, root))


def _contents(files: Iterable[Path], root: Path) -> list[tuple[str, bytes]]:
    return [(str(path.relative_to(root)), path.read_bytes()) for path in sorted(files) if path.is_file()]


def _hash(parts: Iterable[tuple[str, bytes]]) -> str:
    whole = hashlib.sha256()
    for name, content in parts:
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def reached(sources: Iterable[str], root: Path) -> dict[str, Path]:
    """Return the package's modules, name to file, that the given pieces of code import, directly or by way of others.

    A module's package is reached with it, as importing it runs the package's ``__init__``.
    """
    known = modules_of(root)
    waiting = [name for source in sources for name in _imports(source, "", known)]
    found: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        if name in found or name not in known:
            continue
        found[name] = known[name]
        package = name if known[name].name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imports(known[name].read_text("utf8"), package, known)
        if "." in name:
            waiting.append(name.rpartition(".")[0])
    return dict(sorted(found.items()))


def modules_of(root: Path) -> dict[str, Path]:
    """Return every module of the package in the repository: dotted name to file."""
    modules = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        names = path.relative_to(root).with_suffix("").parts
        modules[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return modules


def _imports(source: str, package: str, known: dict[str, Path]) -> set[str]:
    """Return the module names that ``source`` (inside ``package``) imports or names in a string."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set(known)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                stem = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
                base = f"{stem}.{base}" if base else stem
            found.update([base, *(f"{base}.{alias.name}" for alias in node.names)])
            if any(alias.name == "*" for alias in node.names):
                found.update(name for name in known if name.startswith(f"{base}."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE_NAME.fullmatch(node.value):
            found.add(node.value)
        elif isinstance(node, ast.Call) and _name(node.func) in ("import_module", "__import__"):
            argument = node.args[0] if node.args else None
            if not isinstance(argument, ast.Constant):  # a computed name: it may be any below this package
                found.update(name for name in known if name.startswith(f"{package or PACKAGE}."))
    return {name for name in found if name.split(".")[0] == PACKAGE}


def _assets(modules: dict[str, Path], root: Path) -> set[Path]:
    """Return the files that are not Python in the folders of the reached packages (and in their plain subfolders)."""
    files: set[Path] = set()
    for path in modules.values():
        if path.name == "__init__.py":
            files.update(_plain_files(path.parent))
    return files


def _plain_files(folder: Path) -> Iterable[Path]:
    for path in folder.iterdir():
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            yield path
        elif path.is_dir() and path.name != "__pycache__" and not (path / "__init__.py").exists():
            yield from _plain_files(path)


def _plain_lines(source: str) -> Iterable[str]:
    """Blank out IPython's magic and shell lines, which the Python parser cannot read."""
    return ("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
