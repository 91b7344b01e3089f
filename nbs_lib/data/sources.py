"""Image sets by name: the one in this package, torchvision's, any folder of images."""

import difflib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision import datasets

from nbs_lib.data import files
from nbs_lib.data.files import DataError, Files, StreamSet
from nbs_lib.data.sets import ImageSet, first_of_each_class

FALLBACK = "fashion_mini"
"""The set that ships with the package and is always there."""
FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


@dataclass(frozen=True)
class _Source:
    """A set of torchvision: how to open it, where it lies under the data folder, moments of its training images."""

    open: Callable[[Path, str, bool], Any]
    place: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


def _by_flag(kind: Callable[..., Any]) -> Callable[[Path, str, bool], Any]:
    return lambda root, split, download: kind(root, train=split == "train", download=download)


_TORCHVISION = {
    "mnist": _Source(_by_flag(datasets.MNIST), "MNIST/raw", (0.1307,), (0.3081,)),
    "fashion_mnist": _Source(_by_flag(datasets.FashionMNIST), "FashionMNIST/raw", (0.2860,), (0.3530,)),
    "kmnist": _Source(_by_flag(datasets.KMNIST), "KMNIST/raw", (0.1918,), (0.3483,)),
    "cifar10": _Source(
        _by_flag(datasets.CIFAR10), "cifar-10-batches-py", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    ),
    "cifar100": _Source(
        _by_flag(datasets.CIFAR100), "cifar-100-python", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
    ),
    # Photographs of many sizes: these are decoded like a folder, and their moments measured.
    "flowers102": _Source(lambda root, split, load: datasets.Flowers102(root, split, download=load), "flowers-102"),
}


def available() -> tuple[str, ...]:
    """Names that :func:`load` knows, besides ``folder:PATH``."""
    return (FALLBACK, *_TORCHVISION)


