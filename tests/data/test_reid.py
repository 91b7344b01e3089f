"""Re-identification folders in the layouts of Market-1501 and DukeMTMC-reID, and identity-disjoint splits."""

import numpy as np
import pytest
import torch
from PIL import Image

from nbs_lib import metrics
from nbs_lib.data import DataError, ImageSet, identities
from nbs_lib.data.reid import reid_folder

MARKET = {
    "bounding_box_train": ["0002_c1s1_000451_03.jpg", "0002_c2s1_000801_01.jpg", "0007_c3s3_077419_03.jpg"],
    "query": ["0001_c1s1_001051_00.jpg", "0003_c5s3_065187_00.jpg"],
    "bounding_box_test": ["-1_c1s1_000401_03.jpg", "0000_c6s1_000401_01.jpg", "0001_c2s1_000301_00.jpg"],
}
DUKE = {
    "bounding_box_train": ["0001_c2_f0046182.jpg", "0001_c5_f0052161.jpg", "0010_c1_f0100000.jpg"],
    "query": ["0005_c2_f0046985.jpg"],
    "bounding_box_test": ["0005_c8_f0046182.jpg", "0006_c1_f0040000.jpg"],
}


def write(root, layout, size=(6, 12)):
    for folder, names in layout.items():
        (root / folder).mkdir(parents=True)
        for number, name in enumerate(names):
            pixels = np.full((size[1], size[0], 3), 10 * number, dtype=np.uint8)
            Image.fromarray(pixels).save(root / folder / name)
    return root


class TestFolders:
    def test_market(self, tmp_path):
        (write(tmp_path, MARKET) / "bounding_box_test" / "Thumbs.db").write_text("no image, as in the original")
        found = reid_folder(tmp_path, image_size=8)
        assert found.train.images.shape == (3, 3, 8, 8)
        assert found.train.labels.tolist() == [0, 0, 1]
        assert found.train.class_names == ("0002", "0007")
        assert found.query.identities.tolist() == [1, 3]
        assert found.query.cameras.tolist() == [1, 5]
        assert found.gallery.identities.tolist() == [-1, 0, 1]
        assert found.gallery.cameras.tolist() == [1, 6, 2]
        assert found.gallery.images.mean == found.train.mean

    def test_duke(self, tmp_path):
        found = reid_folder(write(tmp_path, DUKE), image_size=8)
        assert found.train.num_classes == 2
        assert (found.gallery.identities.tolist(), found.gallery.cameras.tolist()) == ([5, 6], [8, 1])

    @pytest.mark.parametrize(
        ("folder", "name", "named"),
        [
            ("query", "0001_001051.jpg", r"query/0001_001051.jpg must be named identity_camera"),
            ("bounding_box_test", "c1s1_0001.jpg", r"bounding_box_test/c1s1_0001.jpg must be named"),
            ("bounding_box_test", "-2_c1s1_0001.jpg", r"-2_c1s1_0001.jpg must be named"),
            ("bounding_box_train", "0009_cAs1_00.jpg", r"0009_cAs1_00.jpg must be named"),
            ("bounding_box_train", "-1_c1s1_00.jpg", r"-1_c1s1_00.jpg is junk.*bounding_box_train must not hold"),
            ("query", "-1_c1s1_00.jpg", r"query/-1_c1s1_00.jpg is junk"),
            ("query", "0000_c1s1_00.jpg", r"query/0000_c1s1_00.jpg is junk \(-1\) or a distractor"),
            ("query", "0007_c1s1_00.jpg", r"identity 7 is in training and in query"),
        ],
    )
    def test_malformed_names_are_named(self, tmp_path, folder, name, named):
        write(tmp_path, MARKET | {folder: [*MARKET[folder], name]})
        with pytest.raises(DataError, match=named):
            reid_folder(tmp_path, image_size=8)

    @pytest.mark.parametrize("folder", MARKET)
    def test_missing_and_empty_folders(self, tmp_path, folder):
        with pytest.raises(DataError, match=f"{folder} has no image"):
            reid_folder(write(tmp_path / "empty", MARKET | {folder: []}))
        with pytest.raises(DataError, match=f"there is no folder .*{folder}"):
            reid_folder(write(tmp_path / "without", {k: v for k, v in MARKET.items() if k != folder}))

    def test_a_broken_image(self, tmp_path):
        (write(tmp_path, MARKET) / "query" / "0001_c1s1_001051_00.jpg").write_bytes(b"no")
        with pytest.raises(DataError, match=r"0001_c1s1_001051_00.jpg cannot be read as an image"):
            reid_folder(tmp_path, image_size=8)


