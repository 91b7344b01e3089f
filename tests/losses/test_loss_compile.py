"""The losses can be part of a compiled model: one graph, the same value and gradient."""

import pytest
import torch

from nbs_lib import losses


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("cosface", {"scale": 10.0, "margin": 0.2}),
        ("arcface", {"scale": 10.0, "margin": 0.2}),
        ("ldam", {"scale": 10.0, "margin": 0.2, "class_counts": (100, 50, 20, 10)}),
        ("lm_softmax", {"scale": 10.0}),
        ("focal", {"gamma": 2.0}),
    ],
)
def test_compiles_into_one_graph(name, hyper):
    criterion = losses.build(name, validate=False, **hyper)
    target = torch.tensor([0, 2, 1])
    cosines = torch.linspace(-0.9, 0.9, 12).view(3, 4)
    plain, compiled = cosines.clone().requires_grad_(), cosines.clone().requires_grad_()
    expected = criterion(plain, target)
    expected.backward()
    got = torch.compile(criterion, fullgraph=True, backend="aot_eager")(compiled, target)
    got.backward()
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(compiled.grad, plain.grad)
