"""A tiny book: one page, one notebook that checks one claim and shows one figure, with the real configuration."""

import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from nbs_lib.publish import notebooks

ROOT = Path(__file__).parents[2]

CLAIMS = """\
- id: tiny-claim
  title: Two is even
  paper: tiny-2024
  where: Lemma 1, p. 1
  kind: lemma
  statement: The number $|{-2}|$ is even.
  chapter: 10_tiny
- id: tiny-open
  title: Odd perfect numbers
  paper: tiny-2024
  where: Theorem 2
  kind: theorem
  statement: There is none.
  chapter: 20_later
"""
BIBLIOGRAPHY = """\
@article{tiny-2024, author = {Euclid and Euler, Leonhard}, title = {On {Numbers}}, year = {2024}, journal = {J}}
"""
FORMULAS = r"""# Tiny

One line: $$a = b \tag{3.5}$$

Two lines:

$$
\begin{aligned} a &= b \\ &= c \end{aligned} \tag{3.6}
$$
"""
CLAIM = 'claims.check("tiny-claim", measured=2 * lr, expected=2.0, tolerance=1e-3)'
FIGURE = """\
import base64

from IPython.display import Image, display

dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
display(Image(data=base64.b64decode(dot), format="png", alt="A \\"dot\\" & nothing else"))"""


@pytest.fixture
def tiny(tmp_path: Path, make_notebook) -> Path:
    return build_tiny(tmp_path, make_notebook)


@pytest.fixture(scope="module")
def shared_tiny(tmp_path_factory: pytest.TempPathFactory, make_notebook) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"), make_notebook)


def build_tiny(tmp_path: Path, make_notebook: Callable[..., nbformat.NotebookNode]) -> Path:
    """A repository with a book of one page, one chapter and the ledger."""
    book = tmp_path / "book"
    (tmp_path / "notebooks").mkdir()
    (book / "_static").mkdir(parents=True)
    for name in ("ledger.js", "tables.js", "nbs.css"):
        shutil.copy(ROOT / "book" / "_static" / name, book / "_static")
    shutil.copy(ROOT / "book" / "_config.yml", book)
    (tmp_path / "requirements.txt").write_text("numpy==1\n")
    (book / "index.md").write_text("# Start\n\n[the chapter](notebooks/10_tiny.ipynb), [the ledger](ledger.md)\n")
    (book / "_toc.yml").write_text(
        "format: jb-book\nroot: index\nchapters:\n- file: notebooks/10_tiny\n- file: ledger\n"
    )
    (book / "claims.yml").write_text(CLAIMS)
    (book / "references.bib").write_text(BIBLIOGRAPHY)
    notebooks.write(make_notebook(CLAIM, FIGURE, text=FORMULAS), tmp_path / "notebooks" / "10_tiny.ipynb")
    return tmp_path
