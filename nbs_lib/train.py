"""One readable training loop on Lightning Fabric, its checkpoints, and the evaluation of what it trained."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nbs_lib import checkpoints
from nbs_lib.data.augment import NETWORK, Augment, epoch_seed
from nbs_lib.data.sets import Batches
from nbs_lib.evaluation import Evaluation, evaluate
from nbs_lib.progress import Progress
from nbs_lib.validation import check_positive, check_real

__all__ = [
    "OPTIMIZERS", "PRECISIONS", "SCHEDULES", "Evaluation", "History", "Objective", "TrainingDiverged", "evaluate",
    "fit", "learning_rate", "resolve",
]  # fmt: skip

Objective = Callable[[Tensor, nn.Module, Tensor], Tensor]
"""(features (N, d), head, target (N,)) -> scalar loss, a mean over the N samples."""

OPTIMIZERS = ("sgd", "adamw")
SCHEDULES = ("cosine", "step", "onecycle", "constant")
PRECISIONS = ("auto", "32-true", "bf16-mixed")


class TrainingDiverged(RuntimeError):
    """The loss, or a weight, became infinite or NaN.

    Attributes:
        epoch: epoch (from 0) of the first such loss.
        step: optimiser step (from 0, over the whole run) of the first such loss.
        checkpoint: path of the last good checkpoint, or None.
    """

    def __init__(self, what: str, epoch: int, step: int, checkpoint: Path | None) -> None:
        self.epoch, self.step, self.checkpoint = epoch, step, checkpoint
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint was kept"
        super().__init__(f"{what} at step {step} (epoch {epoch}); {kept}. Try a lower lr, a warmup or clip.")


@dataclass
class History:
    """What happened, epoch by epoch.

    Attributes:
        epochs: one dictionary an epoch: epoch, loss (mean over its samples), lr (of its last step), seconds, and
            whatever ``on_epoch`` added.
        resumed_from: number of epochs that came from a checkpoint.
        device: kind of device the run used.
        precision: precision the run used, by Fabric's name.
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    resumed_from: int = 0
    device: str = ""
    precision: str = ""

    @property
    def wall_time(self) -> float:
        """Seconds of training over all epochs, those before a resumption included."""
        return sum(record["seconds"] for record in self.epochs)


class _Learner(nn.Module):
    """Backbone, head and objective as one module, so that Fabric wraps one forward."""

    def __init__(self, backbone: nn.Module, head: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.backbone, self.head, self.objective = backbone, head, objective

    def forward(self, images: Tensor, target: Tensor) -> Tensor:
        return self.objective(self.backbone(images), self.head, target)


def learning_rate(step: int, steps: int, *, peak: float, schedule: str = "cosine", warmup: int = 0) -> float:
    """Learning rate at ``step`` (from 0) of ``steps``.

    A linear rise to ``peak`` over ``warmup`` steps, then, over what remains: "cosine" falls to 0 as half a wave, "step"
    divides by 10 at one half and again at three quarters, "constant" stays. "onecycle" rises from peak/25 and falls
    to 0, both as half waves; the rise takes ``warmup`` steps, or 30 % of the run if that is 0.
    """
    if schedule == "onecycle":
        rise = warmup or max(1, round(0.3 * steps))
        if step < rise:
            return peak / 25 + (peak - peak / 25) * (1 - math.cos(math.pi * step / rise)) / 2
        return peak * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise))) / 2
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    if schedule == "cosine":
        return peak * (1 + math.cos(math.pi * progress)) / 2
    if schedule == "step":
        return peak * 0.1 ** ((progress >= 0.5) + (progress >= 0.75))
    return peak


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Fabric's informational lines ("Using bfloat16 ...") out of notebooks; its warnings pass."""
    logger = logging.getLogger("lightning_fabric")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def resolve(device: str = "auto", precision: str = "auto") -> tuple[torch.device, str]:
    """Turn what a user asks for into a device and one of Fabric's precisions.

    Args:
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1" or "mps".
        precision: "32-true", "bf16-mixed", or "auto": bf16 autocast on a CUDA device that has it, else float32.

    Raises:
        ValueError: an unknown device or precision, or a CUDA device that torch does not see.
    """
    kind, _, index = str(device).partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (index and not (kind == "cuda" and index.isdigit())):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps', got {device!r}")
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device is {device!r}, but torch {torch.__version__} sees {torch.cuda.device_count()} GPUs")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"device is {device!r}, but torch {torch.__version__} sees no such GPU")
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision == "auto":
        has_bf16 = kind == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16-mixed" if has_bf16 else "32-true"
    return torch.device(kind) if kind == "cpu" else torch.device(kind, int(index or 0)), precision


