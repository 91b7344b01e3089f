"""Trials on unseen identities: what is measured, what a table holds, and what is refused."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from nbs_lib import data, recognition, train
from nbs_lib.data.identities import OpenSet, garments
from nbs_lib.metrics import pair_scores
from nbs_lib.recognition import Trial
from nbs_lib.run import RunConfig


def quick(**changes):
    trial = {k: changes.pop(k) for k in ("dataset", "identities", "triplet") if k in changes}
    return Trial(RunConfig(**{"epochs": 1, "device": "cpu", "threads": 1, "batch_size": 16} | changes), **trial)


@pytest.fixture(scope="module")
def task():
    return garments(train=10, test=20, views=4)


def features_of(task, *, noise):
    generator = torch.Generator().manual_seed(0)
    people = task.query.identities
    own = torch.eye(int(people.max()) + 1)[people]
    return own + noise * torch.randn(own.shape, generator=generator)


class TestMeasure:
    def test_perfect_features(self, task):
        found = recognition.measure(task, *[features_of(task, noise=0)] * 2)
        assert found["auc"] == found["map"] == found["rank_1"] == found["tar_1e-02"] == found["tar_1e-03"] == 1
        assert (found["genuine_pairs"], found["impostor_pairs"]) == (20 * 6, 80 * 79 // 2 - 120)
        assert (found["queries"], found["skipped_queries"]) == (80, 0)

    def test_rates_below_one_impostor_pair_are_left_out(self, task):
        found = recognition.measure(task, *[features_of(task, noise=1)] * 2)
        assert "tar_1e-03" in found
        assert "tar_1e-04" not in found  # 3,040 impostor pairs

    def test_features_that_say_nothing_are_at_chance(self, task):
        noise = torch.randn(80, 16, generator=torch.Generator().manual_seed(1))
        found = recognition.measure(task, noise, noise)
        assert found["auc"] == pytest.approx(0.5, abs=0.07)
        assert found["map"] < 0.15

    def test_the_query_itself_is_no_match(self, task):
        """Its own image is of its camera, so it is taken out: else rank 1 would be certain."""
        noise = torch.randn(80, 16, generator=torch.Generator().manual_seed(1))
        assert recognition.measure(task, noise, noise)["rank_1"] < 0.2

    def test_separate_gallery_is_ranked_only(self, task):
        other = replace(task.query)
        features = features_of(task, noise=0)
        found = recognition.measure(OpenSet(task.train, task.query, other), features, features)
        assert found["map"] == 1
        assert "auc" not in found


class TestRun:
    def test_learns_and_is_reproducible(self, task):
        trial = quick(epochs=4, loss="normface", scale=10.0)
        one, other = (recognition.run(trial, task=task, keep=True) for _ in range(2))
        assert one.metrics == other.metrics
        assert one.status == "finished"
        assert one.metrics["auc"] > 0.7
        assert len(one.history) == 4
        assert one.query is one.gallery
        assert one.query.shape == (80, 64)

    def test_measures_are_those_of_the_kept_features(self, task):
        found = recognition.run(quick(), task=task, keep=True)
        assert recognition.measure(task, found.query, found.gallery).items() <= found.metrics.items()

    def test_a_run_that_diverges_says_so(self, task):
        found = recognition.run(quick(lr=1e12, clip=None, epochs=3), task=task)
        assert (found.status, found.metrics) == ("diverged", {})
        assert "loss is" in found.note or "weight" in found.note
        assert found.row()["status"] == "diverged"

    def test_triplet_changes_the_run(self, task):
        plain, beside = (recognition.run(quick(triplet=weight), task=task).history[0]["loss"] for weight in (0.0, 1.0))
        assert beside > plain

    def test_triplet_without_its_package(self, task, monkeypatch):
        monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
        with pytest.raises(ModuleNotFoundError, match=r"needs pytorch-metric-learning: pip install 'nbs-lib\[test\]'"):
            recognition.run(quick(triplet=1.0), task=task)
        assert recognition.run(quick(), task=task).status == "finished"

    def test_threads_are_put_back(self, task):
        before = torch.get_num_threads()
        recognition.run(quick(threads=before + 1), task=task)
        assert torch.get_num_threads() == before


class TestVerify:
    def test_garments_as_a_list_of_pairs(self, task, tmp_path):
        """The views written as files and listed as AgeDB's pairs: every genuine pair of odd views, as many others."""
        views = task.query
        for row, image in enumerate(views.images.images):
            Image.fromarray(image[0].numpy()).save(tmp_path / f"{row}.png")
        lines = [f"{4 * k}.png {4 * k + 1}.png 1" for k in range(20)]
        lines += [f"{4 * k}.png {(4 * k + 41) % 80}.png 0" for k in range(20)]
        (tmp_path / "list.txt").write_text("\n".join(lines))
        outcome = recognition.run(quick(epochs=6, loss="normface", scale=10.0), task=task, keep=True)
        pairs = data.faces.read_pairs("agedb", tmp_path / "list.txt", tmp_path)
        found = recognition.verify(outcome, pairs)
        assert len(found.accuracy) == 10
        assert found.mean > 0.6
        # the images went through the same network as the views themselves
        scores = pair_scores(outcome.query, torch.arange(20) * 4, torch.arange(20) * 4 + 1)
        again = pair_scores(
            train.evaluate(outcome.backbone, outcome.head, pairs.images(task.train)).features,
            pairs.first[:20],
            pairs.second[:20],
        )
        assert torch.allclose(scores, again, atol=1e-6)

    def test_needs_the_network(self, task):
        with pytest.raises(ValueError, match=r"keep=True"):
            recognition.verify(recognition.run(quick(), task=task), None)


