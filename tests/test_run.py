"""Configurations, runs, result tables."""

import dataclasses
import math
import os
import re

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from nbs_lib import data, losses, provenance, run, train
from nbs_lib.run import RunConfig

TINY = {"epochs": 1, "limit_per_class": 8, "threads": 1, "device": "cpu", "batch_size": 32}


@pytest.fixture
def _small_test_set(monkeypatch):
    """Measure on 20 test images of each class, to save time."""
    whole = data.load

    def load(name, *, split="train", limit_per_class=None, **other):
        return whole(name, split=split, limit_per_class=20 if split == "test" else limit_per_class, **other)

    monkeypatch.setattr(data, "load", load)


class TestConfig:
    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"dataset": "mnits"}, "'mnits'.*did you mean 'mnist'"),
            ({"model": "minicnn"}, "model is 'minicnn'; did you mean 'mini_cnn'"),
            ({"loss": "arcfac", "scale": 8.0}, "loss is 'arcfac'; did you mean 'arcface'"),
            ({"loss": "unified"}, "loss is 'unified'.*allowed"),
            ({"loss": "cosface", "margin": 0.1}, "scale is None.*'cosface' needs"),
            ({"loss": "cosface", "scale": 8.0}, "margin is None.*'cosface' needs"),
            ({"loss": "normface", "scale": 8.0, "margin": 0.1}, "margin is 0.1.*'normface' has no margin"),
            ({"scale": 8.0}, "scale is 8.0.*'ce' has no scale"),
            ({"loss": "normface", "scale": -1.0}, "scale.*-1"),
            ({"loss": "arcface", "scale": 8.0, "margin": 30.0}, "margin.*30.*radians"),
            ({"loss": "normface", "scale": 8.0, "bias": True}, "bias is True"),
            ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
            ({"label_smoothing": -0.1}, "label_smoothing is -0.1"),
            ({"sample_margin": -0.5}, "sample_margin is -0.5.*>= 0"),
            ({"zero_centroid": math.inf}, "zero_centroid is inf.*finite"),
            ({"freeze_prototypes": "etf"}, "freeze_prototypes is 'etf'.*'simplex'"),
            ({"epochs": 0}, "epochs is 0.*>= 1"),
            ({"seed": 2**32}, "seed is 4294967296.*0 to 4294967295"),
            ({"epochs": 2.0}, "epochs is 2.0.*int, not float"),
            ({"batch_size": True}, "batch_size is True.*bool"),
            ({"optimizer": "adam"}, "optimizer is 'adam'; did you mean 'adamw'"),
            ({"lr": 0.0}, "lr is 0.0.*> 0"),
            ({"lr": "0.1"}, "lr is '0.1'.*float, not str"),
            ({"lr": math.nan}, "lr is nan"),
            ({"momentum": 1.0}, "momentum is 1.0"),
            ({"momentum": 0.0, "nesterov": True}, "nesterov is True"),
            ({"nesterov": 1}, "nesterov is 1.*bool, not int"),
            ({"weight_decay": -1e-4}, "weight_decay"),
            ({"schedule": "cosin"}, "schedule is 'cosin'; did you mean 'cosine'"),
            ({"warmup": 6.0}, "warmup is 6.0.*< 6"),
            ({"clip": 0.0}, "clip is 0.0"),
            ({"crop_pad": -1}, "crop_pad is -1"),
            ({"crop_pad": 2, "shift": 2}, "shift is 2.*crop_pad is 2"),
            ({"flip": "false"}, "flip is 'false'.*bool, not str"),
            ({"image_size": -1}, "image_size"),
            ({"seed": -1}, "seed is -1"),
            ({"seed": 1.0}, "seed is 1.0"),
            ({"device": "gpu"}, "device.*'gpu'"),
            ({"precision": "bf16"}, "precision is 'bf16'; allowed: .*'bf16-mixed'"),
            ({"threads": -1}, "threads is -1"),
            ({"limit_per_class": 0}, "limit_per_class is 0"),
            ({"feature_dim": None}, "feature_dim is None"),
            ({"loss": "focal"}, "gamma is None.*'focal' needs"),
            ({"loss": "focal", "gamma": -1.0}, "gamma must be between 0 and .*, got -1"),
            ({"gamma": 1.0}, "gamma is 1.0.*'ce' has no gamma"),
            ({"loss": "ldam", "scale": 5.0}, "margin is None.*'ldam' needs"),
            ({"loss": "ldam", "scale": 5.0, "margin": 3.0}, "margin must be between 0 and 2"),
            ({"loss": "focal", "gamma": 1.0, "label_smoothing": 0.1}, "label_smoothing is 0.1; only loss 'ce'"),
            ({"imbalance": "longtailed"}, "imbalance is 'longtailed'; did you mean 'long_tailed'"),
            ({"imbalance": "step", "imbalance_ratio": 0.5}, "imbalance_ratio is 0.5; allowed: >= 1"),
            ({"imbalance_ratio": 10.0}, "imbalance_ratio is 10.0; allowed: 1.0, because imbalance is ''"),
            ({"label_noise": "pairs"}, "label_noise is 'pairs'; did you mean 'pair'"),
            ({"label_noise": "pair", "noise_rate": 1.0}, "noise_rate is 1.0; allowed: 0 <= noise_rate < 1"),
            ({"noise_rate": 0.2}, "noise_rate is 0.2; allowed: 0.0, because label_noise is ''"),
            ({"reweight": "drv"}, "reweight is 'drv'; did you mean 'drw'"),
            ({"reweight": "drw", "reweight_from": 0.9}, "reweight_from is 0.9; with 6 epochs .* never start"),
            ({"reweight": "drw", "loss": "lm_softmax_total", "scale": 5.0}, "reweight is 'drw'; allowed: ''"),
        ],
    )
    def test_a_wrong_field_is_named_with_its_value(self, fields, said):
        with pytest.raises(ValueError, match=said):
            RunConfig(**fields)

    def test_whole_numbers_are_fine_for_real_fields(self):
        assert RunConfig(loss="normface", scale=10, lr=1) == RunConfig(loss="normface", scale=10.0, lr=1.0)
        assert repr(RunConfig(loss="normface", scale=10).scale) == "10.0"

    def test_presets(self):
        assert run.quick_config() == RunConfig()
        mnist = run.paper_config("mnist", seed=3)
        told = (
            mnist.model,
            mnist.epochs,
            mnist.batch_size,
            mnist.lr,
            mnist.momentum,
            mnist.weight_decay,
            mnist.schedule,
        )
        assert told == ("paper_cnn", 100, 256, 0.01, 0.9, 1e-4, "cosine")
        assert (mnist.seed, mnist.nesterov, mnist.clip) == (3, False, None)
        assert run.paper_config("cifar10").model == "resnet18"
        with pytest.raises(ValueError, match=r"'svhn'.*mnist"):
            run.paper_config("svhn")

    def test_table_rows(self):
        rows = run.table_configs(run.paper_config("mnist", epochs=8), scales=(10, 64))
        names = [(row.loss, row.scale, row.margin, row.sample_margin) for row in rows]
        assert len(set(names)) == len(rows) == 16
        assert names[:3] == [("ce", None, None, 0.0), ("ce", None, None, 0.5), ("normface", 10.0, None, 0.0)]
        assert ("lm_softmax", 64.0, None, 0.0) in names
        assert {row.epochs for row in rows} == {8}

    def test_paths_stay_private(self):
        config = RunConfig(dataset="folder:/home/someone/pets")
        shown = config.cells()["dataset"]
        assert re.fullmatch("folder:pets#[0-9a-f]{8}", shown)
        assert RunConfig(dataset="folder:/home/other/../someone/pets").cells()["dataset"] == shown
        assert RunConfig(dataset="folder:/home/other/pets").cells()["dataset"] != shown


