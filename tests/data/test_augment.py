"""Augmentation against a slow per-image oracle in numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nbs_lib.data import Augment, ImageSet
from nbs_lib.data.augment import AUGMENT, NETWORK, ORDER, epoch_generator, epoch_seed


def one_image(image: np.ndarray, row: int, column: int, flip: bool, pad: int, mode: str) -> np.ndarray:
    """Pad, cut, mirror one image (C, H, W), pixel by pixel."""
    channels, height, width = image.shape
    padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)), mode=mode)
    out = np.zeros_like(image)
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                out[c, y, x] = padded[c, row + y, column + (width - 1 - x if flip else x)]
    return out


@settings(max_examples=40)
@given(
    reach=st.integers(0, 4),
    reflect=st.booleans(),
    flip=st.booleans(),
    channels=st.sampled_from([1, 3]),
    side=st.integers(5, 9),
    seed=st.integers(0, 2**31),
)
def test_agrees_with_the_oracle(reach, reflect, flip, channels, side, seed):
    augment = Augment(shift=reach, flip=flip) if reflect else Augment(crop_pad=reach, flip=flip)
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (6, channels, side, side), dtype=torch.uint8, generator=generator)
    before, choices = images.clone(), augment.draw(6, generator)
    got = augment.apply(images, choices)
    mode = "reflect" if reflect else "constant"
    for image, (row, column, mirror), found in zip(images.numpy(), choices.tolist(), got.numpy(), strict=True):
        np.testing.assert_array_equal(found, one_image(image, row, column, bool(mirror), reach, mode))
    assert got.dtype == torch.uint8
    assert torch.equal(images, before), "the input was changed"


def test_the_middle_offset_leaves_the_image_in_place():
    images = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    for augment in (Augment(crop_pad=2), Augment(shift=3)):
        stay = torch.tensor([[augment.reach, augment.reach, 0]] * 3)
        assert torch.equal(augment.apply(images, stay), images)


def test_choices_cover_their_range_evenly():
    choices = Augment(crop_pad=2, flip=True).draw(20_000, torch.Generator().manual_seed(0))
    for column, values in ((0, 5), (1, 5), (2, 2)):
        counts = torch.bincount(choices[:, column], minlength=values)
        assert len(counts) == values
        assert (counts - 20_000 / values).abs().max() < 5 * (20_000 / values) ** 0.5


def test_streams_epochs_and_seeds_are_independent():
    seeds = {epoch_seed(s, e, k) for s in range(5) for e in range(5) for k in (ORDER, AUGMENT, NETWORK)}
    assert len(seeds) == 75
    assert epoch_seed(3, 4, AUGMENT) == epoch_seed(3, 4, AUGMENT)
    # The stream is part of the record of published runs: it must never change.
    assert torch.randperm(6, generator=epoch_generator(0, 0, ORDER)).tolist() == [1, 4, 5, 3, 2, 0]


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"crop_pad": -1}, "crop_pad"),
        ({"crop_pad": 1.5}, "crop_pad"),
        ({"shift": True}, "shift"),
        ({"flip": 1}, "flip"),
        ({"crop_pad": 2, "shift": 1}, "crop_pad=2"),
    ],
)
def test_bad_input_is_named(bad, named):
    with pytest.raises(ValueError, match=named):
        Augment(**bad)


def test_nothing_to_do_is_false():
    assert not Augment()
    assert Augment(flip=True)
    assert Augment(crop_pad=1)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_on_every_device():
    images = torch.randint(0, 256, (64, 3, 16, 16), dtype=torch.uint8)
    here = ImageSet(images, torch.arange(64) % 4, 4, "random", (0.5,) * 3, (0.25,) * 3, tuple("abcd"))
    there = here.to("cuda")
    for augment in (Augment(crop_pad=4, flip=True), Augment(shift=3)):
        for (a, y), (b, z) in zip(
            here.batches(10, seed=1, epoch=2, augment=augment),
            there.batches(10, seed=1, epoch=2, augment=augment),
            strict=True,
        ):
            assert torch.equal(y, z.cpu())
            torch.testing.assert_close(a, b.cpu(), rtol=0, atol=1e-6)


def test_a_shift_as_wide_as_the_image_is_refused():
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    augment = Augment(shift=8)
    with pytest.raises(ValueError, match="shift=8 must be smaller than the images, 8 x 8 pixels"):
        augment.apply(images, augment.draw(2, torch.Generator()))
