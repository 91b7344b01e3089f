"""What a run is: every choice that decides its numbers, and the settings the chapters start from."""

import dataclasses
import difflib
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbs_lib import data, losses, models, train
from nbs_lib.data import corrupt

# Which hyper-parameters each loss takes from a RunConfig; "class_counts" are those of the training images. All but "ce"
# and "focal" are functions of cosines and get a CosineHead.
LOSSES: dict[str, tuple[str, ...]] = {
    "ce": ("label_smoothing",),
    "focal": ("gamma",),
    "normface": ("scale",),
    "cosface": ("scale", "margin"),
    "arcface": ("scale", "margin"),
    "sphereface": ("scale", "margin"),
    "ldam": ("scale", "margin", "class_counts"),
    "lm_softmax": ("scale",),
    "lm_softmax_total": ("scale",),
    "sample_margin": (),
}

# What a loss takes where nothing is said: s of the live chapters, the margin of the loss's own paper (CosFace, ArcFace,
# LDAM), or one that trains at that s (with SphereFace's 4 the quick run stays at 66 %).
DEFAULTS: dict[str, dict[str, float]] = {
    "focal": {"gamma": 1.0},
    "normface": {"scale": 10.0},
    "cosface": {"scale": 10.0, "margin": 0.35},
    "arcface": {"scale": 10.0, "margin": 0.5},
    "sphereface": {"scale": 10.0, "margin": 1.35},
    "ldam": {"scale": 10.0, "margin": 0.5},
    "lm_softmax": {"scale": 10.0},
    "lm_softmax_total": {"scale": 10.0},
}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers; the defaults are :func:`quick_config`'s.

    Args:
        dataset: a name :func:`nbs_lib.data.load` knows.
        model: a name :func:`nbs_lib.models.build` knows.
        feature_dim: feature dimension d; 0 takes the network's own.
        loss: a name in :data:`LOSSES`: "ce", "focal", "normface", "cosface", "arcface", "sphereface", "ldam",
            "lm_softmax", "lm_softmax_total", "sample_margin".
        scale: s of the cosine losses; None for the losses that have none.
        margin: m, in cosine units for CosFace and LDAM (the largest one), in radians for ArcFace, a factor for
            SphereFace; None elsewhere.
        label_smoothing: of cross-entropy.
        bias: whether the head of cross-entropy or focal loss has a bias (Zhou et al. 2022, Eq. 2.1, has none).
        sample_margin: weight mu of the sample-margin regulariser Rsm (Eq. 3.4), always on cosines.
        zero_centroid: lambda of the zero-centroid regulariser Rw (Eq. 3.7) in the paper's unit: the coefficient of
            |mean of the unit prototypes|^2 is 100 lambda.
        freeze_prototypes: "simplex" fixes the head to a regular simplex (Fig. 2), "" lets it learn.
        epochs: passes over the training images.
        batch_size: images per step.
        optimizer: "sgd" or "adamw".
        lr: peak learning rate.
        momentum: of SGD.
        nesterov: Nesterov's form of it.
        weight_decay: on all parameters.
        schedule: "cosine", "step", "onecycle" or "constant" (:func:`nbs_lib.train.learning_rate`).
        warmup: linear rise of the learning rate, in epochs.
        clip: largest norm of the gradient, or None.
        crop_pad: random crops after so many pixels of black border.
        flip: random mirroring.
        shift: random shifts by up to so many pixels, border reflected.
        image_size: side in pixels for folders and photographs; 0 takes the images' own.
        seed: of weights, order, augmentation; 0 to 2^32 - 1.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        precision: "auto" (bf16 on GPUs that have it), "32-true", "bf16-mixed".
        threads: CPU threads of torch for this run; 0 leaves them as they are.
        limit_per_class: keep so many training images of each class, in file order; None keeps all.
        gamma: γ of the focal loss; None elsewhere.
        imbalance: "long_tailed" or "step" thins the training classes out (:mod:`nbs_lib.data.corrupt`), "" does not.
        imbalance_ratio: ρ >= 1, largest class over smallest.
        label_noise: "symmetric" or "pair" makes training labels wrong, after the imbalance; "" does not.
        noise_rate: share of wrong labels, exactly, 0 <= rate < 1; ``seed`` chooses them.
        reweight: "drw" weighs the classes by their effective number of samples in the last part of training (deferred
            re-weighting, Cao et al. 2019), "" never does.
        reweight_from: share of the epochs after which that starts.
        mixup: α of :class:`nbs_lib.mixup.Mixup`; 0 leaves images and labels unmixed.

    Raises:
        ValueError: a field of the wrong type or out of range; the message names field, value and what is allowed.
    """

    dataset: str = "fashion_mini"
    model: str = "mini_cnn"
    feature_dim: int = 0
    loss: str = "ce"
    scale: float | None = None
    margin: float | None = None
    label_smoothing: float = 0.0
    bias: bool = False
    sample_margin: float = 0.0
    zero_centroid: float = 0.0
    freeze_prototypes: str = ""
    epochs: int = 6
    batch_size: int = 128
    optimizer: str = "sgd"
    lr: float = 0.2
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 1e-4
    schedule: str = "onecycle"
    warmup: float = 0.0
    clip: float | None = 5.0
    crop_pad: int = 0
    flip: bool = False
    shift: int = 0
    image_size: int = 0
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    threads: int = 0
    limit_per_class: int | None = None
    gamma: float | None = None
    imbalance: str = ""
    imbalance_ratio: float = 1.0
    label_noise: str = ""
    noise_rate: float = 0.0
    reweight: str = ""
    reweight_from: float = 0.8
    mixup: float = 0.0

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            self._check_type(spec.name, spec.type)
        data.sources.check_name(self.dataset)
        one_of = {
            "model": models.available(),
            "loss": tuple(LOSSES),
            "freeze_prototypes": ("", "simplex"),
            "optimizer": train.OPTIMIZERS,
            "schedule": train.SCHEDULES,
            "precision": train.PRECISIONS,
            "imbalance": ("", *corrupt.IMBALANCES),
            "label_noise": ("", *corrupt.NOISES),
            "reweight": ("", "drw"),
        }
        for name, known in one_of.items():
            value = getattr(self, name)
            if value not in known:
                near = difflib.get_close_matches(value, known, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                self._refuse(name, f"{hint}allowed: {', '.join(map(repr, known))}")
        # name -> (lowest, whether that itself is allowed)
        least = dict.fromkeys(("epochs", "batch_size", "limit_per_class", "imbalance_ratio"), (1, True))
        least |= dict.fromkeys(("lr", "clip"), (0, False))
        free = "feature_dim sample_margin zero_centroid weight_decay crop_pad shift image_size seed threads mixup"
        least |= dict.fromkeys(free.split(), (0, True))
        for name, (low, closed) in least.items():
            value = getattr(self, name)
            if value is not None and (value < low or (value == low and not closed)):
                self._refuse(name, f"allowed: {'>=' if closed else '>'} {low}")
        if self.seed >= 2**32:
            self._refuse("seed", f"allowed: 0 to {2**32 - 1}")
        shares = dict.fromkeys(("momentum", "label_smoothing", "noise_rate", "reweight_from"), 1)
        for name, below in (shares | {"warmup": self.epochs}).items():
            if not 0 <= getattr(self, name) < below:
                self._refuse(name, f"allowed: 0 <= {name} < {below}")
        for name, most in (("threads", 1024), ("lr", 1e30)):
            if getattr(self, name) > most:
                self._refuse(name, f"allowed: at most {most:g}")
        if 0 < self.mixup < 0.01:
            self._refuse("mixup", "allowed: 0, or 0.01 and more")
        if self.crop_pad and self.shift:
            self._refuse("shift", f"allowed: 0, because crop_pad is {self.crop_pad}")
        if self.nesterov and self.optimizer == "sgd" and not self.momentum:
            self._refuse("nesterov", "allowed: False, because momentum is 0")
        train.resolve(self.device, self.precision)
        self._check_data_and_weights()
        for name in ("scale", "margin", "gamma"):
            if name in LOSSES[self.loss] and getattr(self, name) is None:
                self._refuse(name, f"loss {self.loss!r} needs a number")
            if name not in LOSSES[self.loss] and getattr(self, name) is not None:
                self._refuse(name, f"loss {self.loss!r} has no {name}: leave it None")
        if self.loss != "ce" and self.label_smoothing:
            self._refuse("label_smoothing", "only loss 'ce' has one")
        if self.bias and losses.expects_cosines(self.loss):
            self._refuse("bias", "only losses 'ce' and 'focal' have one")
        losses.build(self.loss, **self.hyper((1, 1)))  # the loss knows the range of its own hyper-parameters

    def _check_data_and_weights(self) -> None:
        for name, needs, none in (("imbalance_ratio", "imbalance", 1.0), ("noise_rate", "label_noise", 0.0)):
            if getattr(self, name) != none and not getattr(self, needs):
                self._refuse(name, f"allowed: {none}, because {needs} is ''")
        if self.reweight and self.loss == "lm_softmax_total":
            self._refuse("reweight", "allowed: '', because the loss is one number for the whole batch")
        if self.reweight and self.reweighted_epoch >= self.epochs:
            self._refuse("reweight_from", f"with {self.epochs} epochs the re-weighting would never start")

    @property
    def reweighted_epoch(self) -> int:
        """First epoch, from 0, that ``reweight`` applies to."""
        return math.ceil(self.reweight_from * self.epochs - 1e-9)

    def hyper(self, class_counts: Sequence[int] | None = None) -> dict[str, Any]:
        """Hyper-parameters of the loss, by name; ``class_counts`` are the training images of each class."""
        given = {"class_counts": class_counts}
        for name in LOSSES[self.loss]:
            if name not in given and not hasattr(self, name):
                raise TypeError(f"LOSSES gives loss {self.loss!r} the setting {name!r}: RunConfig needs a field for it")
        return {name: given[name] if name in given else getattr(self, name) for name in LOSSES[self.loss]}

    def cells(self) -> dict[str, Any]:
        """The fields as a table shows them: of ``folder:PATH`` the last part and a digest, as paths are private.

        The digest, 8 hexadecimal digits of the SHA-256 of the whole path, tells folders of the same name apart.
        """
        shown = dataclasses.asdict(self)
        return shown | {"dataset": without_path(self.dataset)}

    def _refuse(self, name: str, why: str) -> None:
        raise ValueError(f"RunConfig.{name} is {getattr(self, name)!r}; {why}")

    def _check_type(self, name: str, kind: Any) -> None:
        value = getattr(self, name)
        if value is None and kind in (float | None, int | None):
            return
        base = {float | None: float, int | None: int}.get(kind, kind)
        if base is float and isinstance(value, int) and not isinstance(value, bool):
            object.__setattr__(self, name, float(value))  # so that 10 and 10.0 are the same run
        elif not isinstance(value, base) or (base is not bool and isinstance(value, bool)):
            self._refuse(name, f"allowed: {getattr(kind, '__name__', kind)}, not {type(value).__name__}")
        elif base is float and not math.isfinite(value):
            self._refuse(name, "allowed: a finite number")


def without_path(dataset: str) -> str:
    """A name of a set as tables show it: of ``KIND:PATH`` the kind, the path's last part and a digest of the whole."""
    kind, _, path = dataset.partition(":")
    if not path:
        return dataset
    where = Path(path).expanduser().resolve()
    return f"{kind}:{where.name}#{hashlib.sha256(str(where).encode()).hexdigest()[:8]}"


