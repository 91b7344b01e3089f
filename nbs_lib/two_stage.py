"""Recipes in two stages for unequal classes: learn the features from all images, then the classifier from even classes.

* cRT: Kang et al. 2020, "Decoupling representation and classifier for long-tailed recognition",
  https://arxiv.org/abs/1910.09217
* MiSLAS: Zhong et al. 2021, "Improving calibration for long-tailed recognition", https://arxiv.org/abs/2104.00466

The first stage is a plain run (:func:`nbs_lib.run.run`), with mixup in MiSLAS and in the cRT of Zhou et al. 2022, Table
7; both add the zero-centroid regulariser to it, or to both stages.
"""

import copy
import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from nbs_lib import data, losses, run, train
from nbs_lib.data import corrupt
from nbs_lib.data.sampling import ClassBalanced
from nbs_lib.data.sets import Batches
from nbs_lib.validation import check_choice, check_in

RECIPES = ("crt", "mislas")
_BATCH_NORM = nn.modules.batchnorm._BatchNorm


@dataclass(frozen=True)
class SecondStage:
    """How the classifier is learned once the features are fixed.

    Args:
        recipe: "crt": a fresh head, the loss of the first stage. "mislas": the head of the first stage, corrected by a
            :class:`Rescaling` under label-aware smoothing.
        epochs: passes over as many images as the set has, each class equally often.
        lr: first learning rate; it falls to zero as half a wave.
        zero_centroid: lambda of the zero-centroid regulariser in this stage, in the paper's unit.
        smoothing: "mislas": smoothing of the most frequent class; that of the rarest is 0.
        retention: "mislas": r of the :class:`Rescaling`.
        shift_statistics: let the running mean and variance of the batch normalisations move to the balanced data, their
            factors and offsets held (shifted batch normalisation); None does it for "mislas" and not for "crt".
    """

    recipe: str = "crt"
    epochs: int = 10
    lr: float = 0.1
    zero_centroid: float = 0.0
    smoothing: float = 0.3
    retention: float = 1.0
    shift_statistics: bool | None = None

    def __post_init__(self) -> None:
        check_choice("recipe", self.recipe, RECIPES)
        check_in("retention", self.retention, 0, 1)

    @property
    def shifts(self) -> bool:
        """Whether the batch statistics move."""
        return self.recipe == "mislas" if self.shift_statistics is None else self.shift_statistics


