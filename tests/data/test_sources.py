"""Sets by name and from folders: what is read, and what is said when it cannot be."""

import shutil
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from nbs_lib import data
from nbs_lib.data import Augment, DataError, ImageSet, files, sources
from nbs_lib.data.files import StreamSet


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(head + array.tobytes())


def write_mnist(root, count=20):
    generator = np.random.default_rng(0)
    for prefix in ("train", "t10k"):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        write_idx(root / f"MNIST/raw/{prefix}-images-idx3-ubyte", images)
        write_idx(root / f"MNIST/raw/{prefix}-labels-idx1-ubyte", (np.arange(count) % 10).astype(np.uint8))
    return root


def write_folder(root, classes=("cat", "dog"), count=5, size=(12, 12), mode="RGB", suffix="png"):
    generator = np.random.default_rng(1)
    for name in classes:
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
            Image.fromarray(generator.integers(0, 256, shape, dtype=np.uint8)).save(root / name / f"{i:02}.{suffix}")
    return root


@pytest.fixture
def _no_net(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", refuse)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "near"), [("mnits", "mnist"), ("Fashion-Mini", "fashion_mini"), ("cifar", "cifar10")]
    )
    def test_unknown_name_offers_the_nearest(self, name, near):
        with pytest.raises(ValueError, match=f"unknown image set '{name}': did you mean '{near}'"):
            data.load(name)

    @pytest.mark.parametrize("name", ["", "folder:", None, 3, "xyz"])
    def test_nonsense_lists_what_is_known(self, name):
        with pytest.raises(ValueError, match=r"known are fashion_mini.*folder:PATH"):
            data.load(name)

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"split": "valid"}, "split.*'valid'"),
            ({"limit_per_class": 0}, "limit_per_class.*0"),
            ({"limit_per_class": 2.0}, "limit_per_class.*2.0"),
            ({"image_size": 32}, "image_size of 'fashion_mini' is 28"),
            ({"image_size": -1}, "image_size.*-1"),
        ],
    )
    def test_bad_options(self, options, named):
        with pytest.raises(ValueError, match=named):
            data.load("fashion_mini", **options)


