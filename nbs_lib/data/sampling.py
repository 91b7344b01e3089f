"""Epochs in which all classes are equally frequent, whatever their sizes."""

from collections.abc import Iterator

import torch
from torch import Tensor

from nbs_lib.data.sets import Batches


class ClassBalanced(Batches):
    """An image set whose shuffled epochs hold each class equally often (class-balanced sampling, Kang et al. 2020).

    An epoch is as long as the set, N images: N // K of each class, one more of N mod K classes drawn anew each epoch.
    A class goes through all its images, in a new order each time, before one of them comes again, so that two of its
    images differ by one appearance at most. Like every order it depends on (seed, epoch) alone.

    Args:
        images: the set; its batches without shuffling stay as they are.

    Raises:
        ValueError: a class without images, which no sampling can balance.
    """

    def __init__(self, images: Batches) -> None:
        self.images, self.name = images, f"{images.name}, class-balanced"
        for field in ("labels", "num_classes", "mean", "std", "class_names", "device", "image_size", "channels"):
            setattr(self, field, getattr(images, field))
        labels = self.labels.cpu()
        self._members = [(labels == label).nonzero().squeeze(1) for label in range(self.num_classes)]
        absent = [label for label, rows in enumerate(self._members) if not len(rows)]
        if absent:
            raise ValueError(f"image set {images.name!r}: no image of class {absent[0]}, which sampling cannot balance")

    def to(self, device: torch.device | str) -> "ClassBalanced":
        """Return the set on ``device``."""
        return ClassBalanced(self.images.to(device))

    def _order(self, generator: torch.Generator) -> Tensor:
        count, K = len(self), self.num_classes
        share = torch.full((K,), count // K)
        share[torch.randperm(K, generator=generator)[: count % K]] += 1
        order = torch.cat([_rounds(*pair, generator) for pair in zip(self._members, share.tolist(), strict=True)])
        return order[torch.randperm(count, generator=generator)]

    def _fetch(self, rows: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        return self.images._fetch(rows)


def _rounds(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` entries of ``rows``, all of them in random order before the first comes again."""
    passes = -(-count // len(rows))
    return torch.cat([rows[torch.randperm(len(rows), generator=generator)] for _ in range(max(passes, 1))])[:count]
