"""Fixtures for all tests. ``TORCH_DEVICE=cuda pytest tests`` runs those that take ``device`` on a GPU."""

import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import settings

from nbs_lib.publish import notebooks

ROOT = Path(__file__).parents[1]

# Times vary too much between machines for a deadline; a fixed seed makes every run look at the same examples.
settings.register_profile("nbs", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("nbs")


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device(os.environ.get("TORCH_DEVICE", "cpu"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


PARAMETERS = """\
scale = "quick"  # str: "quick" or "paper"
lr = 1.0  # float: learning rate
flag = True  # bool: a switch
seed = 0  # int: seed"""
CHECK = """
from nbs_lib import claims, parameters
from nbs_lib.parameters import boolean, integer, one_of, real

parameters.check(globals(), scale=one_of("quick", "paper"), lr=real(0.0, 10.0), flag=boolean(), seed=integer(0))"""


@pytest.fixture(scope="session")
def make_notebook() -> Callable[..., nbformat.NotebookNode]:
    """What makes a notebook with a cell of text (if any), the parameters cell, the set-up cell and the given code."""

    def make(*cells: str, text: str = "") -> nbformat.NotebookNode:
        nb = nbformat.v4.new_notebook()
        nb.cells = [
            *([nbformat.v4.new_markdown_cell(text)] if text else []),
            nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(notebooks.setup_source(ROOT) + CHECK, metadata={"tags": ["hide-input"]}),
            *(nbformat.v4.new_code_cell(source) for source in cells),
        ]
        return notebooks.clean(nb)

    return make
