"""Retrieval (re-identification): rank a gallery for each query; mAP and CMC.

Zheng et al. 2015, "Scalable person re-identification" (the Market-1501 protocol): from the gallery of a query are
taken out the images of the same identity *and* the same camera, and junk (identity -1). Distractors, identities that no
query has, stay. A query that is left without a match is skipped, and counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nbs_lib.geometry import unit

JUNK = -1
"""Identity of gallery images that count neither as right nor as wrong."""
_CELLS = 1 << 22
"""Cells of the (queries, gallery) matrix held at once: 32 MB in float64, and a few of them at a time."""


@dataclass(frozen=True)
class Retrieval:
    """How well each query finds its identity; all tensors on the CPU.

    Attributes:
        average_precision: (Q,) float64; NaN for a skipped query.
        first_match: (Q,) int64, rank of the first match, from 1; 0 for a skipped query.
    """

    average_precision: Tensor
    first_match: Tensor

    @property
    def queries(self) -> int:
        """Number of queries that count."""
        return int((self.first_match > 0).sum())

    @property
    def skipped(self) -> int:
        """Number of queries without a match in their gallery, or of junk."""
        return len(self.first_match) - self.queries

    @property
    def mean_average_precision(self) -> float:
        """Mean of the average precision over the queries that count."""
        return float(self.average_precision.nanmean())

    def cmc(self, k: int) -> float:
        """Share of queries with a match among the first ``k``, the paper's Rank@k.

        Raises:
            ValueError: k below 1.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k must be an integer of at least 1, got {k!r}")
        ranks = self.first_match[self.first_match > 0]
        return float((ranks <= k).double().mean())


def retrieve(
    query: Tensor,
    gallery: Tensor,
    identities: tuple[Tensor, Tensor],
    cameras: tuple[Tensor, Tensor] | None = None,
) -> Retrieval:
    """Rank the gallery of every query by cosine.

    Average precision is the mean of the precision at each of the M matches,
    ``AP = (1/M) sum_m (matches of m's score or higher) / (images of m's score or higher)``. Images of equal score are
    counted together, so a tie with a wrong image never helps, and the order of the gallery plays no part;
    scikit-learn's ``average_precision_score`` is the same number. Market-1501's own code joins the points of the
    precision-recall curve by trapezoids instead, which gives slightly other numbers.

    Args:
        query: (Q, d) features, any length.
        gallery: (G, d).
        identities: of queries (Q,) and gallery (G,), int64; -1 is junk.
        cameras: of queries (Q,) and gallery (G,), int64; None takes nothing out. To let every image of a set look for
            the others, pass the set as query and gallery, and the row number of each image as its camera.

    Raises:
        ValueError: features that are not finite or do not fit, lengths that differ, or no query with a match at all.
    """
    _check(query, gallery, identities, cameras)
    q, g = unit(query.detach()), unit(gallery.detach().to(query.dtype))  # in float32 or better
    query_ids, gallery_ids = (ids.to(g.device) for ids in identities)
    rows = max(1, _CELLS // len(g))
    precision, first = [], []
    for start in range(0, len(q), rows):
        part = slice(start, start + rows)
        scores, ids = q[part] @ g.T, query_ids[part, None]
        match = ids == gallery_ids
        out = (gallery_ids == JUNK).expand_as(match)
        if cameras is not None:
            out = out | (match & (cameras[0].to(g.device)[part, None] == cameras[1].to(g.device)))
        some, rank = _rank(scores.masked_fill_(out, -math.inf), match & ~out)
        precision.append(some.cpu())
        first.append(rank.cpu())
    found = Retrieval(torch.cat(precision), torch.cat(first))
    if not found.queries:
        raise ValueError(f"none of the {len(q)} queries has a match in its gallery of {len(g)} images")
    return found


def _rank(scores: Tensor, match: Tensor) -> tuple[Tensor, Tensor]:
    """Average precision and rank of the first match of each row of scores (q, G), given which entries match (q, G)."""
    rising, order = scores.sort(dim=1)
    hit = match.gather(1, order)
    # images of at least this score: all but those strictly below, so ties count against a match
    above = scores.shape[1] - torch.searchsorted(rising, rising, side="left")
    hits_above = hit.flip(1).cumsum(1).gather(1, above - 1)
    total = hit.sum(1)
    precision = torch.where(hit, hits_above.double() / above, 0.0).sum(1) / total  # 0 / 0 is NaN: a skipped query
    best = torch.where(hit, above - hits_above + 1, scores.shape[1] + 1).amin(1)
    return precision, torch.where(total > 0, best, 0)


def _check(query: Tensor, gallery: Tensor, identities: Sequence[Tensor], cameras: Sequence[Tensor] | None) -> None:
    for name, features in (("query", query), ("gallery", gallery)):
        if features.ndim != 2 or not features.is_floating_point() or 0 in features.shape:
            raise ValueError(f"{name} must be floating point (N, d), N > 0, got {tuple(features.shape)}")
        if not features.isfinite().all():
            raise ValueError(f"{name} holds a feature that is not finite")
    if query.shape[1] != gallery.shape[1]:
        raise ValueError(f"query has {query.shape[1]} dimensions, gallery {gallery.shape[1]}")
    for name, pair in (("identities", identities), ("cameras", cameras)):
        for side, labels, wanted in zip(("queries", "gallery"), pair or (), (query, gallery), strict=False):
            if labels.shape != wanted.shape[:1] or labels.dtype != torch.int64:
                raise ValueError(
                    f"{name} of the {side} must be int64 ({len(wanted)},), got {labels.dtype} {tuple(labels.shape)}"
                )
