"""The paper's toy optimiser: SGD with weight decay on vectors whose lengths are free."""

import math

import torch
from torch.nn import functional as F

from nbs_lib.theory.free_features import optimise, random_points


def test_free_lengths_are_plain_sgd_on_raw_vectors():
    K, d, steps, lr = 4, 3, 40, 0.5
    found = optimise(
        "normface", K, d, scale_to=10.0, starts=1, per_class=2, steps=steps, lr=lr, optimizer="sgd",
        decay="cosine", keep_length=False, weight_decay=1e-3, seed=3, record_every=10,
    )  # fmt: skip
    points = random_points(1, 3 * K, d, seed=3)[0]
    w, z = (part.clone().requires_grad_() for part in (points[:K], points[K:]))
    target = torch.arange(K).repeat_interleave(2)
    velocity = [torch.zeros_like(w), torch.zeros_like(z)]
    for step in range(steps):
        loss = F.cross_entropy(10 * F.normalize(z) @ F.normalize(w).T, target)
        slopes = torch.autograd.grad(loss, (w, z))
        rate = lr * 0.5 * (1 + math.cos(math.pi * step / steps))
        with torch.no_grad():
            for p, v, slope in zip((w, z), velocity, slopes, strict=True):
                v.mul_(0.9).add_(slope + 1e-3 * p)
                p.sub_(rate * v)
    assert torch.allclose(found.prototypes[0], F.normalize(w), atol=1e-10)
    assert torch.allclose(found.features[0], F.normalize(z), atol=1e-10)
    assert torch.allclose(found.history["class_margin"][-1], found.class_margin)


def test_growing_lengths_slow_the_steps_down():
    settings = {"scale_to": 10.0, "starts": 4, "steps": 300, "lr": 1.0, "optimizer": "sgd"}
    kept, drifting = (optimise("normface", 8, 3, **settings, keep_length=keep).loss for keep in (True, False))
    assert (kept < drifting).all()
