"""From a configuration to a record: the one road that chapters, workbench and recorded tables share."""

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from nbs_lib import data, heads, losses, metrics, models, provenance, train
from nbs_lib.config import LOSSES, RunConfig, loss_settings, paper_config, quick_config, table_configs
from nbs_lib.data import corrupt
from nbs_lib.mixup import Mixup
from nbs_lib.provenance import environment
from nbs_lib.theory.packing import simplex_etf

__all__ = [
    "LOSSES", "Objective", "Record", "RunConfig", "add_row", "augmentation", "build_networks", "build_objective",
    "environment", "loss_settings", "measure", "paper_config", "quick_config", "run", "run_all", "table_configs",
    "training_set",
]  # fmt: skip


def training_set(config: RunConfig) -> data.ImageSet | data.files.StreamSet:
    """The images that ``config`` trains on: limited, then imbalanced, then with wrong labels, as it asks for.

    Raises:
        nbs_lib.data.DataError: the image set cannot be read.
        ValueError: the imbalance asks for more images of a class, or a smaller class, than there can be.
    """
    images = data.load(config.dataset, limit_per_class=config.limit_per_class, image_size=config.image_size or None)
    if config.imbalance:
        images = corrupt.imbalanced(images, config.imbalance, config.imbalance_ratio)
    if config.label_noise:
        images = corrupt.with_noise(images, config.label_noise, config.noise_rate, config.seed)
    return images


class Objective:
    """The training objective: loss + mu Rsm + 100 lambda Rw (Zhou et al. 2022, appendices C.1 and C.2).

    Rsm sees cosines, beside cross-entropy too: on raw scores it has no lower bound. The labels were checked when the
    image set was made, so no criterion looks at their range again.

    With deferred re-weighting the loss is, from ``config.reweighted_epoch`` on, the mean of its samples weighted by
    their classes, sum_i w_yi L_i / sum_i w_yi, as in ``torch.nn.CrossEntropyLoss(weight=...)`` and in the code of Cao
    et al. 2019; the regularisers are not weighted.

    Args:
        config: what to train.
        class_counts: training images of each class, for LDAM and re-weighting.
    """

    def __init__(self, config: RunConfig, class_counts: Sequence[int] | None = None) -> None:
        if class_counts is None and (config.reweight or "class_counts" in LOSSES[config.loss]):
            raise ValueError(
                f"class_counts is None, but loss {config.loss!r} or reweight={config.reweight!r} needs them"
            )
        self.config = config
        reduction = {"reduction": "none"} if config.reweight else {}
        self.criterion = losses.build(config.loss, validate=False, **reduction, **config.hyper(class_counts))
        self.spread, self.centred = losses.build("sample_margin", validate=False), losses.build("zero_centroid")
        self.weights = losses.class_balanced_weights(class_counts).float() if config.reweight else None
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        """Tell the objective which epoch, from 0, begins."""
        self.reweights = self.weights is not None and epoch >= self.config.reweighted_epoch

    def __call__(self, features: Tensor, head: nn.Module, target: Tensor) -> Tensor:
        """Objective of features (N, d) and labels (N,), a scalar."""
        config, scores = self.config, head(features)
        loss = self.criterion(scores, target)
        if self.reweights:
            self.weights = self.weights.to(target.device)
            of_sample = self.weights[target]
            loss = (of_sample * loss).sum() / of_sample.sum()
        elif self.weights is not None:
            loss = loss.mean()
        if config.sample_margin:
            cosines = scores if losses.expects_cosines(config.loss) else head.cosine(features)
            loss = loss + config.sample_margin * self.spread(cosines, target)
        if config.zero_centroid:
            loss = loss + losses.PAPER_LAMBDA * config.zero_centroid * self.centred(head.prototypes)
        return loss


def build_objective(config: RunConfig, class_counts: Sequence[int] | None = None) -> Objective:
    """The objective of ``config``; see :class:`Objective`."""
    return Objective(config, class_counts)


def build_networks(config: RunConfig, channels: int, image_size: int, num_classes: int) -> tuple[nn.Module, nn.Module]:
    """Backbone and head of ``config``, with the weights that its seed gives."""
    with torch.random.fork_rng([]):
        torch.manual_seed(config.seed)
        backbone = models.build(config.model, channels, image_size, config.feature_dim or None)
        if losses.expects_cosines(config.loss):
            head: nn.Module = heads.CosineHead(backbone.out_features, num_classes)
        else:
            head = heads.LinearHead(backbone.out_features, num_classes, bias=config.bias)
        if config.freeze_prototypes == "simplex":
            # Turned at random: simplex_etf lies along the axes, where features behind a ReLU cannot follow it.
            turn = torch.linalg.qr(torch.randn(backbone.out_features, backbone.out_features, dtype=torch.float64)).Q
            head.prototypes.requires_grad_(False).copy_(simplex_etf(num_classes, backbone.out_features) @ turn)
    return backbone, head


