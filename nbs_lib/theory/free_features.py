"""Losses minimised over features and prototypes that are free to move on the sphere: no network, no data.

Zhou et al. 2022 state their optima for such features (sections 2 and 3) and probe them with K = 8 classes on S^2
(fig. 3, appendix C.1). Many starts run at once, as one batch of tensors.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nbs_lib.geometry import unit
from nbs_lib.losses import functional
from nbs_lib.metrics import class_margins
from nbs_lib.theory.threads import one_thread
from nbs_lib.validation import check_choice, check_positive

Loss = Callable[[Tensor, Tensor, float], Tensor]
"""``loss(cosines (B, K), target (B,), scale)`` -> (B,) losses of the samples, or their mean."""


@dataclass(frozen=True)
class FreeFeatures:
    """Where a minimisation ended, for each of its starts.

    Attributes:
        prototypes: (starts, K, d) unit rows.
        features: (starts, N, d) unit rows, N = K * per_class.
        target: (N,) class of each feature.
        loss: (starts,) objective at the final scale.
        class_margin: (starts,) degrees.
        history: what was recorded on the way: "step" (R,), "scale" (R,), and "loss", "class_margin" (degrees),
            "mean_sample_margin", "worst_sample_margin", each (R, starts).
    """

    prototypes: Tensor
    features: Tensor
    target: Tensor
    loss: Tensor
    class_margin: Tensor
    history: dict[str, Tensor] = field(default_factory=dict)

    @property
    def best(self) -> int:
        """Index of the start with the lowest loss."""
        return int(self.loss.nan_to_num(math.inf).argmin())

    def lowest(self, count: int) -> "FreeFeatures":
        """Return the ``count`` starts with the lowest loss, in that order, without the history."""
        order = self.loss.nan_to_num(math.inf).argsort()[:count]
        kept = (values[order] for values in (self.prototypes, self.features))
        return FreeFeatures(*kept, self.target, self.loss[order], self.class_margin[order])

    @property
    def cosines(self) -> Tensor:
        """Cosines (starts, N, K) between features and prototypes."""
        return self.features @ self.prototypes.mT

    @property
    def sample_margin(self) -> Tensor:
        """Sample margins (starts, N): own cosine minus the largest other one (Zhou et al. 2022, eq. 2.5)."""
        return _sample_margins(self.cosines, self.target)


def _sample_margins(cosines: Tensor, target: Tensor) -> Tensor:
    index = target.expand(cosines.shape[:-1]).unsqueeze(-1)
    own = cosines.gather(-1, index).squeeze(-1)
    return own - cosines.scatter(-1, index, -math.inf).amax(-1)


def named_loss(name: str, **hyper: float) -> Loss:
    """Turn a formula of :mod:`nbs_lib.losses.functional` into ``loss(cosines, target, scale)``, sample by sample.

    Raises:
        ValueError: no such formula.
    """
    formula = getattr(functional, "sample_margin_loss" if name == "sample_margin" else name, None)
    if formula is None or "reduction" not in inspect.signature(formula).parameters:
        raise ValueError(f"loss: no formula {name!r} in nbs_lib.losses.functional that works sample by sample")
    options = inspect.signature(formula).parameters
    checks = {"validate": False} if "validate" in options else {}

    def loss(cosines: Tensor, target: Tensor, scale: float) -> Tensor:
        scaled = {"scale": scale} if "scale" in options else {}
        return formula(cosines, target, **scaled, **hyper, **checks, reduction="none")

    return loss


@dataclass
class Objective:
    """A loss on free points, reduced separately for every start.

    ``mean``: ``sum_i p_i L_i``. ``total``: ``(1/s) log sum_i N p_i exp(s L_i)``, which for LM-Softmax is the left
    side of eq. (3.6) in Zhou et al. 2022, one log-sum-exp over samples and classes, because
    ``L_i = (1/s) log sum_{j != y} exp(s (c_j - c_y))``. Added to it: ``zero_centroid * |mean_j w_j|^2``, eq. (3.7).
    """

    loss: Loss
    target: Tensor  # (N,)
    weights: Tensor  # (N,), sum 1
    total: bool = False
    zero_centroid: float = 0.0

    def __call__(self, prototypes: Tensor, features: Tensor, scale: float) -> Tensor:
        """Return the objective (starts,) of unit ``prototypes`` (starts, K, d) and ``features`` (starts, N, d)."""
        cosines = features @ prototypes.mT
        starts, samples, K = cosines.shape
        values = self.loss(cosines.reshape(-1, K), self.target.repeat(starts), scale)
        if values.dim() == 0:
            values = self._one_by_one(cosines, scale)
        elif self.total:
            values = torch.logsumexp(scale * values.view(starts, samples) + (samples * self.weights).log(), 1) / scale
        else:
            values = values.view(starts, samples) @ self.weights
        if self.zero_centroid:
            values = values + self.zero_centroid * prototypes.mean(1).square().sum(-1)
        return values

    def _one_by_one(self, cosines: Tensor, scale: float) -> Tensor:
        """A loss that only knows its mean: one call a start, and no weights."""
        if self.total or bool((self.weights != self.weights[0]).any()):
            raise ValueError("loss: a total or class weights need a loss that returns one value a sample")
        return torch.stack([self.loss(c, self.target, scale) for c in cosines])


def make_objective(
    loss: Loss | str,
    K: int,
    *,
    per_class: int = 1,
    class_weights: Tensor | None = None,
    zero_centroid: float = 0.0,
    dtype: torch.dtype = torch.float64,
    **hyper: float,
) -> Objective:
    """Build an :class:`Objective` for K classes; arguments as in :func:`optimise`."""
    if K < 2 or per_class < 1:
        raise ValueError(f"needs K >= 2 classes and per_class >= 1, got K={K}, per_class={per_class}")
    total = loss == "lm_softmax_total"
    if isinstance(loss, str):
        loss = named_loss("lm_softmax" if total else loss, **hyper)
    elif hyper:
        raise ValueError(f"{sorted(hyper)}: hyper-parameters go with a loss given by name")
    shares = torch.ones(K) if class_weights is None else torch.as_tensor(class_weights)
    if shares.shape != (K,) or not bool((shares > 0).all()):
        raise ValueError(f"class_weights must be {K} positive numbers, got {class_weights}")
    weights = (shares.to(dtype) / shares.to(dtype).sum() / per_class).repeat_interleave(per_class)
    target = torch.arange(K).repeat_interleave(per_class)
    return Objective(loss, target, weights, total, zero_centroid)


def random_points(starts: int, count: int, d: int, *, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Points (starts, count, d) spread uniformly over the sphere, the same for a seed whatever the dtype."""
    if starts < 1 or d < 1:
        raise ValueError(f"needs starts >= 1 and d >= 1, got starts={starts}, d={d}")
    generator = torch.Generator().manual_seed(seed)
    return unit(torch.randn(starts, count, d, generator=generator, dtype=torch.float64)).to(dtype)


