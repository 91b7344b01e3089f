"""ORL from a generated archive, pair lists from generated folders of the published layouts; what is said when wrong."""

import io
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets

from nbs_lib import data
from nbs_lib.data import DataError, faces


def portrait(value, size=(9, 11)):
    raw = io.BytesIO()
    Image.fromarray(np.full(size[::-1], value, dtype=np.uint8)).save(raw, format="PPM")
    return raw.getvalue()


def write_orl(root, *, people=40, change=None):
    """s1/1.pgm .. in the order of an unsorted tar, with what macOS leaves behind; ``change`` edits the members."""
    members = {f"s{p}/{n}.pgm": portrait(5 * p + n) for p in range(people, 0, -1) for n in range(1, 11)}
    members["s1/.DS_Store"] = b"x"
    if change:
        change(members)
    with tarfile.open(root / "orl-faces.tar", "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return root


class TestOrl:
    def test_people_and_images_in_the_order_of_their_numbers(self, tmp_path, monkeypatch):
        monkeypatch.setenv("NBS_DATA", str(write_orl(tmp_path)))
        found = faces.orl(image_size=8)
        assert found.images.shape == (400, 1, 8, 8)
        assert found.labels.tolist() == [k for k in range(40) for _ in range(10)]
        assert found.class_names[:2] + found.class_names[-1:] == ("s1", "s2", "s40")
        assert found.images[:, 0, 0, 0].tolist() == [5 * p + n for p in range(1, 41) for n in range(1, 11)]

    def test_the_central_square_is_kept(self, tmp_path):
        def stripes(members):
            rows = np.repeat(np.arange(11, dtype=np.uint8)[:, None] * 20, 9, 1)
            raw = io.BytesIO()
            Image.fromarray(rows).save(raw, format="PPM")
            members["s1/1.pgm"] = raw.getvalue()

        found = faces.orl(write_orl(tmp_path, change=stripes), image_size=9)
        assert found.images[0, 0, :, 0].tolist() == [20 * row for row in range(1, 10)]

    @pytest.mark.parametrize(
        ("people", "change", "named"),
        [
            (40, lambda m: m.pop("s7/3.pgm"), r"has images \[1, 2, 4.*of s7, not 1 to 10"),
            (39, None, "has 39 people"),
            (40, lambda m: m.update({"s7/3.pgm": b"P5 no"}), r"s7/3.pgm in .*orl-faces.tar cannot be read"),
            (40, lambda m: m.update({"s7/3.pgm": m["s7/3.pgm"][:30]}), r"s7/3.pgm in .*orl-faces.tar cannot be read"),
        ],
    )
    def test_damage_is_named(self, tmp_path, people, change, named):
        with pytest.raises(DataError, match=named):
            faces.orl(write_orl(tmp_path, people=people, change=change), image_size=8)

    def test_missing(self, tmp_path):
        with pytest.raises(DataError, match=r"there is no .*orl-faces.tar: set NBS_DATA"):
            faces.orl(tmp_path)

    @pytest.mark.parametrize("keep", [0, 700, 100_000])
    def test_truncated(self, tmp_path, keep):
        path = write_orl(tmp_path) / "orl-faces.tar"
        path.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(DataError, match=r"orl-faces.tar (is no whole tar|has)"):
            faces.orl(tmp_path, image_size=8)


def write_images(root, *names):
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((6, 6), number, dtype=np.uint8)).save(root / name)


def lfw_lines(folds=10, pairs=1):
    """Ten folds as LFW lays them out: genuine pairs of a fold, then its impostor pairs."""
    lines = [f"{folds}\t{pairs}"]
    for fold in range(folds):
        lines += [f"Ann\t1\t{fold + 2}"] * pairs + [f"Ann\t{fold + 1}\tBob\t1"] * pairs
    return lines


@pytest.fixture
def folder(tmp_path):
    write_images(tmp_path, *(f"Ann/Ann_{n:04}.jpg" for n in range(1, 12)), "Bob/Bob_0001.jpg")
    return tmp_path


def listed(folder, lines, form="lfw"):
    path = folder / "pairs.txt"
    path.write_text("\n".join(lines) + "\n")
    return faces.read_pairs(form, path, folder)


