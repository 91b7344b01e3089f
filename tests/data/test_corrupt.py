"""Imbalance and label noise: the counts of the papers, exact rates, repeatable choices, nothing else touched."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbs_lib import data
from nbs_lib.data import corrupt
from nbs_lib.data.corrupt import frequency_groups, imbalanced_counts, noisy_labels


def image_set(sizes=(20, 20, 20, 20)):
    """Images that carry their own row number, in an order that mixes the classes."""
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    images = torch.arange(len(labels)).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()
    names = tuple("abcdefgh"[: len(sizes)])
    return data.ImageSet(images, labels, len(sizes), "made", (0.5,), (0.5,), names)


class TestCounts:
    def test_cifar_10_of_the_papers(self):
        """Long-tailed CIFAR-10 as Cao et al. 2019 and Zhou et al. 2022 train on it: 12,406 and 20,431 images."""
        hundred = imbalanced_counts("long_tailed", 5000, 10, 100)
        assert hundred == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
        assert sum(hundred) == 12_406
        assert sum(imbalanced_counts("long_tailed", 5000, 10, 10)) == 20_431

    def test_cifar_100_of_the_papers(self):
        assert sum(imbalanced_counts("long_tailed", 500, 100, 100)) == 10_847
        assert sum(imbalanced_counts("long_tailed", 500, 100, 10)) == 19_573

    def test_step(self):
        assert imbalanced_counts("step", 5000, 10, 100) == [5000] * 5 + [50] * 5
        assert imbalanced_counts("step", 10, 3, 4) == [10, 10, 2]

    @given(smallest=st.integers(1, 500), ratio=st.integers(1, 500), k=st.integers(2, 50))
    def test_the_last_count_is_exact(self, smallest, ratio, k):
        """4900 / 49 is 100, but 4900 * (1 / 49) is 99.99999999999999."""
        for kind in corrupt.IMBALANCES:
            counts = imbalanced_counts(kind, smallest * ratio, k, ratio)
            assert (counts[0], counts[-1]) == (smallest * ratio, smallest)
            assert counts == sorted(counts, reverse=True)

    def test_a_ratio_of_one_keeps_all(self):
        for kind in corrupt.IMBALANCES:
            assert imbalanced_counts(kind, 7, 4, 1.0) == [7] * 4

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("long-tailed", 10, 4, 2), "imbalance must be one of 'long_tailed', 'step', got 'long-tailed'"),
            (("step", 10, 4, 0.5), "imbalance_ratio must be at least 1, got 0.5"),
            (("step", 10, 4, math.nan), "imbalance_ratio must be a real number, got nan"),
            (("long_tailed", 10, 4, 11), "imbalance_ratio 11 leaves no image of the last class: the largest has 10"),
        ],
    )
    def test_errors(self, arguments, says):
        with pytest.raises(ValueError, match=says):
            imbalanced_counts(*arguments)


class TestImbalanced:
    @pytest.mark.parametrize("kind", corrupt.IMBALANCES)
    def test_the_first_of_each_class_in_file_order(self, kind):
        full = image_set()
        got = corrupt.imbalanced(full, kind, 5)
        counts = imbalanced_counts(kind, 20, 4, 5)
        assert corrupt.class_counts(got.labels, 4) == counts
        rows = got.images[:, 0, 0, 0].long()
        assert rows.tolist() == sorted(rows.tolist())
        assert torch.equal(full.labels[rows], got.labels)
        for label, count in enumerate(counts):
            assert rows[got.labels == label].tolist() == (full.labels == label).nonzero()[:count, 0].tolist()
        assert (got.name, got.mean, got.class_names) == (full.name, full.mean, full.class_names)
        assert len(full) == 80

    def test_a_class_that_is_too_small_is_named(self):
        full = image_set((20, 3, 20))
        with pytest.raises(ValueError, match=r"'made': class 1 has 3 images, but step .* keeps 20.*limit_per_class=3"):
            corrupt.imbalanced(full, "step", 2)
        assert corrupt.class_counts(corrupt.imbalanced(image_set((20, 9, 2)), "long_tailed", 10).labels, 3) == [
            20,
            6,
            2,
        ]


class TestNoise:
    @given(
        sizes=st.lists(st.integers(1, 60), min_size=2, max_size=8),
        rate=st.floats(0, 0.99),
        kind=st.sampled_from(corrupt.NOISES),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_the_rate_is_exact_and_even(self, sizes, rate, kind, seed):
        labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
        before = labels.clone()
        noisy = noisy_labels(labels, len(sizes), kind, rate, seed)
        assert torch.equal(labels, before)
        wrong = noisy != labels
        assert int(wrong.sum()) == round(rate * len(labels))
        for label, size in enumerate(sizes):
            assert abs(int(wrong[labels == label].sum()) - rate * size) < 1
        assert ((noisy >= 0) & (noisy < len(sizes))).all()
        if kind == "pair":
            assert torch.equal(noisy[wrong], (labels[wrong] + 1) % len(sizes))
        assert torch.equal(noisy, noisy_labels(labels, len(sizes), kind, rate, seed))

    def test_symmetric_noise_is_spread_over_the_other_classes(self):
        labels = torch.arange(10).repeat_interleave(2000)
        noisy = noisy_labels(labels, 10, "symmetric", 0.45, seed=0)
        table = torch.stack([torch.bincount(noisy[labels == j], minlength=10) for j in range(10)])
        assert table.diagonal().tolist() == [1100] * 10
        others = table[~torch.eye(10, dtype=torch.bool)]
        # 900 wrong ones over nine classes: 100 ± 9.4 each, ninety cells within 4 standard deviations
        assert 62 <= others.min() <= others.max() <= 138

    def test_the_seed_chooses(self):
        labels = torch.arange(10).repeat_interleave(50)
        first, other = (noisy_labels(labels, 10, "pair", 0.3, seed=seed) for seed in (0, 1))
        assert not torch.equal(first, other)

    def test_the_set_keeps_the_clean_labels(self):
        full = image_set()
        got = corrupt.with_noise(full, "pair", 0.25, seed=3)
        assert torch.equal(got.clean_labels, full.labels)
        assert int((got.labels != full.labels).sum()) == 20
        assert full.clean_labels is None
        assert torch.equal(got.images, full.images)
        assert torch.equal(got.to("cpu").clean_labels, full.labels)

    @pytest.mark.parametrize(
        ("kind", "rate", "says"),
        [
            ("pairs", 0.1, "label_noise must be one of 'symmetric', 'pair', got 'pairs'"),
            ("pair", 1, "noise_rate must be below 1, got 1"),
            ("pair", -0.1, "noise_rate must be between 0 and 1, got -0.1"),
        ],
    )
    def test_errors(self, kind, rate, says):
        with pytest.raises(ValueError, match=says):
            noisy_labels(torch.arange(4), 4, kind, rate, seed=0)


class TestGroups:
    @pytest.mark.parametrize(("largest", "ratio"), [(5000, 100), (5000, 10), (1000, 100), (6000, 100), (1000, 30)])
    def test_ten_classes_are_three_four_three(self, largest, ratio):
        groups = frequency_groups(imbalanced_counts("long_tailed", largest, 10, ratio))
        assert groups == {"many": [0, 1, 2], "medium": [3, 4, 5, 6], "few": [7, 8, 9]}

    @pytest.mark.parametrize(("largest", "ratio"), [(500, 100), (500, 10), (6000, 50)])
    def test_a_hundred_classes_are_thirds(self, largest, ratio):
        groups = frequency_groups(imbalanced_counts("long_tailed", largest, 100, ratio))
        assert {name: len(classes) for name, classes in groups.items()} == {"many": 33, "medium": 34, "few": 33}

    def test_step_and_balance(self):
        assert frequency_groups([500] * 3 + [5] * 3) == {"many": [0, 1, 2], "few": [3, 4, 5]}
        assert frequency_groups([7, 7, 7]) == {}

    def test_order_of_the_classes_is_immaterial(self):
        assert frequency_groups([5, 500, 50]) == {"many": [1], "medium": [2], "few": [0]}

    def test_thresholds_of_imagenet_lt(self):
        """More than 100, 20 to 100, fewer than 20 training images (Liu et al. 2019)."""
        groups = frequency_groups([1280, 101, 100, 20, 19, 5], thresholds=(100, 20))
        assert groups == {"many": [0, 1], "medium": [2, 3], "few": [4, 5]}
        assert frequency_groups([200, 150], thresholds=(100, 20)) == {"many": [0, 1]}


def test_a_streamed_set(tmp_path):
    for label, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        for i in range(10):
            pixels = torch.full((8, 8), 20 * label + i, dtype=torch.uint8).numpy()
            data.files.Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    held, streamed = (data.load(f"folder:{tmp_path}", stream=stream) for stream in (False, True))
    per_class = corrupt.class_counts(streamed.labels, 2)
    assert per_class[0] == per_class[1]
    for change in (
        lambda images: corrupt.imbalanced(images, "step", 4),
        lambda images: corrupt.with_noise(images, "symmetric", 0.25, seed=1),
    ):
        one, other = change(held), change(streamed)
        assert torch.equal(one.labels, other.labels)
        for (pixels, labels), (same, also) in zip(one.batches(4), other.batches(4), strict=True):
            assert torch.equal(pixels, same)
            assert torch.equal(labels, also)
    assert torch.equal(other.clean_labels, streamed.labels)
