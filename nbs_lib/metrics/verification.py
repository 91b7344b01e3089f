"""Verification: are two images of the same identity? ROC, TAR at a FAR, AUC, accuracy over folds, bootstrap.

A pair is accepted if its score is at least the threshold. *Genuine* pairs show one identity, *impostor* pairs two;
FAR and TAR are the shares of impostor and of genuine pairs accepted. Pairs with equal scores are accepted together or
not at all, so no measure here depends on the order of the pairs. Everything is sorted once, in float64: O(P log P).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nbs_lib.geometry import unit
from nbs_lib.metrics.bootstrap import draw_counts

_PAIRS = 1 << 16
"""Pairs whose features are held at once."""


def pair_scores(features: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Cosines between the features of each pair, in float64; a zero feature has cosine 0 with everything.

    Args:
        features: (N, d) of all images, each image once.
        first: (P,) int64, rows of ``features``.
        second: (P,) int64.

    Returns:
        (P,) float64 in [-1, 1].

    Raises:
        ValueError: features that are no finite (N, d), or first and second of different shapes.
    """
    if features.ndim != 2 or not features.is_floating_point() or not features.isfinite().all():
        raise ValueError(f"features must be finite and (N, d), got {features.dtype} {tuple(features.shape)}")
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(f"first and second must both be (P,), got {tuple(first.shape)} and {tuple(second.shape)}")
    directions = unit(features.detach().double())
    parts = zip(first.split(_PAIRS), second.split(_PAIRS), strict=True)
    scores = [(directions[a] * directions[b]).sum(1) for a, b in parts]
    return torch.cat(scores).clamp_(-1.0, 1.0)


