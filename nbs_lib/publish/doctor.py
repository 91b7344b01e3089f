"""What `nbs doctor` reports: versions against the declared ranges, device and precision, kernel, data sets."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

from packaging.requirements import Requirement

DISTRIBUTION = "nbs-lib"


class Finding(NamedTuple):
    """One line of the report; ``needed`` says that something does not work while ``ok`` is false."""

    ok: bool
    name: str
    text: str
    needed: bool = True


def examine() -> Iterator[Finding]:
    """Yield the findings, cheapest first."""
    version = platform.python_version()
    yield Finding(sys.version_info >= (3, 11), "python", f"{version} at {sys.executable}")
    yield from _distributions()
    yield _kernel()
    yield from _device()
    yield from _image_sets()


def _distributions() -> Iterator[Finding]:
    """Compare what is installed with the ranges of pyproject.toml: those of sweeps and tests are not needed."""
    try:
        requirements = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or []]
    except metadata.PackageNotFoundError:
        yield Finding(False, DISTRIBUTION, "not installed: run `pip install -e .` in the clone")
        return
    yield Finding(True, DISTRIBUTION, metadata.version(DISTRIBUTION))
    for wanted in requirements:
        extra = next((e for e in ("book", "sweep", "test") if f'"{e}"' in str(wanted.marker)), "")
        if wanted.name == DISTRIBUTION or (wanted.marker and not wanted.marker.evaluate({"extra": extra})):
            continue
        purpose, needed = f" (for the {extra})" if extra else "", extra not in ("sweep", "test")
        try:
            found = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            yield Finding(False, wanted.name, f"missing{purpose}; wanted: {wanted.specifier}", needed)
            continue
        fits = wanted.specifier.contains(found, prereleases=True)
        text = found if fits else f"{found}{purpose}; wanted: {wanted.specifier}"
        yield Finding(fits, wanted.name, text, needed)


def _kernel() -> Finding:
    try:
        from ipykernel.kernelspec import get_kernel_dict

        return Finding(True, "kernel", " ".join(get_kernel_dict()["argv"][:1]))
    except ImportError:
        return Finding(False, "kernel", "ipykernel is missing: notebooks cannot run")


def _device() -> Iterator[Finding]:
    try:
        import torch
    except ImportError:
        return  # reported among the distributions
    if torch.cuda.is_available():
        name, half = torch.cuda.get_device_name(), torch.cuda.is_bf16_supported(including_emulation=False)
        yield Finding(True, "device", f"cuda: {name} ({torch.cuda.device_count()} found)")
    else:
        half, mps = False, torch.backends.mps.is_available()
        cores = f"cpu: {os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
        yield Finding(True, "device", "mps (Apple)" if mps else cores)
    yield Finding(True, "precision", "bfloat16 autocast; losses in float32" if half else "float32")


def _image_sets() -> Iterator[Finding]:
    try:
        from nbs_lib import data
        from nbs_lib.data.sources import FALLBACK, data_root
    except ImportError as error:
        yield Finding(False, "data", f"cannot be imported: {error}")
        return
    yield Finding(True, "NBS_DATA", f"{data_root()}" + ("" if os.environ.get("NBS_DATA") else " (default; not set)"))
    for name in data.available():
        try:
            size = len(data.load(name, split="test", download=False))
            yield Finding(True, name, f"found ({size:,} test images)")
        except (RuntimeError, OSError, ValueError) as error:  # DataError and torchvision's own
            yield Finding(False, name, " ".join(str(error).split()), name == FALLBACK)
