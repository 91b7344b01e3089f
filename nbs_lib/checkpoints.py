"""Checkpoints that survive a kill at any moment and refuse to be mixed up."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

_FORMAT = "nbs_lib.train/1"


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read, or belongs to another run."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write ``state`` beside ``path``, then rename: a kill at any moment leaves the old file or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with open(part, "wb") as file:
        torch.save({"format": _FORMAT, **state}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def load(path: Path, parts: Iterable[str] = ()) -> dict[str, Any]:
    """Read a checkpoint, tensors and plain values only (nothing in the file is executed).

    Args:
        path: the file.
        parts: keys that it must have.

    Raises:
        CheckpointError: the file is truncated, not one of ours, or lacks one of ``parts``.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a dozen kinds here, from EOFError to UnpicklingError
        raise CheckpointError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}): it is truncated or another kind of file."
            " Delete it, or train with resume=False to overwrite it."
        ) from error
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of nbs_lib.train; choose another path.")
    missing = [part for part in parts if part not in state]
    if missing:
        raise CheckpointError(
            f"{path} is an incomplete checkpoint, without {', '.join(missing)}."
            " Delete it, or train with resume=False to overwrite it."
        )
    return state


def same_run(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise :class:`CheckpointError`, naming each setting that differs, unless ``found`` agrees with ``wanted``."""
    different = [
        f"{name} is {found.get(name)!r} there, {value!r} here"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    if different:
        raise CheckpointError(f"checkpoint {path} belongs to another run: {'; '.join(different)}")
