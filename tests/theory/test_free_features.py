"""The free-feature optimiser: what it minimises, that its starts do not mix, and what it finds."""

import math

import pytest
import torch
from torch.nn import functional as F

from nbs_lib.losses import functional
from nbs_lib.metrics import class_margin, sample_margins
from nbs_lib.theory.free_features import FreeFeatures, make_objective, named_loss, optimise, random_points
from nbs_lib.theory.margin_optima import finite_scale_class_margin
from nbs_lib.theory.packing import simplex_etf

QUICK = {"scale_from": 4, "scale_to": 16, "steps": 60, "decay": "cosine"}


def same(a: FreeFeatures, b: FreeFeatures, **tolerance):
    torch.testing.assert_close(a.prototypes, b.prototypes, **tolerance)
    torch.testing.assert_close(a.features, b.features, **tolerance)
    torch.testing.assert_close(a.loss, b.loss, **tolerance)


# --- the objective


@pytest.mark.parametrize("name", ["normface", "lm_softmax", "sample_margin", "lm_softmax_total"])
def test_each_start_has_the_loss_that_it_would_have_alone(name):
    w, z = random_points(3, 5, 4, seed=0), random_points(3, 10, 4, seed=1)
    objective = make_objective(name, 5, per_class=2)
    formula = {"sample_margin": functional.sample_margin_loss}.get(name) or getattr(functional, name)
    hyper = {} if name == "sample_margin" else {"scale": 7.0}
    expected = [formula(z[i] @ w[i].T, objective.target, **hyper).item() for i in range(3)]
    assert objective(w, z, 7.0).tolist() == pytest.approx(expected, abs=1e-12)


def test_class_weights_are_shares_of_classes():
    """Weights (3, 1, 1) with two features a class are a batch that holds class 0 three times as often."""
    w, z = random_points(1, 3, 4, seed=0), random_points(1, 6, 4, seed=1)
    objective = make_objective("normface", 3, per_class=2, class_weights=torch.tensor([3, 1, 1]))
    rows = torch.tensor([0, 1, 0, 1, 0, 1, 2, 3, 4, 5])
    batch = functional.normface((z[0] @ w[0].T)[rows], objective.target[rows], scale=3.0)
    assert objective(w, z, 3.0).item() == pytest.approx(batch.item(), abs=1e-12)
    total = make_objective("lm_softmax_total", 3, per_class=2, class_weights=torch.tensor([3, 1, 1]))
    # weights times N are 1.8, 0.6, 0.6: a third of which is 3 : 1 : 1 over 0.6
    batch = functional.lm_softmax_total((z[0] @ w[0].T)[rows], objective.target[rows], scale=3.0)
    assert total(w, z, 3.0).item() == pytest.approx(batch.item() + math.log(0.6) / 3, abs=1e-12)


def test_the_zero_centroid_penalty_is_added_with_its_own_coefficient():
    w, z = random_points(2, 5, 3, seed=0), random_points(2, 5, 3, seed=1)
    plain, penalised = make_objective("normface", 5), make_objective("normface", 5, zero_centroid=100.0)
    penalty = [100 * functional.zero_centroid_loss(one).item() for one in w]
    assert (penalised(w, z, 2.0) - plain(w, z, 2.0)).tolist() == pytest.approx(penalty)