def loss_settings(loss: str, **given: float | None) -> dict[str, float]:
    """Settings of ``loss`` for a `RunConfig`: those given, if the loss takes them, and the usual value of the others.

    So one set of knobs serves every loss: ``loss_settings(name, scale=20.0, margin=None)``.

    Args:
        loss: a name in :data:`LOSSES`.
        given: scale, margin, gamma; None for the usual value. What the loss does not take is left out.
    """
    return {
        name: default if given.get(name) is None else given[name] for name, default in DEFAULTS.get(loss, {}).items()
    }


def quick_config(**overrides: Any) -> RunConfig:
    """The recipe of the live chapters: a few seconds a run on a CPU, and the findings of the paper's Table 1 show.

    ``RunConfig``'s defaults: fashion_mini, mini_cnn, 6 epochs, batch 128, SGD with Nesterov momentum 0.9, one cycle up
    to lr 0.2, weight decay 1e-4, gradient norm at most 5. A run takes 4 to 5 seconds of one CPU thread, measuring
    included (3 with ``epochs=4``). With both lengths and seeds 0 and 1, 0.5 Rsm raises the mean sample margin of
    every loss (cross-entropy: 0.28 to 0.55 and more) and the class margin of cross-entropy (by 2.5 to 9 degrees), and
    NormFace's class margin falls with the scale (s = 10: 69 to 74 degrees, s = 64: 48 to 51).
    """
    return RunConfig(**overrides)


