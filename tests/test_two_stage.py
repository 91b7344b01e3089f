"""Mixup, and recipes in two stages: what learns, what stays, and what the second stage is for."""

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nbs_lib import run, two_stage
from nbs_lib.data import ImageSet
from nbs_lib.data.sampling import ClassBalanced
from nbs_lib.heads import LinearHead
from nbs_lib.mixup import Mixup
from nbs_lib.two_stage import Frozen, SecondStage

SIZES = (60, 12, 4)
CONFIG = run.RunConfig(epochs=2, batch_size=16, device="cpu", threads=1)


def tail():
    """Three classes, told apart by a bright row, 60 : 12 : 4."""
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor(SIZES))
    images = torch.randint(
        0, 160, (len(labels), 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    images[torch.arange(len(labels)), 0, labels] += 80
    return ImageSet(images, labels, 3, "tail", (0.4,), (0.2,), tuple("abc"))


def nets(seed=0):
    torch.manual_seed(seed)
    backbone = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(256, 64)
    )
    return backbone, LinearHead(64, 3, bias=False)


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same(before, after, but=()):
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.rsplit(".", 1)[-1] for name in changed} == set(but)


# --- mixup


class TestMixup:
    def test_blends_images_and_losses(self):
        mixed = Mixup(nn.Flatten(), 1.0)
        head = LinearHead(4, 3)
        images, target = torch.randn(6, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
        torch.manual_seed(3)
        features = mixed(images)
        share, partner = mixed.share, mixed.partner
        assert 0 < share < 1
        assert sorted(partner.tolist()) == list(range(6))
        for i in range(6):
            by_hand = share * images[i].flatten() + (1 - share) * images[partner[i]].flatten()
            torch.testing.assert_close(features[i], by_hand)
        labels = share * F.one_hot(target, 3) + (1 - share) * F.one_hot(target[partner], 3)
        objective = mixed.blend(lambda z, h, y: F.cross_entropy(h(z), y))
        torch.testing.assert_close(objective(features, head, target), F.cross_entropy(head(features), labels))

    def test_is_the_backbone_alone_in_evaluation(self):
        mixed = Mixup(nn.Flatten(), 0.2).eval()
        images = torch.randn(4, 1, 2, 2)
        assert torch.equal(mixed(images), images.flatten(1))
        assert mixed.blend(lambda z, h, y: z.sum())(images, None, None) == images.sum()

    def test_shares_follow_the_beta_distribution(self):
        mixed = Mixup(nn.Flatten(), 0.2)
        torch.manual_seed(0)
        shares = []
        for _ in range(2000):
            mixed(torch.zeros(2, 1))
            shares.append(mixed.share)
        shares = torch.tensor(shares, dtype=torch.float64)
        assert shares.mean() == pytest.approx(0.5, abs=0.03)
        assert shares.var() == pytest.approx(1 / (4 * (2 * 0.2 + 1)), abs=0.01)  # of Beta(a, a): 1 / (4 (2a + 1))

    def test_alpha_must_not_be_too_small(self):
        with pytest.raises(ValueError, match="alpha must be between"):
            Mixup(nn.Flatten(), 0.0)
        with pytest.raises(ValueError, match=r"RunConfig\.mixup is -1"):
            run.RunConfig(mixup=-1.0)

    def test_a_run_with_mixup_differs_and_repeats(self):
        short = run.RunConfig(epochs=1, limit_per_class=20, device="cpu", threads=1, mixup=0.4)
        first, again = (run.run(short, progress=False).history[0]["loss"] for _ in range(2))
        assert first == again
        assert first != run.run(dataclasses.replace(short, mixup=0.0), progress=False).history[0]["loss"]


# --- the second stage


class TestFrozen:
    def test_only_batch_statistics_move(self):
        backbone, _ = nets()
        images = torch.randn(16, 1, 8, 8) * 3 + 1
        for shifts, moved in ((False, ()), (True, ("running_mean", "running_var", "num_batches_tracked"))):
            frozen = Frozen(backbone, shift_statistics=shifts).train()
            before = state(frozen)
            features = frozen(images)
            assert not features.requires_grad
            assert_same(before, state(frozen), but=moved)
        assert_same(state(nets()[0]), state(backbone))  # the original was copied

    def test_dropout_stays_off_and_evaluation_moves_nothing(self):
        backbone, _ = nets()
        frozen = Frozen(backbone, shift_statistics=True).train()
        images = torch.randn(16, 1, 8, 8)
        assert torch.equal(frozen(images), frozen(images))
        before = state(frozen)
        frozen.eval()(images)
        assert_same(before, state(frozen))


class TestRescaled:
    def test_prototypes_are_scaled_and_shifted(self):
        head = LinearHead(4, 3, bias=False)
        w = head.prototypes.detach().clone()
        new = two_stage.rescaled(head, retention=0.5)
        assert torch.equal(new.prototypes, w)
        learned = [name for name, p in new.named_parameters() if p.requires_grad]
        assert [name.rsplit(".", 1)[-1] for name in learned] == ["scale", "shift"]
        rescaling = new.parametrizations.prototypes[0]
        with torch.no_grad():
            rescaling.scale.copy_(torch.tensor([[2.0], [1.0], [0.5]]))
            rescaling.shift.fill_(1.0)
        features = torch.randn(5, 4)
        want = torch.stack([s * features @ (w[j] + 0.5) for j, s in enumerate((2.0, 1.0, 0.5))], 1)
        torch.testing.assert_close(new(features), want)
        assert torch.equal(head.prototypes, w)

    def test_without_retention_only_the_lengths_change(self):
        backbone, head = nets()
        _, new = two_stage.retrain(backbone, head, tail(), CONFIG, SecondStage("mislas", epochs=2, retention=0.0))
        cosines = F.cosine_similarity(new.prototypes, head.prototypes, dim=1)
        assert cosines.tolist() == pytest.approx([1.0] * 3, abs=1e-6)
        assert not torch.allclose(new.prototypes, head.prototypes, atol=1e-3)


class TestRetrain:
    @pytest.mark.parametrize(
        ("stage", "moved"),
        [
            (SecondStage("crt", epochs=2), ()),
            (SecondStage("mislas", epochs=2), ("running_mean", "running_var", "num_batches_tracked")),
            (SecondStage("mislas", epochs=2, shift_statistics=False), ()),
        ],
    )
    def test_the_backbone_keeps_its_weights_and_the_first_stage_is_untouched(self, stage, moved):
        backbone, head = nets()
        before, before_head = state(backbone), state(head)
        new_backbone, new_head = two_stage.retrain(backbone, head, tail(), CONFIG, stage)
        assert_same(before, state(backbone))
        assert_same(before_head, state(head))
        assert_same(before, state(new_backbone), but=moved)
        assert not torch.allclose(new_head.prototypes, head.prototypes, atol=1e-3)

    def test_crt_starts_from_a_fresh_head(self):
        """With a step size of next to nothing the new head is the one that the seed gives."""
        backbone, head = nets()
        torch.nn.init.constant_(head.prototypes, 7.0)
        _, new = two_stage.retrain(backbone, head, tail(), CONFIG, SecondStage(epochs=1, lr=1e-12))
        torch.testing.assert_close(new.prototypes, run.build_networks(CONFIG, 1, 8, 3)[1].prototypes)

    def test_it_sees_balanced_classes(self, monkeypatch):
        seen = []
        batches = ClassBalanced.batches

        def spy(self, *args, **options):
            for images, labels in batches(self, *args, **options):
                seen.append(labels)
                yield images, labels

        monkeypatch.setattr(ClassBalanced, "batches", spy)
        two_stage.retrain(*nets(), tail(), CONFIG, SecondStage(epochs=3))
        counts = torch.bincount(torch.cat(seen))
        assert counts.sum() == 3 * sum(SIZES)
        assert counts.max() - counts.min() <= 3

    def test_regulariser_centres_the_second_stage(self):
        means = []
        for lam in (0.0, 5.0):
            _, new = two_stage.retrain(*nets(), tail(), CONFIG, SecondStage("mislas", epochs=4, zero_centroid=lam))
            means.append(F.normalize(new.prototypes.detach(), dim=1).mean(0).norm().item())
        assert means[1] < 0.3 * means[0]

    def test_mislas_smooths_the_frequent_class(self):
        """At the optimum of a frequent class its own probability is 1 - epsilon, not 1."""
        counts, scores = [600, 12, 4], torch.zeros(3, 3, requires_grad=True)
        objective = two_stage._smoothed(counts, SecondStage("mislas", smoothing=0.3))
        descent = torch.optim.SGD([scores], lr=3.0)
        for _ in range(3000):
            descent.zero_grad()
            objective(scores, nn.Identity(), torch.arange(3)).backward()
            descent.step()
        probabilities = scores.softmax(1).detach().diagonal()
        assert probabilities[0].item() == pytest.approx(0.7, abs=1e-3)
        middle = 1 - 0.3 * math.sin(math.pi / 2 * 8 / 596)
        assert probabilities[1].item() == pytest.approx(middle, abs=5e-3)
        assert probabilities[2].item() > 0.99

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: SecondStage("crf"), "recipe must be one of 'crt', 'mislas', got 'crf'"),
            (lambda: SecondStage(retention=1.5), "retention must be between 0 and 1"),
            (
                lambda: two_stage.retrain(
                    *nets(), tail(), dataclasses.replace(CONFIG, loss="normface", scale=5.0), SecondStage("mislas")
                ),
                "got loss 'normface'",
            ),
            (lambda: two_stage.second_stage(run.Record(CONFIG, {}, [], {}, 0.0), SecondStage()), "holds no networks"),
        ],
    )
    def test_bad_input_is_named(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()


def test_second_stage_lifts_the_rare_classes():
    """fashion_mini with a long tail: few-shot accuracy rises by points, from the same features."""
    config = run.quick_config(imbalance="long_tailed", imbalance_ratio=100.0, epochs=8, threads=1, device="cpu")
    first = run.run(config, keep=True, progress=False)
    kept = copy.deepcopy(first.backbone.state_dict())
    for recipe in two_stage.RECIPES:
        second = two_stage.second_stage(first, SecondStage(recipe, epochs=4))
        assert second.metrics["accuracy_few"] > first.metrics["accuracy_few"] + 0.02
        assert second.metrics["accuracy"] > first.metrics["accuracy"]
        assert second.per_class["train_images"] == first.per_class["train_images"]
        assert recipe in second.note
    assert_same(kept, first.backbone.state_dict())


def test_the_rows_of_table_7():
    config = run.quick_config(
        imbalance="step", imbalance_ratio=4.0, limit_per_class=20, epochs=1, threads=1, device="cpu"
    )
    rows = dict(two_stage.table_7(config, epochs=1))
    assert list(rows) == [
        "CE", "CE+Rw", "cRT+mixup", "cRT+mixup+Rw, 1st stage", "cRT+mixup+Rw, both stages",
        "MiSLAS", "MiSLAS+Rw, 1st stage", "MiSLAS+Rw, both stages",
    ]  # fmt: skip
    assert rows["CE+Rw"].config.zero_centroid == 1
    assert rows["MiSLAS"].config.mixup == 0.2
    assert "zero_centroid=1.0" in rows["cRT+mixup+Rw, both stages"].note
    assert rows["MiSLAS"].metrics["accuracy"] != rows["MiSLAS+Rw, 1st stage"].metrics["accuracy"]
