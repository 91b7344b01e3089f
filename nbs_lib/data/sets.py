"""What a run learns from: labelled images as bytes, normalised and augmented a batch at a time on the device."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from nbs_lib.data.augment import AUGMENT, ORDER, Augment, epoch_generator, split


class Batches:
    """What sets of either kind share: their description, the check of their labels, the way from bytes to floats.

    A subclass has the attributes ``labels`` (N,) int64, ``num_classes`` K, ``name``, ``mean`` and ``std`` (per channel,
    of values scaled to 0..1), ``class_names`` (K), ``device``, ``image_size``, ``channels``, and the method ``_fetch``.
    """

    labels: Tensor
    num_classes: int
    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...]

    def _check_description(self) -> None:
        labels, where, channels = self.labels, f"image set {self.name!r}", self.channels
        if labels.dtype != torch.int64 or labels.ndim != 1 or not len(labels):
            raise ValueError(f"{where}: labels must be int64 (N,), N > 0, got {labels.dtype} {tuple(labels.shape)}")
        wrong = ((labels < 0) | (labels >= self.num_classes)).nonzero()
        if len(wrong):
            at = int(wrong[0])
            raise ValueError(
                f"{where}: label {int(labels[at])} of image {at} is out of range 0..{self.num_classes - 1}"
                f" ({len(wrong)} such labels)"
            )
        if len(self.mean) != channels or len(self.std) != channels or min(self.std) <= 0:
            raise ValueError(f"{where}: mean, std need {channels} entries and std > 0, got {self.mean}, {self.std}")
        if len(self.class_names) != self.num_classes:
            raise ValueError(f"{where}: {self.num_classes} classes, but {len(self.class_names)} class names")

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def _affine(self) -> tuple[Tensor, Tensor]:
        """Factors of (x/255 - mean)/std = x * scale + shift, on the device, broadcast over (n, C, H, W)."""
        std = torch.tensor(self.std, dtype=torch.float64).view(1, -1, 1, 1)
        mean = torch.tensor(self.mean, dtype=torch.float64).view(1, -1, 1, 1)
        return (1 / (255 * std)).float().to(self.device), (-mean / std).float().to(self.device)

    def normalise(self, images: Tensor) -> Tensor:
        """Turn bytes (n, C, H, W) into float32 (x/255 - mean)/std, channels last in memory."""
        scale, shift = self._affine
        return images.to(torch.float32, memory_format=torch.channels_last).mul_(scale).add_(shift)

    def batches(
        self,
        batch_size: int,
        *,
        seed: int = 0,
        epoch: int = 0,
        shuffle: bool = True,
        augment: Augment | None = None,
        drop_last: bool = False,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images, labels) of one epoch: float32 (n, C, H, W) normalised, channels last, and int64 (n,).

        Order and augmentation depend on (seed, epoch) and on nothing else: not on the device, and an image's
        augmentation is tied to its place in the order, whatever the batch size.

        Raises:
            ValueError: a batch size below one.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be an integer of at least 1, got {batch_size!r}")
        count = len(self)
        order = self._order(epoch_generator(seed, epoch, ORDER)) if shuffle else torch.arange(count)
        fetched = self._fetch(list(split(order, batch_size, drop_last)))
        if not augment:
            for images, labels in fetched:
                yield self.normalise(images), labels
            return
        choices = augment.draw(count, epoch_generator(seed, epoch, AUGMENT)).to(self.device)
        for (images, labels), choice in zip(fetched, split(choices, batch_size, drop_last), strict=True):
            yield self.normalise(augment.apply(images, choice)), labels

    def _order(self, generator: torch.Generator) -> Tensor:
        """Rows of one shuffled epoch, (N,)."""
        return torch.randperm(len(self), generator=generator)


@dataclass(frozen=True, eq=False)
class ImageSet(Batches):
    """Labelled images that live on one device as bytes.

    Args:
        images: (N, C, H, W) uint8, H = W.
        labels: (N,) int64 in 0..num_classes-1, checked once here, so that no criterion has to look again.
        num_classes: K.
        name: what figures and result tables call the set.
        mean: per channel, of pixel values scaled to 0..1.
        std: per channel, of pixel values scaled to 0..1.
        class_names: K names, in the order of the labels.
        clean_labels: (N,) the true labels, if ``labels`` were made wrong on purpose (:mod:`nbs_lib.data.corrupt`).

    Raises:
        ValueError: wrong dtype, shape or length, no image at all, a label out of range; names the set.
    """

    images: Tensor
    labels: Tensor
    num_classes: int
    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...]
    clean_labels: Tensor | None = None

    def __post_init__(self) -> None:
        images, where = self.images, f"image set {self.name!r}"
        if images.dtype != torch.uint8 or images.ndim != 4 or 0 in images.shape or images.shape[2] != images.shape[3]:
            raise ValueError(f"{where}: images must be uint8 (N, C, H, H), got {images.dtype} {tuple(images.shape)}")
        self._check_description()
        if len(images) != len(self.labels):
            raise ValueError(f"{where}: {len(images)} images, but {len(self.labels)} labels")
        if images.device != self.labels.device:
            raise ValueError(f"{where}: images are on {images.device}, but labels on {self.labels.device}")

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self.images.device

    @property
    def image_size(self) -> int:
        """Height and width in pixels."""
        return self.images.shape[-1]

    @property
    def channels(self) -> int:
        """Number of colour channels."""
        return self.images.shape[1]

    def to(self, device: torch.device | str) -> "ImageSet":
        """Return the set on ``device`` (itself, if it is there already)."""
        images = self.images.to(device)
        return self if images is self.images else replace(self, images=images, labels=self.labels.to(device))

    def _fetch(self, rows: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        # One transfer of the whole epoch's order, then no word from the host.
        order = torch.cat(rows).to(self.device) if rows else torch.empty(0, dtype=torch.int64)
        for row in order.split([len(row) for row in rows]):
            yield self.images.index_select(0, row), self.labels.index_select(0, row)


def first_of_each_class(labels: Tensor, count: int | Tensor) -> Tensor:
    """Indices, ascending, of the first ``count`` entries of each class of ``labels`` (N,); a tensor holds K counts."""
    rank = torch.zeros_like(labels)
    for label in labels.unique():
        mine = labels == label
        rank[mine] = torch.arange(int(mine.sum()), device=labels.device)
    wanted = count.to(labels.device)[labels] if isinstance(count, Tensor) else count
    return (rank < wanted).nonzero().squeeze(1)
