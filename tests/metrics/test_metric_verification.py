"""Verification against pencil cases, scikit-learn and plain loops over pairs and thresholds."""

import itertools
import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from nbs_lib import metrics
from nbs_lib.metrics.bootstrap import draw_counts

HAND = torch.tensor([0.9, 0.8, 0.8, 0.7, 0.3, 0.8, 0.6, 0.2, 0.2, 0.1], dtype=torch.float64)
HAND_GENUINE = torch.tensor([True] * 5 + [False] * 5)


def draw(seed=0, genuine=40, impostors=60, levels=12):
    """Scores on a coarse grid, so that many tie."""
    generator = torch.Generator().manual_seed(seed)
    same = torch.arange(genuine + impostors) < genuine
    scores = torch.randint(levels, (len(same),), generator=generator).double() + 3.0 * same
    order = torch.randperm(len(same), generator=generator)
    return scores[order] / levels, same[order]


def loop_auc(scores, genuine):
    """The definition: compare every genuine pair with every impostor pair."""
    won = 0.0
    for a in scores[genuine].tolist():
        for b in scores[~genuine].tolist():
            won += 1.0 if a > b else 0.5 if a == b else 0.0
    return won / (int(genuine.sum()) * int((~genuine).sum()))


def loop_tar(scores, genuine, allowed):
    """Try every threshold; ``allowed`` whole impostor pairs may pass."""
    best = (0.0, 0.0, math.inf)
    for threshold in sorted(set(scores.tolist()), reverse=True):
        wrong = sum(s >= threshold for s in scores[~genuine].tolist())
        right = sum(s >= threshold for s in scores[genuine].tolist())
        if wrong <= allowed:
            best = (right / int(genuine.sum()), wrong / int((~genuine).sum()), threshold)
    return best


def loop_folds(scores, genuine, folds):
    """Ten lines of the LFW protocol, trying every gap between training scores from low to high."""
    found = []
    for fold in sorted(set(folds.tolist())):
        train = [(s, g) for s, g, f in zip(scores.tolist(), genuine.tolist(), folds.tolist(), strict=True) if f != fold]
        test = [(s, g) for s, g, f in zip(scores.tolist(), genuine.tolist(), folds.tolist(), strict=True) if f == fold]
        levels = sorted({s for s, _ in train})
        gaps = [-math.inf, *((a + b) / 2 for a, b in itertools.pairwise(levels)), math.inf]
        best = max(gaps, key=lambda t: sum((s >= t) == g for s, g in train))
        found.append(sum((s >= best) == g for s, g in test) / len(test))
    return found


class TestPairs:
    def test_all_pairs_once(self):
        first, second, genuine = metrics.all_pairs(torch.tensor([7, 7, 2]))
        assert list(zip(first.tolist(), second.tolist(), genuine.tolist(), strict=True)) == [
            (0, 1, True),
            (0, 2, False),
            (1, 2, False),
        ]

    def test_scores_are_cosines_of_any_length(self):
        features = torch.tensor([[3.0, 0.0], [0.0, 5.0], [2.0, 2.0], [0.0, 0.0]])
        scores = metrics.pair_scores(features, torch.tensor([0, 0, 0, 0, 3]), torch.tensor([0, 1, 2, 3, 3]))
        assert scores.dtype == torch.float64
        assert scores.tolist() == pytest.approx([1, 0, 0.5**0.5, 0, 0], abs=1e-15)

    def test_chunks_change_nothing(self, monkeypatch):
        features = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
        first, second, _ = metrics.all_pairs(torch.zeros(20, dtype=torch.int64))
        whole = metrics.pair_scores(features, first, second)
        monkeypatch.setattr("nbs_lib.metrics.verification._PAIRS", 7)
        assert torch.equal(metrics.pair_scores(features, first, second), whole)

    @pytest.mark.parametrize(
        ("features", "first", "second", "named"),
        [
            (torch.tensor([[math.nan, 1.0]]), [0], [0], "features must be finite"),
            (torch.ones(3), [0], [0], r"features must be finite and \(N, d\)"),
            (torch.ones(3, 2), [0, 1], [0], r"first and second must both be \(P,\)"),
        ],
    )
    def test_bad_input(self, features, first, second, named):
        with pytest.raises(ValueError, match=named):
            metrics.pair_scores(features, torch.tensor(first), torch.tensor(second))


