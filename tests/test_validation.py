"""The checks of arguments; what losses refuse is tested with the losses."""

import math

import pytest
import torch

from nbs_lib import validation as v


@pytest.mark.parametrize("value", [1, 0.5, -3, math.inf, torch.tensor(2.0).item()])
def test_real_numbers_pass(value):
    assert v.check_real("x", value) == value


@pytest.mark.parametrize("value", ["1", None, True, math.nan, 1j, [1.0]])
def test_other_things_do_not(value):
    with pytest.raises(ValueError, match="x must be a real number, got"):
        v.check_real("x", value)
    with pytest.raises(ValueError, match="x must be a real number, got"):
        v.check_positive("x", value)
    with pytest.raises(ValueError, match="x must be a real number, got"):
        v.check_in("x", value, 0, 1)


def test_numpy_numbers_are_real():
    numpy = pytest.importorskip("numpy")
    assert v.check_positive("x", numpy.float32(0.5)) == 0.5
    assert v.check_positive("x", numpy.int64(3)) == 3


@pytest.mark.parametrize("value", [0, -1, math.inf, -math.inf])
def test_positive(value):
    with pytest.raises(ValueError, match=f"x must be positive and finite, got {value}"):
        v.check_positive("x", value)


def test_in():
    assert v.check_in("x", 0, 0, 1) == 0
    assert v.check_in("x", 1, 0, 1) == 1
    with pytest.raises(ValueError, match=r"^x must be between 0 and 1, got 1\.1$"):
        v.check_in("x", 1.1, 0, 1)
    with pytest.raises(ValueError, match=r"^x must be at least 1, got 0$"):
        v.check_in("x", 0, 1, math.inf)
    with pytest.raises(ValueError, match=r"^x must be between 0 and 1 metres, got 2: take less$"):
        v.check_in("x", 2, 0, 1, unit="metres", hint="take less")


def test_margins():
    assert v.check_radians("m", math.pi / 2) == math.pi / 2
    assert v.check_cosine_margin("m", 2) == 2
    assert v.check_factor("m", 1) == 1
    for check, wrong in ((v.check_radians, 1.6), (v.check_cosine_margin, 2.1), (v.check_factor, 0.9)):
        with pytest.raises(ValueError, match=f"m must be .*, got {wrong}"):
            check("m", wrong)


def test_choice_and_reduction():
    assert v.check_choice("mode", "a", ("a", "b")) == "a"
    with pytest.raises(ValueError, match="mode must be one of 'a', 'b', got 'c'"):
        v.check_choice("mode", "c", ("a", "b"))
    for reduction in v.REDUCTIONS:
        assert v.check_reduction(reduction) == reduction
    with pytest.raises(ValueError, match="reduction must be one of 'mean', 'sum', 'none', got None"):
        v.check_reduction(None)


def test_reduce():
    loss = torch.tensor([1.0, 2.0, 6.0])
    assert v.reduce(loss, "mean") == 3
    assert v.reduce(loss, "sum") == 9
    assert v.reduce(loss, "none") is loss
    empty = torch.zeros(0, requires_grad=True)
    mean = v.reduce(empty * 2, "mean")
    assert mean == 0
    mean.backward()
    assert empty.grad.shape == (0,)


def test_scores_that_fit_pass(device):
    scores, target = torch.zeros(3, 4, device=device), torch.tensor([0, 3, 1], device=device)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        v.check_scores(scores.to(dtype), target)
    v.check_scores(scores[:0], target[:0])
    v.check_scores(scores, target + 9, validate=False)


def test_the_first_wrong_label_is_named():
    with pytest.raises(ValueError, match=r"label -7, but labels must lie in 0\.\.3"):
        v.check_target(torch.tensor([0, -7, 99]), 4)
    with pytest.raises(ValueError, match=r"label 99, but labels must lie in 0\.\.3"):
        v.check_target(torch.tensor([0, 3, 99]), 4)


def test_devices_must_agree():
    scores = torch.zeros(3, 4, device="meta")
    with pytest.raises(ValueError, match=r"scores lie on meta but target on cpu: use target\.to\(scores\.device\)"):
        v.check_scores(scores, torch.tensor([0, 1, 2]))


def test_prototypes():
    v.check_prototypes(torch.zeros(2, 1))
    v.check_prototypes(torch.zeros(7, 3, 5))
    for wrong in (torch.zeros(1, 5), torch.zeros(5), torch.zeros(3, 0), torch.zeros(3, 2, dtype=torch.int)):
        with pytest.raises(ValueError, match="prototypes must"):
            v.check_prototypes(wrong)
