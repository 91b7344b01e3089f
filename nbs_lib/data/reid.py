"""Person re-identification folders in the layout of Market-1501 and DukeMTMC-reID.

DukeMTMC was withdrawn by its authors in 2019. The reader takes any folder of this layout; plan on no set that its
authors took back.
"""

import re
from pathlib import Path

import torch

from nbs_lib.data import files
from nbs_lib.data.files import DataError, Files
from nbs_lib.data.identities import OpenSet, Views
from nbs_lib.data.sets import ImageSet

FOLDERS = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
_NAME = re.compile(r"(-1|\d+)_c(\d+)(?:s\d+)?_.*")


def reid_folder(path: str | Path, image_size: int = 64) -> OpenSet:
    """Read ``bounding_box_train``, ``query`` and ``bounding_box_test`` with names like ``0002_c1s1_000451_03.jpg``.

    The name starts with the identity (-1 is junk, 0000 a distractor) and the camera, ``c`` and a number. Images are
    scaled so that the shorter edge has ``image_size`` pixels and cut to the central square, as everywhere in this
    package; the papers' networks take 256 x 128.

    Args:
        path: the folder of the set.
        image_size: side in pixels.

    Raises:
        DataError: a folder is missing or empty, a name has no identity or no camera, a training image is junk, a query
            has no identity, or an identity is in training and query; names folder, file and what.
    """
    root = Path(path).expanduser()
    found = {part: _listed(root / folder) for part, folder in FOLDERS.items()}
    for part, wrong in (("train", "junk (-1)"), ("query", "junk (-1) or a distractor (0)")):
        listed, people, _ = found[part]
        for file, person in zip(listed, people, strict=True):
            if person == -1 or (part == "query" and person == 0):
                raise DataError(f"re-identification set: {file} is {wrong}, which {FOLDERS[part]} must not hold")
    shared = set(found["train"][1]) & set(found["query"][1])
    if shared:
        raise DataError(f"re-identification set {root}: identity {min(shared)} is in training and in query images")
    title = root.name
    known = _files(title, *found["train"][:2])
    side, channels = files.form(known, image_size)
    mean, std = files.moments(known, side, channels)

    def views(part: str) -> Views:
        listed, people, cameras = found[part]
        images = _decoded(_files(title, listed, people), side, channels, mean, std)
        return Views(images, torch.tensor(people), torch.tensor(cameras))

    return OpenSet(_decoded(known, side, channels, mean, std), views("query"), views("gallery"))


def _listed(folder: Path) -> tuple[list[Path], list[int], list[int]]:
    """Image files with the identity and the camera in their names."""
    if not folder.is_dir():
        raise DataError(f"re-identification set: there is no folder {folder}")
    listed = sorted(p for p in folder.iterdir() if p.suffix.lower() in files.SUFFIXES and not p.name.startswith("."))
    if not listed:
        raise DataError(f"re-identification set: {folder} has no image")
    people, cameras = [], []
    for file in listed:
        name = _NAME.fullmatch(file.stem + "_")
        if name is None:
            raise DataError(
                f"re-identification set: {file} must be named identity_camera..., like 0002_c1s1_000451_03.jpg"
                " or 0001_c2_f0046182.jpg"
            )
        people.append(int(name[1]))
        cameras.append(int(name[2]))
    return listed, people, cameras


def _files(name: str, listed: list[Path], people: list[int]) -> Files:
    names, labels = torch.tensor(people).unique(return_inverse=True)
    return Files(name, tuple(listed), labels, tuple(f"{person:04}" for person in names.tolist()))


def _decoded(
    listed: Files, side: int, channels: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> ImageSet | files.StreamSet:
    if len(listed.paths) * channels * side * side > files.RESIDENT_BYTES:
        return files.StreamSet(listed, side, channels, mean, std, workers=2)
    return files.read(listed, side, channels, mean, std)