def _check(settings: dict[str, Any], backbone: nn.Module, count: int) -> None:
    """Refuse what cannot be trained, naming argument and value."""
    for name in ("epochs", "batch_size", "accumulate"):
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    if isinstance(settings["seed"], bool) or not isinstance(settings["seed"], int) or settings["seed"] < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {settings['seed']!r}")
    check_positive("lr", settings["lr"])
    for name in ("momentum", "weight_decay", "warmup"):
        if not check_real(name, settings[name]) >= 0:
            raise ValueError(f"{name} must not be negative, got {settings[name]!r}")
    for name, known in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)):
        if settings[name] not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {settings[name]!r}")
    if settings["warmup"] >= settings["epochs"]:
        raise ValueError(f"warmup must be shorter than the run of {settings['epochs']} epochs: {settings['warmup']!r}")
    if settings["clip"] is not None and not check_real("clip", settings["clip"]) > 0:
        raise ValueError(f"clip must be positive or None, got {settings['clip']!r}")
    batch, parts = settings["batch_size"], settings["accumulate"]
    sizes = {min(batch, count), count % batch or batch}
    if any(1 in _pieces(size, parts) for size in sizes) and any(isinstance(m, _BatchNorm) for m in backbone.modules()):
        raise ValueError(
            f"batch_size={batch} with accumulate={parts} leaves a batch of one image ({count} in all), on which batch"
            " normalisation cannot train: choose another batch_size"
        )


def _pieces(size: int, parts: int) -> list[int]:
    """Sizes of the (at most ``parts``) micro-batches that a batch of ``size`` is cut into."""
    most = math.ceil(size / parts)
    return [min(most, size - start) for start in range(0, size, most)]


