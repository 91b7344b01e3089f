"""What all loss modules share: a formula, its settings as attributes, and their check when the module is made."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn


class Criterion(nn.Module):
    """A loss in the style of ``torch.nn``: ``criterion(scores, target)``; all its settings are keyword arguments.

    A subclass names its ``formula`` in :mod:`nbs_lib.losses.functional`, says ``on_cosines = False`` if it wants raw
    scores, and hands its settings to ``super().__init__``. They become attributes, may be reassigned later (say, to
    anneal the scale), and are checked here and on every call.

    Raises:
        ValueError: for a setting that the formula refuses.
    """

    formula: ClassVar[Callable[..., Tensor]]
    on_cosines: ClassVar[bool] = True

    def __init__(self, **settings: object) -> None:
        super().__init__()
        if isinstance(settings.get("scale"), Tensor):
            raise ValueError(
                "scale must be a number here; one a sample is for the function in nbs_lib.losses.functional"
            )
        self._names = tuple(settings)
        vars(self).update(settings)
        self._check()

    @property
    def settings(self) -> dict[str, object]:
        """The keyword arguments of the formula, as they stand now."""
        return {name: getattr(self, name) for name in self._names}

    def _check(self) -> None:
        # The formula checks its arguments itself; an empty batch has it do only that.
        type(self).formula(torch.empty(0, 2), torch.empty(0, dtype=torch.long), **self.settings)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Loss of scores or cosines (N, K) and labels (N,): a scalar, or (N,) with ``reduction="none"``."""
        return type(self).formula(scores, target, **self.settings)

    def extra_repr(self) -> str:
        """The settings, as they would be written in the call."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
