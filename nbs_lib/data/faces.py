"""Faces: the ORL set from its archive, and the pair lists of LFW, CALFW, CPLFW, AgeDB-30 and CFP.

MS-Celeb-1M and the sets cut from it (MS1MV2, MS1MV3) were withdrawn by their authors: nothing here reads them.
"""

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torchvision import datasets

from nbs_lib.data import files
from nbs_lib.data.files import DataError, Files
from nbs_lib.data.identities import moments
from nbs_lib.data.sets import ImageSet
from nbs_lib.data.sources import data_root

FOLDS = 10
"""Folds of every pair protocol read here."""

Row = tuple[str, str, bool, str]
"""First image, second image, whether genuine, and where the list says so."""


@dataclass(frozen=True, eq=False)
class FacePairs:
    """Pairs of images, each image listed once.

    Attributes:
        name: what result tables call the list.
        paths: N image files.
        first: (P,) int64, row in ``paths``.
        second: (P,) int64.
        genuine: (P,) bool.
        folds: (P,) int64 in 0..9.
    """

    name: str
    paths: tuple[Path, ...]
    first: Tensor
    second: Tensor
    genuine: Tensor
    folds: Tensor

    def images(self, like: ImageSet | files.StreamSet) -> ImageSet:
        """Decode all images in the size, channels and normalisation of the training set ``like``; labels are all 0.

        Raises:
            DataError: an image cannot be read.
        """
        listed = Files(self.name, self.paths, torch.zeros(len(self.paths), dtype=torch.int64), ("face",))
        return files.read(listed, like.image_size, like.channels, like.mean, like.std)


def orl(root: str | Path | None = None, image_size: int = 48) -> ImageSet:
    """The ORL (AT&T) faces: 40 people, 10 grey images each of 92 x 112 pixels, cut to the central square.

    Read from ``orl-faces.tar`` (members ``s<person>/<image>.pgm``) in the data folder; labels are the people in the
    order of their numbers.

    Args:
        root: folder of the archive, see :func:`nbs_lib.data.sources.data_root`.
        image_size: side in pixels.

    Raises:
        DataError: the archive is missing or broken, or a person has not ten images; names archive and member.
    """
    path = data_root(root) / "orl-faces.tar"
    if not path.is_file():
        raise DataError(f"image set 'orl': there is no {path}: set NBS_DATA to a folder that has orl-faces.tar")
    pictures: dict[tuple[int, int], Tensor] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if found := re.fullmatch(r"(?:.*/)?s(\d+)/(\d+)\.pgm", member.name):
                    content = archive.extractfile(member)
                    raw = io.BytesIO(content.read() if content else b"")
                    pictures[int(found[1]), int(found[2])] = _picture(raw, path, member.name, image_size)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"image set 'orl': {path} is no whole tar archive: {error}") from error
    people = sorted({person for person, _ in pictures})
    for person in people:
        held = sorted(number for who, number in pictures if who == person)
        if held != list(range(1, 11)):
            raise DataError(f"image set 'orl': {path} has images {held} of s{person}, not 1 to 10")
    if len(people) != 40:
        raise DataError(f"image set 'orl': {path} has {len(people)} people s<number>/, not 40")
    images = torch.stack([pictures[key] for key in sorted(pictures)])
    mean, std = moments(images)
    labels = torch.arange(40).repeat_interleave(10)
    return ImageSet(images, labels, 40, "orl", mean, std, tuple(f"s{person}" for person in people))


def _picture(raw: io.BytesIO, archive: Path, member: str, side: int) -> Tensor:
    try:
        with Image.open(raw) as image:
            return files.square(image, side, 1)
    except (OSError, ValueError) as error:
        raise DataError(f"image set 'orl': {member} in {archive} cannot be read as an image: {error}") from error


