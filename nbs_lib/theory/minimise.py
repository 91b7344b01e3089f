"""Exact optima of losses over free features: quasi-Newton steps to convergence, and the search for global minima.

Gradient steps (:mod:`nbs_lib.theory.free_features`) show how training moves; these routines say where the minimum lies,
to seven digits and more, for the statements of Zhou et al. 2022, sections 2 and 3.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from nbs_lib.metrics import class_margins
from nbs_lib.theory.free_features import (
    FreeFeatures,
    Loss,
    Objective,
    held,
    make_objective,
    normalised,
    optimise,
    random_points,
)
from nbs_lib.theory.threads import one_thread
from nbs_lib.validation import check_positive


@one_thread
def minimise(
    loss: Loss | str,
    K: int,
    d: int,
    *,
    scale: float | Sequence[float],
    start: FreeFeatures | None = None,
    starts: int = 4,
    per_class: int = 1,
    class_weights: Tensor | None = None,
    zero_centroid: float = 0.0,
    fixed_prototypes: Tensor | None = None,
    nonnegative: bool = False,
    seed: int = 0,
    max_steps: int = 2000,
    **hyper: float,
) -> FreeFeatures:
    """Minimise a smooth loss to convergence by L-BFGS in float64, one start after the other.

    Reaches the minimum to about 1e-12 in value and 1e-7 in the cosines. Losses with corners (a maximum inside) are for
    :func:`nbs_lib.theory.sample_margin.largest_sample_margins`.

    Args:
        loss: as in :func:`~nbs_lib.theory.free_features.optimise`, like all arguments not listed here.
        K: number of classes.
        d: dimension of the sphere's space.
        scale: s, or a rising ladder of scales, each started where the one before ended.
        start: points to start from, all of them; random ones by default.
        starts: number of random starts.
        per_class: features of each class.
        class_weights: (K,) share of each class in the objective.
        zero_centroid: coefficient of |mean_j w_j|^2.
        fixed_prototypes: (K, d): hold these and move the features only.
        nonnegative: keep the features in the orthant z >= 0.
        seed: of the random starts.
        max_steps: iterations allowed at each scale.
        **hyper: further arguments of a loss given by name.

    Returns:
        :class:`~nbs_lib.theory.free_features.FreeFeatures`, without history.

    Raises:
        ValueError: an unknown name or a size that makes no sense.
    """
    ladder = [float(scale)] if isinstance(scale, int | float) else [float(s) for s in scale]
    for rung in ladder:
        check_positive("scale", rung)
    objective = make_objective(
        loss, K, per_class=per_class, class_weights=class_weights, zero_centroid=zero_centroid, **hyper
    )
    if start is None:
        points = random_points(starts, K + K * per_class, d, seed=seed)
    else:
        points = torch.cat((start.prototypes, start.features), 1).double()
        if points.shape[1:] != (K + K * per_class, d):
            raise ValueError(f"start: its points {tuple(points.shape)} do not fit K={K}, d={d}, per_class={per_class}")
    fixed = None if fixed_prototypes is None else held(fixed_prototypes, K, d)
    ends = [
        _descend(objective, p[:K] if fixed is None else fixed, p[K:], ladder, fixed, nonnegative, max_steps)
        for p in points
    ]
    w, z = (torch.stack(part) for part in zip(*ends, strict=True))
    with torch.no_grad():
        return FreeFeatures(w, z, objective.target, objective(w, z, ladder[-1]), class_margins(w))


def _lbfgs(value: Callable[[Tensor], Tensor], x: Tensor, max_steps: int) -> Tensor:
    """Minimise ``value`` from ``x`` by L-BFGS until float64 tells no two values apart."""

    def value_and_slope(flat: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(flat).view(x.shape).requires_grad_()
        found = value(free)
        found.backward()
        return found.item(), free.grad.flatten().numpy()

    options = {"maxiter": max_steps, "maxfun": 2 * max_steps, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 20}
    found = optimize.minimize(value_and_slope, x.flatten().numpy(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x).view(x.shape)


def _descend(
    objective: Objective,
    w: Tensor,
    z: Tensor,
    ladder: list[float],
    fixed: Tensor | None,
    nonnegative: bool,
    max_steps: int,
) -> tuple[Tensor, Tensor]:
    K = len(w)

    def join(w: Tensor, z: Tensor) -> Tensor:
        free = z.abs().sqrt() if nonnegative else z
        return free if fixed is not None else torch.cat((w, free))

    def split(x: Tensor) -> tuple[Tensor, Tensor]:
        free = x if fixed is not None else x[K:]
        # squares stay non-negative; unlike a bound they leave the problem unconstrained
        features = normalised(free.square() if nonnegative else free)
        return (normalised(x[:K]) if fixed is None else fixed), features

    def value(w: Tensor, z: Tensor, scale: float) -> Tensor:
        return objective(w.unsqueeze(0), z.unsqueeze(0), scale).squeeze(0)

    for scale in ladder:
        # each rung starts on the sphere again: the loss does not see lengths, which only grow and slow the next one
        w, z = split(_lbfgs(lambda x, s=scale: value(*split(x), s), join(w, z), max_steps))
    if nonnegative:
        return w, z

    # ArcFace has a corner at theta = 0, along which L-BFGS does not get on: if the features have come near to their
    # prototypes, move both as one. A smooth loss, whose minimum is reached, sees a step or two.
    scale, target = ladder[-1], objective.target
    if (w[target] * z).sum(1).min() > 0.98:
        tip = w
        if fixed is None:
            tip = normalised(_lbfgs(lambda x: value(normalised(x), normalised(x)[target], scale), w, max_steps))
        if value(tip, tip[target], scale) < value(w, z, scale):
            w, z = tip, tip[target]
    return w, z


def search(
    loss: Loss | str,
    K: int,
    d: int,
    *,
    scale: float = 16384.0,
    starts: int = 128,
    finalists: int = 2,
    steps: int = 300,
    seed: int = 0,
    **options: object,
) -> FreeFeatures:
    """Look for the global minimum at a large scale: many rough starts, of which the best few are minimised exactly.

    Steps one: ``starts`` runs of :func:`~nbs_lib.theory.free_features.optimise` as one batch, from s = 16 (lower scales
    lead every start into the same basin, which for 13, 14 and 19 points on S^2 is the wrong one) to s = 256. Step two:
    :func:`minimise` for the ``finalists`` with the lowest loss, up to ``scale`` by factors of four.

    With "lm_softmax_total" this finds every best-known packing of 4 to 24 points on S^2 within 0.01 degrees.

    Args:
        loss: as in :func:`~nbs_lib.theory.free_features.optimise`.
        K: number of classes.
        d: dimension of the sphere's space.
        scale: final scale s, above 256.
        starts: rough starts.
        finalists: how many of them are minimised.
        steps: gradient steps of the rough part.
        seed: of the starts.
        **options: what both steps understand: per_class, class_weights, zero_centroid, ..., hyper-parameters.

    Returns:
        :class:`~nbs_lib.theory.free_features.FreeFeatures` of the finalists.
    """
    if scale <= 256:
        raise ValueError(f"scale must be above 256, where the rough part ends, got {scale!r}")
    rough = optimise(
        loss, K, d, scale_from=16, scale_to=256, starts=starts, steps=steps, decay="cosine", seed=seed, **options
    )
    ladder = [scale]
    while ladder[0] > 1024:
        ladder.insert(0, ladder[0] / 4)
    return minimise(loss, K, d, scale=ladder, start=rough.lowest(finalists), **options)
