"""Recognition: train on some identities, verify and retrieve others. The road of chapter 15 and its sweeps."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from nbs_lib import metrics, provenance, train
from nbs_lib.config import RunConfig, without_path
from nbs_lib.data import DataError, faces, files, reid
from nbs_lib.data.identities import OpenSet, garments, open_set
from nbs_lib.run import build_networks, build_objective, fit_settings, threads
from nbs_lib.validation import check_real

FARS = (1e-2, 1e-3, 1e-4)
"""False-accept rates at which TAR is measured, where the impostor pairs suffice."""
MOST_PAIRS = 20_000_000
"""Sets with more pairs than this are ranked only, not verified."""
NAMES = ("garments", "orl", "folder:PATH", "reid:PATH")
_TITLES = {"ce": "CE", "normface": "NormFace", "cosface": "CosFace", "arcface": "ArcFace", "lm_softmax": "LM-Softmax"}


@dataclass(frozen=True)
class Trial:
    """One run: on which identities, with which loss.

    Args:
        config: network, loss and training; its ``dataset`` plays no part.
        dataset: "garments" (made from fashion_mini), "orl", "folder:PATH" (a folder of images for each identity, split
            by identities) or "reid:PATH" (the layout of Market-1501).
        identities: how many to train on; 0 takes 200 garments, 20 of ORL's 40 people, half of a folder's. A
            re-identification folder says itself.
        triplet: weight of a triplet loss (margin 0.3 on cosine distances) beside the loss; it needs
            pytorch-metric-learning.

    Raises:
        ValueError: an unknown data set, or numbers out of range.
    """

    config: RunConfig
    dataset: str = "garments"
    identities: int = 0
    triplet: float = 0.0

    def __post_init__(self) -> None:
        kind, _, path = self.dataset.partition(":")
        if self.dataset not in ("garments", "orl") and not (kind in ("folder", "reid") and path):
            raise ValueError(f"dataset must be one of {', '.join(NAMES)}, got {self.dataset!r}")
        if check_real("triplet", self.triplet) < 0:
            raise ValueError(f"triplet must not be negative, got {self.triplet!r}")
        if isinstance(self.identities, bool) or not isinstance(self.identities, int) or self.identities < 0:
            raise ValueError(f"identities must be an integer of at least 0, got {self.identities!r}")

    def cells(self) -> dict[str, Any]:
        """The fields as a table shows them: a path by its last part and a digest, as in ``RunConfig.cells``."""
        own = {"dataset": without_path(self.dataset), "identities": self.identities, "triplet": self.triplet}
        return self.config.cells() | own

    @property
    def method(self) -> str:
        """The run's name in the tables of Zhou et al. 2022: ``ArcFace (s = 10) + Rw``; triplet where it is added."""
        return method(self.cells())

    def load(self) -> OpenSet:
        """Read or make the identities; the run's seed draws which of them are trained on.

        Raises:
            DataError: the set is not there or damaged.
            ValueError: ``identities`` does not leave two on each side.
        """
        seed, size = self.config.seed, self.config.image_size
        if self.dataset == "garments":
            return garments(self.identities or 200, seed=seed)
        if self.dataset == "orl":
            return open_set(faces.orl(image_size=size or 48), self.identities or 20, seed)
        kind, _, path = self.dataset.partition(":")
        if kind == "reid":
            return reid.reid_folder(path, size or 64)
        found = files.find(Path(path).expanduser(), f"folder:{Path(path).name}")
        side, channels = files.form(found, size or None)
        if len(found.paths) * channels * side * side > files.RESIDENT_BYTES:
            raise DataError(
                f"image set {found.name!r} does not fit into memory at {side} pixels: take a smaller image_size"
            )
        whole = files.read(found, side, channels, *files.moments(found, side, channels))
        return open_set(whole, self.identities or whole.num_classes // 2, seed)


def method(cells: dict[str, Any]) -> str:
    """Name a run by the cells of its row; see :attr:`Trial.method`."""
    scale, triplet = cells.get("scale"), cells.get("triplet")
    name = _TITLES.get(cells["loss"], cells["loss"])
    name += "" if scale in (None, "") or scale != scale else f" (s = {float(scale):g})"
    for field_name, title in (("sample_margin", "Rsm"), ("zero_centroid", "Rw")):
        weight = float(cells.get(field_name) or 0)
        name += f" + {'' if weight in (0.5, 1) else format(weight, 'g')}{title}" if weight else ""
    return name + (" + triplet" if triplet and float(triplet) else "")


@dataclass
class Outcome:
    """What came of a trial.

    Attributes:
        trial: what was run.
        metrics: of unseen identities "auc", "tar_1e-02" and so on where they can be measured, "map", "rank_1",
            "rank_5", "rank_10" (all shares), numbers of pairs and queries; of training images "train_accuracy",
            "train_mean_sample_margin", and "class_margin" of the prototypes in degrees. Empty if the run diverged.
        history: one dictionary an epoch.
        environment: hardware, versions, code, date.
        wall_time: seconds.
        status: "finished" or "diverged".
        note: why it diverged.
        task: the identities, if they were to be kept.
        query: features of the queries (Q, d), if they were to be kept.
        gallery: features of the gallery; the same tensor where queries and gallery are the same images.
        backbone: the trained network, if it was to be kept.
        head: the trained head, if it was to be kept.
    """

    trial: Trial
    metrics: dict[str, float]
    history: list[dict[str, Any]]
    environment: dict[str, Any]
    wall_time: float
    status: str = "finished"
    note: str = ""
    task: OpenSet | None = field(default=None, repr=False)
    query: Tensor | None = field(default=None, repr=False)
    gallery: Tensor | None = field(default=None, repr=False)
    backbone: nn.Module | None = field(default=None, repr=False)
    head: nn.Module | None = field(default=None, repr=False)

    def row(self) -> dict[str, Any]:
        """One line of a result table, as :meth:`nbs_lib.run.Record.row`."""
        measured = {name: float(f"{value:.6g}") for name, value in self.metrics.items()}
        kept = {"wall_time": round(self.wall_time, 1)}
        return self.trial.cells() | {"status": self.status} | measured | kept | self.environment


def triplet_loss(margin: float = 0.3) -> nn.Module:
    """The triplet loss of pytorch-metric-learning over all triplets of a batch, on cosine distances.

    Raises:
        ModuleNotFoundError: the package is not installed; says how to.
    """
    try:
        from pytorch_metric_learning import distances, losses
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a triplet loss beside the others needs pytorch-metric-learning: pip install 'nbs-lib[test]', or"
            " pip install pytorch-metric-learning"
        ) from error
    return losses.TripletMarginLoss(margin=margin, distance=distances.CosineSimilarity())