def check_name(name: str) -> str:
    """Return ``name`` if :func:`load` knows it.

    Raises:
        ValueError: it does not; the message offers the nearest name.
    """
    if name in available() or (isinstance(name, str) and name.removeprefix("folder:") not in ("", name)):
        return name
    near = difflib.get_close_matches(str(name).lower().replace("-", "_"), available(), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown image set {name!r}: {hint}known are {', '.join(available())} and folder:PATH")


def data_root(root: str | Path | None = None) -> Path:
    """Folder of downloaded sets: ``root``, else ``NBS_DATA``, else ``nbs_lib`` in the user's cache folder."""
    if root is None:
        root = os.environ.get("NBS_DATA") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "nbs_lib"
    return Path(root).expanduser()


def load(
    name: str,
    *,
    split: str = "train",
    root: str | Path | None = None,
    device: torch.device | str = "cpu",
    limit_per_class: int | None = None,
    image_size: int | None = None,
    stream: bool | None = None,
    download: bool = True,
) -> ImageSet | StreamSet:
    """Load an image set.

    Args:
        name: one of :func:`available`, or ``folder:PATH`` with PATH/train/<class> and PATH/test/<class> (or val), or
            with PATH/<class>, of which a fixed fifth of each class becomes the test split.
        split: "train" or "test".
        root: folder of downloaded sets, see :func:`data_root`.
        device: where the images are wanted.
        limit_per_class: keep only the first so many images of each class, in file order.
        image_size: side in pixels, for folders and sets of photographs: the shorter edge is scaled to it and the
            centre cut out. None: the images' own if they agree, else 64.
        stream: decode anew each epoch instead of holding the set in memory (folders and photographs); None does so
            when the decoded set would take over 4 GiB.
        download: fetch a set of torchvision that is not there yet.

    Raises:
        ValueError: an unknown name or split, a limit or size below one, a size for a set that has its own.
        DataError: the set is not there and cannot be fetched, or is damaged; names set, place and fallback.
    """
    check_name(name)
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    for argument, value in (("limit_per_class", limit_per_class), ("image_size", image_size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{argument} must be an integer of at least 1 or None, got {value!r}")
    if name.startswith("folder:"):
        path = Path(name.removeprefix("folder:")).expanduser()
        title = f"folder:{path.name}"
        return _from_files(files.find_split(path, title), split, limit_per_class, image_size, stream).to(device)
    if name in ("flowers102",):
        both = {part: _flowers(part, data_root(root), download) for part in ("train", "test")}
        return _from_files(both, split, limit_per_class, image_size, stream).to(device)
    full = _embedded(split) if name == FALLBACK else _resident(name, split, data_root(root), download)
    if image_size not in (None, full.image_size):
        raise ValueError(f"image_size of {name!r} is {full.image_size} by construction, got {image_size!r}")
    if limit_per_class is not None:
        keep = first_of_each_class(full.labels, limit_per_class)
        full = replace(full, images=full.images[keep], labels=full.labels[keep])
    return full.to(device)


def _embedded(split: str) -> ImageSet:
    path = Path(__file__).parent / "assets" / f"{FALLBACK}.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            images, labels = stored[f"{split}_images"], stored[f"{split}_labels"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"image set {FALLBACK!r}: {path} is missing or damaged, reinstall nbs_lib: {error}") from error
    return ImageSet(
        images=torch.from_numpy(images).unsqueeze(1),
        labels=torch.from_numpy(labels).long(),
        num_classes=len(FASHION_CLASSES),
        name=FALLBACK,
        mean=_TORCHVISION["fashion_mnist"].mean,
        std=_TORCHVISION["fashion_mnist"].std,
        class_names=FASHION_CLASSES,
    )


def _resident(name: str, split: str, root: Path, download: bool) -> ImageSet:
    source, found = _TORCHVISION[name], _open(name, split, root, download)
    try:
        return ImageSet(
            images=_as_nchw(found.data),
            labels=torch.as_tensor(found.targets, dtype=torch.int64),
            num_classes=len(found.classes),
            name=name,
            mean=source.mean,
            std=source.std,
            class_names=tuple(found.classes),
        )
    except ValueError as error:  # labels out of range, or not one an image
        raise _damaged(name, root / source.place, error) from error


def _damaged(name: str, place: Path, error: Exception) -> DataError:
    return DataError(
        f"image set {name!r} at {place} is damaged ({type(error).__name__}: {error or 'wrong length'}):"
        f" remove that folder to have it downloaded again, or use {FALLBACK!r}, which ships with this package"
    )


def _as_nchw(pixels: Any) -> Tensor:
    """Bytes (N, H, W) or (N, H, W, C), as torchvision keeps them, to (N, C, H, W)."""
    images = torch.as_tensor(pixels)
    return images.unsqueeze(1) if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()


def _flowers(split: str, root: Path, download: bool) -> Files:
    found = _open("flowers102", split, root, download)
    names = tuple(found.classes) if hasattr(found, "classes") else tuple(str(k) for k in range(1, 103))
    return Files("flowers102", tuple(map(Path, found._image_files)), torch.tensor(found._labels), names)


def _from_files(
    both: dict[str, Files], split: str, limit_per_class: int | None, image_size: int | None, stream: bool | None
) -> ImageSet | StreamSet:
    # Size, channels and moments are the training split's, for the test split too.
    side, channels = files.form(both["train"], image_size)
    mean, std = files.moments(both["train"], side, channels)
    chosen = both[split]
    if limit_per_class is not None:
        chosen = files.select(chosen, first_of_each_class(chosen.labels, limit_per_class))
    if stream is None:
        stream = len(chosen.paths) * channels * side * side > files.RESIDENT_BYTES
    if stream:
        return StreamSet(chosen, side, channels, mean, std, workers=min(4, (os.cpu_count() or 1) - 1))
    return files.read(chosen, side, channels, mean, std)


def _open(name: str, split: str, root: Path, download: bool) -> Any:
    """Open a set of torchvision, fetching it first if it is missing.

    torchvision raises RuntimeError for a set that is missing, and all kinds of things for files that break off.
    """
    source = _TORCHVISION[name]
    place, advice = root / source.place, f"or use {FALLBACK!r}, which ships with this package"
    try:
        try:
            return source.open(root, split, False)
        except RuntimeError as missing:
            if "not found" not in str(missing).lower():
                raise
            if not download:
                raise DataError(
                    f"image set {name!r} is not at {place} (download=False):"
                    f" set NBS_DATA to a folder that has it, {advice}"
                ) from missing
        _fetch(source, root)
        return source.open(root, split, False)
    except DataError:
        raise
    except _Unfetched as error:
        raise DataError(
            f"image set {name!r} is not at {place}, and cannot be downloaded: {error}."
            f" Set NBS_DATA to a folder that has it, {advice}"
        ) from error
    except Exception as error:
        raise _damaged(name, place, error) from error


class _Unfetched(Exception):
    """A download failed."""


def _fetch(source: _Source, root: Path) -> None:
    """Download into a hidden folder beside, then move file by file: the cache never holds half a file."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as part:
            for split in ("train", "test"):
                source.open(Path(part), split, True)
            for file in sorted(path for path in Path(part).rglob("*") if path.is_file()):
                target = root / file.relative_to(part)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(file, target)
    except Exception as error:
        raise _Unfetched(str(error).strip() or type(error).__name__) from error