def held(prototypes: Tensor, K: int, d: int) -> Tensor:
    """Unit rows of prototypes that stay where they are, (K, d) float64."""
    if prototypes.shape != (K, d):
        raise ValueError(f"fixed_prototypes must be ({K}, {d}), got {tuple(prototypes.shape)}")
    return unit(prototypes.detach().double())


@one_thread
def optimise(
    loss: Loss | str,
    K: int,
    d: int,
    *,
    scale_to: float,
    scale_from: float | None = None,
    starts: int = 1,
    per_class: int = 1,
    class_weights: Tensor | None = None,
    zero_centroid: float = 0.0,
    fixed_prototypes: Tensor | None = None,
    nonnegative: bool = False,
    steps: int = 3000,
    lr: float = 0.1,
    feature_lr: float | None = None,
    optimizer: str = "adam",
    decay: str = "constant",
    anneal: float = 0.85,
    weight_decay: float = 0.0,
    keep_length: bool = True,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    record_every: int = 0,
    **hyper: float,
) -> FreeFeatures:
    """Minimise a loss by gradient steps on the sphere, many starts at once.

    Every point is divided by its length in the objective, and after each step unless ``keep_length`` is off. The scale
    grows geometrically from ``scale_from`` to ``scale_to`` over the first ``anneal`` share of the steps and then stays;
    the step size shrinks with it, ``lr * min(1, 8 scale_from / scale)``, since the curvature grows like the scale.

    Args:
        loss: a name in :mod:`nbs_lib.losses.functional` (``"lm_softmax_total"`` sums over samples inside the
            logarithm), or ``loss(cosines (B, K), target (B,), scale)`` giving (B,) values or their mean.
        K: number of classes.
        d: dimension of the sphere's space.
        scale_to: final scale s; also the fixed one, if ``scale_from`` is left out.
        scale_from: scale to start at.
        starts: random starts, run as one batch.
        per_class: features of each class.
        class_weights: (K,) share of each class in the objective (for imbalance), scaled to sum 1; equal by default.
        zero_centroid: coefficient of |mean_j w_j|^2, eq. (3.7). The paper's lambda counts a hundredfold.
        fixed_prototypes: (K, d): hold these and move the features only.
        nonnegative: keep the features in the orthant z >= 0, as after a ReLU.
        steps: number of gradient steps.
        lr: step size of the prototypes.
        feature_lr: step size of the features; the same by default.
        optimizer: "adam", or "sgd" with momentum 0.9 (the paper's toy experiment).
        decay: "constant" or "cosine", on top of the schedule above.
        anneal: share of the steps over which the scale grows.
        weight_decay: of "sgd"; matters only if lengths are free.
        keep_length: False lets the lengths drift, as in a network and in the paper's toy experiment: they grow, and
            the steps seen on the sphere shrink with their square.
        seed: of the starting points.
        dtype: float64, or float32 to see what that costs.
        record_every: record into ``history`` every so many steps, and at the end; 0 for not at all.
        **hyper: further arguments of a loss given by name, such as ``margin=0.1``.

    Returns:
        :class:`FreeFeatures`.

    Raises:
        ValueError: an unknown name, a size or schedule that makes no sense.
    """
    check_choice("optimizer", optimizer, ("adam", "sgd"))
    check_choice("decay", decay, ("constant", "cosine"))
    scale_from = scale_to if scale_from is None else scale_from
    for name, value in {"scale_from": scale_from, "scale_to": scale_to, "lr": lr, "steps": steps}.items():
        check_positive(name, value)
    objective = make_objective(
        loss, K, per_class=per_class, class_weights=class_weights, zero_centroid=zero_centroid, dtype=dtype, **hyper
    )
    points = random_points(starts, K + K * per_class, d, seed=seed, dtype=dtype)
    w, z = points[:, :K].clone(), points[:, K:].clone()
    if nonnegative:
        z.abs_()
    moving = [z]
    if fixed_prototypes is None:
        moving.insert(0, w)
    else:
        w = held(fixed_prototypes, K, d).to(dtype).expand(starts, K, d)
    rates = [lr if p is w else (feature_lr or lr) for p in moving]
    groups = [{"params": [p.requires_grad_()], "lr": r} for p, r in zip(moving, rates, strict=True)]
    descent = (
        torch.optim.Adam(groups, fused=True)
        if optimizer == "adam"
        else torch.optim.SGD(groups, momentum=0.9, weight_decay=weight_decay)
    )
    history: dict[str, list[Tensor]] = {}
    growth = math.log(scale_to / scale_from)
    for step in range(steps):
        scale = scale_from * math.exp(growth * min(1.0, step / max(1.0, anneal * steps)))
        shrink = min(1.0, 8 * scale_from / scale)
        if decay == "cosine":
            shrink *= 0.5 * (1 + math.cos(math.pi * step / steps))
        for group, rate in zip(descent.param_groups, rates, strict=True):
            group["lr"] = rate * shrink
        descent.zero_grad()
        unit_w, unit_z = (normalised(p) if p.requires_grad else p for p in (w, z))
        values = objective(unit_w, unit_z, scale)
        if record_every and step % record_every == 0:
            _record(history, objective, step, scale, values, unit_w.detach(), unit_z.detach())
        values.sum().backward()
        descent.step()
        with torch.no_grad():
            if nonnegative:
                z.clamp_(min=1e-9)  # not 0: a row with no positive entry left would have no direction
            for p in moving if keep_length else ():
                p.copy_(unit(p))
    with torch.no_grad():
        w, z = unit(w.detach()), unit(z.detach())
        values = objective(w, z, scale_to)
        if record_every:
            _record(history, objective, steps, scale_to, values, w, z)
    stacked = {name: torch.stack(rows) for name, rows in history.items()}
    return FreeFeatures(w, z, objective.target, values, class_margins(w), stacked)


def normalised(x: Tensor) -> Tensor:
    """Rows of ``x`` over their length, in few operations; for points that are never near zero."""
    return x * x.square().sum(-1, keepdim=True).rsqrt()


@torch.no_grad()
def _record(
    history: dict[str, list[Tensor]],
    objective: Objective,
    step: int,
    scale: float,
    values: Tensor,
    w: Tensor,
    z: Tensor,
) -> None:
    margins = _sample_margins(z @ w.mT, objective.target)
    row = {
        "step": torch.tensor(step),
        "scale": torch.tensor(scale, dtype=torch.float64),
        "loss": values.detach().clone(),
        "class_margin": class_margins(w),
        "mean_sample_margin": margins @ objective.weights,
        "worst_sample_margin": margins.amin(-1),
    }
    for name, value in row.items():
        history.setdefault(name, []).append(value)