def _objective(trial: Trial) -> train.Objective:
    plain = build_objective(trial.config)
    if not trial.triplet:
        return plain
    beside = triplet_loss()

    def objective(features: Tensor, head: nn.Module, target: Tensor) -> Tensor:
        return plain(features, head, target) + trial.triplet * beside(features.float(), target)

    return objective


def run(trial: Trial, *, keep: bool = False, task: OpenSet | None = None, progress: bool | None = None) -> Outcome:
    """Train on the known identities and measure on the others; a run that diverges says so.

    Args:
        trial: what to run.
        keep: keep identities, features and backbone in the outcome, for figures.
        task: the identities, if they are loaded already.
        progress: as in :func:`nbs_lib.train.fit`.

    Raises:
        DataError: the identities cannot be read.
    """
    started, config = time.perf_counter(), trial.config
    environment = provenance.environment(train.resolve(config.device)[0], config.threads)
    outcome = Outcome(trial, {}, [], environment, 0.0)
    with threads(config.threads):
        try:
            task = task or trial.load()
            known = task.train
            backbone, head = build_networks(config, known.channels, known.image_size, known.num_classes)
            history = train.fit(
                backbone,
                head,
                _objective(trial),
                known,
                **fit_settings(config),
                progress=progress,
            )
            fitted = train.evaluate(backbone, head, known)
            query = train.evaluate(backbone, head, task.query.images).features
            same = task.gallery is task.query
            gallery = query if same else train.evaluate(backbone, head, task.gallery.images).features
            outcome.metrics, outcome.history = measure(task, query, gallery), history.epochs
            outcome.metrics |= {
                "class_margin": fitted.class_margin,
                "train_accuracy": fitted.accuracy,
                "train_mean_sample_margin": fitted.mean_sample_margin,
            }
            if keep:
                outcome.task, outcome.query, outcome.gallery, outcome.backbone = task, query, gallery, backbone
                outcome.head = head
        except train.TrainingDiverged as error:
            outcome.status, outcome.note = "diverged", str(error)
    outcome.wall_time = time.perf_counter() - started
    return outcome