class TestRoc:
    def test_by_hand(self):
        """0.8 is tied between two genuine pairs and an impostor: they pass together."""
        curve = metrics.roc(HAND, HAND_GENUINE)
        assert curve.thresholds.tolist() == [math.inf, 0.9, 0.8, 0.7, 0.6, 0.3, 0.2, 0.1]
        assert curve.tar.tolist() == pytest.approx([0, 0.2, 0.6, 0.8, 0.8, 1, 1, 1])
        assert curve.far.tolist() == pytest.approx([0, 0, 0.2, 0.2, 0.4, 0.4, 0.8, 1])
        # genuine 0.9 beats 5; each 0.8 beats 4 and ties 1; 0.7 beats 4; 0.3 beats 3: 5 + 9 + 4 + 3 of 25
        assert curve.auc == 21 / 25
        assert (curve.genuine, curve.impostors) == (5, 5)

    @pytest.mark.parametrize(
        ("far", "tar", "real", "threshold"), [(0.2, 0.8, 0.2, 0.7), (0.39, 0.8, 0.2, 0.7), (0.4, 1, 0.4, 0.3)]
    )
    def test_tar_by_hand(self, far, tar, real, threshold):
        """The laxest threshold that keeps to the rate: at FAR 0.2 it goes down to 0.7, past the tie at 0.8."""
        found = metrics.tar_at_far(HAND, HAND_GENUINE, far)
        assert (found.tar, found.far, found.threshold) == pytest.approx((tar, real, threshold))
        assert (found.genuine, found.impostors) == (5, 5)

    def test_a_tie_with_too_many_impostors_is_refused_whole(self):
        scores = torch.tensor([1.0, 0.5, 0.5, 0.5, 0.0], dtype=torch.float64)
        found = metrics.tar_at_far(scores, torch.tensor([True, True, False, False, False]), 1 / 3)
        assert (found.tar, found.far, found.threshold) == (0.5, 0, 1.0)

    def test_no_threshold_keeps_to_the_rate(self):
        found = metrics.tar_at_far(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([True, False, False]), 0.5)
        assert (found.tar, found.far, found.threshold) == (0, 0, math.inf)

    @pytest.mark.parametrize("wanted", range(1, 101))
    def test_a_rate_is_whole_pairs_not_binary_digits(self, wanted):
        """0.29 * 100 is 28.99... in binary and 1 - 0.9 a little below 0.1; 29 and 10 of 100 impostors may pass."""
        scores = torch.arange(101, dtype=torch.float64)
        for far in (wanted / 100, 1 - (100 - wanted) / 100):
            assert metrics.tar_at_far(scores, scores == 0, far).far == wanted / 100

    @pytest.mark.parametrize("far", [0, -0.1, 0.0099, 1.01, math.nan, "0.1", None])
    def test_rates_that_cannot_be_measured_are_refused(self, far):
        scores = torch.arange(101, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"far must lie between 0.01 and 1, got .*with 100 impostor pairs"):
            metrics.tar_at_far(scores, scores == 0, far)

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 60))
    def test_against_loops_and_sklearn(self, seed, levels, allowed):
        scores, genuine = draw(seed, levels=levels)
        curve = metrics.roc(scores, genuine)
        assert curve.auc == pytest.approx(loop_auc(scores, genuine), abs=1e-14)
        assert curve.auc == pytest.approx(roc_auc_score(genuine, scores), abs=1e-12)
        found = curve.at_far(allowed / 60)
        assert (found.tar, found.far, found.threshold) == pytest.approx(loop_tar(scores, genuine, allowed))

    def test_order_plays_no_part(self):
        scores, genuine = draw(3)
        order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(1))
        one, other = metrics.roc(scores, genuine), metrics.roc(scores[order], genuine[order])
        assert torch.equal(one.tar, other.tar)
        assert torch.equal(one.far, other.far)

    def test_chance_and_perfection(self):
        genuine = torch.tensor([True, True, False, False])
        assert metrics.auc(torch.zeros(4), genuine) == 0.5
        assert metrics.auc(genuine.double(), genuine) == 1
        assert metrics.auc(-genuine.double(), genuine) == 0

    def test_gaussian_scores_follow_the_closed_form(self):
        """Scores N(mu, sigma^2): AUC = Phi(mu / sqrt(2)), TAR = Phi(mu - z) at unit variances."""
        generator, many = torch.Generator().manual_seed(0), 200_000
        scores = torch.randn(2 * many, generator=generator, dtype=torch.float64)
        genuine = torch.arange(2 * many) < many
        curve = metrics.roc(scores + 2.0 * genuine, genuine)
        assert curve.auc == pytest.approx(torch.special.ndtr(torch.tensor(2.0 / 2**0.5)).item(), abs=2e-3)
        assert curve.at_far(0.01).tar == pytest.approx(torch.special.ndtr(torch.tensor(2.0 - 2.3263)).item(), abs=1e-2)

    @pytest.mark.parametrize(
        ("scores", "genuine", "named"),
        [
            (torch.tensor([0.1, math.nan]), [True, False], "scores holds 1 NaN"),
            (torch.tensor([0.1, 0.2]), [1, 0], "genuine must be bool, got torch.int64"),
            (torch.tensor([0.1, 0.2]), [True, True], "2 pairs, 2 of them genuine: both kinds"),
            (torch.tensor([0.1, 0.2]), [False, False], "2 pairs, 0 of them genuine: both kinds"),
            (torch.tensor([0.1]), [True, False], r"scores must be floating point \(P,\)"),
            (torch.tensor([1, 2]), [True, False], "scores must be floating point"),
        ],
    )
    def test_bad_input(self, scores, genuine, named):
        with pytest.raises(ValueError, match=named):
            metrics.roc(scores, torch.tensor(genuine))

    def test_a_million_pairs_take_a_second(self):
        scores = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
        started = time.process_time()
        metrics.roc(scores, torch.arange(1_000_000) % 3 == 0)
        assert time.process_time() - started < 10  # of the processor; loops would take hours


