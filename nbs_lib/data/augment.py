"""Random crops, flips and shifts of a whole batch at a time.

The random choices of an epoch are drawn on the CPU from a generator seeded by (seed, epoch) and then sent to the
device: random streams differ between GPU models, so this is what makes runs on different devices comparable.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

ORDER, AUGMENT, NETWORK, LABELS = range(4)
"""Independent random streams of an epoch: order of the images, their augmentation, dropout; and, once, label noise."""


def epoch_seed(seed: int, epoch: int, stream: int) -> int:
    """Seed of one random stream in one epoch; different streams, epochs and seeds are independent."""
    return int(np.random.SeedSequence([seed, epoch, stream]).generate_state(1, np.uint64)[0] >> 1)


def epoch_generator(seed: int, epoch: int, stream: int) -> torch.Generator:
    """CPU generator of one random stream in one epoch."""
    return torch.Generator().manual_seed(epoch_seed(seed, epoch, stream))


@dataclass(frozen=True)
class Augment:
    """What happens to training images at random, before they are normalised.

    Args:
        crop_pad: pad by so many black pixels on every side, then cut out a window of the old size at random
            (``RandomCrop(size, padding=crop_pad)`` of the usual recipe).
        flip: mirror left and right with probability one half.
        shift: move by up to so many pixels in each direction, the border filled by reflection.

    Raises:
        ValueError: pixels that are no integer >= 0, a flip that is no boolean, or crop_pad and shift together
            (they are the same motion with different borders).
    """

    crop_pad: int = 0
    flip: bool = False
    shift: int = 0

    def __post_init__(self) -> None:
        for name in ("crop_pad", "shift"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} must be a number of pixels (an integer >= 0), got {value!r}")
        if not isinstance(self.flip, bool):
            raise ValueError(f"flip must be True or False, got {self.flip!r}")
        if self.crop_pad and self.shift:
            raise ValueError(f"choose one of crop_pad={self.crop_pad} and shift={self.shift}")

    def __bool__(self) -> bool:
        return bool(self.crop_pad or self.flip or self.shift)

    @property
    def reach(self) -> int:
        """Largest displacement in pixels."""
        return self.crop_pad or self.shift

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw the choices for ``count`` images: (count, 3) int64 of row offset, column offset, flip."""
        side = 2 * self.reach + 1
        offsets = torch.randint(side, (count, 2), generator=generator)
        flips = (
            torch.randint(2, (count, 1), generator=generator) if self.flip else torch.zeros(count, 1, dtype=torch.int64)
        )
        return torch.cat([offsets, flips], dim=1)

    def apply(self, images: Tensor, choices: Tensor) -> Tensor:
        """Apply ``choices`` (N, 3) to ``images`` (N, C, H, W); the input is not changed.

        Offset (0, 0) shows the top left corner of the padded image, (reach, reach) leaves the image in place.
        """
        pad, (height, width) = self.reach, images.shape[-2:]
        if self.shift >= min(height, width):
            raise ValueError(f"shift={self.shift} must be smaller than the images, {height} x {width} pixels")
        if pad:
            border = {"mode": "constant", "value": 0} if self.crop_pad else {"mode": "reflect"}
            if not self.crop_pad and images.dtype == torch.uint8:
                # Reflection padding is not implemented for uint8; every value of a byte is exact in float32.
                padded = F.pad(images.float(), (pad,) * 4, **border).to(torch.uint8)
            else:
                padded = F.pad(images, (pad,) * 4, **border)
            # A view of all windows, then one gather: its index is constant along (C, H, W), so it copies row by row.
            windows = padded.unfold(2, height, 1).unfold(3, width, 1).permute(0, 2, 3, 1, 4, 5)
            rows = torch.arange(len(images), device=images.device)
            images = windows[rows, choices[:, 0], choices[:, 1]]
        if self.flip:
            images = torch.where(choices[:, 2].bool().view(-1, 1, 1, 1), images.flip(-1), images)
        return images


def split(rows: Tensor, size: int, drop_last: bool = False) -> Iterator[Tensor]:
    """Cut ``rows`` into pieces of ``size``; the last one may be shorter, unless it is to be dropped."""
    stop = len(rows) - len(rows) % size if drop_last else len(rows)
    yield from (rows[i : i + size] for i in range(0, stop, size))