def test_losses_by_name_take_their_hyper_parameters():
    cosines, target = torch.rand(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    found = named_loss("cosface", margin=0.35)(cosines, target, 8.0)
    torch.testing.assert_close(found, functional.cosface(cosines, target, scale=8.0, margin=0.35, reduction="none"))


def test_a_loss_that_returns_its_mean():
    """Same run as with one value a sample: the objective then calls it once a start."""

    def mean(cosines, target, scale):
        return F.cross_entropy(scale * cosines, target)

    def each(cosines, target, scale):
        return F.cross_entropy(scale * cosines, target, reduction="none")

    same(optimise(mean, 4, 3, starts=2, **QUICK), optimise(each, 4, 3, starts=2, **QUICK), rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="one value a sample"):
        optimise(mean, 3, 2, class_weights=torch.tensor([2, 1, 1]), **QUICK)


# --- the descent


@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd"}, {"per_class": 3}, {"nonnegative": True}])
def test_points_stay_on_the_sphere_and_runs_repeat(options):
    found = optimise("normface", 5, 3, starts=2, seed=4, **QUICK, **options)
    for points in (found.prototypes, found.features):
        torch.testing.assert_close(points.norm(dim=-1), torch.ones(points.shape[:2], dtype=torch.float64))
    assert found.features.shape == (2, 5 * options.get("per_class", 1), 3)
    assert (found.features >= 0).all() == bool(options.get("nonnegative"))
    assert not found.prototypes.requires_grad
    same(found, optimise("normface", 5, 3, starts=2, seed=4, **QUICK, **options), rtol=0, atol=0)
    assert not torch.equal(found.loss, optimise("normface", 5, 3, starts=2, seed=5, **QUICK, **options).loss)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("name", ["normface", "lm_softmax_total"])
def test_starts_do_not_touch_each_other(name, optimizer):
    """The third of four starts ends where it ends alone, given the same first points."""
    together = optimise(name, 4, 3, starts=4, seed=0, optimizer=optimizer, **QUICK)
    points = random_points(4, 8, 3, seed=0)

    def alone(points):
        # a fresh run whose random points are replaced by the third start's
        from nbs_lib.theory import free_features

        original = free_features.random_points
        free_features.random_points = lambda *_, **__: points[2:3].clone()
        try:
            return optimise(name, 4, 3, optimizer=optimizer, **QUICK)
        finally:
            free_features.random_points = original

    single = alone(points)
    torch.testing.assert_close(single.prototypes[0], together.prototypes[2], rtol=0, atol=1e-9)
    torch.testing.assert_close(single.loss[0], together.loss[2], rtol=0, atol=1e-10)


def test_fixed_prototypes_stay():
    fixed = simplex_etf(4, 3) * 5
    found = optimise("lm_softmax", 4, 3, starts=2, fixed_prototypes=fixed, scale_to=8, steps=400, decay="cosine")
    torch.testing.assert_close(found.prototypes[1], simplex_etf(4, 3))
    torch.testing.assert_close(found.features[1], simplex_etf(4, 3), atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match="fixed_prototypes"):
        optimise("lm_softmax", 4, 3, fixed_prototypes=torch.ones(3, 4), scale_to=8)


def test_float32_starts_from_the_same_points():
    found = optimise("normface", 5, 3, dtype=torch.float32, scale_to=4, steps=1, lr=1e-9)
    assert found.prototypes.dtype == torch.float32
    exact = optimise("normface", 5, 3, scale_to=4, steps=1, lr=1e-9)
    torch.testing.assert_close(found.prototypes.double(), exact.prototypes, atol=1e-6, rtol=0)


def test_history_is_recorded():
    found = optimise("lm_softmax", 5, 3, starts=2, record_every=20, scale_from=2, scale_to=32, steps=50)
    history = found.history
    assert history["step"].tolist() == [0, 20, 40, 50]
    assert history["scale"][[0, -1]].tolist() == pytest.approx([2, 32])
    assert history["scale"].diff().min() > 0
    assert history["loss"].shape == (4, 2)
    torch.testing.assert_close(history["loss"][-1], found.loss)
    torch.testing.assert_close(history["class_margin"][-1], found.class_margin)
    torch.testing.assert_close(history["mean_sample_margin"][-1], found.sample_margin.mean(1))
    torch.testing.assert_close(history["worst_sample_margin"][-1], found.sample_margin.amin(1))
    assert optimise("lm_softmax", 3, 2, **QUICK).history == {}


def test_results_measure_themselves_as_metrics_do():
    found = optimise("normface", 5, 3, starts=6, per_class=2, **QUICK)
    for i in range(6):
        assert found.class_margin[i].item() == pytest.approx(class_margin(found.prototypes[i]))
        torch.testing.assert_close(found.sample_margin[i], sample_margins(found.cosines[i], found.target))
    assert found.loss[found.best] == found.loss.min()
    lowest = found.lowest(3)
    assert lowest.loss.tolist() == found.loss.sort().values[:3].tolist()
    torch.testing.assert_close(lowest.features[0], found.features[found.best])


@pytest.mark.parametrize("keep_length", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_the_toy_experiment_is_plain_sgd(keep_length, weight_decay):
    """The same descent written out: momentum 0.9, cosine schedule, gradient of the mean loss through the length."""
    points = random_points(1, 16, 3, seed=3)[0]
    velocity, steps = torch.zeros_like(points), 40
    target = torch.arange(4).repeat_interleave(3)
    for step in range(steps):
        points.requires_grad_()
        directions = points / points.norm(dim=1, keepdim=True)
        loss = F.cross_entropy(6.0 * directions[4:] @ directions[:4].T, target)
        (slope,) = torch.autograd.grad(loss, points)
        points = points.detach()
        velocity = 0.9 * velocity + slope + weight_decay * points
        points -= 0.3 * (1 + math.cos(math.pi * step / steps)) / 2 * velocity
        if keep_length:
            points /= points.norm(dim=1, keepdim=True)
    points /= points.norm(dim=1, keepdim=True)
    options = {"keep_length": keep_length, "weight_decay": weight_decay, "optimizer": "sgd", "decay": "cosine"}
    found = optimise("normface", 4, 3, per_class=3, scale_to=6, lr=0.3, steps=steps, seed=3, **options)
    torch.testing.assert_close(found.prototypes[0], points[:4], rtol=0, atol=1e-10)
    torch.testing.assert_close(found.features[0], points[4:], rtol=0, atol=1e-10)


# --- what it finds


def test_the_step_shrinks_as_the_scale_grows():
    """At s = 16384 a step of 0.1 would throw the octahedron about by ten degrees."""
    found = optimise("lm_softmax_total", 6, 3, scale_from=16, scale_to=16384, starts=4, steps=300)
    assert found.class_margin.max() > 89.5


def test_annealing_takes_normface_where_a_fixed_scale_does_not():
    """Zhou et al. 2022, fig. 3 (K = 8, d = 3), same number of steps: s = 30 at once stalls, s from 4 to 30 does not."""
    schedule = {"scale_to": 30, "starts": 3, "optimizer": "sgd", "lr": 0.2, "steps": 800, "decay": "cosine"}
    fixed = optimise("normface", 8, 3, **schedule)
    annealed = optimise("normface", 8, 3, scale_from=4, **schedule)
    assert annealed.class_margin.min() > 73
    assert fixed.class_margin.median() < 65
    assert annealed.class_margin.max() < finite_scale_class_margin(30)


def test_lm_softmax_does_not_stall_in_the_toy_experiment():
    """LM-Softmax reaches its finite-scale optimum by plain SGD: the paper's 74.46 degrees at s of about 30."""
    found = optimise("lm_softmax", 8, 3, scale_to=30, starts=3, optimizer="sgd", lr=1.0, steps=800, decay="cosine")
    assert found.class_margin.max() == pytest.approx(finite_scale_class_margin(30), abs=0.01)


# --- refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "normfase"}, "normfase"),
        ({"loss": "zero_centroid_loss"}, "zero_centroid_loss"),
        ({"K": 1}, "K >= 2"),
        ({"per_class": 0}, "per_class"),
        ({"starts": 0}, "starts"),
        ({"scale_to": 0, "scale_from": 1}, "scale_to"),
        ({"scale_from": -1}, "scale_from"),
        ({"lr": 0}, "lr"),
        ({"optimizer": "lbfgs"}, "optimizer"),
        ({"decay": "linear"}, "decay"),
        ({"class_weights": torch.tensor([1.0, 2.0])}, "class_weights"),
        ({"class_weights": torch.tensor([1.0, 2.0, 0.0])}, "class_weights"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    settings = {"loss": "normface", "K": 3, "d": 2, "scale_to": 4, "steps": 1} | change
    with pytest.raises(ValueError, match=message):
        optimise(settings.pop("loss"), settings.pop("K"), settings.pop("d"), **settings)


def test_hyper_parameters_go_with_names():
    with pytest.raises(ValueError, match="margin"):
        optimise(named_loss("normface"), 3, 2, scale_to=4, margin=0.1)