class Frozen(nn.Module):
    """A copy of a backbone that learns nothing; in training, only its batch statistics may move.

    Args:
        backbone: what to copy.
        shift_statistics: whether they do. Its batches are then normalised by their own statistics.
    """

    def __init__(self, backbone: nn.Module, *, shift_statistics: bool = False) -> None:
        super().__init__()
        self.backbone, self.shift_statistics = copy.deepcopy(backbone).requires_grad_(False), shift_statistics

    def train(self, mode: bool = True) -> Self:
        """Put the batch normalisations alone into training mode, if they are to move; dropout and the rest stay off."""
        super().train(False)
        self.training = mode
        for module in self.modules():
            if mode and self.shift_statistics and isinstance(module, _BATCH_NORM):
                module.train()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, d), without gradient."""
        with torch.no_grad():
            return self.backbone(images)


class Rescaling(nn.Module):
    """Learnable scaling s_j and shift δ_j of prototypes that are themselves held: w_j -> s_j (w_j + r δ_j).

    Zhong et al. 2021, section 3.2: r = 0 is learnable weight scaling (LWS), r = 1 with s = 1 retrains the prototypes
    from where they are, as cRT does from scratch.

    Args:
        prototypes: w (K, d).
        retention: r, 0 to 1.
    """

    def __init__(self, prototypes: Tensor, retention: float = 1.0) -> None:
        super().__init__()
        self.retention = check_in("retention", retention, 0, 1)
        self.scale = nn.Parameter(torch.ones_like(prototypes[:, :1]))
        self.shift = nn.Parameter(torch.zeros_like(prototypes))

    def forward(self, prototypes: Tensor) -> Tensor:
        """The prototypes as they stand now, (K, d)."""
        return self.scale * (prototypes + self.retention * self.shift)


def rescaled(head: nn.Module, retention: float = 1.0) -> nn.Module:
    """A copy of ``head`` of which only a :class:`Rescaling` of the prototypes learns; a bias stays as it is."""
    copied = copy.deepcopy(head).requires_grad_(False)
    return register_parametrization(copied, "prototypes", Rescaling(copied.prototypes, retention))


def retrain(
    backbone: nn.Module, head: nn.Module, train_set: Batches, config: run.RunConfig, stage: SecondStage
) -> tuple[nn.Module, nn.Module]:
    """Learn a new classifier on the features of ``backbone``, from class-balanced batches.

    Args:
        backbone: trained in the first stage; it stays as it is.
        head: trained in the first stage; it stays as it is.
        train_set: the images of the first stage, unequal classes and all.
        config: of the first stage: loss, batch size, momentum, weight decay, augmentation, seed, device.
        stage: what to do now.

    Returns:
        Backbone (a copy, with moved statistics if ``stage`` shifts them) and new head.

    Raises:
        ValueError: MiSLAS after another loss than cross-entropy; or as :func:`nbs_lib.train.fit`.
    """
    counts = corrupt.class_counts(train_set.labels, train_set.num_classes)
    if stage.recipe == "mislas":
        if config.loss != "ce":
            raise ValueError(f"recipe 'mislas' rescales the head of cross-entropy, got loss {config.loss!r}")
        objective, fresh = _smoothed(counts, stage), rescaled(head, stage.retention)
    else:
        even = dataclasses.replace(config, zero_centroid=stage.zero_centroid, reweight="")
        objective = run.build_objective(even, counts)
        _, fresh = run.build_networks(config, train_set.channels, train_set.image_size, train_set.num_classes)
    frozen = Frozen(backbone, shift_statistics=stage.shifts)
    shared = "batch_size momentum nesterov weight_decay seed device precision clip"
    train.fit(
        frozen, fresh, objective, ClassBalanced(train_set),
        **{name: getattr(config, name) for name in shared.split()},
        epochs=stage.epochs, lr=stage.lr, schedule="cosine", augment=run.augmentation(config), progress=False,
    )  # fmt: skip
    return frozen.backbone, fresh


def second_stage(first: run.Record, stage: SecondStage, *, keep: bool = False) -> run.Record:
    """Retrain the classifier of a run that was kept, and measure it as :func:`nbs_lib.run.run` does.

    Args:
        first: of ``run.run(config, keep=True)``; it stays as it is.
        stage: what to do.
        keep: keep evaluations and networks.

    Returns:
        A record with the first stage's configuration and, as its note, the recipe.

    Raises:
        ValueError: ``first`` holds no networks; or as :func:`retrain`.
    """
    if first.backbone is None or first.head is None:
        raise ValueError("first: the record holds no networks, make it with run.run(config, keep=True)")
    started = time.perf_counter()
    config = first.config
    train_set = run.training_set(config)
    test_set = data.load(config.dataset, split="test", image_size=config.image_size or None)
    networks = retrain(first.backbone, first.head, train_set, config, stage)
    record = run.Record(config, {}, [], first.environment, 0.0, note=repr(stage))
    run.measure(record, *networks, train_set, test_set, keep=keep)
    record.wall_time = time.perf_counter() - started
    return record


def table_7(
    config: run.RunConfig, *, mixup: float = 0.2, lam: float = 1.0, keep: bool = False, **options: float
) -> Iterator[tuple[str, run.Record]]:
    """The rows of Zhou et al. 2022, Table 7, that the paper ran itself, under its names; first stages are shared.

    Args:
        config: of the first stage with cross-entropy, without mixup and regulariser.
        mixup: alpha of mixup in the first stage of cRT and MiSLAS; 0.2 is MiSLAS's on ImageNet-LT.
        lam: lambda of Rw in the rows that have it.
        keep: keep evaluations and networks.
        **options: of :class:`SecondStage`, such as ``epochs``.

    Yields:
        Name of the row and its record, cross-entropy first.
    """
    for weight, name in ((0.0, "CE"), (lam, "CE+Rw")):
        yield name, run.run(dataclasses.replace(config, zero_centroid=weight), keep=keep)
    plain, held = (
        run.run(dataclasses.replace(config, mixup=mixup, zero_centroid=weight), keep=True) for weight in (0.0, lam)
    )
    for recipe, name in (("crt", "cRT+mixup"), ("mislas", "MiSLAS")):
        for first, again, added in ((plain, 0.0, ""), (held, 0.0, "+Rw, 1st stage"), (held, lam, "+Rw, both stages")):
            stage = SecondStage(recipe, zero_centroid=again, **options)
            yield name + added, second_stage(first, stage, keep=keep)


def _smoothed(counts: list[int], stage: SecondStage) -> train.Objective:
    """Label-aware smoothing, with the zero-centroid regulariser on the rescaled prototypes."""
    criterion = losses.LabelAwareSmoothing(class_counts=counts, largest=stage.smoothing, validate=False)

    def objective(features: Tensor, head: nn.Module, target: Tensor) -> Tensor:
        loss = criterion(head(features), target)
        if stage.zero_centroid:
            loss = loss + losses.PAPER_LAMBDA * stage.zero_centroid * losses.ZeroCentroid()(head.prototypes)
        return loss

    return objective
