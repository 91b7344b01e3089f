"""Make ``assets/fashion_mini.npz`` from Fashion-MNIST: ``python -m nbs_lib.data.make_fashion_mini DATA_FOLDER``.

The first 1,000 training and 200 test images of each class, in file order. DATA_FOLDER holds ``FashionMNIST/raw`` as
torchvision keeps it. The same input gives the same arrays everywhere, and with the same zlib the same file.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
from torchvision.datasets import FashionMNIST

from nbs_lib.data.sets import first_of_each_class

ASSETS = Path(__file__).parent / "assets"
COUNTS = {"train": 1000, "test": 200}


def digest(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over names, shapes and bytes of ``arrays``, whatever compressed them."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return total.hexdigest()


def make(root: Path, target: Path = ASSETS / "fashion_mini.npz") -> dict[str, np.ndarray]:
    """Read Fashion-MNIST under ``root`` and write ``target``."""
    arrays = {}
    for split, count in COUNTS.items():
        full = FashionMNIST(root, train=split == "train", download=False)
        keep = first_of_each_class(full.targets, count)
        arrays[f"{split}_images"] = full.data[keep].numpy()
        arrays[f"{split}_labels"] = full.targets[keep].numpy().astype(np.uint8)
    np.savez_compressed(target, **arrays)
    return arrays


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("SHA-256 of the arrays:", digest(make(Path(sys.argv[1]))))