def fit(
    backbone: nn.Module,
    head: nn.Module,
    objective: Objective,
    train_set: Batches,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    optimizer: str = "sgd",
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    schedule: str = "cosine",
    warmup: float = 0.0,
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    augment: Augment | None = None,
    clip: float | None = None,
    accumulate: int = 1,
    compile: bool = False,
    checkpoint: str | Path | None = None,
    resume: bool = True,
    identity: str = "",
    before_epoch: Callable[[int], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    progress: bool | None = None,
) -> History:
    """Train ``backbone`` and ``head`` in place, and leave them on the device.

    Order, augmentation and dropout of an epoch depend on (seed, epoch) alone, so a run resumed from its checkpoint goes
    on to the identical result on a CPU. The labels were checked when the set was made: give the criterion inside
    ``objective`` ``validate=False``, and no step waits for the device. Losses stay there and are read once an epoch.

    Args:
        backbone: images (N, C, H, W) -> features (N, d).
        head: has ``prototypes``; ``objective`` calls it.
        objective: (features, head, target) -> scalar loss, a mean over samples. It runs inside the autocast.
        train_set: what to learn from; moved to the device.
        epochs: passes over the set.
        batch_size: images per optimiser step.
        lr: peak learning rate.
        optimizer: "sgd" or "adamw".
        momentum: of SGD.
        nesterov: Nesterov's form of SGD's momentum.
        weight_decay: on all parameters, prototypes and normalisation included, as the papers do.
        schedule: "cosine", "step", "onecycle" or "constant", see :func:`learning_rate`; it moves every step.
        warmup: length of the linear rise in epochs.
        seed: of order, augmentation and dropout (the weights are the caller's).
        device: see :func:`resolve`.
        precision: see :func:`resolve`.
        augment: what happens to the images at random.
        clip: largest Euclidean norm of the gradient over all parameters.
        accumulate: micro-batches per step. The gradient is that of the whole batch, exactly; only the statistics of
            batch normalisation become those of the micro-batches.
        compile: pass the backbone through ``torch.compile``.
        checkpoint: file to write at the end of every epoch.
        resume: go on from ``checkpoint`` if it exists; False overwrites it.
        identity: any text that tells this run's objective from others; a checkpoint with another text is refused.
        before_epoch: called with the number of each epoch (from 0, or where a resumed run goes on) before it begins,
            for an objective that changes on the way.
        on_epoch: called with the record of each epoch; it may add to it.
        progress: True or False to force the bar on or off, None to show it where somebody watches.

    Returns:
        The history; the trained weights are in ``backbone`` and ``head``.

    Raises:
        ValueError: a setting out of range; the message names it and its value.
        TrainingDiverged: a loss or a weight is infinite or NaN; found at the end of the epoch, names the step.
        checkpoints.CheckpointError: the file is truncated, foreign, or belongs to a run with other settings.
    """
    settings = {
        "epochs": epochs, "batch_size": batch_size, "lr": lr, "optimizer": optimizer, "momentum": momentum,
        "nesterov": nesterov, "weight_decay": weight_decay, "schedule": schedule, "warmup": warmup, "seed": seed,
        "clip": clip, "accumulate": accumulate,
    }  # fmt: skip
    _check(settings, backbone, len(train_set))
    place, precision = resolve(device, precision)
    with _quiet():
        fabric = Fabric(accelerator=place.type, devices=[place.index] if place.index else 1, precision=precision)
    backbone.to(memory_format=torch.channels_last)
    learner = _Learner(torch.compile(backbone) if compile else backbone, head, objective)
    parameters = [p for p in learner.parameters() if p.requires_grad]
    if optimizer == "sgd":
        solver = torch.optim.SGD(parameters, lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    else:
        solver = torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay, fused=place.type == "cuda")
    with _quiet():
        step_module, stepper = fabric.setup(learner, solver)
    train_set = train_set.to(place)

    history = History(device=place.type, precision=precision)
    settings |= {
        "precision": precision, "augment": repr(augment or None), "identity": identity,
        "data": f"{train_set.name}, {len(train_set)} images, {train_set.num_classes} classes",
        "weights": [list(p.shape) for p in parameters],
    }  # fmt: skip
    path = Path(checkpoint) if checkpoint is not None else None
    if path and resume and path.exists():
        state = checkpoints.load(path, ("settings", "epochs", "backbone", "head", "solver"))
        checkpoints.same_run(path, state["settings"], settings)
        backbone.load_state_dict(state["backbone"])
        head.load_state_dict(state["head"])
        solver.load_state_dict(state["solver"])
        history.epochs, history.resumed_from = state["epochs"], len(state["epochs"])

    steps = math.ceil(len(train_set) / batch_size)
    sizes = torch.full((steps,), batch_size, dtype=torch.float64)
    sizes[-1] = len(train_set) - batch_size * (steps - 1)

    def rate(step: int) -> float:
        return learning_rate(step, epochs * steps, peak=lr, schedule=schedule, warmup=round(warmup * steps))

    def one_step(images: Tensor, target: Tensor) -> Tensor:
        stepper.zero_grad(set_to_none=True)
        if accumulate == 1:
            loss = step_module(images, target)
            fabric.backward(loss)
            return loss.detach()
        total = torch.zeros((), device=place)
        most = math.ceil(len(target) / accumulate)
        for some, theirs in zip(images.split(most), target.split(most), strict=True):
            loss = step_module(some, theirs) * (len(theirs) / len(target))
            fabric.backward(loss)
            total += loss.detach()
        return total

    def one_epoch(epoch: int) -> dict[str, Any]:
        started = time.perf_counter()
        losses = torch.zeros(steps, device=place)
        step_module.train()
        batches = train_set.batches(batch_size, seed=seed, epoch=epoch, augment=augment)
        for index, (images, target) in enumerate(batches):
            now = rate(epoch * steps + index)
            for group in solver.param_groups:
                group["lr"] = now
            losses[index] = one_step(images, target)
            if clip:
                fabric.clip_gradients(step_module, stepper, max_norm=clip, error_if_nonfinite=False)
            stepper.step()
            bar.advance()
        on_host = losses.double().cpu()  # the one wait for the device
        if not on_host.isfinite().all():
            at = int((~on_host.isfinite()).nonzero()[0])
            raise TrainingDiverged(f"loss is {float(on_host[at])}", epoch, epoch * steps + at, kept)
        if not torch.stack([p.detach().isfinite().all() for p in parameters]).all():
            raise TrainingDiverged("a weight is not finite", epoch, epoch * steps + steps - 1, kept)
        mean = float((on_host * sizes).sum() / sizes.sum())
        return {"epoch": epoch, "loss": mean, "lr": now, "seconds": time.perf_counter() - started}

    kept = path if history.epochs else None
    forked = [place.index] if place.type == "cuda" else []
    first = len(history.epochs)
    with Progress(epochs * steps, "training", progress, first * steps) as bar, torch.random.fork_rng(forked):
        for epoch in range(first, epochs):
            torch.manual_seed(epoch_seed(seed, epoch, NETWORK))
            if before_epoch:
                before_epoch(epoch)
            record = one_epoch(epoch)
            bar.note = f"epoch {epoch + 1}/{epochs}, loss {record['loss']:.4g}"
            if on_epoch:
                on_epoch(record)
            history.epochs.append(record)
            if path:
                nets = {"backbone": backbone.state_dict(), "head": head.state_dict(), "solver": solver.state_dict()}
                checkpoints.save(path, {"settings": settings, "epochs": history.epochs, **nets})
                kept = path
    return history