class TestObjective:
    def terms(self, **fields):
        config = RunConfig(**fields)
        backbone, head = run.build_networks(config, 1, 28, 10)
        generator = torch.Generator().manual_seed(0)
        features = torch.rand(6, backbone.out_features, generator=generator)
        target = torch.arange(6)
        return run.build_objective(config)(features, head, target).item(), features, head, target

    @given(mu=st.floats(0, 2), lam=st.floats(0, 20))
    def test_is_loss_plus_mu_rsm_plus_100_lambda_rw(self, mu, lam):
        for fields in ({"loss": "ce"}, {"loss": "cosface", "scale": 16.0, "margin": 0.2}):
            got, features, head, target = self.terms(**fields, sample_margin=mu, zero_centroid=lam)
            w = F.normalize(head.prototypes.detach().double())
            c = F.normalize(features.double()) @ w.T
            own = c.gather(1, target[:, None])
            others = c.scatter(1, target[:, None], -9.0).amax(1)
            if fields["loss"] == "ce":
                loss = F.cross_entropy(features.double() @ head.prototypes.detach().double().T, target)
            else:
                loss = F.cross_entropy(16 * c.scatter(1, target[:, None], own - 0.2), target)
            rsm = -(own.squeeze(1) - others).mean()
            expected = loss + mu * rsm + 100 * lam * w.mean(0).square().sum()
            assert got == pytest.approx(float(expected), rel=1e-5, abs=1e-5)

    def test_ldam_takes_the_counts_of_the_training_images(self):
        config = RunConfig(loss="ldam", scale=5, margin=0.5)
        assert run.build_objective(config, [100, 10, 1]).criterion.class_counts == (100, 10, 1)
        with pytest.raises(ValueError, match="class_counts is None, but loss 'ldam'"):
            run.build_objective(config)

    def test_reweighting_begins_with_its_epoch_and_is_a_weighted_mean(self):
        config = RunConfig(reweight="drw", reweight_from=0.5, epochs=6, zero_centroid=1)
        counts = [5000, 500, 50, 5, *[100] * 6]
        backbone, head = run.build_networks(config, 1, 28, 10)
        features, target = torch.rand(8, backbone.out_features), torch.tensor([0, 1, 2, 3, 3, 9, 0, 0])
        objective = run.build_objective(config, counts)
        rows = F.cross_entropy(head(features), target, reduction="none")
        centroid = 100 * F.normalize(head.prototypes).mean(0).square().sum()
        weights = torch.tensor([(1 - 0.9999) / (1 - 0.9999**n) for n in counts])
        weighted = F.cross_entropy(head(features), target, weight=weights)
        for epoch, wanted in [(0, rows.mean()), (2, rows.mean()), (3, weighted), (5, weighted), (0, rows.mean())]:
            objective.start_epoch(epoch)
            torch.testing.assert_close(objective(features, head, target), wanted + centroid)
        assert (weighted - rows.mean()).abs() > 0.01

    @pytest.mark.parametrize(("share", "epochs", "first"), [(0.8, 30, 24), (0.8, 6, 5), (0.28, 25, 7), (0.0, 3, 0)])
    def test_the_epoch_of_reweighting(self, share, epochs, first):
        assert RunConfig(reweight="drw", reweight_from=share, epochs=epochs).reweighted_epoch == first

    def test_labels_are_not_looked_at_again(self, monkeypatch):
        built = []
        real = losses.build
        monkeypatch.setattr(losses, "build", lambda name, **hyper: built.append((name, hyper)) or real(name, **hyper))
        config = RunConfig(sample_margin=0.5)
        built.clear()
        run.build_objective(config)
        assert all(hyper["validate"] is False for name, hyper in built if name != "zero_centroid")

    def test_frozen_simplex(self):
        config = RunConfig(loss="normface", scale=10.0, freeze_prototypes="simplex")
        _, head = run.build_networks(config, 1, 28, 10)
        assert not head.prototypes.requires_grad
        gram = head.prototypes.double() @ head.prototypes.double().T
        expected = torch.eye(10, dtype=torch.float64) * (1 + 1 / 9) - 1 / 9
        torch.testing.assert_close(gram, expected, rtol=0, atol=1e-6)
        assert (head.prototypes != 0).all(), "along the axes, features behind a ReLU could not follow"

    def test_weights_follow_the_seed(self):
        first, again, other = (run.build_networks(RunConfig(seed=s), 1, 28, 10)[1].prototypes for s in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


@pytest.mark.usefixtures("_small_test_set")
class TestRun:
    def test_a_record_is_complete_and_repeatable(self):
        config = RunConfig(**TINY, loss="cosface", scale=10, margin=0.1, sample_margin=0.5)
        threads = torch.get_num_threads()
        record, again = run.run(config, keep=True), run.run(config)
        assert record.metrics == again.metrics
        assert again.on_test is None
        assert torch.get_num_threads() == threads
        assert record.status == "finished"
        assert len(record.history) == 1
        test = record.on_test
        assert record.metrics["accuracy"] == float((test.scores.argmax(1) == test.target).double().mean())
        assert record.metrics["mean_sample_margin"] == test.mean_sample_margin
        assert set(record.metrics) == {
            "accuracy", "class_margin", "mean_sample_margin", "prototype_norm_ratio", "ece", "train_accuracy",
            "train_mean_sample_margin",
        }  # fmt: skip
        assert all(math.isfinite(value) for value in record.metrics.values())
        assert len(record.on_train.target) == 80

    @pytest.mark.parametrize(
        ("loss", "kind", "groups"),
        [
            ({"loss": "ldam", "scale": 5.0, "margin": 0.5}, "long_tailed", {"many", "medium", "few"}),
            (
                {"loss": "focal", "gamma": 1.0, "reweight": "drw", "epochs": 2, "reweight_from": 0.5},
                "step",
                {"many", "few"},
            ),
        ],
    )
    def test_an_imbalanced_run(self, loss, kind, groups):
        config = RunConfig(**{**TINY, "limit_per_class": 40, **loss}, imbalance=kind, imbalance_ratio=10)
        record = run.run(config, keep=True)
        counts = data.corrupt.imbalanced_counts(kind, 40, 10, 10)
        assert record.per_class["train_images"] == counts
        assert len(record.on_train.target) == sum(counts)
        test = record.on_test
        right = test.scores.argmax(1) == test.target
        accuracies = [float(right[test.target == label].double().mean()) for label in range(10)]
        assert record.per_class["accuracy"] == pytest.approx(accuracies)
        assert record.per_class["names"][0] == "T-shirt/top"
        found = {name.removeprefix("accuracy_") for name in record.metrics if name.startswith("accuracy_")}
        assert found == groups
        few = data.corrupt.frequency_groups(counts)["few"]
        assert record.metrics["accuracy_few"] == pytest.approx(sum(accuracies[j] for j in few) / len(few))
        assert math.isfinite(record.metrics["ece"])

    def test_label_noise_is_measured_against_both_labels(self):
        config = RunConfig(**{**TINY, "limit_per_class": 20}, label_noise="pair", noise_rate=0.4)
        record = run.run(config, keep=True)
        clean = run.training_set(RunConfig(**{**TINY, "limit_per_class": 20})).labels
        assert int((record.on_train.target != clean).sum()) == 80
        found = record.on_train.scores.argmax(1)
        assert record.metrics["train_accuracy_clean"] == pytest.approx(float((found == clean).double().mean()))
        assert record.metrics["train_accuracy"] == pytest.approx(
            float((found == record.on_train.target).double().mean())
        )
        again = run.training_set(dataclasses.replace(config, seed=1)).labels
        assert not torch.equal(again, record.on_train.target)

    def test_a_resumed_run_knows_that_it_reweighs(self, tmp_path):
        config = RunConfig(
            **{**TINY, "epochs": 3}, imbalance="step", imbalance_ratio=4, reweight="drw", reweight_from=0.3
        )
        straight = run.run(config)

        def stop(record):
            if record["epoch"] == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run.run(config, checkpoint=tmp_path / "c", on_epoch=stop)
        resumed = run.run(config, checkpoint=tmp_path / "c")
        assert resumed.history[2]["loss"] == straight.history[2]["loss"]
        plain = run.run(dataclasses.replace(config, reweight=""))
        assert plain.history[0]["loss"] == pytest.approx(straight.history[0]["loss"], rel=1e-6)
        assert plain.history[2]["loss"] != pytest.approx(straight.history[2]["loss"], rel=1e-3)

    def test_rsm_alone_has_no_probabilities(self):
        assert math.isnan(run.run(RunConfig(**TINY, loss="sample_margin")).metrics["ece"])

    def test_a_diverging_run_says_so(self):
        record = run.run(RunConfig(**{**TINY, "epochs": 3}, lr=1e30, clip=None))
        assert record.status == "diverged"
        assert "step" in record.note
        assert record.metrics == {}
        assert record.row()["status"] == "diverged"

    def test_a_table_grows_a_row_a_run_and_resumes(self, tmp_path, monkeypatch):
        path = tmp_path / "results" / "table.csv"
        configs = [RunConfig(**TINY), RunConfig(**TINY, loss="normface", scale=10), RunConfig(**TINY, lr=1e30)]
        calls, real = [], run.run
        monkeypatch.setattr(run, "run", lambda config, **kw: calls.append(config) or real(config, **kw))
        run.run_all(configs[:1], path)
        table = run.run_all(configs, path, checkpoints=tmp_path / "ckpt")
        assert calls == configs
        again = run.run_all([*configs, configs[0]], path)
        assert calls == configs, "a row that is there was run again"
        pd.testing.assert_frame_equal(table, again)
        assert list(table["loss"]) == ["ce", "normface", "ce"]
        assert table["scale"].isna().tolist() == [True, False, True]
        assert table["accuracy"].dtype == float
        assert table["nesterov"].tolist() == [True] * 3
        for column in ("hardware", "torch", "python", "code", "date", "wall_time", "seed", "torch_threads"):
            assert (table[column].astype(str) != "").all()
        assert not any(tmp_path.glob("ckpt/*"))
        assert [entry.name for entry in path.parent.iterdir()] == ["table.csv"]
        assert oct(path.stat().st_mode & 0o777) == "0o644"

    def test_no_path_gets_into_a_table(self, tmp_path):
        for split in ("train", "test"):
            for name in ("a", "b"):
                (tmp_path / "pets" / split / name).mkdir(parents=True)
                for i in range(3):
                    image = torch.randint(0, 256, (16, 16), dtype=torch.uint8).numpy()
                    data.files.Image.fromarray(image).save(tmp_path / "pets" / split / name / f"{i}.png")
        config = RunConfig(**{**TINY, "batch_size": 3}, dataset=f"folder:{tmp_path}/pets")
        run.run_all([config], tmp_path / "table.csv", checkpoints=tmp_path / "ckpt")
        text = (tmp_path / "table.csv").read_text()
        assert str(tmp_path) not in text
        assert "folder:pets" in text

    def test_an_interrupted_run_resumes_from_its_checkpoint(self, tmp_path):
        config = RunConfig(**{**TINY, "epochs": 3})
        straight = run.run(config)

        def stop(record):
            if record["epoch"] == 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run.run_all([config], tmp_path / "table.csv", checkpoints=tmp_path, on_epoch=stop)
        assert not (tmp_path / "table.csv").exists()
        seen = []
        table = run.run_all([config], tmp_path / "table.csv", checkpoints=tmp_path, on_epoch=seen.append)
        assert [record["epoch"] for record in seen] == [1, 2]
        assert table.loc[0, "accuracy"] == pytest.approx(straight.metrics["accuracy"])
        assert table.loc[0, "mean_sample_margin"] == pytest.approx(straight.metrics["mean_sample_margin"], rel=1e-5)


class TestTables:
    def test_a_column_that_came_later_counts_as_its_default(self):
        rows = [RunConfig(), RunConfig(seed=1), RunConfig(clip=None)]
        table = pd.DataFrame()
        for config in rows:
            table = provenance.append(table, config.cells(), RunConfig().cells())
        old = table.drop(columns="image_size")
        default = RunConfig().cells()
        for index, config in enumerate(rows):
            assert provenance.find(old, config.cells(), default) == index
        assert provenance.find(old, RunConfig(image_size=32).cells(), default) is None
        grown = provenance.append(old, RunConfig(image_size=32).cells(), default)
        for index, config in enumerate([*rows, RunConfig(image_size=32)]):
            assert provenance.find(grown, config.cells(), default) == index

    def test_tables_from_before_imbalance_and_noise_are_still_found(self):
        """The committed tables have none of these columns."""
        config = RunConfig(loss="normface", scale=10)
        default = RunConfig().cells()
        new = "gamma imbalance imbalance_ratio label_noise noise_rate reweight reweight_from"
        old = provenance.append(pd.DataFrame(), config.cells(), default).drop(columns=new.split())
        assert provenance.find(old, config.cells(), default) == 0
        thinned = dataclasses.replace(config, imbalance="step", imbalance_ratio=10)
        assert provenance.find(old, thinned.cells(), default) is None
        grown = provenance.append(old, thinned.cells(), default)
        assert [provenance.find(grown, c.cells(), default) for c in (config, thinned)] == [0, 1]

    def test_a_row_is_added_once(self, tmp_path):
        record = run.Record(RunConfig(), {"accuracy": 0.5}, [], run.environment(), 1.0)
        for _ in range(2):
            table = run.add_row(record, tmp_path / "t.csv")
        assert len(table) == len(provenance.read_table(tmp_path / "t.csv")) == 1

    @given(
        lr=st.floats(1e-8, 1e3),
        seed=st.integers(0, 2**32 - 2),
        mu=st.floats(0, 5),
        clip=st.none() | st.floats(1e-3, 100),
    )
    def test_a_configuration_is_found_after_writing_and_reading(self, tmp_path_factory, lr, seed, mu, clip):
        path = tmp_path_factory.mktemp("t") / "t.csv"
        config = RunConfig(lr=lr, seed=seed, sample_margin=mu, clip=clip)
        default = RunConfig().cells()
        row = provenance.append(pd.DataFrame(), config.cells() | {"status": "failed"}, default)
        provenance.write_table(row, path)
        table = provenance.read_table(path)
        assert provenance.find(table, config.cells(), default) == 0
        assert provenance.find(table, dataclasses.replace(config, seed=seed + 1).cells(), default) is None

    def test_a_failing_write_leaves_the_old_table(self, tmp_path, monkeypatch):
        path = tmp_path / "t.csv"
        row = {"dataset": "mnist", "loss": "ce", "seed": "0", "status": "failed"}
        provenance.write_table(pd.DataFrame([row | {"a": "1"}]), path)
        monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            provenance.write_table(pd.DataFrame([row | {"a": "2"}]), path)
        assert provenance.read_table(path)["a"].tolist() == ["1"]
        assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]

    def test_environment(self):
        told = run.environment()
        assert told["torch"] == torch.__version__
        assert told["hardware"]
        assert len(told["code"]) == 12
        assert run.environment(threads=3)["torch_threads"] == 3
        assert "/" not in told["hardware"] + told["code"]

    def test_resolve(self):
        device, precision = train.resolve("cpu")
        assert (device.type, precision) == ("cpu", "32-true")
        assert train.resolve("cpu", "bf16-mixed")[1] == "bf16-mixed"


