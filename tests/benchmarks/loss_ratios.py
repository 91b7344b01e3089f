"""What a margin costs: forward and backward of each loss ÷ those of a plain normalised, scaled softmax.

The plain form is what one writes without a library: ``F.normalize`` twice, ``F.linear``, a product with s,
``F.cross_entropy``. Every round times all variants once, one after the other, and a ratio is taken within the round, so
that a busy machine slows both sides alike; the table shows the median over the rounds.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F

from nbs_lib import losses
from nbs_lib.heads import CosineHead

SIZES = ((256, 512, 1_000), (256, 512, 10_000))
SCALE = 32.0
MARGINS = {
    "normface": {},
    "cosface": {"margin": 0.35},
    "arcface": {"margin": 0.5},
    "sphereface": {"margin": 4},
    "unified": {"m1": 1.5, "m2": 0.3, "m3": 0.1},
    "gm_softmax": {"alpha1": 0.9, "beta1": -0.1},
    "lm_softmax": {},
}


def plain(features: torch.Tensor, weight: torch.nn.Parameter, target: torch.Tensor) -> torch.Tensor:
    """Normalised softmax without a library: the denominator of all ratios."""
    cosines = F.linear(F.normalize(features), F.normalize(weight))
    return F.cross_entropy(SCALE * cosines, target)


def pml_losses(dimension: int, classes: int) -> dict[str, torch.nn.Module]:
    """The same losses in pytorch-metric-learning, if it is installed; angles in degrees there.

    Its SphereFace is left out: at more than 20 times plain it would take most of the benchmark's time.
    """
    try:
        from pytorch_metric_learning import losses as pml
    except ImportError:
        return {}
    return {
        "normface": pml.NormalizedSoftmaxLoss(classes, dimension, temperature=1 / SCALE),
        "cosface": pml.CosFaceLoss(classes, dimension, margin=0.35, scale=SCALE),
        "arcface": pml.ArcFaceLoss(classes, dimension, margin=28.6, scale=SCALE),
    }


def variants(n: int, d: int, k: int, device: torch.device) -> dict[str, Callable[[], None]]:
    """One forward and backward pass each, by name: "plain", the losses of ``MARGINS``, and "pml <loss>"."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, d, generator=generator).to(device).requires_grad_()
    target = torch.randint(k, (n,), generator=generator).to(device)
    head = CosineHead(d, k).to(device)

    def step(forward: Callable[[], torch.Tensor], *leaves: torch.Tensor) -> Callable[[], None]:
        def run() -> None:
            for leaf in leaves:
                leaf.grad = None
            forward().backward()

        return run

    weight = head.prototypes
    steps = {"plain": step(lambda: plain(features, weight, target), features, weight)}
    for name, hyper in MARGINS.items():
        loss = losses.build(name, scale=SCALE, **hyper)
        steps[name] = step(lambda loss=loss: loss(head(features), target), features, weight)
    for name, loss in pml_losses(d, k).items():
        loss = loss.to(device)
        steps[f"pml {name}"] = step(lambda loss=loss: loss(features, target), features, *loss.parameters())
    return steps


def timed(run: Callable[[], None], calls: int, device: torch.device) -> float:
    """Seconds per call."""
    start = time.perf_counter()
    for _ in range(calls):
        run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / calls


def measure(n: int, d: int, k: int, *, repeats: int, device: torch.device, budget: float = 0.03) -> list[dict]:
    """Rows of one size: loss, milliseconds, ratio to plain, the same loss in pytorch-metric-learning ÷ plain."""
    steps = variants(n, d, k, device)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for run in steps.values():
        timed(run, 2, device)
    calls = max(1, round(budget / timed(steps["plain"], 2, device)))
    for _ in range(repeats):
        for name, run in steps.items():
            seconds[name].append(timed(run, calls, device))

    def ratio(name: str) -> float:
        pairs = zip(seconds[name], seconds["plain"], strict=True)
        return statistics.median(own / plain for own, plain in pairs) if name in seconds else float("nan")

    return [
        {
            "N, d, K": f"{n}, {d}, {k}",
            "loss": name,
            "ms": 1e3 * statistics.median(seconds[name]),
            "÷ plain": ratio(name),
            "pytorch-metric-learning ÷ plain": ratio(f"pml {name}") if f"pml {name}" in seconds else None,
        }
        for name in ("plain", *MARGINS)
    ]


def main(repeats: int = 9, device: str = "cpu") -> list[dict]:
    """Measure all sizes, print a Markdown table and return its rows."""
    rows = [row for size in SIZES for row in measure(*size, repeats=repeats, device=torch.device(device))]
    print(markdown(rows))
    return rows


def markdown(rows: list[dict]) -> str:
    """Rows as a Markdown table, numbers to three digits."""
    cells = [
        [f"{v:.3g}" if isinstance(v, float) else "" if v is None else str(v) for v in row.values()] for row in rows
    ]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