class TestTorchvision:
    def test_reads_what_is_there(self, tmp_path):
        full = data.load("mnist", root=write_mnist(tmp_path), download=False)
        assert full.images.shape == (20, 1, 28, 28)
        assert full.labels.tolist() == [k % 10 for k in range(20)]
        assert data.load("mnist", root=tmp_path, limit_per_class=1, split="test").images.shape[0] == 10

    def test_the_environment_names_the_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("NBS_DATA", str(write_mnist(tmp_path)))
        assert len(data.load("mnist")) == 20
        monkeypatch.delenv("NBS_DATA")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert sources.data_root() == tmp_path / "cache" / "nbs_lib"

    @pytest.mark.usefixtures("_no_net")
    def test_download_impossible(self, tmp_path):
        with pytest.raises(DataError) as error:
            data.load("mnist", root=tmp_path)
        for part in (
            "'mnist'",
            str(tmp_path / "MNIST"),
            "cannot be downloaded",
            "no route",
            "NBS_DATA",
            "fashion_mini",
        ):
            assert part in str(error.value)
        assert not any(tmp_path.iterdir()), "a half-written cache was left behind"

    def test_download_switched_off(self, tmp_path):
        with pytest.raises(DataError, match=r"'mnist' is not at .*download=False.*fashion_mini"):
            data.load("mnist", root=tmp_path, download=False)

    def test_download_into_a_file(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(DataError, match="cannot be downloaded"):
            data.load("mnist", root=tmp_path / "file" / "below")

    def test_a_download_that_breaks_off_leaves_nothing(self, tmp_path, monkeypatch):
        calls = []

        def half(url, download_root, filename, md5):
            calls.append(filename)
            if len(calls) > 1:
                raise OSError("connection reset")
            with open(f"{download_root}/{filename.removesuffix('.gz')}", "wb") as file:
                file.write(b"half")

        monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", half)
        with pytest.raises(DataError, match="connection reset"):
            data.load("mnist", root=tmp_path)
        assert not any(tmp_path.iterdir())

    def test_a_download_lands_whole(self, tmp_path, monkeypatch):
        ready = write_mnist(tmp_path / "server")

        def copy(url, download_root, filename, md5):
            shutil.copy(ready / "MNIST/raw" / filename.removesuffix(".gz"), download_root)

        monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", copy)
        assert len(data.load("mnist", root=tmp_path / "cache")) == 20
        assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["MNIST"]

    @pytest.mark.parametrize("file", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
    @pytest.mark.parametrize("keep", [0, 5, -1])
    def test_truncated_idx(self, tmp_path, file, keep):
        path = write_mnist(tmp_path) / "MNIST/raw" / file
        path.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(DataError, match=r"'mnist' at .*MNIST/raw is damaged.*fashion_mini"):
            data.load("mnist", root=tmp_path)

    def test_label_out_of_range(self, tmp_path):
        write_idx(write_mnist(tmp_path) / "MNIST/raw/train-labels-idx1-ubyte", np.full(20, 10, dtype=np.uint8))
        with pytest.raises(DataError, match=r"MNIST/raw is damaged.*label 10 of image 0 is out of range.*fashion_mini"):
            data.load("mnist", root=tmp_path)

    def test_too_few_labels(self, tmp_path):
        write_idx(write_mnist(tmp_path) / "MNIST/raw/train-labels-idx1-ubyte", np.arange(9, dtype=np.uint8))
        with pytest.raises(DataError, match=r"MNIST/raw is damaged.*fashion_mini"):
            data.load("mnist", root=tmp_path)


class TestFolders:
    def test_train_and_test_folders(self, tmp_path):
        write_folder(tmp_path / "train", count=4)
        write_folder(tmp_path / "test", count=2)
        train, test = (data.load(f"folder:{tmp_path}", split=split) for split in ("train", "test"))
        assert (len(train), len(test)) == (8, 4)
        assert train.class_names == ("cat", "dog")
        assert train.images.shape[1:] == (3, 12, 12)
        assert train.name == f"folder:{tmp_path.name}"
        assert (train.mean, train.std) == (test.mean, test.std)
        with Image.open(tmp_path / "train/dog/02.png") as image:
            assert np.array_equal(train.images[6].permute(1, 2, 0), np.array(image))
        pixels = train.images.double() / 255
        assert torch.allclose(pixels.mean((0, 2, 3)), torch.tensor(train.mean, dtype=torch.float64), atol=1e-4)
        assert torch.allclose(pixels.std((0, 2, 3)), torch.tensor(train.std, dtype=torch.float64), atol=1e-3)

    def test_val_counts_as_test(self, tmp_path):
        write_folder(tmp_path / "train")
        write_folder(tmp_path / "val", count=1)
        assert len(data.load(f"folder:{tmp_path}", split="test")) == 2

    def test_a_single_tree_is_split_the_same_way_every_time(self, tmp_path):
        write_folder(tmp_path, count=10, mode="L", suffix="pgm")
        parts = [data.load(f"folder:{tmp_path}", split=split) for split in ("train", "test", "test")]
        assert [torch.bincount(part.labels).tolist() for part in parts] == [[8, 8], [2, 2], [2, 2]]
        assert torch.equal(parts[1].images, parts[2].images)
        assert parts[0].channels == 1
        everything = {image.numpy().tobytes() for part in parts[:2] for image in part.images}
        assert len(everything) == 20

    def test_oblong_images_are_cut_to_the_middle_square(self, tmp_path):
        write_folder(tmp_path, size=(9, 13))
        full = data.load(f"folder:{tmp_path}")
        assert full.image_size == 9
        paths = files.find_split(tmp_path, "x")["train"].paths
        with Image.open(paths[0]) as image:
            assert np.array_equal(full.images[0].permute(1, 2, 0), np.array(image)[2:11])

    def test_mixed_sizes_are_scaled(self, tmp_path):
        write_folder(tmp_path, size=(40, 30))
        write_folder(tmp_path, classes=("elk",), size=(100, 90), mode="L")
        assert data.load(f"folder:{tmp_path}").images.shape[1:] == (3, 64, 64)
        assert data.load(f"folder:{tmp_path}", image_size=16).images.shape[1:] == (3, 16, 16)

    def test_flat_images_have_no_zero_std(self, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            for i in range(2):
                Image.new("L", (8, 8), 7).save(tmp_path / name / f"{i}.png")
        assert data.load(f"folder:{tmp_path}").std[0] > 0

    @pytest.mark.parametrize("damage", ["text", "cut"])
    def test_broken_image_is_named(self, tmp_path, damage):
        write_folder(tmp_path / "train", suffix="jpg", size=(64, 64))
        write_folder(tmp_path / "test", suffix="jpg", size=(64, 64))
        path = tmp_path / "train/dog/03.jpg"
        path.write_bytes(b"no image" if damage == "text" else path.read_bytes()[:700])
        with pytest.raises(DataError, match=r"dog/03\.jpg"):
            data.load(f"folder:{tmp_path}")

    def test_empty_class_folder_is_named(self, tmp_path):
        write_folder(tmp_path)
        (tmp_path / "elk").mkdir()
        (tmp_path / "elk" / "readme.txt").write_text("")
        with pytest.raises(DataError, match=r"class folder .*elk has no image"):
            data.load(f"folder:{tmp_path}")

    def test_other_faults(self, tmp_path):
        with pytest.raises(DataError, match=r"no folder .*nowhere"):
            data.load(f"folder:{tmp_path}/nowhere")
        with pytest.raises(DataError, match="two classes or more"):
            data.load(f"folder:{write_folder(tmp_path / 'one', classes=('cat',))}")
        with pytest.raises(DataError, match=r"'cat'.*one image"):
            data.load(f"folder:{write_folder(tmp_path / 'few', count=1)}")
        write_folder(tmp_path / "odd/train")
        write_folder(tmp_path / "odd/test", classes=("cat", "dgo"))
        with pytest.raises(DataError, match=r"\['dgo', 'dog'\]"):
            data.load(f"folder:{tmp_path}/odd")

    @pytest.mark.parametrize("other", ["valid", "validation", "Test"])
    def test_a_split_is_not_taken_for_a_class(self, tmp_path, other):
        write_folder(tmp_path / "train")
        write_folder(tmp_path / other)
        with pytest.raises(DataError, match=rf"'{other}'.*looks like a split.*'train' and 'test' \(or 'val'\)"):
            data.load(f"folder:{tmp_path}")

    def test_hidden_files_are_no_images(self, tmp_path):
        write_folder(tmp_path)
        (tmp_path / "cat/._0.png").write_bytes(b"no image")
        assert len(files.find(tmp_path, "x").paths) == 10

    @pytest.mark.parametrize("suffix", ["png", "tif"])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_sixteen_bits_lose_the_lower_byte(self, tmp_path, suffix, channels):
        deep = (np.arange(64, dtype=np.uint16) * 1040).reshape(8, 8)
        Image.fromarray(deep).save(tmp_path / f"a.{suffix}")
        got = files.decode(tmp_path / f"a.{suffix}", "x", 8, channels)
        assert np.array_equal(got.numpy(), np.broadcast_to(deep // 256, (channels, 8, 8)))

    @pytest.mark.parametrize("kind", ["int32", "float32"])
    def test_pixels_of_unknown_range_are_refused(self, tmp_path, kind):
        Image.fromarray(np.ones((8, 8), kind)).save(tmp_path / "a.tif")
        with pytest.raises(DataError, match=rf"a\.tif.*mode '{'I' if kind == 'int32' else 'F'}'"):
            files.decode(tmp_path / "a.tif", "x", 8, 1)


class TestStreaming:
    @pytest.mark.parametrize("workers", [0, 1])
    def test_the_same_batches_as_from_memory(self, tmp_path, workers):
        write_folder(tmp_path, count=10)
        kept = data.load(f"folder:{tmp_path}", stream=False)
        flowing = data.load(f"folder:{tmp_path}", stream=True)
        assert isinstance(kept, ImageSet)
        assert isinstance(flowing, StreamSet)
        object.__setattr__(flowing, "workers", workers)
        assert (flowing.name, flowing.num_classes, flowing.channels) == (kept.name, kept.num_classes, kept.channels)
        augment = Augment(crop_pad=1, flip=True)
        for (a, y), (b, z) in zip(
            kept.batches(5, seed=1, epoch=1, augment=augment),
            flowing.to("cpu").batches(5, seed=1, epoch=1, augment=augment),
            strict=True,
        ):
            assert torch.equal(a, b)
            assert torch.equal(y, z)

    def test_only_what_would_not_fit_is_streamed(self, tmp_path, monkeypatch):
        write_folder(tmp_path)
        assert isinstance(data.load(f"folder:{tmp_path}"), ImageSet)
        monkeypatch.setattr(files, "RESIDENT_BYTES", 100)
        assert isinstance(data.load(f"folder:{tmp_path}", limit_per_class=2), StreamSet)

    def test_an_image_that_breaks_later_is_named(self, tmp_path):
        write_folder(tmp_path, suffix="jpg", size=(64, 64))
        flowing = data.load(f"folder:{tmp_path}", stream=True)
        object.__setattr__(flowing, "workers", 0)
        flowing.files.paths[0].write_bytes(b"")
        with pytest.raises(DataError, match=flowing.files.paths[0].name):
            list(flowing.batches(4))
