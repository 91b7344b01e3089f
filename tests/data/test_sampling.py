"""Class-balanced epochs: exact counts, even use of the images, and the same order on every call."""

import pytest
import torch

from nbs_lib.data import ImageSet
from nbs_lib.data.sampling import ClassBalanced

SIZES = (23, 9, 3, 1)


def long_tail():
    labels = torch.repeat_interleave(torch.arange(4), torch.tensor(SIZES))
    images = torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()
    return ImageSet(images, labels, 4, "tail", (0.0,), (1 / 255,), tuple("abcd"))


def epoch(image_set, **options):
    """Rows (from the grey level, which is the row) and labels of one epoch."""
    batches = list(image_set.batches(7, **options))
    rows = torch.cat([images[:, 0, 0, 0] for images, _ in batches]).round().long()
    return rows, torch.cat([labels for _, labels in batches])


def test_every_class_is_equally_frequent():
    balanced = ClassBalanced(long_tail())
    rows, labels = epoch(balanced)
    assert len(balanced) == len(rows) == sum(SIZES)
    assert torch.equal(labels, long_tail().labels[rows])
    assert torch.bincount(labels).tolist() == [9, 9, 9, 9]


def test_images_of_a_class_differ_by_one_appearance():
    rows, labels = epoch(ClassBalanced(long_tail()), epoch=3)
    for label, size in enumerate(SIZES):
        uses = torch.bincount(rows[labels == label], minlength=sum(SIZES))[long_tail().labels == label]
        assert uses.sum() == 9
        assert uses.max() - uses.min() <= 1, size


def test_what_does_not_divide_goes_to_other_classes_each_epoch():
    whole = long_tail()
    more = ImageSet(whole.images[1:], whole.labels[1:], 4, "more", (0.0,), (1 / 255,), tuple("abcd"))
    counts = [torch.bincount(epoch(ClassBalanced(more), epoch=e)[1]).tolist() for e in range(12)]
    assert all(sorted(c) == [8, 9, 9, 9] for c in counts)
    assert len({tuple(c) for c in counts}) > 1


def test_order_depends_on_seed_and_epoch_alone():
    balanced = ClassBalanced(long_tail())
    first = epoch(balanced, seed=1, epoch=2)[0]
    assert torch.equal(first, epoch(ClassBalanced(long_tail()).to("cpu"), seed=1, epoch=2)[0])
    assert not torch.equal(first, epoch(balanced, seed=1, epoch=3)[0])
    assert not torch.equal(first, epoch(balanced, seed=2, epoch=2)[0])
    assert torch.equal(epoch(balanced, shuffle=False)[0], torch.arange(36))


def test_a_class_without_images_is_named():
    few = ImageSet(long_tail().images[:35], long_tail().labels[:35], 4, "few", (0.0,), (1.0,), tuple("abcd"))
    with pytest.raises(ValueError, match="'few': no image of class 3"):
        ClassBalanced(few)