@dataclass
class Record:
    """One run and what came of it.

    Attributes:
        config: what was run.
        metrics: measures on the test images (and, "train_...", on the training images); empty if the run diverged.
            With an imbalance: accuracy_many, accuracy_medium and accuracy_few, means over the classes of each group of
            :func:`nbs_lib.data.corrupt.frequency_groups`. With label noise train_accuracy counts the labels trained on,
            train_accuracy_clean the true ones.
        per_class: names, train_images (n_j) and accuracy (on the test images, None without any) of the K classes.
        history: one dictionary an epoch, with class_margin and prototype_norm_ratio beside what `fit` keeps.
        environment: hardware, versions, code, date.
        wall_time: seconds for loading, training and measuring.
        status: "finished" or "diverged".
        note: why it diverged.
        on_test: scores, cosines, features and labels of the test images, if they were to be kept.
        on_train: the same of the training images.
        backbone: the trained network, if it was to be kept.
        head: the trained head, if it was to be kept.
    """

    config: RunConfig
    metrics: dict[str, float]
    history: list[dict[str, Any]]
    environment: dict[str, Any]
    wall_time: float
    status: str = "finished"
    note: str = ""
    per_class: dict[str, list[Any]] = field(default_factory=dict)
    on_test: train.Evaluation | None = field(default=None, repr=False)
    on_train: train.Evaluation | None = field(default=None, repr=False)
    backbone: nn.Module | None = field(default=None, repr=False)
    head: nn.Module | None = field(default=None, repr=False)

    def row(self) -> dict[str, Any]:
        """One line of a result table: configuration, status, measures, provenance. It holds no path of this machine."""
        measured = {name: float(f"{value:.6g}") for name, value in self.metrics.items()}
        return (
            self.config.cells()
            | {"status": self.status}
            | measured
            | {"wall_time": round(self.wall_time, 1)}
            | (self.environment)
        )


def _measure(config: RunConfig, test: train.Evaluation, fitted: train.Evaluation) -> dict[str, float]:
    # What the loss takes for class probabilities; a loss without a scale on cosines (Rsm alone) has none.
    scale = config.scale if losses.expects_cosines(config.loss) else 1.0
    ece = math.nan
    if scale is not None:
        ece = metrics.expected_calibration_error((scale * test.scores).softmax(dim=1), test.target)
    return {
        "accuracy": test.accuracy,
        "class_margin": test.class_margin,
        "mean_sample_margin": test.mean_sample_margin,
        "prototype_norm_ratio": test.prototype_norm_ratio,
        "ece": ece,
        "train_accuracy": fitted.accuracy,
        "train_mean_sample_margin": fitted.mean_sample_margin,
    }


def _measure_classes(record: Record, test: train.Evaluation, fitted: train.Evaluation, images: Any) -> None:
    """Add to the record what is known class by class, and what the corruption of the training set makes of interest."""
    of_class = metrics.class_accuracy(test.scores, test.target)
    counts = corrupt.class_counts(images.labels, images.num_classes)
    accuracies = [None if math.isnan(value) else value for value in of_class.tolist()]
    record.per_class = {"names": list(images.class_names), "train_images": counts, "accuracy": accuracies}
    if record.config.imbalance:
        for group, classes in corrupt.frequency_groups(counts).items():
            record.metrics[f"accuracy_{group}"] = float(of_class[classes].nanmean())
    if images.clean_labels is not None:
        record.metrics["train_accuracy_clean"] = metrics.topk_accuracy(fitted.scores, images.clean_labels.cpu())


def measure(
    record: Record,
    backbone: nn.Module,
    head: nn.Module,
    train_set: data.sets.Batches,
    test_set: data.sets.Batches,
    *,
    keep: bool = False,
) -> None:
    """Fill in the metrics and per_class of ``record`` from trained networks; with ``keep``, the networks too.

    Weights may be finite and their scores not: then the run has diverged after all.
    """
    test, fitted = (train.evaluate(backbone, head, part) for part in (test_set, train_set))
    if not (test.scores.isfinite().all() and fitted.scores.isfinite().all()):
        record.status, record.note = "diverged", "the scores after training are not finite. Try a lower lr, or clip."
        return
    record.metrics = _measure(record.config, test, fitted)
    _measure_classes(record, test, fitted, train_set)
    if keep:
        record.on_test, record.on_train, record.backbone, record.head = test, fitted, backbone, head


def augmentation(config: RunConfig) -> data.Augment:
    """What happens to the training images at random."""
    return data.Augment(crop_pad=config.crop_pad, flip=config.flip, shift=config.shift)