def verification(task: OpenSet, query: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Scores, whether genuine, and the two identities of every pair of queries."""
    people = task.query.identities
    first, second, genuine = metrics.all_pairs(people)
    return metrics.pair_scores(query, first, second), genuine, (people[first], people[second])


def ranking(task: OpenSet, query: Tensor, gallery: Tensor) -> metrics.Retrieval:
    """Each query ranks the gallery; images of its identity and camera are taken out, itself among them."""
    people = task.query.identities, task.gallery.identities
    return metrics.retrieve(query, gallery, people, (task.query.cameras, task.gallery.cameras))


def measure(task: OpenSet, query: Tensor, gallery: Tensor, fars: Sequence[float] = FARS) -> dict[str, float]:
    """The measures of :class:`Outcome` on unseen identities, from their features."""
    found: dict[str, float] = {}
    if task.query is task.gallery and len(query) ** 2 <= 2 * MOST_PAIRS:
        scores, genuine, _ = verification(task, query)
        curve = metrics.roc(scores, genuine)
        found = {"genuine_pairs": curve.genuine, "impostor_pairs": curve.impostors, "auc": curve.auc}
        found |= {f"tar_{far:.0e}": curve.at_far(far).tar for far in fars if far * curve.impostors >= 1}
    ranks = ranking(task, query, gallery)
    found |= {"map": ranks.mean_average_precision} | {f"rank_{k}": ranks.cmc(k) for k in (1, 5, 10)}
    return found | {"queries": ranks.queries, "skipped_queries": ranks.skipped}


def verify(outcome: Outcome, pairs: faces.FacePairs) -> metrics.FoldAccuracy:
    """Ten-fold accuracy of a kept network on a list of pairs, its images sized and normalised like the training set.

    Raises:
        DataError: an image of the list cannot be read.
        ValueError: the outcome was not kept.
    """
    if outcome.task is None or outcome.backbone is None or outcome.head is None:
        raise ValueError("verify needs an outcome with its network: run(..., keep=True)")
    features = train.evaluate(outcome.backbone, outcome.head, pairs.images(outcome.task.train)).features
    scores = metrics.pair_scores(features, pairs.first, pairs.second)
    return metrics.fold_accuracy(scores, pairs.genuine, pairs.folds)


def run_all(
    trials: Iterable[Trial], csv: str | Path | None = None, *, on_outcome: Callable[[Outcome], None] | None = None
) -> pd.DataFrame:
    """Run the trials that ``csv`` does not hold yet, appending a row each; as :func:`nbs_lib.run.run_all`.

    Trials that differ only in loss and training share their identities, which are then loaded once.

    Args:
        trials: what to run, in this order.
        csv: the table; None keeps it in memory.
        on_outcome: called with each outcome that was needed; identities, features and networks are then kept in it.

    Returns:
        The whole table.

    Raises:
        ValueError: ``csv`` is damaged or not a table of runs; the message names it.
        DataError: the identities cannot be read.
    """
    path, default = Path(csv) if csv is not None else None, Trial(RunConfig()).cells()
    table, loaded = provenance.read_table(path), {}
    for trial in trials:
        if provenance.find(table, trial.cells(), default) is not None:
            continue
        key = (trial.dataset, trial.identities, trial.config.seed, trial.config.image_size)
        if key not in loaded:
            loaded = {key: trial.load()}  # the last one only: memory
        outcome = run(trial, keep=on_outcome is not None, task=loaded[key])
        table = provenance.append(provenance.read_table(path) if path else table, outcome.row(), default)
        if path:
            provenance.write_table(table, path)
        if on_outcome:
            on_outcome(outcome)
    return provenance.typed(table)


MARGINS = {"normface": None, "cosface": 0.35, "arcface": 0.5, "lm_softmax": None}
"""Margins of the paper's face section; its re-identification section names none."""


def with_loss(base: Trial, loss: str, scale: float | None = None, *, triplet: float = 0.0, **changes: Any) -> Trial:
    """``base`` with another loss, its margin that of :data:`MARGINS`, and other fields of its configuration."""
    config = replace(base.config, loss=loss, scale=scale, margin=MARGINS.get(loss), **changes)
    return replace(base, config=config, triplet=triplet)


def trials(base: Trial, scales: Iterable[float], *, regularisers: bool = True, triplet: float = 0.0) -> list[Trial]:
    """The rows of Zhou et al. 2022, Tables 8 and 9, on ``base``'s identities and training.

    Cross-entropy, then scale by scale NormFace, CosFace (m = 0.35), ArcFace (m = 0.5) and LM-Softmax. With
    ``regularisers`` also 0.5 Rsm and Rw (lambda = 1) beside CosFace and ArcFace, and Rw beside LM-Softmax, at the scale
    nearest 32, the paper's for LM-Softmax on faces; with ``triplet`` a triplet loss of that weight there, too.
    """
    scales = list(scales)
    middle = min(scales, key=lambda scale: abs(scale - 32))
    rows = [with_loss(base, "ce"), *(with_loss(base, loss, scale) for scale in scales for loss in MARGINS)]
    if regularisers:
        rsm, rw = {"sample_margin": 0.5}, {"zero_centroid": 1.0}
        added = (("cosface", rsm), ("cosface", rw), ("arcface", rsm), ("arcface", rw), ("lm_softmax", rw))
        rows += [with_loss(base, loss, middle, **term) for loss, term in added]
    if triplet:
        rows.append(with_loss(base, "ce", triplet=triplet))
        rows += [with_loss(base, loss, middle, triplet=triplet) for loss in ("cosface", "arcface", "lm_softmax")]
    return rows