def lfw_pairs(root: str | Path | None = None, image_set: str = "funneled") -> FacePairs:
    """The 6,000 pairs of LFW's view 2, through torchvision, from ``lfw-py`` in the data folder.

    The set can no longer be downloaded automatically: put ``pairs.txt`` and, unpacked beside its archive, the images
    there (see the guide).

    Raises:
        DataError: the set is not there, or torchvision finds it damaged.
    """
    place = data_root(root) / "lfw-py"
    try:
        found = datasets.LFWPairs(data_root(root), split="10fold", image_set=image_set)
    except (RuntimeError, OSError, ValueError, IndexError) as error:
        raise DataError(
            f"face pairs 'lfw_pairs': {place} must hold pairs.txt and the {image_set} images with their archive, as"
            f" torchvision checks them ({error}). LFW has to be fetched by hand; a list of your own goes by"
            " lfw:LIST:IMAGES"
        ) from error
    rows = [
        (first, second, bool(same), f"{place}/pairs.txt, pair {number}")
        for number, ((first, second), same) in enumerate(zip(found.data, found.targets, strict=True), 1)
    ]
    return _gather("lfw_pairs", rows, Path())


def read_pairs(form: str, listed: str | Path, images: str | Path) -> FacePairs:
    """Read a list of pairs in one of the published text formats.

    ===========  =====================================================================================================
    ``lfw``      LFW's pairs.txt: ``name n1 n2`` and ``name1 n1 name2 n2``; images ``name/name_0001.jpg``
    ``calfw``    two lines a pair, ``file flag``; a flag other than 0 is genuine (CALFW writes the fold there)
    ``cplfw``    the same
    ``agedb``    ``file file label`` or ``label file file``, label 1 or 0 (AgeDB-30 itself ships a MATLAB file)
    ===========  =====================================================================================================

    The i-th tenth of the genuine and the i-th tenth of the impostor pairs, in file order, are fold i, as in the
    published protocols, whether a list goes fold by fold or has all genuine pairs first.

    Args:
        form: "lfw", "calfw", "cplfw" or "agedb".
        listed: the list.
        images: folder that its file names start from.

    Raises:
        ValueError: an unknown form.
        DataError: no such list, a line that is not of the form, an image that is not there, fewer than ten pairs of a
            kind; names list and line.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(map(repr, FORMS))}, got {form!r}")
    return _gather(form, list(FORMS[form](Path(listed).expanduser())), Path(images).expanduser())


def cfp(root: str | Path, protocol: str = "FP") -> FacePairs:
    """The 7,000 pairs of CFP, frontal-profile ("FP") or frontal-frontal ("FF"), from its own folder layout.

    ``Protocol/Pair_list_F.txt`` and ``Pair_list_P.txt`` number the images (``1 ../Data/Images/001/frontal/01.jpg``);
    ``Protocol/Split/FP/01/same.txt`` and ``diff.txt`` hold lines ``i,j`` for each of ten folds.

    Raises:
        ValueError: an unknown protocol.
        DataError: a file is missing, a line malformed or a number unknown; names file and line.
    """
    if protocol not in ("FP", "FF"):
        raise ValueError(f"protocol must be 'FP' or 'FF', got {protocol!r}")
    base = Path(root).expanduser() / "Protocol"
    numbered = {kind: dict(_numbered(base / f"Pair_list_{kind}.txt")) for kind in set(protocol)}
    left, right = (numbered[kind] for kind in protocol)
    rows, folds = [], []
    for fold in range(FOLDS):
        for name, same in (("same", True), ("diff", False)):
            for words, where in _lines(base / "Split" / protocol / f"{fold + 1:02}" / f"{name}.txt", sep=","):
                if len(words) != 2 or words[0] not in left or words[1] not in right:
                    raise DataError(f"{where}: expected two numbers of the pair lists, 'i,j', got {','.join(words)!r}")
                rows.append((left[words[0]], right[words[1]], same, where))
                folds.append(fold)
    return _gather(f"cfp_{protocol.lower()}", rows, base, torch.tensor(folds))


def pairs_by_name(name: str) -> FacePairs:
    """Pairs by a text that comes from a notebook's parameter.

    Args:
        name: "lfw_pairs" (torchvision), "cfp_fp:FOLDER", "cfp_ff:FOLDER", or "FORM:LIST:IMAGES" with a form of
            :func:`read_pairs`, such as "calfw:pairs_CALFW.txt:aligned".

    Raises:
        ValueError: another text.
        DataError: as the readers.
    """
    kind, *places = name.split(":")
    if name == "lfw_pairs":
        return lfw_pairs()
    if kind in ("cfp_fp", "cfp_ff") and len(places) == 1 and places[0]:
        return cfp(places[0], kind[-2:].upper())
    if kind in FORMS and len(places) == 2 and all(places):
        return read_pairs(kind, *places)
    raise ValueError(
        f"pairs must be lfw_pairs, cfp_fp:FOLDER, cfp_ff:FOLDER or {'|'.join(FORMS)}:LIST:IMAGES, got {name!r}"
    )


def _lines(path: Path, sep: str | None = None) -> Iterator[tuple[list[str], str]]:
    """Words of each line that is not empty, and where it stands."""
    try:
        text = path.read_text("utf8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"list of pairs {path} cannot be read: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield [word.strip() for word in line.split(sep)], f"{path}, line {number}"


def _numbered(path: Path) -> Iterator[tuple[str, str]]:
    for words, where in _lines(path):
        if len(words) != 2 or not words[0].isdigit():
            raise DataError(f"{where}: expected 'number file', got {' '.join(words)!r}")
        yield words[0], words[1]


def _lfw_rows(path: Path) -> Iterator[Row]:
    for index, (words, where) in enumerate(_lines(path)):
        if index == 0 and all(word.isdigit() for word in words):
            continue  # the heading: folds and pairs in each
        if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
            words = [words[0], words[1], words[0], words[2]]
            same = True
        elif len(words) == 4 and words[1].isdigit() and words[3].isdigit():
            same = False
        else:
            raise DataError(f"{where}: expected 'name n1 n2' or 'name1 n1 name2 n2', got {' '.join(words)!r}")
        first, second = (f"{name}/{name}_{int(n):04}.jpg" for name, n in (words[:2], words[2:]))
        yield first, second, same, where


def _two_line_rows(path: Path) -> Iterator[Row]:
    lines = list(_lines(path))
    for words, where in lines:
        if len(words) != 2 or not words[1].isdigit():
            raise DataError(f"{where}: expected 'file flag', got {' '.join(words)!r}")
    if len(lines) % 2:
        raise DataError(f"{lines[-1][1]}: a pair takes two lines, and this one has no second")
    for ((first, flag), where), ((second, other), _) in zip(lines[::2], lines[1::2], strict=True):
        if flag != other:
            raise DataError(f"{where}: the two lines of a pair have flags {flag} and {other}")
        yield first, second, flag != "0", where


def _label_rows(path: Path) -> Iterator[Row]:
    for words, where in _lines(path):
        at = next((i for i in (2, 0) if len(words) == 3 and words[i] in ("0", "1")), None)
        if at is None:
            raise DataError(f"{where}: expected 'file file label' with label 0 or 1, got {' '.join(words)!r}")
        first, second = words[:2] if at == 2 else words[1:]
        yield first, second, words[at] == "1", where


def _gather(name: str, rows: list[Row], base: Path, folds: Tensor | None = None) -> FacePairs:
    genuine = torch.tensor([same for _, _, same, _ in rows], dtype=torch.bool)
    for kind, count in (("genuine", int(genuine.sum())), ("impostor", int((~genuine).sum()))):
        if count < FOLDS:
            raise DataError(f"face pairs {name!r}: {count} {kind} pairs, ten folds need ten")
    number: dict[Path, int] = {}
    ends: list[list[int]] = []
    for first, second, _, where in rows:
        pair = [base / first, base / second]
        for path in pair:
            if path not in number and not path.is_file():
                raise DataError(f"{where}: there is no image {path}")
        ends.append([number.setdefault(path, len(number)) for path in pair])
    first, second = torch.tensor(ends).T
    return FacePairs(name, tuple(number), first, second, genuine, _tenths(genuine) if folds is None else folds)


def _tenths(genuine: Tensor) -> Tensor:
    folds = torch.empty(len(genuine), dtype=torch.int64)
    for kind in (genuine, ~genuine):
        count = int(kind.sum())
        folds[kind] = torch.arange(count) * FOLDS // count
    return folds


FORMS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "lfw": _lfw_rows,
    "calfw": _two_line_rows,
    "cplfw": _two_line_rows,
    "agedb": _label_rows,
}
"""Reader of each text format of :func:`read_pairs`."""