def fit_settings(config: RunConfig) -> dict[str, Any]:
    """What `train.fit` takes from a configuration: length, optimiser, schedule, seed, place, augmentation."""
    names = "epochs batch_size lr optimizer momentum nesterov weight_decay schedule warmup seed device precision clip"
    return {name: getattr(config, name) for name in names.split()} | {"augment": augmentation(config)}


def _watch(head: nn.Module, on_epoch: Callable[[dict[str, Any]], None] | None) -> Callable[[dict[str, Any]], None]:
    """Add the margins of the prototypes to the record of each epoch (Zhou et al. 2022, figs. 1 and 7)."""

    def watch(record: dict[str, Any]) -> None:
        w = head.prototypes.detach()
        if w.isfinite().all():
            record["class_margin"] = float(metrics.class_margins(w))
            record["prototype_norm_ratio"] = metrics.prototype_norm_ratio(w)
        if on_epoch:
            on_epoch(record)

    return watch


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with ``count`` threads (0: as many as before); the former number comes back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run(
    config: RunConfig,
    *,
    keep: bool = False,
    checkpoint: str | Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    progress: bool | None = None,
) -> Record:
    """Train and measure ``config``; a run that diverges gives a record that says so.

    Args:
        config: what to run.
        keep: keep the evaluations of test and training images, backbone and head in the record, for figures.
        checkpoint: file to write every epoch and to resume from.
        on_epoch: called with the record of each epoch (a dictionary, to which it may add).
        progress: as in :func:`nbs_lib.train.fit`.

    Raises:
        nbs_lib.data.DataError: the image set cannot be read.
        nbs_lib.checkpoints.CheckpointError: the checkpoint is damaged or another run's.
    """
    started = time.perf_counter()
    record = Record(config, {}, [], provenance.environment(train.resolve(config.device)[0], config.threads), 0.0)
    with threads(config.threads):
        train_set = training_set(config)
        test_set = data.load(config.dataset, split="test", image_size=config.image_size or None)
        objective = build_objective(config, corrupt.class_counts(train_set.labels, train_set.num_classes))
        backbone, head = build_networks(config, train_set.channels, train_set.image_size, train_set.num_classes)
        mixed = Mixup(backbone, config.mixup) if config.mixup else None
        try:
            history = train.fit(
                mixed or backbone,
                head,
                mixed.blend(objective) if mixed else objective,
                train_set,
                **fit_settings(config),
                checkpoint=checkpoint,
                identity=repr(config.cells() | {"device": ""}),
                before_epoch=objective.start_epoch,
                on_epoch=_watch(head, on_epoch),
                progress=progress,
            )
        except train.TrainingDiverged as error:
            record.status, record.note = "diverged", str(error)
        else:
            record.history = history.epochs
            measure(record, backbone, head, train_set, test_set, keep=keep)
    record.wall_time = time.perf_counter() - started
    return record


def add_row(record: Record, csv: str | Path) -> pd.DataFrame:
    """Append ``record`` to a table of runs, unless its configuration is there; return the table, all cells as text.

    One process at a time may write to a table.

    Raises:
        ValueError: ``csv`` is damaged or not a table of runs; the message names it.
    """
    table, default = provenance.read_table(Path(csv)), RunConfig().cells()
    if provenance.find(table, record.config.cells(), default) is None:
        table = provenance.append(table, record.row(), default)
        provenance.write_table(table, Path(csv))
    return table


def run_all(
    configs: Iterable[RunConfig],
    csv: str | Path | None = None,
    *,
    checkpoints: str | Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    on_record: Callable[[Record], None] | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Run the configurations that ``csv`` does not hold yet, appending a row each as soon as it is finished.

    Killed at any moment and called again, it goes on where it was: a row is written whole or not at all, and what
    has a row is skipped. One process at a time may write to a table.

    Args:
        configs: what to run, in this order.
        csv: the table; None keeps it in memory.
        checkpoints: folder for a checkpoint per run, removed when its row is written.
        on_epoch: as in :func:`run`.
        on_record: called with the record of each run that was needed; evaluations and networks are then kept in it.
        progress: as in :func:`run`.

    Returns:
        The whole table: fields of the configuration, status, measures, wall_time in seconds, provenance.

    Raises:
        ValueError: ``csv`` is damaged or not a table of runs; the message names it.
    """
    path, default = Path(csv) if csv is not None else None, RunConfig().cells()
    table = provenance.read_table(path)
    for config in configs:
        if provenance.find(table, config.cells(), default) is not None:
            continue
        stem = hashlib.sha256(repr(config).encode()).hexdigest()[:16]
        saved = Path(checkpoints) / f"{stem}.ckpt" if checkpoints is not None else None
        keep = on_record is not None
        record = run(config, keep=keep, checkpoint=saved, on_epoch=on_epoch, progress=progress)
        table = add_row(record, path) if path else provenance.append(table, record.row(), default)
        if saved:
            saved.unlink(missing_ok=True)
        if on_record:
            on_record(record)
    return provenance.typed(table)
