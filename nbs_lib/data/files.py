"""Folders of image files: found, checked, decoded into one set of bytes, or streamed if they would not fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nbs_lib.data.sets import Batches, ImageSet

SUFFIXES = {".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
MIXED_SIZE = 64
"""Side in pixels of sets whose images differ in size, unless another is asked for."""
RESIDENT_BYTES = 4 << 30
"""Sets larger than this, decoded, are streamed."""
SPLITS = {"test", "train", "val", "valid", "validation"}
"""Names, in lower case, that a folder of a class is not believed to have."""


CPU = torch.device("cpu")


class DataError(RuntimeError):
    """An image set cannot be read; the message names the set, the place and what to do."""


@dataclass(frozen=True)
class Files:
    """Image files with labels."""

    name: str
    paths: tuple[Path, ...]
    labels: Tensor
    class_names: tuple[str, ...]


def find(root: Path, name: str) -> Files:
    """List ``root``/<class>/**/<image>, classes and files in the order of their names.

    Raises:
        DataError: no such folder, no class in it, a class without an image.
    """
    if not root.is_dir():
        raise DataError(f"image set {name!r}: there is no folder {root}")
    classes = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(classes) < 2:
        raise DataError(f"image set {name!r}: {root} must hold a folder for each of two classes or more")
    paths, labels = [], []
    for label, folder in enumerate(classes):
        found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        found = [path for path in found if not path.name.startswith(".")]  # such as macOS's ._0.png, which is no image
        if not found:
            raise DataError(f"image set {name!r}: class folder {folder} has no image ({', '.join(sorted(SUFFIXES))})")
        paths += found
        labels += [label] * len(found)
    return Files(name, tuple(paths), torch.tensor(labels), tuple(folder.name for folder in classes))


def find_split(root: Path, name: str) -> dict[str, Files]:
    """Training and test files under ``root``.

    ``root``/train/<class> with ``root``/test/<class> (or ``val``) as they are; else ``root``/<class>, of which a fifth
    of every class, drawn with a fixed seed from the files in the order of their names, is the test split.

    Raises:
        DataError: as :func:`find`; splits with different classes; a class folder named like a split; a class of one
            image that would have to be split.
    """
    held = next((part for part in ("test", "val") if (root / part).is_dir()), None)
    if (root / "train").is_dir() and held:
        both = {"train": find(root / "train", name), "test": find(root / held, name)}
        odd = set(both["train"].class_names) ^ set(both["test"].class_names)
        if odd:
            raise DataError(f"image set {name!r}: {root}/train and {root}/{held} differ in classes {sorted(odd)}")
        return both
    splits = sorted(entry.name for entry in root.glob("*/") if entry.name.lower() in SPLITS)
    if splits:
        raise DataError(
            f"image set {name!r}: {', '.join(map(repr, splits))} in {root} looks like a split, not a class; understood"
            " are the folders 'train' and 'test' (or 'val'), both there and spelt like this, or class folders alone"
        )
    whole = find(root, name)
    generator, test = torch.Generator().manual_seed(0), torch.zeros(len(whole.paths), dtype=torch.bool)
    for label, title in enumerate(whole.class_names):
        mine = (whole.labels == label).nonzero().squeeze(1)
        if len(mine) < 2:
            raise DataError(f"image set {name!r}: class {title!r} in {root} has one image, a split needs two")
        test[mine[torch.randperm(len(mine), generator=generator)[: max(1, len(mine) // 5)]]] = True
    return {"train": select(whole, (~test).nonzero().squeeze(1)), "test": select(whole, test.nonzero().squeeze(1))}


def select(files: Files, rows: Tensor) -> Files:
    """Keep the files at ``rows``."""
    return replace(files, paths=tuple(files.paths[int(i)] for i in rows), labels=files.labels[rows])


def _open(path: Path, name: str) -> Image.Image:
    try:
        return Image.open(path)
    except OSError as error:  # PIL's UnidentifiedImageError is one
        raise DataError(f"image set {name!r}: {path} cannot be read as an image: {error}") from error


def form(files: Files, image_size: int | None) -> tuple[int, int]:
    """Side in pixels and number of channels: from the file headers, unless ``image_size`` says the side.

    Images all of one size keep it (cut to the central square), others get ``MIXED_SIZE``. All grey gives one channel.
    """
    sizes, grey = set(), True
    for path in files.paths:
        with _open(path, files.name) as image:
            sizes.add(image.size)
            grey &= image.mode in ("1", "L", "I", "F") or image.mode.startswith("I;16")
    own = min(next(iter(sizes))) if len(sizes) == 1 else MIXED_SIZE
    return image_size or own, 1 if grey else 3


def _eight_bits(image: Image.Image, path: Path, name: str) -> Image.Image:
    """The upper byte of 16-bit grey, where PIL's own conversion turns all above 255 white; other images as they are."""
    # PNG and PGM have at most 16 bits, whatever mode PIL opens them in.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DataError(
            f"image set {name!r}: {path} has pixels of mode {image.mode!r} (32 bits), whose range no file tells:"
            " save it with 8 or 16 bits"
        )
    return image


