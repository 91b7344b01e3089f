"""Sets of bytes: what they refuse, what their batches are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nbs_lib.data import Augment, ImageSet
from nbs_lib.data.sets import first_of_each_class


def make(count=10, channels=3, side=6, classes=4, **other):
    generator = torch.Generator().manual_seed(0)
    parts = {
        "images": torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=generator),
        "labels": torch.arange(count) % classes,
        "num_classes": classes,
        "name": "toy",
        "mean": (0.1, 0.2, 0.3)[:channels],
        "std": (0.5, 0.4, 0.25)[:channels],
        "class_names": tuple(f"c{k}" for k in range(classes)),
    }
    return ImageSet(**{**parts, **other})


@settings(max_examples=30)
@given(
    count=st.integers(1, 40),
    batch=st.integers(1, 50),
    seed=st.integers(0, 1000),
    epoch=st.integers(0, 5),
    drop_last=st.booleans(),
    channels=st.sampled_from([1, 3]),
)
def test_an_epoch_shows_every_image_once_and_normalised(count, batch, seed, epoch, drop_last, channels):
    full = make(count, channels)
    batches = list(full.batches(batch, seed=seed, epoch=epoch, drop_last=drop_last))
    shown = count - count % batch if drop_last else count
    assert sum(len(labels) for _, labels in batches) == shown
    assert all(len(labels) == batch for _, labels in batches[:-1])
    mean = torch.tensor(full.mean, dtype=torch.float64).view(1, -1, 1, 1)
    std = torch.tensor(full.std, dtype=torch.float64).view(1, -1, 1, 1)
    expected = (full.images.double() / 255 - mean) / std
    seen = []
    for images, labels in batches:
        assert images.dtype == torch.float32
        assert images.is_contiguous(memory_format=torch.channels_last)
        for image, label in zip(images, labels, strict=True):
            distance = (expected - image).abs().amax(dim=(1, 2, 3))
            row = int(distance.argmin())
            assert distance[row] < 1e-5
            assert full.labels[row] == label
            seen.append(row)
    assert len(set(seen)) == len(seen), "an image came twice"


def test_order_depends_on_seed_and_epoch_only():
    full = make(30)

    def order(batch, seed, epoch, augment=None):
        return torch.cat([y for _, y in full.batches(batch, seed=seed, epoch=epoch, augment=augment)]).tolist()

    assert order(4, 0, 0) == order(7, 0, 0) == order(4, 0, 0, Augment(flip=True))
    assert order(4, 0, 0) != order(4, 0, 1)
    assert order(4, 0, 0) != order(4, 1, 0)
    torch.manual_seed(5)
    assert order(4, 0, 0) == order(7, 0, 0), "the global generator leaked in"
    assert torch.equal(torch.cat([y for _, y in full.batches(7, shuffle=False)]), full.labels)


def test_augmentation_does_not_depend_on_the_batch_size():
    full, augment = make(30), Augment(crop_pad=2, flip=True)
    whole = torch.cat([x for x, _ in full.batches(30, seed=3, epoch=1, augment=augment)])
    parts = torch.cat([x for x, _ in full.batches(7, seed=3, epoch=1, augment=augment)])
    assert torch.equal(whole, parts)


def test_augmentation_changes_with_epoch_and_seed():
    def shown(seed, epoch):
        batches = make(30).batches(30, seed=seed, epoch=epoch, augment=Augment(crop_pad=2), shuffle=False)
        return next(batches)[0]

    assert torch.equal(shown(3, 1), shown(3, 1))
    assert not torch.equal(shown(3, 1), shown(3, 2))
    assert not torch.equal(shown(3, 1), shown(4, 1))


def test_batches_do_not_change_the_set():
    full = make()
    before = full.images.clone()
    for images, _ in full.batches(4, augment=Augment(shift=1, flip=True)):
        images.zero_()
    for images, _ in full.batches(4, shuffle=False):
        images.zero_()
    assert torch.equal(full.images, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(10, 3, 6, 6)}, "uint8"),
        ({"images": torch.zeros(10, 6, 6, dtype=torch.uint8)}, r"\(10, 6, 6\)"),
        ({"images": torch.zeros(10, 3, 6, 5, dtype=torch.uint8)}, r"\(N, C, H, H\)"),
        ({"images": torch.zeros(0, 3, 6, 6, dtype=torch.uint8), "labels": torch.zeros(0).long()}, "'toy'"),
        ({"images": torch.zeros(9, 3, 6, 6, dtype=torch.uint8)}, "9 images, but 10 labels"),
        ({"labels": torch.arange(10).int() % 4}, "int64"),
        ({"labels": torch.arange(10) % 5}, r"label 4 of image 4 is out of range 0\.\.3 \(2 such labels\)"),
        ({"labels": torch.arange(10) % 4 - 1}, "label -1 of image 0"),
        ({"mean": (0.5,)}, "mean"),
        ({"std": (0.5, 0.0, 0.5)}, "std"),
        ({"class_names": ("a",)}, "class names"),
    ],
)
def test_bad_sets_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message) as error:
        make(**change)
    assert "'toy'" in str(error.value)


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_bad_batch_sizes_are_refused(size):
    with pytest.raises(ValueError, match="batch_size"):
        next(make().batches(size))


def test_first_of_each_class_keeps_file_order():
    labels = torch.tensor([2, 0, 0, 1, 2, 2, 0, 1])
    assert first_of_each_class(labels, 2).tolist() == [0, 1, 2, 3, 4, 7]
    assert first_of_each_class(labels, 9).tolist() == list(range(8))


def test_to_the_same_device_is_free():
    full = make()
    assert full.to("cpu") is full


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_no_step_waits_for_the_device():
    full = make(64).to("cuda")
    for augment in (None, Augment(crop_pad=2, flip=True)):
        batches = full.batches(8, augment=augment)
        next(batches)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in batches:
                pass
        finally:
            torch.cuda.set_sync_debug_mode("default")
