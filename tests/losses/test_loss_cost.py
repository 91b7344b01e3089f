"""What a margin costs, counted rather than timed: no (N, K) tensor beyond those of the plain scaled softmax."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nbs_lib import losses

N, K = 6, 11


class CountScoreSized(TorchDispatchMode):
    """Counts tensors (N, K) that operators allocate, forward and backward; writes in place allocate nothing."""

    def __init__(self):
        super().__init__()
        self.allocated = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        known = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            fresh = isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in known
            if fresh and tensor.shape == (N, K):
                self.allocated.append(str(func))
        return out


def allocations(criterion):
    scores, target = torch.rand(N, K).requires_grad_(), torch.arange(N)
    with CountScoreSized() as counter:
        criterion(scores, target).backward()
    return counter.allocated


PLAIN = allocations(losses.NormFace(scale=10.0))


def test_the_count_sees_forward_and_backward():
    """The product with s and the log-softmax, each way, and the gradient of the chosen entries: five in torch 2.14."""
    assert sum("backward" in operator for operator in PLAIN) >= 2
    assert sum("aten.mul" in operator for operator in PLAIN) == 2


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("cosface", {"margin": 0.35}),
        ("arcface", {"margin": 0.5}),
        ("arcface", {"margin": 0.5, "beyond": "psi"}),
        ("sphereface", {"margin": 4}),
        ("sphereface", {"margin": 1.7}),
        ("ldam", {"margin": 0.5, "class_counts": range(1, K + 1)}),
        ("unified", {"m1": 2.0, "m2": 0.3, "m3": 0.1}),
    ],
)
def test_a_margin_allocates_nothing_of_the_size_of_the_scores(name, hyper):
    assert sorted(allocations(losses.build(name, scale=10.0, **hyper))) == sorted(PLAIN)


@pytest.mark.parametrize(
    ("name", "hyper"), [("gm_softmax", {"scale": 10.0}), ("lm_softmax", {"scale": 10.0}), ("focal", {"gamma": 2.0})]
)
def test_log_sum_exp_needs_no_more_than_the_softmax(name, hyper):
    """Log-sum-exp instead of cross-entropy: the exponential and its product with the gradient on the way back."""
    assert len(allocations(losses.build(name, **hyper))) <= len(PLAIN)
