"""Image sets made harder: classes of unequal size, labels that are wrong at a known rate.

Only training sets are for this; the papers leave the test set balanced and clean.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from nbs_lib.data import files
from nbs_lib.data.augment import LABELS, epoch_generator
from nbs_lib.data.files import StreamSet
from nbs_lib.data.sets import ImageSet, first_of_each_class
from nbs_lib.validation import check_choice, check_in, check_target

IMBALANCES = ("long_tailed", "step")
NOISES = ("symmetric", "pair")


def class_counts(labels: Tensor, num_classes: int) -> list[int]:
    """Number of images of each class; 0 for a class that is absent."""
    return torch.bincount(labels, minlength=num_classes).tolist()


def imbalanced_counts(kind: str, largest: int, num_classes: int, ratio: float) -> list[int]:
    """How many images each class keeps, in the order of the labels (Cao et al. 2019; Zhou et al. 2022, appendix C.3).

    "long_tailed": n_j = int(n_max ρ^(-j/(K-1))), j = 0..K-1. "step": the first half of the classes keeps n_max images,
    the others int(n_max / ρ) (with an odd number of classes the middle one is among the first).

    Args:
        kind: "long_tailed" or "step".
        largest: n_max, images of the largest class.
        num_classes: K.
        ratio: ρ >= 1, largest class over smallest.

    Raises:
        ValueError: an unknown kind, a ratio below 1, or one that leaves a class without images.
    """
    check_choice("imbalance", kind, IMBALANCES)
    check_in("imbalance_ratio", ratio, 1, math.inf)
    if num_classes < 2:
        raise ValueError(f"imbalance needs at least two classes, got {num_classes}")
    # rounding must not turn an exact 100 into 99 on its way through int()
    smallest = int(largest / ratio * (1 + 1e-12))
    if smallest < 1:
        raise ValueError(f"imbalance_ratio {ratio:g} leaves no image of the last class: the largest has {largest}")
    if kind == "step":
        many = math.ceil(num_classes / 2)
        return [largest] * many + [smallest] * (num_classes - many)
    counts = [int(largest * (1 / ratio) ** (j / (num_classes - 1)) * (1 + 1e-12)) for j in range(num_classes)]
    assert counts[-1] == smallest, (counts, smallest)
    return counts


def imbalanced(image_set: ImageSet | StreamSet, kind: str, ratio: float) -> ImageSet | StreamSet:
    """The set with :func:`imbalanced_counts` images of each class, the first of each in file order.

    n_max is the size of the largest class that the set has.

    Raises:
        ValueError: as :func:`imbalanced_counts`; or a class has fewer images than it should keep.
    """
    have = class_counts(image_set.labels, image_set.num_classes)
    keep = imbalanced_counts(kind, max(have), image_set.num_classes, ratio)
    for label, (there, wanted) in enumerate(zip(have, keep, strict=True)):
        if there < wanted:
            raise ValueError(
                f"image set {image_set.name!r}: class {label} has {there} images, but {kind} imbalance keeps {wanted}"
                f" of it: limit_per_class={min(have)} makes all classes alike first"
            )
    return _select(image_set, first_of_each_class(image_set.labels, torch.tensor(keep)))


def noisy_labels(labels: Tensor, num_classes: int, kind: str, rate: float, seed: int) -> Tensor:
    """Labels (N,) of which exactly round(rate N) are wrong, evenly over the classes (to one image each).

    "symmetric": a wrong label is any of the K - 1 other classes with equal chance. "pair": it is the next class, and
    the first after the last (Han et al. 2018, "Co-teaching", https://arxiv.org/abs/1804.06872).

    Args:
        labels: true labels (N,); they stay as they are.
        num_classes: K.
        kind: "symmetric" or "pair".
        rate: share of wrong labels, 0 <= rate < 1. (Some papers count a symmetric draw that hits the true class as
            noise; their rate r is r (K - 1) / K here.)
        seed: which images, and which labels.

    Raises:
        ValueError: an unknown kind, a rate out of range.
    """
    check_choice("label_noise", kind, NOISES)
    if num_classes < 2:
        raise ValueError(f"label_noise needs at least two classes, got {num_classes}")
    check_target(labels, num_classes)
    if check_in("noise_rate", rate, 0, 1) == 1:
        raise ValueError("noise_rate must be below 1, got 1")
    generator = epoch_generator(seed, 0, LABELS)
    # One random order; the share of each class by largest remainder, so that the sum is exact.
    order = torch.randperm(len(labels), generator=generator)
    exact = rate * torch.bincount(labels.cpu(), minlength=num_classes).double()
    share = exact.floor().long()
    rest = round(rate * len(labels)) - int(share.sum())
    share[(exact - share).argsort(descending=True, stable=True)[: max(rest, 0)]] += 1
    shift = torch.randint(1, num_classes, (len(labels),), generator=generator) if kind == "symmetric" else 1
    wrong = torch.zeros(len(labels), dtype=torch.bool)
    wrong[order[first_of_each_class(labels.cpu()[order], share)]] = True
    return torch.where(
        wrong.to(labels.device), (labels + torch.as_tensor(shift).to(labels.device)) % num_classes, labels
    )


def with_noise(image_set: ImageSet | StreamSet, kind: str, rate: float, seed: int) -> ImageSet | StreamSet:
    """The set with :func:`noisy_labels`; the true ones stay in its ``clean_labels``."""
    labels = noisy_labels(image_set.labels, image_set.num_classes, kind, rate, seed)
    if isinstance(image_set, StreamSet):
        return replace(image_set, files=replace(image_set.files, labels=labels), clean_labels=image_set.labels)
    return replace(image_set, labels=labels, clean_labels=image_set.labels)


def frequency_groups(counts: Sequence[int], thresholds: tuple[int, int] | None = None) -> dict[str, list[int]]:
    """Classes of many, medium and few training images: name -> labels; a group without a class is left out.

    Without ``thresholds`` the range from the largest to the smallest class is cut into thirds on a logarithmic scale.
    Ten classes with a long tail then give 3 + 4 + 3 and a hundred 33 + 34 + 33, whatever
    n_max and ρ; step imbalance gives its majority and its minority; classes of equal size have no groups.

    Args:
        counts: training images n_j of each class.
        thresholds: (high, low): many is n_j > high, few is n_j < low. ImageNet-LT's are (100, 20) (Liu et al. 2019,
            "Large-scale long-tailed recognition in an open world", https://arxiv.org/abs/1904.05160); they suit sets
            of up to about 1,300 images a class.
    """
    largest, smallest = max(counts), min(counts)
    if thresholds is None:
        if largest == smallest:
            return {}
        # int() in the counts may move a class past a third by a hair; 0.005 is less than a class of a hundred
        position = [math.log(largest / max(n, 1)) / math.log(max(largest, 2) / max(smallest, 1)) for n in counts]
        names = ["many" if p < 1 / 3 - 0.005 else "few" if p > 2 / 3 + 0.005 else "medium" for p in position]
    else:
        high, low = thresholds
        names = ["many" if n > high else "few" if n < low else "medium" for n in counts]
    groups = {group: [j for j, name in enumerate(names) if name == group] for group in ("many", "medium", "few")}
    return {group: classes for group, classes in groups.items() if classes}


def _select(image_set: ImageSet | StreamSet, rows: Tensor) -> ImageSet | StreamSet:
    if isinstance(image_set, StreamSet):
        return replace(image_set, files=files.select(image_set.files, rows))
    return replace(image_set, images=image_set.images[rows], labels=image_set.labels[rows])