class TestDamagedTables:
    HEAD = "dataset,loss,seed,status,accuracy,date\n"
    GOOD = "mnist,ce,0,finished,0.9,2026-01-01T00:00:00Z\n"

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("name,loss\nx,ce\n", "not a table of runs.*no column dataset, seed, status"),
            (b"\xff\xfe\x00\x80", "cannot be read as a CSV"),
            (HEAD + 'mnist,"ce\n', "cannot be read as a CSV"),
            (HEAD + GOOD.replace("\n", ",7\n") + GOOD, "row 1 has 7 cells, the header 6"),
            (HEAD + GOOD + "mnist,ce,0\n", "row 2 has 3 cells"),
            (HEAD + "mnist,ce,0,finished,0.9,\n", "row 1 is finished but has no date"),
            (HEAD + "mnist,ce,0,finished,,2026\n", "row 1 is finished but has no accuracy"),
        ],
    )
    def test_the_file_is_named(self, tmp_path, content, said):
        path = tmp_path / "runs.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ValueError, match=rf"runs\.csv.*{said}"):
            run.run_all([RunConfig()], path)

    @pytest.mark.parametrize("cut", [3, 20, 30, 40])
    def test_a_last_row_that_breaks_off_is_left_out(self, tmp_path, cut):
        path = tmp_path / "runs.csv"
        path.write_text(self.HEAD + self.GOOD + self.GOOD[:cut])
        assert len(provenance.read_table(path)) == 1

    def test_nothing_and_whole_rows(self, tmp_path):
        path = tmp_path / "runs.csv"
        path.write_text("")
        assert provenance.read_table(path).empty
        path.write_text(self.HEAD + self.GOOD + self.GOOD.strip())
        assert provenance.read_table(path)["seed"].tolist() == ["0", "0"]


def test_scores_that_overflow_are_a_divergence_and_the_next_run_goes_on(tmp_path):
    wild = RunConfig(epochs=1, limit_per_class=20, weight_decay=1e6, threads=1)
    table = run.run_all([wild, dataclasses.replace(wild, weight_decay=1e-4)], csv=tmp_path / "runs.csv")
    assert list(table["status"]) == ["diverged", "finished"]


@pytest.mark.parametrize(("field", "value"), [("threads", 100_000), ("lr", 1e300), ("mixup", 0.001)])
def test_settings_that_no_machine_can_serve_are_refused(field, value):
    with pytest.raises(ValueError, match=f"RunConfig.{field} is .*allowed"):
        RunConfig(**{field: value})
