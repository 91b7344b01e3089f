"""Fixtures for all tests. ``TORCH_DEVICE=cuda pytest tests`` runs those that take ``device`` on a GPU."""

import os

import pytest
import torch
from hypothesis import settings

# Times vary too much between machines for a deadline; a fixed seed makes every run look at the same examples.
settings.register_profile("nbs", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("nbs")


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device(os.environ.get("TORCH_DEVICE", "cpu"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