def paper_config(dataset: str = "mnist", **overrides: Any) -> RunConfig:
    """The training of Zhou et al. 2022 (appendix C.2) for Tables 1 and 5.

    Batch 256, SGD with momentum 0.9, weight decay 1e-4, cosine schedule; MNIST: their CNN, 100 epochs, lr 0.01;
    CIFAR-10 and -100: ResNet-18 and -34, 200 and 250 epochs, lr 0.1. The other grey sets take MNIST's setting. The
    paper names no augmentation for CIFAR; crops and flips are ours.

    Raises:
        ValueError: a set of unknown setting, or as :class:`RunConfig`.
    """
    grey = {"model": "paper_cnn", "epochs": 100, "lr": 0.01}
    colour = {"lr": 0.1, "crop_pad": 4, "flip": True}
    settings = {
        **dict.fromkeys(("mnist", "fashion_mnist", "kmnist", "fashion_mini"), grey),
        "cifar10": {"model": "resnet18", "epochs": 200, **colour},
        "cifar100": {"model": "resnet34", "epochs": 250, **colour},
    }
    if dataset not in settings:
        raise ValueError(f"dataset is {dataset!r}; paper_config knows {', '.join(settings)}")
    shared = {"batch_size": 256, "momentum": 0.9, "nesterov": False, "schedule": "cosine", "clip": None}
    return RunConfig(**{"dataset": dataset, **shared, **settings[dataset], **overrides})


def table_configs(base: RunConfig, scales: Iterable[float] = (10.0, 64.0, 20.0)) -> list[RunConfig]:
    """The rows of Zhou et al. 2022, Tables 1 and 5, on ``base``'s data and training, without and with 0.5 Rsm.

    Cross-entropy first, then scale by scale NormFace, CosFace, ArcFace (m = 0.1) and LM-Softmax. The order is that of
    usefulness: a sweep that is interrupted has the extremes of the scale before what lies between.
    """
    rows: list[dict[str, Any]] = [{"loss": "ce", "sample_margin": mu} for mu in (0.0, 0.5)]
    for scale in scales:
        for loss, margin in (("normface", None), ("cosface", 0.1), ("arcface", 0.1)):
            rows += [{"loss": loss, "scale": scale, "margin": margin, "sample_margin": mu} for mu in (0.0, 0.5)]
        rows.append({"loss": "lm_softmax", "scale": scale})
    return [dataclasses.replace(base, **row) for row in rows]