class TestFolds:
    def test_by_hand(self):
        """Fold 0's rest is {0.9 genuine, 0.5 impostor}: threshold 0.7, and 0.6 genuine is missed."""
        scores = torch.tensor([0.6, 0.2, 0.9, 0.5], dtype=torch.float64)
        found = metrics.fold_accuracy(scores, torch.tensor([True, False] * 2), torch.tensor([0, 0, 1, 1]))
        assert found.thresholds.tolist() == pytest.approx([0.7, 0.4])
        assert found.accuracy.tolist() == [0.5, 0.5]
        assert (found.mean, found.standard_error) == (0.5, 0)

    def test_standard_error(self):
        found = metrics.FoldAccuracy(torch.tensor([0.9, 0.7], dtype=torch.float64), torch.zeros(2))
        assert found.mean == pytest.approx(0.8)
        assert found.standard_error == pytest.approx(0.1)  # std 0.1 sqrt(2), over sqrt(2)

    def test_the_lowest_of_equal_thresholds(self):
        """Genuine and impostor alternate: below all, between, above all are equally good."""
        scores = torch.tensor([0.1, 0.2, 0.1, 0.2], dtype=torch.float64)
        genuine = torch.tensor([True, False, True, False])
        found = metrics.fold_accuracy(scores, genuine, torch.tensor([0, 0, 1, 1]))
        assert found.thresholds.tolist() == [-math.inf] * 2

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 10_000), st.integers(2, 40), st.integers(2, 10))
    def test_against_loops(self, seed, levels, folds):
        scores, genuine = draw(seed, levels=levels)
        parts = torch.arange(len(scores)) % folds
        found = metrics.fold_accuracy(scores, genuine, parts)
        assert found.accuracy.tolist() == pytest.approx(loop_folds(scores, genuine, parts))

    def test_the_held_out_fold_does_not_choose(self):
        """Fold 1 is labelled the wrong way round: with a threshold from fold 0 it is all wrong."""
        scores = torch.tensor([0.9, 0.1, 0.9, 0.1], dtype=torch.float64)
        found = metrics.fold_accuracy(scores, torch.tensor([True, False, False, True]), torch.tensor([0, 0, 1, 1]))
        assert found.accuracy[1] == 0

    @pytest.mark.parametrize(("folds", "named"), [([0, 0], r"folds must be \(4,\)"), ([1] * 4, "at least two folds")])
    def test_bad_folds(self, folds, named):
        with pytest.raises(ValueError, match=named):
            metrics.fold_accuracy(torch.rand(4), torch.tensor([True, False] * 2), torch.tensor(folds))


