"""An epoch of ``fit`` against the bare steps of the same network, and against the usual loop.

The bare steps are forward, backward and optimiser on one batch that lies ready on the device: what no loop can beat.
The usual loop is torchvision's transforms on PIL images behind a DataLoader, and the network as the paper prints it
(biased convolutions, ReLU before the pooling) in NCHW. All of them take turns, several times, and the median counts.
"""

import math
import statistics
import time
from collections.abc import Callable

import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from nbs_lib import data, models, train
from nbs_lib.heads import CosineHead

BATCH, LR = 256, 0.01


def objective(features: torch.Tensor, head: nn.Module, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(16 * head(features), target)


def networks(device: torch.device, memory_format: torch.memory_format) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    backbone = models.build("paper_cnn", 1, 28).to(device, memory_format=memory_format)
    return backbone, CosineHead(backbone.out_features, 10).to(device)


def solver_of(*modules: nn.Module) -> torch.optim.Optimizer:
    parameters = [p for module in modules for p in module.parameters()]
    return torch.optim.SGD(parameters, lr=LR, momentum=0.9, weight_decay=1e-4)


def bare(full: data.ImageSet) -> Callable[[], float]:
    """Seconds of as many steps as an epoch has, on one batch that is ready."""
    backbone, head = networks(full.device, torch.channels_last)
    solver = solver_of(backbone, head)
    images, target = next(full.batches(BATCH))
    whole, rest = divmod(len(full), BATCH)

    def epoch() -> float:
        started = time.perf_counter()
        for size in [BATCH] * whole + [rest] * bool(rest):
            loss = objective(backbone(images[:size]), head, target[:size])
            solver.zero_grad()
            loss.backward()
            solver.step()
        loss.item()
        return time.perf_counter() - started

    return epoch


def ours(full: data.ImageSet, augment: data.Augment | None, precision: str = "32-true") -> Callable[[], float]:
    """Seconds of an epoch of ``fit``."""
    backbone, head = networks(full.device, torch.channels_last)

    def epoch() -> float:
        options = {"batch_size": BATCH, "lr": LR, "weight_decay": 1e-4, "device": str(full.device), "augment": augment}
        return train.fit(backbone, head, objective, full, epochs=1, precision=precision, **options).wall_time

    return epoch


def printed_network() -> nn.Sequential:
    """The paper's CNN in the order it is printed; the same function as "paper_cnn"."""

    def block(inward: int, outward: int) -> list[nn.Module]:
        return [nn.Conv2d(inward, outward, 3, padding=1), nn.BatchNorm2d(outward), nn.ReLU(), nn.MaxPool2d(2)]

    torch.manual_seed(0)
    neck = [nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.BatchNorm1d(128), nn.ReLU()]
    return nn.Sequential(*block(1, 32), *block(32, 64), *neck)


class Pictures(Dataset):
    """What torchvision's own Fashion-MNIST does for each image."""

    def __init__(self, full: data.ImageSet) -> None:
        self.images, self.labels = full.images.squeeze(1).cpu(), full.labels.cpu()
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(28, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(full.mean, full.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.images[index].numpy(), mode="L")), int(self.labels[index])


def usual(full: data.ImageSet, workers: int) -> Callable[[], float]:
    """Seconds of an epoch as most tutorials write it."""
    device = full.device
    backbone, head = printed_network().to(device), CosineHead(128, 10).to(device)
    solver = solver_of(backbone, head)
    loader = DataLoader(Pictures(full), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)

    def epoch() -> float:
        started, total = time.perf_counter(), 0.0
        for images, target in loader:
            images, target = images.to(device), target.to(device)
            loss = objective(backbone(images), head, target)
            solver.zero_grad()
            loss.backward()
            solver.step()
            total += loss.item()
        assert math.isfinite(total)
        return time.perf_counter() - started

    return epoch


def measure(*, repeats: int, device: str, per_class: int) -> list[dict]:
    """Rows: what was run, seconds an epoch, ratio to the bare steps, how many times faster than it ``fit`` is."""
    full = data.load("fashion_mini", device=device, limit_per_class=per_class)
    runs = {
        "bare steps": bare(full),
        "fit": ours(full, None),
        "fit, crop and flip": ours(full, data.Augment(crop_pad=4, flip=True)),
        "fit, crop and flip, bf16-mixed": ours(full, data.Augment(crop_pad=4, flip=True), "bf16-mixed"),
        "usual loop, 0 workers": usual(full, 0),
        "usual loop, 2 workers": usual(full, 2),
    }
    for epoch in runs.values():
        epoch()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, epoch in runs.items():
            seconds[name].append(epoch())

    def ratio(top: str, bottom: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[top], seconds[bottom], strict=True))

    return [
        {
            "an epoch of": name,
            "s": statistics.median(seconds[name]),
            "÷ bare steps": ratio(name, "bare steps"),
            "÷ fit, crop and flip": ratio(name, "fit, crop and flip"),
        }
        for name in runs
    ]


def main(repeats: int = 7, device: str = "cpu", per_class: int = 1000) -> list[dict]:
    """Measure, print a Markdown table and return its rows."""
    rows = measure(repeats=repeats, device=device, per_class=per_class)
    cells = [[f"{v:.3g}" if isinstance(v, float) else v for v in row.values()] for row in rows]
    print("\n".join("| " + " | ".join(line) + " |" for line in [list(rows[0]), ["---"] * len(rows[0]), *cells]))
    return rows


if __name__ == "__main__":
    main()
