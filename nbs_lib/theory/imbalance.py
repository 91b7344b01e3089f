"""What unequal class sizes do to prototypes, with features that are free to move: no network, no data.

Paper: Zhou et al. 2022, "Learning towards the largest margins", Theorem 3.5, equation (3.7), Tables 2 and 6. One
feature a class is enough: all samples of a class have the same best feature, and the class counts by its share p_j of
the samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.nn import functional as F

from nbs_lib.geometry import unit
from nbs_lib.losses import functional
from nbs_lib.metrics import class_margins
from nbs_lib.theory.free_features import FreeFeatures, Loss, named_loss, normalised, random_points
from nbs_lib.theory.margin_optima import gm_minimum, gm_minimum_as_printed
from nbs_lib.theory.minimise import minimise
from nbs_lib.validation import check_positive, check_prototypes


def _shares(sizes: Sequence[float] | Tensor) -> Tensor:
    """Class sizes as shares p_j, (K,) float64 with sum 1."""
    counts = torch.as_tensor(sizes, dtype=torch.float64)
    if counts.ndim != 1 or len(counts) < 2 or not bool((counts > 0).all()):
        raise ValueError(f"sizes must be the (at least two) positive sizes of the classes, got {sizes}")
    return counts / counts.sum()


# --- Theorem 3.5


def gm_by_class(**settings: Sequence[float] | Tensor) -> Loss:
    """GM-Softmax (Zhou et al. 2022, Eq. (3.3)) whose alpha1, beta1, alpha2, beta2 differ from class to class.

    Args:
        **settings: (K,) values, one a class, for any of the four; the others keep their defaults (1, 0, 1, 0).
    """
    tables = {name: torch.as_tensor(values, dtype=torch.float64) for name, values in settings.items()}

    def loss(cosines: Tensor, target: Tensor, scale: float) -> Tensor:
        own = {name: table.to(cosines)[target] for name, table in tables.items()}
        return functional.gm_softmax(cosines, target, scale=scale, **own, reduction="none", validate=False)

    return loss


def centred_minimum(
    sizes: Sequence[float], scale: float, *, as_printed: bool = False, **settings: Sequence[float]
) -> float:
    """Smallest GM-Softmax risk over unit features and prototypes with sum_j w_j = 0 (Zhou et al. 2022, Theorem 3.5).

    The mean over the samples of ``log[exp(s(a2-a1+b2-b1)) + (K-1) exp(-s(1/(K-1)+a1+b1))]``, for any class sizes, K <=
    d + 1, and, sample by sample, a1 >= -1/(K-1) and a2 <= a1 (the paper asks for a1 >= 1/2): a simplex, z = w.

    Args:
        sizes: (K,) sizes of the classes.
        scale: s.
        as_printed: with the first exponent's sign as the paper has it.
        **settings: as in :func:`gm_by_class`.
    """
    shares = _shares(sizes).tolist()
    bound = gm_minimum_as_printed if as_printed else gm_minimum
    rows = [{name: float(values[j]) for name, values in settings.items()} for j in range(len(shares))]
    return sum(share * bound(len(shares), scale, **row) for share, row in zip(shares, rows, strict=True))


def centroid_under_penalty(sizes: Sequence[float], scale: float, coefficient: float, *, margin: float = 0.0) -> float:
    """Length of the mean prototype at the minimum of CosFace + ``coefficient * |mean_j w_j|^2``, to first order.

    Near the simplex the loss pulls every prototype along -v, v = sum_j p_j w_j, with strength s q, where q =
    1 / (exp(s(K/(K-1) - m)) + K - 1) is the probability of a wrong class. The penalty holds against it with
    2 coefficient / K times the mean: ``|mean| = K s q |v| / (2 coefficient)``, |v|^2 = (K sum p_j^2 - 1) / (K-1).

    Args:
        sizes: (K,) sizes of the classes.
        scale: s.
        coefficient: of the penalty; the paper's lambda counts a hundredfold.
        margin: CosFace's m; 0 is NormFace.
    """
    check_positive("coefficient", coefficient)
    shares = _shares(sizes)
    K = len(shares)
    wrong = 1 / (math.exp(scale * (K / (K - 1) - margin)) + K - 1)
    pull = math.sqrt(max(0.0, (K * float(shares.square().sum()) - 1) / (K - 1)))
    return K * scale * wrong * pull / (2 * coefficient)


# --- Table 2 without data


def _blunt_arcface(margin: float, bluntness: float) -> Loss:
    """ArcFace with sqrt(sin^2 + bluntness^2) for the sine: no corner at theta = 0, where L-BFGS would get stuck."""

    def loss(cosines: Tensor, target: Tensor, scale: float) -> Tensor:
        own = cosines.gather(1, target.unsqueeze(1)).squeeze(1)
        sine = ((1 - own.square()).clamp_min(0) + bluntness**2).sqrt()
        shift = math.cos(margin) * own - math.sin(margin) * sine - own
        return F.cross_entropy(
            scale * cosines.scatter_add(1, target.unsqueeze(1), shift.unsqueeze(1)), target, reduction="none"
        )

    return loss


def imbalance_losses(sizes: Sequence[float]) -> dict[str, list[Loss]]:
    """The five cosine losses of Zhou et al. 2022, Table 2, with the margins of its appendix C.3.

    Returns:
        Name -> losses to be minimised one after the other; the last one is the loss itself or, for ArcFace, as good as.
        CosFace has m = 0.35, ArcFace m = 0.1, LDAM 0.5 for the rarest class.
    """
    return {
        "normface": [named_loss("normface")],
        "cosface": [named_loss("cosface", margin=0.35)],
        "arcface": [_blunt_arcface(0.1, width) for width in (1e-1, 1e-2, 1e-3)],
        "ldam": [named_loss("ldam", margin=0.5, class_counts=torch.as_tensor(sizes, dtype=torch.float64))],
        "lm_softmax": [named_loss("lm_softmax")],
    }


def predict(
    loss: str, sizes: Sequence[float], *, d: int = 16, scale: float = 5.0, lam: float = 0.0, seed: int = 0
) -> FreeFeatures:
    """Minimise one of :func:`imbalance_losses` over K free prototypes and K free features.

    Args:
        loss: its name.
        sizes: (K,) sizes of the classes.
        d: dimension; from K - 1 on it makes no difference.
        scale: s, 5 throughout the paper's imbalanced experiments.
        lam: lambda of the zero-centroid regulariser in the paper's unit, 100 lambda |mean_j w_j|^2.
        seed: of the start; the minimum does not depend on it.
    """
    shares, found = _shares(sizes), None
    for stage in imbalance_losses(sizes)[loss]:
        found = minimise(
            stage, len(shares), d, scale=scale, start=found, starts=1, class_weights=shares,
            zero_centroid=100 * lam, seed=seed,
        )  # fmt: skip
    return found


def predicted_class_margins(
    settings: Mapping[str, Sequence[float]], losses: Sequence[str] = (), **options: float
) -> dict[str, dict[str, float]]:
    """Class margins of Zhou et al. 2022, Table 2, from the class sizes alone: at the minima of :func:`predict`.

    Args:
        settings: name -> (K,) sizes of the classes.
        losses: names; all five by default.
        **options: ``d``, ``scale``, ``lam`` and ``seed`` of :func:`predict`.

    Returns:
        Setting -> loss -> class margin in degrees.
    """
    return {
        setting: {
            loss: float(predict(loss, sizes, **options).class_margin) for loss in losses or imbalance_losses(sizes)
        }
        for setting, sizes in settings.items()
    }


# --- Rw on raw prototypes


def balancing_lengths(prototypes: Tensor) -> Tensor:
    """Lengths r_j >= 0, sum K, that bring the mean of r_j u_j closest to zero, u_j the prototypes' directions.

    Where that mean is zero, Rw on raw prototypes costs nothing, whatever the angles between them.

    Args:
        prototypes: (K, d), any length of row.
    """
    check_prototypes(prototypes)
    u = unit(prototypes.detach().double().cpu())
    K = len(u)
    # the last row asks for the sum, with a weight that keeps it from mattering to the others
    rows = torch.cat((u.T, torch.full((1, K), 1e-3, dtype=torch.float64)))
    goal = torch.zeros(len(rows), dtype=torch.float64)
    goal[-1] = 1e-3 * K
    lengths = torch.from_numpy(nnls(rows.numpy(), goal.numpy())[0])
    return lengths * (K / lengths.sum())


@dataclass(frozen=True)
class CentroidRuns:
    """What :func:`centroid_descent` recorded; NaN once a run has diverged.

    Attributes:
        step: (R,).
        class_margin: (R, runs) degrees.
        centroid: (R, runs) length of the mean of the unit prototypes.
        longest: (R, runs) length of the longest prototype.
    """

    step: Tensor
    class_margin: Tensor
    centroid: Tensor
    longest: Tensor


def centroid_descent(
    sizes: Sequence[float],
    lams: Sequence[float],
    *,
    normalize: bool = True,
    d: int = 16,
    scale: float = 5.0,
    lr: float = 0.1,
    momentum: float = 0.9,
    steps: int = 6000,
    every: int = 50,
    seed: int = 0,
) -> CentroidRuns:
    """NormFace + 100 lambda |mean_j w_j|^2 by plain gradient steps, as a network's prototypes take them.

    The loss sees directions only; the prototypes keep their lengths from step to step. Features move along.

    Args:
        sizes: (K,) sizes of the classes.
        lams: lambda of each run, in the paper's unit.
        normalize: whether the penalty sees unit prototypes; False gives it the raw ones.
        d: dimension.
        scale: s.
        lr: step size.
        momentum: heavy-ball momentum.
        steps: number of steps.
        every: steps from record to record.
        seed: of the start, the same for all runs.
    """
    shares, weight = _shares(sizes), 100 * torch.tensor(list(lams), dtype=torch.float64)
    K, runs = len(shares), len(weight)
    target = torch.arange(K).repeat(runs)
    start = random_points(1, 2 * K, d, seed=seed).repeat(runs, 1, 1)
    w, z = start[:, :K].clone().requires_grad_(), start[:, K:].clone().requires_grad_()
    descent = torch.optim.SGD([w, z], lr=lr, momentum=momentum)
    rows: list[tuple[Tensor, ...]] = []
    for step in range(steps + 1):
        u = normalised(w)
        if step % every == 0:
            with torch.no_grad():
                rows.append((class_margins(u), u.mean(1).norm(dim=-1), w.norm(dim=-1).amax(-1)))
        cosines = (normalised(z) @ u.mT).view(-1, K)
        losses = F.cross_entropy(scale * cosines, target, reduction="none").view(runs, K) @ shares
        penalty = (u if normalize else w).mean(1).square().sum(-1)
        descent.zero_grad()
        (losses + weight * penalty).sum().backward()
        descent.step()
    return CentroidRuns(torch.arange(0, steps + 1, every), *(torch.stack(part) for part in zip(*rows, strict=True)))