class TestTable:
    def test_rows_are_appended_and_not_made_again(self, tmp_path, monkeypatch):
        loads = []
        monkeypatch.setattr(Trial, "load", lambda self: loads.append(self) or garments(10, 10, 2, self.config.seed))
        trials = [quick(), quick(loss="lm_softmax", scale=10.0), quick(triplet=1.0)]
        seen = []
        recognition.run_all(trials[:2], tmp_path / "t.csv", on_outcome=seen.append)
        table = recognition.run_all(trials, tmp_path / "t.csv", on_outcome=seen.append)
        assert [outcome.trial for outcome in seen] == trials
        assert len(table) == 3
        assert len(loads) == 2  # once a call that needs them
        assert table["map"].between(0, 1).all()
        assert table["triplet"].tolist() == [0, 0, 1]
        assert {"seed", "code", "hardware", "wall_time", "torch"} <= set(table)

    def test_paths_are_private(self, tmp_path):
        cells = quick(dataset=f"folder:{tmp_path}/people").cells()
        assert cells["dataset"].startswith("folder:people#")
        assert str(tmp_path) not in str(cells)

    @pytest.mark.parametrize(
        ("changes", "name"),
        [
            ({}, "CE"),
            ({"triplet": 1.0}, "CE + triplet"),
            ({"loss": "normface", "scale": 10.0}, "NormFace (s = 10)"),
            ({"loss": "arcface", "scale": 64.0, "margin": 0.5, "sample_margin": 0.5}, "ArcFace (s = 64) + Rsm"),
            ({"loss": "lm_softmax", "scale": 32.0, "zero_centroid": 1.0}, "LM-Softmax (s = 32) + Rw"),
            ({"loss": "lm_softmax", "scale": 32.0, "zero_centroid": 5.0}, "LM-Softmax (s = 32) + 5Rw"),
        ],
    )
    def test_names_are_the_papers(self, changes, name):
        trial = quick(**changes)
        assert trial.method == name
        assert recognition.method({k: "" if v is None else v for k, v in trial.cells().items()}) == name

    def test_rows_of_the_papers_tables(self):
        names = [t.method for t in recognition.trials(quick(), [10.0, 64.0], triplet=1.0)]
        assert len(names) == len(set(names)) == 1 + 8 + 5 + 4
        assert {"CosFace (s = 10)", "LM-Softmax (s = 64)", "LM-Softmax (s = 10) + Rw", "CE + triplet"} <= set(names)
        assert len(recognition.trials(quick(), [10.0], regularisers=False)) == 5


class TestLoad:
    def test_folder_is_split_by_identities(self, tmp_path):
        generator = np.random.default_rng(0)
        for person in range(6):
            (tmp_path / f"p{person}").mkdir()
            for n in range(4):
                pixels = generator.integers(0, 256, (9, 9), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / f"p{person}" / f"{n}.png")
        found = quick(dataset=f"folder:{tmp_path}").load()
        assert (found.train.num_classes, found.query.images.num_classes) == (3, 3)
        assert not set(found.train.class_names) & set(found.query.images.class_names)

    @pytest.mark.parametrize("dataset", ["orl", "folder:nowhere", "reid:nowhere"])
    def test_what_is_not_there(self, dataset, tmp_path, monkeypatch):
        monkeypatch.setenv("NBS_DATA", str(tmp_path))
        with pytest.raises(data.DataError, match=r"there is no|orl-faces.tar"):
            quick(dataset=dataset).load()

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"dataset": "market"}, "dataset must be one of garments, orl, folder:PATH, reid:PATH, got 'market'"),
            ({"dataset": "reid:"}, "dataset must be one of"),
            ({"triplet": -1.0}, "triplet must not be negative"),
            ({"identities": 2.5}, "identities must be an integer"),
        ],
    )
    def test_bad_trials(self, changes, named):
        with pytest.raises(ValueError, match=named):
            quick(**changes)
