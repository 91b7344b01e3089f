"""Several losses, or several settings of one, minimised in one batch of free features."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nbs_lib.losses import functional
from nbs_lib.theory.free_features import FreeFeatures, Loss, optimise


def _share(values: Tensor, parts: int, what: str) -> int:
    if len(values) % parts:
        raise ValueError(f"a batch of {len(values)} rows does not split evenly among {parts} {what}")
    return len(values) // parts


def side_by_side(losses: Sequence[Loss]) -> Loss:
    """Join losses into one that applies each to its own consecutive share of the batch.

    ``optimise(side_by_side(losses), K, d, starts=len(losses) * n, ...)`` gives every loss n starts; ``groups`` takes
    the result apart. One loop over the steps then serves all of them.

    Args:
        losses: functions of (cosines (B, K), target (B,), scale) that return (B,) values.

    Returns:
        Such a function; it raises ValueError if the batch does not split evenly.
    """

    def joined(cosines: Tensor, target: Tensor, scale: float) -> Tensor:
        size = _share(cosines, len(losses), "losses")
        shares = zip(losses, cosines.split(size), target.split(size), strict=True)
        return torch.cat([loss(c, y, scale) for loss, c, y in shares])

    return joined


def gm_settings(settings: Mapping[str, Sequence[float]]) -> Loss:
    """GM-Softmax with one setting per consecutive share of the batch; its scale is the setting's times the given one.

    Args:
        settings: equally long lists "scale", "alpha1", "beta1", "alpha2", "beta2"; a missing list means 1 (scale,
            alphas) or 0 (betas), and at least one must be given.

    Returns:
        ``loss(cosines (B, K), target (B,), progress)``; minimise it with ``scale_from=0.1, scale_to=1`` or so to anneal
        every setting towards its own scale.
    """
    defaults = {"scale": 1.0, "alpha1": 1.0, "beta1": 0.0, "alpha2": 1.0, "beta2": 0.0}
    unknown = set(settings) - set(defaults)
    sizes = {len(values) for values in settings.values()}
    if unknown or len(sizes) != 1:
        raise ValueError(f"settings must be equally long lists out of {list(defaults)}, got {dict(settings)}")
    count = sizes.pop()
    rows = {
        name: torch.tensor(settings.get(name, [value] * count), dtype=torch.float64) for name, value in defaults.items()
    }

    def loss(cosines: Tensor, target: Tensor, progress: float) -> Tensor:
        size = _share(cosines, count, "settings")
        spread = {name: values.to(cosines).repeat_interleave(size) for name, values in rows.items()}
        spread["scale"] = spread["scale"] * progress
        return functional.gm_softmax(cosines, target, **spread, reduction="none", validate=False)

    return loss


def groups(found: FreeFeatures, count: int) -> list[FreeFeatures]:
    """Take a result apart into ``count`` consecutive groups of starts, one per loss or setting (without history)."""
    _share(found.loss, count, "groups")
    parts = [x.chunk(count) for x in (found.prototypes, found.features, found.loss, found.class_margin)]
    return [FreeFeatures(w, z, found.target, loss, angle) for w, z, loss, angle in zip(*parts, strict=True)]


def minimise_gm(
    settings: Mapping[str, Sequence[float]], K: int, d: int, *, starts: int = 4, steps: int = 800, seed: int = 0
) -> list[FreeFeatures]:
    """Minimise GM-Softmax for each setting from ``starts`` random starts, all in one batch.

    Args:
        settings: see :func:`gm_settings`.
        K: number of classes.
        d: dimension.
        starts: per setting; ``.best`` of each result is the one to trust, since there are local minima.
        steps: of Adam, with cosine decay.
        seed: of the starts.

    Returns:
        One :class:`FreeFeatures` a setting, with losses at the setting's own scale.
    """
    loss = gm_settings(settings)
    count = len(next(iter(settings.values())))
    found = optimise(
        loss, K, d, scale_from=0.1, scale_to=1.0, starts=count * starts, steps=steps, decay="cosine", seed=seed
    )
    return groups(found, count)