def people(count=6, each=4):
    labels = torch.arange(count).repeat_interleave(each)
    images = (10 * labels + torch.arange(each).repeat(count)).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return ImageSet(images.contiguous(), labels, count, "people", (0.5,), (0.5,), tuple(f"p{k}" for k in range(count)))


class TestSplits:
    def test_no_identity_on_both_sides_and_none_lost(self):
        whole = people()
        first, second = identities.split_identities(whole, 2, seed=3)
        assert sorted(first.class_names + second.class_names) == sorted(whole.class_names)
        assert (first.num_classes, second.num_classes) == (2, 4)
        for part in (first, second):
            assert part.labels.unique().tolist() == list(range(part.num_classes))
            shown = [f"p{int(image.flatten()[0]) // 10}" for image in part.images]
            assert shown == [part.class_names[int(label)] for label in part.labels]

    def test_the_training_identities_normalise_both(self):
        first, second = identities.split_identities(people(), 2)
        assert first.mean == second.mean
        assert first.mean[0] == pytest.approx(float(first.images.double().mean()) / 255, abs=1e-4)

    def test_the_seed_draws(self):
        drawn = {identities.split_identities(people(), 3, seed=seed)[0].class_names for seed in range(8)}
        assert len(drawn) > 3
        one, other = (identities.split_identities(people(), 3, seed=5)[0] for _ in range(2))
        assert one.class_names == other.class_names

    @pytest.mark.parametrize("train", [0, 1, 5, 6, 2.0, True])
    def test_sides_that_are_too_small(self, train):
        with pytest.raises(ValueError, match="train must leave two of 6 identities on each side"):
            identities.split_identities(people(), train)

    def test_halves_are_cameras(self):
        labels = torch.tensor([1, 0, 1, 1, 0, 1, 2, 1])
        assert identities.halves(labels).tolist() == [0, 0, 0, 0, 1, 1, 0, 1]

    def test_open_set(self):
        found = identities.open_set(people(), 2)
        assert found.query is found.gallery
        assert found.query.cameras.tolist() == [0, 0, 1, 1] * 4
        assert torch.equal(found.query.identities, found.query.images.labels)


class TestGarments:
    def test_identities_are_single_images_and_disjoint(self):
        found = identities.garments(train=20, test=10, views=4, seed=1)
        assert (found.train.num_classes, len(found.train), len(found.query)) == (20, 80, 40)
        assert found.train.images.shape[1:] == (1, 28, 28)
        assert found.query.cameras.tolist() == [0, 1] * 20
        assert len(set(found.train.class_names)) == 20
        kinds = [name.rsplit(" ", 1)[0] for name in found.train.class_names]
        assert all(kinds.count(kind) == 2 for kind in kinds)

    def test_views_differ_and_repeat_with_the_seed(self):
        one, other, third = (identities.garments(10, 10, 2, seed=seed) for seed in (0, 0, 1))
        assert torch.equal(one.train.images, other.train.images)
        assert not torch.equal(one.train.images, third.train.images)
        assert not torch.equal(one.train.images[0], one.train.images[1])

    def test_a_view_shows_its_garment(self):
        """Views of one garment are on the whole more alike than views of two."""
        views = identities.garments(10, 40, 6).query
        first, second, genuine = metrics.all_pairs(views.identities)
        scores = metrics.pair_scores(views.images.images.flatten(1).float(), first, second)
        assert 0.6 < metrics.auc(scores, genuine) < 0.95

    @pytest.mark.parametrize(
        ("change", "named"),
        [({"train": 15}, "train.*15"), ({"test": 2010}, "test.*2010"), ({"views": 3}, "views.*3"), ({"train": 0}, "0")],
    )
    def test_numbers_that_do_not_fit(self, change, named):
        with pytest.raises(ValueError, match=named):
            identities.garments(**{"train": 10, "test": 10, "views": 2} | change)