class TestPairLists:
    def test_lfw(self, folder):
        found = listed(folder, lfw_lines())
        assert found.genuine.tolist() == [True, False] * 10
        assert found.folds.tolist() == [fold for fold in range(10) for _ in range(2)]
        ends = [(found.paths[a].name, found.paths[b].name) for a, b in zip(found.first, found.second, strict=True)]
        assert ends[0] == ("Ann_0001.jpg", "Ann_0002.jpg")
        assert ends[3] == ("Ann_0002.jpg", "Bob_0001.jpg")
        assert len(found.paths) == 12  # each image once

    @pytest.mark.parametrize("form", ["calfw", "cplfw"])
    def test_two_lines_a_pair_genuine_first(self, folder, form):
        """CALFW writes the fold, 1 to 10, as the flag of a genuine pair; all genuine pairs come first."""
        lines = []
        for n in range(10):
            lines += [f"Ann/Ann_0001.jpg {n + 1}", f"Ann/Ann_{n + 2:04}.jpg {n + 1}"]
        lines += ["Ann/Ann_0001.jpg 0", "Bob/Bob_0001.jpg 0"] * 10
        found = listed(folder, lines, form)
        assert found.genuine.tolist() == [True] * 10 + [False] * 10
        assert found.folds.tolist() == list(range(10)) * 2

    @pytest.mark.parametrize("order", ["{a} {b} {y}", "{y} {a} {b}"])
    def test_labelled_lines(self, folder, order):
        lines = [order.format(a="Ann/Ann_0001.jpg", b="Ann/Ann_0002.jpg", y=1)] * 20
        lines += [order.format(a="Ann/Ann_0001.jpg", b="Bob/Bob_0001.jpg", y=0)] * 30
        found = listed(folder, lines, "agedb")
        assert int(found.genuine.sum()) == 20
        assert found.folds.bincount().tolist() == [5] * 10
        assert found.folds[found.genuine].tolist() == [fold for fold in range(10) for _ in range(2)]

    def test_images_are_decoded_like_the_training_set(self, folder):
        like = data.load("fashion_mini", limit_per_class=1)
        found = listed(folder, lfw_lines()).images(like)
        assert found.images.shape == (12, 1, 28, 28)
        assert (found.mean, found.std) == (like.mean, like.std)

    @pytest.mark.parametrize(
        ("form", "line", "named"),
        [
            ("lfw", "Ann 1", "line 2: expected 'name n1 n2' or 'name1 n1 name2 n2', got 'Ann 1'"),
            ("lfw", "Ann one 2", "line 2: expected 'name n1 n2'"),
            ("lfw", "Ann 1 Bob one", "line 2: expected 'name n1 n2'"),
            ("lfw", "Ann 1 99", r"line 2: there is no image .*Ann/Ann_0099.jpg"),
            ("calfw", "Ann/Ann_0001.jpg", "line 2: expected 'file flag', got 'Ann/Ann_0001.jpg'"),
            ("calfw", "Ann/Ann_0001.jpg -1", "line 2: expected 'file flag'"),
            ("cplfw", "Ann/Ann_0001.jpg 0", "line 1: the two lines of a pair have flags 1 and 0"),
            ("agedb", "Ann/Ann_0001.jpg Ann/Ann_0002.jpg 2", "line 2: expected 'file file label' with label 0 or 1"),
            ("agedb", "Ann/Ann_0001.jpg 1", "line 2: expected 'file file label'"),
        ],
    )
    def test_malformed_lines_are_named(self, folder, form, line, named):
        good = {"lfw": "10 1", "agedb": "Ann/Ann_0001.jpg Ann/Ann_0002.jpg 1"}.get(form, "Ann/Ann_0001.jpg 1")
        many = [good, line] + ([] if form != "lfw" else lfw_lines()[1:])
        if form == "agedb":
            many += [good] * 10 + [good[:-1] + "0"] * 10
        with pytest.raises(DataError, match=f"pairs.txt, {named}"):
            listed(folder, many, form)

    def test_a_pair_without_its_second_line(self, folder):
        with pytest.raises(DataError, match=r"line 3: a pair takes two lines"):
            listed(folder, ["Ann/Ann_0001.jpg 1"] * 3, "cplfw")

    def test_too_few_pairs(self, folder):
        with pytest.raises(DataError, match="face pairs 'lfw': 9 genuine pairs, ten folds need ten"):
            listed(folder, lfw_lines(folds=9))

    def test_missing_list_and_unknown_form(self, folder):
        with pytest.raises(DataError, match=r"list of pairs .*none.txt cannot be read"):
            faces.read_pairs("lfw", folder / "none.txt", folder)
        with pytest.raises(ValueError, match=r"form must be one of 'lfw'.*got 'ijbc'"):
            faces.read_pairs("ijbc", folder / "pairs.txt", folder)

    def test_by_name(self, folder):
        listed(folder, lfw_lines())
        found = faces.pairs_by_name(f"lfw:{folder}/pairs.txt:{folder}")
        assert (found.name, len(found.genuine)) == ("lfw", 20)

    @pytest.mark.parametrize("name", ["", "lfw", "lfw:list", "lfw::", "cfp_fp:", "cfp:x", "ijbc:a:b", "lfw_pairs:x"])
    def test_names_that_say_too_little(self, name):
        with pytest.raises(ValueError, match=r"pairs must be lfw_pairs, cfp_fp:FOLDER.*lfw\|calfw\|cplfw\|agedb:LIST"):
            faces.pairs_by_name(name)


