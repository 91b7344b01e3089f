"""The set that ships with the package: checksum, balance, size, licence."""

import hashlib
import re
from pathlib import Path

import numpy as np
import torch

import nbs_lib.data
from nbs_lib.data.make_fashion_mini import ASSETS, COUNTS, digest

FILE = ASSETS / "fashion_mini.npz"
ARRAYS = "790360e33ee7654d8bb207fa453a02161f21996efdff3a36223d80b95be70461"


def test_checksums():
    with np.load(FILE, allow_pickle=False) as stored:
        assert digest(dict(stored)) == ARRAYS
    told = (ASSETS / "PROVENANCE.md").read_text()
    assert ARRAYS in told
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() in told


def test_size_licence_and_provenance():
    assert FILE.stat().st_size < 7_000_000
    assert "MIT License" in (ASSETS / "LICENSE").read_text()
    assert re.search(r"python -m nbs_lib\.data\.make_fashion_mini", (ASSETS / "PROVENANCE.md").read_text())


def test_balance_and_form():
    for split, count in COUNTS.items():
        part = nbs_lib.data.load("fashion_mini", split=split)
        assert torch.bincount(part.labels).tolist() == [count] * 10
        assert part.images.shape == (10 * count, 1, 28, 28)
        assert part.name == "fashion_mini"
        assert part.class_names[9] == "Ankle boot"


def test_moments_are_those_of_the_images():
    images = nbs_lib.data.load("fashion_mini").images.double() / 255
    full = nbs_lib.data.load("fashion_mini")
    assert abs(images.mean() - full.mean[0]) < 0.005
    assert abs(images.std() - full.std[0]) < 0.005


def test_train_and_test_share_no_image():
    rows = [nbs_lib.data.load("fashion_mini", split=split).images.flatten(1).numpy() for split in COUNTS]
    train, test = ({row.tobytes() for row in part} for part in rows)
    assert not train & test


def test_limit_per_class_takes_the_first():
    some, full = (nbs_lib.data.load("fashion_mini", limit_per_class=n) for n in (3, None))
    assert torch.bincount(some.labels).tolist() == [3] * 10
    for label in range(10):
        assert torch.equal(some.images[some.labels == label], full.images[full.labels == label][:3])


def test_reading_never_unpickles():
    sources = Path(nbs_lib.data.__file__).parent
    for file in sources.glob("*.py"):
        assert "allow_pickle=True" not in file.read_text()