def decode(path: Path, name: str, side: int, channels: int) -> Tensor:
    """Read one image as bytes (C, side, side): the shorter edge scaled to ``side``, the centre cut out.

    Raises:
        DataError: the file is no image, breaks off, or has pixels of 32 bits.
    """
    with _open(path, name) as image:
        try:
            return square(_eight_bits(image, path, name), side, channels)
        except OSError as error:
            raise DataError(f"image set {name!r}: {path} is broken: {error}") from error


def square(image: Image.Image, side: int, channels: int) -> Tensor:
    """Bytes (C, side, side) of an image of 8 bits: the shorter edge scaled to ``side``, the centre cut out."""
    image = image.convert("L" if channels == 1 else "RGB")
    if min(image.size) != side:
        scale = side / min(image.size)
        image = image.resize([max(side, round(edge * scale)) for edge in image.size], Image.Resampling.BILINEAR)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    pixels = np.array(image.crop((left, top, left + side, top + side)))
    return torch.from_numpy(pixels.reshape(side, side, channels)).permute(2, 0, 1)


def moments(files: Files, side: int, channels: int, most: int = 2000) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel over at most ``most`` evenly spaced images, on the scale 0..1."""
    step = max(1, len(files.paths) // most)
    total, square, count = torch.zeros(channels, dtype=torch.float64), torch.zeros(channels, dtype=torch.float64), 0
    for path in files.paths[::step]:
        pixels = decode(path, files.name, side, channels).double().flatten(1) / 255
        total, square, count = total + pixels.sum(1), square + pixels.square().sum(1), count + pixels.shape[1]
    mean = total / count
    std = (square / count - mean.square()).clamp(min=1e-12).sqrt().clamp(min=1 / 255)
    return tuple(round(v, 4) for v in mean.tolist()), tuple(round(v, 4) for v in std.tolist())


class _Decoded(Dataset):
    """Map-style view of the files, for a DataLoader's workers."""

    def __init__(self, files: Files, side: int, channels: int) -> None:
        self.files, self.side, self.channels = files, side, channels

    def __getitem__(self, index: int) -> Tensor:
        return decode(self.files.paths[index], self.files.name, self.side, self.channels)


@dataclass(frozen=True, eq=False)
class StreamSet(Batches):
    """Labelled image files that are decoded anew each epoch; the same interface as :class:`~nbs_lib.data.ImageSet`.

    Bytes go to the device a batch at a time; augmentation and normalisation happen there, with the same random choices.

    Args:
        files: what to read.
        image_size: side of the decoded images in pixels.
        channels: 1 or 3.
        mean: per channel, of pixel values scaled to 0..1.
        std: per channel, of pixel values scaled to 0..1.
        device: where the batches are wanted.
        workers: processes that decode; 0 decodes in this one.
        clean_labels: (N,) the true labels, if those of ``files`` were made wrong on purpose.
    """

    files: Files
    image_size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: torch.device = CPU
    workers: int = 0
    clean_labels: Tensor | None = None

    def __post_init__(self) -> None:
        self._check_description()

    @property
    def name(self) -> str:
        """What figures and result tables call the set."""
        return self.files.name

    @property
    def labels(self) -> Tensor:
        """(N,) int64, on the CPU."""
        return self.files.labels

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the K classes."""
        return self.files.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.class_names)

    def to(self, device: torch.device | str) -> "StreamSet":
        """Return the set with its batches on ``device``."""
        return replace(self, device=torch.device(device))

    def _fetch(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        loader = DataLoader(
            _Decoded(self.files, self.image_size, self.channels),
            batch_sampler=[row.tolist() for row in rows],
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
        )
        for images, row in zip(loader, rows, strict=True):
            yield images.to(self.device, non_blocking=True), self.labels[row].to(self.device, non_blocking=True)


def read(files: Files, side: int, channels: int, mean: tuple[float, ...], std: tuple[float, ...]) -> ImageSet:
    """Decode every file into a set that stays in memory."""
    images = torch.empty((len(files.paths), channels, side, side), dtype=torch.uint8)
    for row, path in enumerate(files.paths):
        images[row] = decode(path, files.name, side, channels)
    return ImageSet(images, files.labels, len(files.class_names), files.name, mean, std, files.class_names)