def write_cfp(root, folds=10):
    """Two frontal and one profile image; a same and a diff pair in each fold."""
    names = ["001/frontal/01.jpg", "002/frontal/01.jpg", "001/profile/01.jpg"]
    write_images(root / "Data" / "Images", *names)
    (root / "Protocol").mkdir()
    pair_list = {"F": names[:2], "P": names[2:]}
    for kind, held in pair_list.items():
        lines = [f"{n} ../Data/Images/{name}" for n, name in enumerate(held, 1)]
        (root / "Protocol" / f"Pair_list_{kind}.txt").write_text("\n".join(lines))
    for protocol, same, diff in (("FP", "1,1", "2,1"), ("FF", "1,1", "1,2")):
        for fold in range(1, folds + 1):
            place = root / "Protocol" / "Split" / protocol / f"{fold:02}"
            place.mkdir(parents=True)
            (place / "same.txt").write_text(same + "\n")
            (place / "diff.txt").write_text(diff + "\n")
    return root


class TestCfp:
    def test_by_name(self, tmp_path):
        write_cfp(tmp_path)
        assert faces.pairs_by_name(f"cfp_fp:{tmp_path}").name == "cfp_fp"
        assert faces.pairs_by_name(f"cfp_ff:{tmp_path}").name == "cfp_ff"

    @pytest.mark.parametrize(("protocol", "kinds"), [("FP", ("frontal", "profile")), ("FF", ("frontal", "frontal"))])
    def test_reads_its_own_layout(self, tmp_path, protocol, kinds):
        found = faces.cfp(write_cfp(tmp_path), protocol)
        assert found.folds.tolist() == [fold for fold in range(10) for _ in range(2)]
        assert found.genuine.tolist() == [True, False] * 10
        for ends, kind in zip((found.first, found.second), kinds, strict=True):
            assert {found.paths[i].parent.name for i in ends} == {kind}
        assert found.paths[found.first[1]].parts[-3] == ("002" if protocol == "FP" else "001")

    @pytest.mark.parametrize(
        ("file", "text", "named"),
        [
            ("Split/FP/03/diff.txt", "1,7", r"03/diff.txt, line 1: expected two numbers.*'1,7'"),
            ("Split/FP/03/same.txt", "1 1", r"03/same.txt, line 1: expected two numbers"),
            ("Pair_list_P.txt", "one ../x.jpg", r"Pair_list_P.txt, line 1: expected 'number file'"),
            ("Pair_list_P.txt", "1 ../x.jpg", r"01/same.txt, line 1: there is no image .*x.jpg"),
        ],
    )
    def test_malformed_files_are_named(self, tmp_path, file, text, named):
        (write_cfp(tmp_path) / "Protocol" / file).write_text(text)
        with pytest.raises(DataError, match=named):
            faces.cfp(tmp_path)

    def test_a_missing_fold_and_protocol(self, tmp_path):
        with pytest.raises(DataError, match=r"10/same.txt cannot be read"):
            faces.cfp(write_cfp(tmp_path, folds=9))
        with pytest.raises(ValueError, match="protocol must be 'FP' or 'FF', got 'PF'"):
            faces.cfp(tmp_path, "PF")


class TestTorchvision:
    def test_lfw_pairs(self, tmp_path, monkeypatch):
        """The layout of lfw-py; its checksums are those of the real archive, so they are taken as right."""
        monkeypatch.setattr(datasets.LFWPairs, "_check_integrity", lambda self: True)
        place = tmp_path / "lfw-py"
        write_images(place / "lfw_funneled", *(f"Ann/Ann_{n:04}.jpg" for n in range(1, 12)), "Bob/Bob_0001.jpg")
        (place / "pairs.txt").write_text("\n".join(lfw_lines()) + "\n")
        found = faces.lfw_pairs(tmp_path)
        own = faces.read_pairs("lfw", place / "pairs.txt", place / "lfw_funneled")
        assert [p.name for p in found.paths] == [p.name for p in own.paths]
        for name in ("first", "second", "genuine", "folds"):
            assert torch.equal(getattr(found, name), getattr(own, name))

    def test_missing(self, tmp_path):
        with pytest.raises(DataError, match=r"lfw-py must hold pairs.txt.*fetched by hand.*lfw:LIST:IMAGES"):
            faces.lfw_pairs(tmp_path)

    def test_an_image_that_is_not_there(self, tmp_path, monkeypatch):
        monkeypatch.setattr(datasets.LFWPairs, "_check_integrity", lambda self: True)
        (tmp_path / "lfw-py").mkdir()
        (tmp_path / "lfw-py" / "pairs.txt").write_text("\n".join(lfw_lines()) + "\n")
        with pytest.raises(DataError, match=r"pairs.txt, pair 1: there is no image .*Ann_0001.jpg"):
            faces.lfw_pairs(tmp_path)