def identities(count=12, images=6, spread=0.9, seed=0):
    """Features of ``count`` identities, and the pairs of their images."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.arange(count).repeat_interleave(images)
    centres = torch.randn(count, 8, generator=generator, dtype=torch.float64)
    features = centres[ids] + spread * torch.randn(len(ids), 8, generator=generator, dtype=torch.float64)
    first, second, genuine = metrics.all_pairs(ids)
    return features, ids, first, second, genuine


class TestBootstrap:
    def test_weights_are_a_real_resample(self):
        """Each resample is built by hand: copy the drawn identities, pair the copies, leave out copies of one."""
        features, ids, first, second, genuine = identities(count=5, images=4)
        scores = metrics.pair_scores(features, first, second).round(decimals=1)  # with ties
        found = metrics.bootstrap_roc(scores, genuine, [0.1, 0.5], (ids[first], ids[second]), resamples=8, seed=3)
        table = torch.full((len(ids), len(ids)), math.nan, dtype=torch.float64)
        table[first, second] = table[second, first] = scores
        for r, count in enumerate(draw_counts(5, 8, 3).long().tolist()):
            copies = [identity for identity, number in enumerate(count) for _ in range(number)]
            drawn, same = [], []
            for i, a in enumerate(copies):
                for j, b in enumerate(copies[i:], start=i):
                    block = table[ids == a][:, ids == b]
                    if i == j:
                        drawn.append(block[*torch.triu_indices(4, 4, offset=1)])
                        same += [True] * 6
                    elif a != b:
                        drawn.append(block.flatten())
                        same += [False] * 16
            drawn, same = torch.cat(drawn), torch.tensor(same)
            assert found.auc[r] == pytest.approx(loop_auc(drawn, same))
            for f, far in enumerate((0.1, 0.5)):
                allowed = math.floor(far * int((~same).sum()) + 1e-6)
                assert found.tar[r, f] == pytest.approx(loop_tar(drawn, same, allowed)[0])

    def test_pairs_as_their_own_groups(self):
        """LFW's way: the number of each pair passed twice; the spread is that of a resampled share."""
        scores, genuine = draw(1, genuine=200, impostors=200, levels=100_000)
        number = torch.arange(400)
        found = metrics.bootstrap_roc(scores, genuine, [0.1], (number, number), resamples=400)
        tar = metrics.tar_at_far(scores, genuine, 0.1).tar
        assert float(found.tar.std()) == pytest.approx((tar * (1 - tar) / 200) ** 0.5, rel=0.8)
        assert float(found.auc.mean()) == pytest.approx(metrics.auc(scores, genuine), abs=0.01)

    def test_identities_give_wider_intervals_than_pairs(self):
        """The reason for resampling identities: pairs of one identity are not independent."""
        features, ids, first, second, genuine = identities(count=15, images=10)
        scores, number = metrics.pair_scores(features, first, second), torch.arange(len(first))
        by_identity = metrics.bootstrap_roc(scores, genuine, [0.01], (ids[first], ids[second]), resamples=200)
        by_pair = metrics.bootstrap_roc(scores, genuine, [0.01], (number, number), resamples=200)
        assert float(by_identity.auc.std()) > 2 * float(by_pair.auc.std())

    def test_covers_the_truth(self):
        """Of 60 data sets of 12 identities, the 90 % interval of AUC holds the population's value in most."""
        features, _, first, second, genuine = identities(count=300, images=6, seed=99)
        truth = metrics.auc(metrics.pair_scores(features, first, second), genuine)
        hits = 0
        for seed in range(60):
            features, ids, first, second, genuine = identities(seed=seed)
            scores = metrics.pair_scores(features, first, second)
            found = metrics.bootstrap_roc(scores, genuine, [0.1], (ids[first], ids[second]), resamples=200, seed=seed)
            low, high = metrics.interval(found.auc, 0.9)
            hits += bool(low <= truth <= high)
        assert 44 <= hits <= 60

    def test_a_resample_without_impostors_is_left_out(self):
        """Two identities: half of the resamples draw one of them twice."""
        features, ids, first, second, genuine = identities(count=2, images=3)
        scores = metrics.pair_scores(features, first, second)
        found = metrics.bootstrap_roc(scores, genuine, [0.5], (ids[first], ids[second]), resamples=50)
        missing = found.auc.isnan()
        assert 10 < int(missing.sum()) < 40
        assert torch.equal(missing, found.tar[:, 0].isnan())
        assert all(not value.isnan() for value in metrics.interval(found.auc))

    def test_bad_input(self):
        features, ids, first, second, genuine = identities(count=3, images=3)
        scores = metrics.pair_scores(features, first, second)
        with pytest.raises(ValueError, match="far must lie between"):
            metrics.bootstrap_roc(scores, genuine, [1e-3], (ids[first], ids[second]))
        with pytest.raises(ValueError, match="equal on genuine pairs"):
            metrics.bootstrap_roc(scores, genuine, [0.5], (first, second))
        with pytest.raises(ValueError, match="resamples must be an integer of at least 1, got 0"):
            metrics.bootstrap_roc(scores, genuine, [0.5], (ids[first], ids[second]), resamples=0)

    def test_mean_of_groups_by_hand(self):
        """Groups {1, 3} and {8}: resamples give 2 (first twice), 8 (second twice) or 12 / 3 = 4."""
        values = torch.tensor([1.0, 3.0, 8.0, math.nan])
        found = metrics.bootstrap_mean(values, torch.tensor([5, 5, 9, 7]), resamples=200)
        assert {round(float(value), 12) for value in found} == {2, 8, 4}

    @pytest.mark.parametrize(
        ("values", "groups", "named"),
        [
            (torch.ones(2), torch.tensor([1]), r"values and groups must both be \(N,\)"),
            (torch.tensor([math.nan]), torch.tensor([1]), "there is no value"),
        ],
    )
    def test_mean_of_nothing(self, values, groups, named):
        with pytest.raises(ValueError, match=named):
            metrics.bootstrap_mean(values, groups)

    @pytest.mark.parametrize("level", [0, 1, 95])
    def test_interval_level(self, level):
        with pytest.raises(ValueError, match="level must lie between 0 and 1"):
            metrics.interval(torch.ones(3), level)

    def test_interval_is_percentiles(self):
        low, high = metrics.interval(torch.arange(101, dtype=torch.float64), 0.9)
        assert (float(low), float(high)) == pytest.approx((5, 95))