def all_pairs(identities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every pair of N images once: first (P,), second (P,) and whether it is genuine (P,), P = N(N-1)/2.

    Args:
        identities: (N,) int64.
    """
    first, second = torch.triu_indices(len(identities), len(identities), offset=1, device=identities.device)
    return first, second, identities[first] == identities[second]


@dataclass(frozen=True)
class TarAtFar:
    """One operating point.

    Attributes:
        tar: share of genuine pairs accepted.
        far: share of impostor pairs accepted, at most the one asked for.
        threshold: smallest score that is accepted; infinite if none is.
        genuine: number of genuine pairs.
        impostors: number of impostor pairs; FAR comes in steps of one over it.
    """

    tar: float
    far: float
    threshold: float
    genuine: int
    impostors: int


@dataclass(frozen=True)
class Roc:
    """The ROC curve: one point a distinct score, from the strictest threshold to the laxest; all float64, on the CPU.

    Attributes:
        thresholds: (U + 1,) infinity, then the distinct scores from high to low.
        tar: (U + 1,) share of genuine pairs accepted at the threshold.
        far: (U + 1,) share of impostor pairs accepted.
        genuine: number of genuine pairs.
        impostors: number of impostor pairs.
    """

    thresholds: Tensor
    tar: Tensor
    far: Tensor
    genuine: int
    impostors: int

    @property
    def auc(self) -> float:
        """Chance that a genuine pair scores above an impostor pair, equal scores counting one half (Mann-Whitney).

        It is the area under the curve of straight lines through the points, computed from whole numbers of pairs.
        """
        accepted = (self.tar * self.genuine).round().long()
        wrong = (self.far * self.impostors).round().long()
        above = accepted.diff() * (2 * self.impostors - wrong[1:] - wrong[:-1])
        return int(above.sum()) / (2 * self.genuine * self.impostors)

    def at_far(self, far: float) -> TarAtFar:
        """The laxest threshold that lets at most a share ``far`` of the impostor pairs pass.

        Raises:
            ValueError: ``far`` above 1, or below one over the number of impostor pairs, where this data says nothing.
        """
        lowest = 1 / self.impostors
        if not (isinstance(far, float | int) and lowest * (1 - 1e-9) <= far <= 1):
            raise ValueError(
                f"far must lie between {lowest:.3g} and 1, got {far!r}: with {self.impostors} impostor pairs a share"
                " below one of them cannot be measured"
            )
        at = int((self.far <= _loosened(far)).sum()) - 1
        values = (float(column[at]) for column in (self.tar, self.far, self.thresholds))
        return TarAtFar(*values, self.genuine, self.impostors)


def _loosened(far: float) -> float:
    # 1 - 0.9 is 0.09999999999999998 in binary, and 10 of 100 is what was asked for
    return far * (1 + 1e-9)


def _check_pairs(scores: Tensor, genuine: Tensor) -> tuple[Tensor, Tensor]:
    """Scores in float64 and genuine on the CPU, or a ValueError."""
    if scores.ndim != 1 or not scores.is_floating_point() or scores.shape != genuine.shape:
        raise ValueError(
            f"scores must be floating point (P,) and genuine (P,), got {scores.dtype} {tuple(scores.shape)}"
            f" and {tuple(genuine.shape)}"
        )
    if genuine.dtype != torch.bool:
        raise ValueError(f"genuine must be bool, got {genuine.dtype}: write genuine == 1")
    scores, genuine = scores.detach().double().cpu(), genuine.cpu()
    if scores.isnan().any():
        raise ValueError(f"scores holds {int(scores.isnan().sum())} NaN")
    if not genuine.any() or genuine.all():
        raise ValueError(f"{len(genuine)} pairs, {int(genuine.sum())} of them genuine: both kinds are needed")
    return scores, genuine


def roc(scores: Tensor, genuine: Tensor) -> Roc:
    """The ROC curve of P pairs.

    Args:
        scores: (P,) the higher the more alike.
        genuine: (P,) bool.

    Raises:
        ValueError: shapes or dtypes that do not fit, NaN among the scores, or pairs of one kind only.
    """
    scores, genuine = _check_pairs(scores, genuine)
    values, place = scores.unique(return_inverse=True)
    counts = torch.zeros(2, len(values), dtype=torch.float64)
    counts[0].index_add_(0, place, genuine.double())
    counts[1].index_add_(0, place, (~genuine).double())
    tar, far = _shares(counts)
    return Roc(
        torch.cat((torch.tensor([math.inf], dtype=torch.float64), values.flip(0))),
        tar,
        far,
        int(genuine.sum()),
        int((~genuine).sum()),
    )


def _shares(counts: Tensor) -> Tensor:
    """From (2, U) weights by rising score to (2, U + 1) accepted shares by falling threshold, from 0 to 1."""
    accepted = torch.nn.functional.pad(counts.flip(1).cumsum(1), (1, 0))
    return accepted / accepted[:, -1:]


def auc(scores: Tensor, genuine: Tensor) -> float:
    """Area under the ROC curve, in [0, 1]; see :attr:`Roc.auc`.

    Raises:
        ValueError: as :func:`roc`.
    """
    return roc(scores, genuine).auc


def tar_at_far(scores: Tensor, genuine: Tensor, far: float) -> TarAtFar:
    """True-accept rate where at most a share ``far`` of the impostor pairs is accepted.

    Raises:
        ValueError: as :func:`roc` and :meth:`Roc.at_far`.
    """
    return roc(scores, genuine).at_far(far)


@dataclass(frozen=True)
class FoldAccuracy:
    """Accuracy over folds.

    Attributes:
        accuracy: (F,) share of right decisions in each fold.
        thresholds: (F,) chosen on the other folds.
    """

    accuracy: Tensor
    thresholds: Tensor

    @property
    def mean(self) -> float:
        """Mean over the folds, what papers print."""
        return float(self.accuracy.mean())

    @property
    def standard_error(self) -> float:
        """Standard deviation over the folds divided by sqrt(F), what the LFW protocol prints beside the mean."""
        return float(self.accuracy.std() / math.sqrt(len(self.accuracy)))


def fold_accuracy(scores: Tensor, genuine: Tensor, folds: Tensor) -> FoldAccuracy:
    """Accuracy of "same identity if the score is at least the threshold", the threshold chosen on the other folds.

    The protocol of LFW, AgeDB-30, CFP, CALFW and CPLFW (ten folds). The threshold lies half way between neighbouring
    scores of the other folds; of equally good ones the lowest is taken.

    Args:
        scores: (P,).
        genuine: (P,) bool.
        folds: (P,) int64, the fold of each pair.

    Raises:
        ValueError: as :func:`roc`; fewer than two folds, or a fold whose rest has one kind of pairs only.
    """
    scores, genuine = _check_pairs(scores, genuine)
    if folds.shape != scores.shape:
        raise ValueError(f"folds must be {tuple(scores.shape)} as scores, got {tuple(folds.shape)}")
    names, place = folds.cpu().unique(return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"folds must hold at least two folds, got {len(names)}")
    accuracy, thresholds = [], []
    for fold in range(len(names)):
        mine = place == fold
        thresholds.append(_best_threshold(scores[~mine], genuine[~mine]))
        accuracy.append(((scores[mine] >= thresholds[-1]) == genuine[mine]).double().mean())
    return FoldAccuracy(torch.stack(accuracy), torch.tensor(thresholds, dtype=torch.float64))


def _best_threshold(scores: Tensor, genuine: Tensor) -> float:
    curve = roc(scores, genuine)
    right = curve.tar * curve.genuine + (1 - curve.far) * curve.impostors
    best = len(right) - 1 - int(right.round().flip(0).argmax())  # the last maximum has the lowest threshold
    if best == len(right) - 1:
        return -math.inf
    low, high = curve.thresholds[best + 1], curve.thresholds[best]
    return float(high if high == math.inf else (low + high) / 2)


@dataclass(frozen=True)
class RocSamples:
    """What the ROC curve would have been in R resamples; give either to :func:`nbs_lib.metrics.interval`.

    Attributes:
        auc: (R,).
        tar: (R, F) at the F rates asked for.
    """

    auc: Tensor
    tar: Tensor


def bootstrap_roc(
    scores: Tensor,
    genuine: Tensor,
    fars: Sequence[float],
    identities: tuple[Tensor, Tensor],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> RocSamples:
    """AUC and TAR in resamples of whole identities.

    An identity drawn n times gives each of its genuine pairs the weight n, and its impostor pairs with an identity
    drawn n' times the weight n n'. Pairs between two copies of one identity are left out: they would be impostors in
    the resample and are genuine in truth. For a list of pairs whose identities hardly recur (LFW), number the pairs
    and pass the numbers twice: every pair is then its own group.

    Args:
        scores: (P,).
        genuine: (P,) bool.
        fars: false-accept rates at which TAR is wanted.
        identities: of the first and of the second image of each pair, (P,) int64 each.
        resamples: how many.
        seed: of the resampling.

    Raises:
        ValueError: as :func:`roc`; a rate that :meth:`Roc.at_far` refuses; a genuine pair of two identities.
    """
    curve = roc(scores, genuine)
    for far in fars:
        curve.at_far(far)
    scores, genuine = _check_pairs(scores, genuine)
    names, place = torch.cat(identities).cpu().unique(return_inverse=True)
    a, b = place[: len(scores)], place[len(scores) :]
    if len(place) != 2 * len(scores) or (a[genuine] != b[genuine]).any():
        raise ValueError("identities must be two (P,) tensors that are equal on genuine pairs")
    values, rank = scores.unique(return_inverse=True)
    cell = rank + len(values) * (~genuine)  # genuine pairs fill the first U cells, impostors the next U
    alike = a == b
    limits = torch.tensor([_loosened(far) for far in fars], dtype=torch.float64)
    areas, rates = [], []
    for count in draw_counts(len(names), resamples, seed):
        weight = torch.where(alike, count[a], count[a] * count[b])
        counts = torch.bincount(cell, weights=weight, minlength=2 * len(values)).view(2, -1)
        accepted, wrong = _shares(counts)
        areas.append((accepted.diff() * (1 - (wrong[1:] + wrong[:-1]) / 2)).sum())
        rates.append(accepted[torch.searchsorted(wrong, limits, right=True) - 1])
    area, tar = torch.stack(areas), torch.stack(rates)
    tar[area.isnan()] = math.nan  # a resample of one kind of pairs only
    return RocSamples(area, tar)
