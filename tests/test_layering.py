"""Who may import whom inside nbs_lib: floors without circles, so that each room can be read, tested and used alone."""

import ast
from pathlib import Path

import pytest

import nbs_lib

PACKAGE = Path(nbs_lib.__file__).parent
BELOW_ALL = {"geometry", "validation"}
GROUND = {"losses", "heads", "metrics", "data", "models", "claims", "parameters"}
GROUND |= {"checkpoints", "progress", "provenance", "records"}
MAY_IMPORT = {
    "geometry": set(),
    "validation": set(),
    **dict.fromkeys(GROUND, BELOW_ALL),
    "theory": BELOW_ALL | {"losses", "metrics", "heads"},
    "evaluation": BELOW_ALL | {"data", "metrics"},
    "train": BELOW_ALL | {"data", "metrics", "checkpoints", "progress", "evaluation"},
    "plots": BELOW_ALL | {"metrics"},
    "config": BELOW_ALL | GROUND | {"train"},
    "mixup": BELOW_ALL | {"train"},
    "run": BELOW_ALL | GROUND | {"theory", "train", "config", "mixup"},
    "two_stage": BELOW_ALL | GROUND | {"train", "run"},
    "recognition": BELOW_ALL | GROUND | {"train", "config", "run"},
    # The publishing wing executes notebooks and reads what they leave; it knows nothing of the science.
    # Only a sweep's figures reach for `plots`, whose room draws the numbers it is given and computes none: one look of
    # the book, in one place (`test_only_the_figures_of_a_sweep_know_the_plots`).
    "publish": {"claims", "data", "parameters", "records", "plots"},
    "cli": {"claims", "data", "parameters", "publish"},
}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """First names below ``nbs_lib`` that a file imports anywhere, also inside functions and for typing."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import, write nbs_lib.… in full"
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("nbs_lib.")}
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(PACKAGE)) for path in FILES])
def test_imports_point_downwards(path):
    room = room_of(path)
    assert room in MAY_IMPORT, f"nbs_lib/{room} has no floor: give it one in this test"
    wrong = imported_rooms(path) - MAY_IMPORT[room] - {room}
    assert not wrong, f"nbs_lib/{path.relative_to(PACKAGE)} must not import {', '.join(sorted(wrong))}"


def test_only_the_figures_of_a_sweep_know_the_plots():
    assert {path.name for path in FILES if room_of(path) == "publish" and "plots" in imported_rooms(path)} == {
        "figures.py"
    }


def test_the_package_itself_imports_nothing():
    assert not [
        node
        for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]


def test_formulas_lie_under_their_modules():
    """losses: curve, target and imbalance below functional, functional below the modules, those below build."""
    losses = PACKAGE / "losses"
    allowed = {
        "curve": set(),
        "target": {"curve"},
        "base": set(),
        "imbalance": {"target"},
        "smoothing": set(),
        "functional": {"curve", "target", "imbalance", "smoothing"},
    }
    for stem, below in allowed.items():
        text = (losses / f"{stem}.py").read_text()
        inside = {
            node.module.split(".")[2]
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nbs_lib.losses.")
        }
        assert inside <= below, stem


def test_no_file_is_long():
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert not {path: n for path, n in lengths.items() if n > 400}


def test_the_scan_sees_every_form_of_import(tmp_path):
    source = tmp_path / "x.py"
    source.write_text(
        "import nbs_lib.a\nfrom nbs_lib import b\nfrom nbs_lib.c.d import e\ndef f():\n    import nbs_lib.g.h\n"
    )
    assert imported_rooms(source) == {"a", "b", "c", "g"}
