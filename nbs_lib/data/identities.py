"""Open sets: train on some identities, verify and retrieve others, none of them shared."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from nbs_lib.data.files import StreamSet
from nbs_lib.data.sets import ImageSet
from nbs_lib.data.sources import FALLBACK, load


@dataclass(frozen=True, eq=False)
class Views:
    """Images, who is on each, and which camera took it.

    Attributes:
        images: N images; their labels number the identities present.
        identities: (N,) int64 as the data set numbers them: -1 is junk, 0 a distractor in re-identification sets.
        cameras: (N,) int64.
    """

    images: ImageSet | StreamSet
    identities: Tensor
    cameras: Tensor

    def __len__(self) -> int:
        return len(self.identities)


@dataclass(frozen=True, eq=False)
class OpenSet:
    """Training images of K identities, and queries and gallery of others.

    Attributes:
        train: labels 0..K-1.
        query: images that look for their identity.
        gallery: images they look through; the same object as ``query`` where every image looks for the others.
    """

    train: ImageSet | StreamSet
    query: Views
    gallery: Views


def split_identities(whole: ImageSet, train: int, seed: int = 0) -> tuple[ImageSet, ImageSet]:
    """Two sets without a common identity, ``train`` identities in the first; labels are numbered anew in each.

    The identities are drawn with ``seed``; images keep their order. Both sets are normalised by the moments of the
    first.

    Args:
        whole: a set whose labels are identities.
        train: how many identities go to the first set.
        seed: of the draw.

    Raises:
        ValueError: fewer than two identities on a side.
    """
    if isinstance(train, bool) or not isinstance(train, int) or not 2 <= train <= whole.num_classes - 2:
        raise ValueError(f"train must leave two of {whole.num_classes} identities on each side, got {train!r}")
    drawn = torch.randperm(whole.num_classes, generator=torch.Generator().manual_seed(seed))
    first, second = (_only(whole, part.sort().values) for part in (drawn[:train], drawn[train:]))
    mean, std = moments(first.images)
    return replace(first, mean=mean, std=std), replace(second, mean=mean, std=std)


def _only(whole: ImageSet, kept: Tensor) -> ImageSet:
    number = torch.full((whole.num_classes,), -1)
    number[kept] = torch.arange(len(kept))
    labels = number[whole.labels.cpu()]
    rows = (labels >= 0).nonzero().squeeze(1)
    names = tuple(whole.class_names[k] for k in kept.tolist())
    images = whole.images[rows.to(whole.device)]
    return replace(whole, images=images, labels=labels[rows].to(whole.device), num_classes=len(kept), class_names=names)


def moments(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of bytes (N, C, H, W), on the scale 0..1."""
    pixels = images.double().transpose(0, 1).flatten(1) / 255
    mean, std = pixels.mean(1), pixels.std(1).clamp(min=1 / 255)
    return tuple(round(v, 4) for v in mean.tolist()), tuple(round(v, 4) for v in std.tolist())


def halves(labels: Tensor) -> Tensor:
    """Cameras (N,) for a set that has none: 0 for the first half of each identity's images, 1 for the second."""
    order = torch.argsort(labels, stable=True)
    counts = labels.bincount()
    start = counts.cumsum(0) - counts
    rank = torch.empty_like(labels)
    rank[order] = torch.arange(len(labels), device=labels.device) - start[labels[order]]
    return (2 * rank >= counts[labels]).long()


def open_set(whole: ImageSet, train: int, seed: int = 0) -> OpenSet:
    """:func:`split_identities`, with the halves of an identity's images for two cameras, each image a query.

    Raises:
        ValueError: as :func:`split_identities`.
    """
    known, others = split_identities(whole, train, seed)
    views = Views(others, others.labels, halves(others.labels))
    return OpenSet(known, views, views)


def garments(train: int = 200, test: int = 60, views: int = 12, seed: int = 0) -> OpenSet:
    """Single garments as identities, each photographed again and again, made from ``fashion_mini``.

    An identity is *one image* of Fashion-MNIST, not its class: two T-shirts are two identities. Each of its views is
    turned by up to 8 degrees, scaled by 0.9 to 1.1, moved by up to 2 pixels, made darker or brighter by up to 30 %,
    loses a square of 6 x 6 pixels and gets noise. The first camera leans by 4 degrees to one side; the second, which
    takes every other view, leans to the other and is out of focus. Training identities are training images of the set,
    the others test images; all ten classes alike.

    Args:
        train: number of identities to learn from, a multiple of ten.
        test: number of the others, a multiple of ten, at most 2000.
        views: images of each, an even number.
        seed: of the choice of garments and of the views.

    Raises:
        ValueError: numbers that do not fit.
    """
    for name, value, step, most in (("train", train, 10, 10_000), ("test", test, 10, 2000), ("views", views, 2, 1000)):
        if isinstance(value, bool) or not isinstance(value, int) or not step <= value <= most or value % step:
            raise ValueError(f"{name} must be a multiple of {step} between {step} and {most}, got {value!r}")
    generator = torch.Generator().manual_seed(seed)
    known, _ = _photographed("train", train, views, generator)
    others, cameras = _photographed("test", test, views, generator)
    mean, std = moments(known.images)
    known, others = (replace(part, mean=mean, std=std) for part in (known, others))
    seen = Views(others, others.labels, cameras)
    return OpenSet(known, seen, seen)


def _photographed(split: str, count: int, views: int, generator: torch.Generator) -> tuple[ImageSet, Tensor]:
    full = load(FALLBACK, split=split)
    order = torch.randperm(len(full), generator=generator)
    by_class = [order[full.labels[order] == k][: count // full.num_classes] for k in range(full.num_classes)]
    chosen = torch.cat(by_class)
    labels, cameras = torch.arange(count).repeat_interleave(views), torch.arange(views).repeat(count) % 2
    images = _photograph(full.images[chosen[labels]].float() / 255, cameras, generator)
    names = tuple(f"{full.class_names[int(full.labels[row])]} {int(row)}" for row in chosen)
    return replace(full, images=images, labels=labels, num_classes=count, class_names=names, name="garments"), cameras


def _photograph(images: Tensor, cameras: Tensor, generator: torch.Generator) -> Tensor:
    """One view of each of (N, 1, H, W) images on the scale 0..1, as bytes."""
    count, side = len(images), images.shape[-1]

    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=generator)

    angle = torch.deg2rad(between(-8, 8) + torch.where(cameras == 1, -4.0, 4.0))
    size, move = between(0.9, 1.1), between(-4 / side, 4 / side, 2)  # the grid is 2 wide: 2 pixels are 4 / side
    turn = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), 1).view(-1, 2, 2) / size.view(-1, 1, 1)
    grid = F.affine_grid(torch.cat((turn, move.unsqueeze(2)), 2), list(images.shape), align_corners=False)
    seen = F.grid_sample(images, grid, align_corners=False)
    blurred = F.avg_pool2d(seen, 3, stride=1, padding=1)
    seen = torch.where((cameras == 1).view(-1, 1, 1, 1), blurred, seen) * between(0.7, 1.3, 1, 1, 1)
    corner, pixel = torch.randint(side - 6, (count, 2, 1), generator=generator), torch.arange(side)
    rows, columns = ((pixel >= corner[:, i]) & (pixel < corner[:, i] + 6) for i in (0, 1))
    seen = seen.masked_fill((rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1), 0.0)
    noisy = seen + 0.05 * torch.randn(seen.shape, generator=generator)
    return (noisy.clamp(0, 1) * 255).round().to(torch.uint8)
