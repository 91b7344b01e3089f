"""The training loop: schedules, exact accumulation, checkpoints, resumption, what stops it."""

import math
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nbs_lib import checkpoints, train
from nbs_lib.checkpoints import CheckpointError
from nbs_lib.data import Augment, ImageSet
from nbs_lib.heads import CosineHead, LinearHead


def toy_set(count=50, classes=3, side=8):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    images = torch.randint(0, 160, (count, 1, side, side), dtype=torch.uint8, generator=generator)
    images[torch.arange(count), 0, labels] += 80  # a bright row tells the class
    return ImageSet(images, labels, classes, "toy", (0.4,), (0.2,), tuple("abc"))


def nets(norm=True, dropout=0.0, seed=0, head=CosineHead):
    torch.manual_seed(seed)
    backbone = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(256, 6),
    )
    return backbone, head(6, 3)


def objective(features, head, target):
    return F.cross_entropy(8 * head(features), target)


SHORT = {"epochs": 3, "batch_size": 16, "lr": 0.05, "device": "cpu", "weight_decay": 1e-3}


def weights(*modules):
    return torch.cat([p.detach().flatten() for m in modules for p in (*m.parameters(), *m.buffers())]).double()


def fit(modules, objective=objective, full=None, **options):
    return train.fit(*modules, objective, full or toy_set(), **{**SHORT, **options})


class TestLearning:
    def test_it_learns(self):
        modules = nets()
        history = fit(modules, epochs=8)
        losses = [record["loss"] for record in history.epochs]
        assert losses[-1] < 0.3 * losses[0]
        result = train.evaluate(*modules, toy_set())
        assert result.accuracy > 0.9
        assert history.wall_time == pytest.approx(sum(record["seconds"] for record in history.epochs))
        assert (history.device, history.precision, history.resumed_from) == ("cpu", "32-true", 0)

    @pytest.mark.parametrize("optimizer", train.OPTIMIZERS)
    def test_agrees_with_a_plain_loop(self, optimizer):
        """The same steps, written out with torch alone."""
        ours, plain, full = nets(), nets(), toy_set()
        history = fit(ours, optimizer=optimizer, nesterov=True, clip=0.5, augment=Augment(crop_pad=1, flip=True))
        parameters = [*plain[0].parameters(), *plain[1].parameters()]
        if optimizer == "sgd":
            solver = torch.optim.SGD(parameters, lr=1, momentum=0.9, nesterov=True, weight_decay=1e-3)
        else:
            solver = torch.optim.AdamW(parameters, lr=1, weight_decay=1e-3)
        step, means = 0, []
        for epoch in range(3):
            total = 0.0
            for images, target in full.batches(16, seed=0, epoch=epoch, augment=Augment(crop_pad=1, flip=True)):
                solver.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * step / 12)) / 2
                loss = objective(plain[0](images), plain[1], target)
                solver.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                solver.step()
                total, step = total + len(target) * loss.item(), step + 1
            means.append(total / 50)
        torch.testing.assert_close(weights(*ours), weights(*plain), rtol=1e-5, atol=1e-6)
        assert [record["loss"] for record in history.epochs] == pytest.approx(means, rel=1e-5)

    def test_frozen_prototypes_stay(self):
        backbone, head = nets()
        before = head.prototypes.detach().clone()
        head.prototypes.requires_grad_(False)
        fit((backbone, head))
        assert torch.equal(head.prototypes, before)

    def test_bf16_keeps_float32_weights_and_head(self):
        modules, seen = nets(), []

        def watching(features, head, target):
            seen.append((features.dtype, head(features).dtype))
            return objective(features, head, target)

        history = fit(modules, watching, precision="bf16-mixed", epochs=1)
        assert history.precision == "bf16-mixed"
        assert set(seen) == {(torch.bfloat16, torch.float32)}
        assert {p.dtype for m in modules for p in m.parameters()} == {torch.float32}

    def test_silent_without_an_audience(self, capfd):
        fit(nets(), precision="bf16-mixed", epochs=1)
        captured = capfd.readouterr()
        assert captured.out == captured.err == ""

    def test_the_callers_random_stream_is_untouched(self):
        modules = nets(dropout=0.5)
        torch.manual_seed(3)
        expected = torch.rand(2)
        torch.manual_seed(3)
        fit(modules)
        assert torch.equal(torch.rand(2), expected)

    def test_dropout_differs_between_steps_epochs_and_seeds(self):
        def drawn(seed):
            seen = []

            def watching(features, head, target):
                seen.append(float(torch.rand(())))
                return objective(features, head, target)

            fit(nets(), watching, seed=seed)
            return seen

        assert drawn(0) == drawn(0)
        assert len({*drawn(0), *drawn(1)}) == 24

    def test_on_epoch_may_add_to_the_record(self):
        history = fit(nets(), on_epoch=lambda record: record.update(half=record["epoch"] / 2))
        assert [record["half"] for record in history.epochs] == [0, 0.5, 1.0]

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_no_step_waits_for_the_device(self):
        """Waits are counted: an epoch of many steps has as many as an epoch of few."""

        def waits(batch_size):
            torch.cuda.set_sync_debug_mode("warn")
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    fit(nets(), device="cuda", epochs=1, batch_size=batch_size, clip=1.0)
                return sum("synchroniz" in str(warning.message) for warning in caught)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        waits(25)
        assert waits(2) == waits(25)

    def test_compile_wraps_the_backbone_and_trains_the_same_weights(self, monkeypatch, tmp_path):
        """With a stand-in for the compiler, which takes most of a minute: a module around the module."""
        compiled = []

        class Wrapped(nn.Module):
            def __init__(self, module):
                super().__init__()
                compiled.append(module)
                self._orig_mod = module

            def forward(self, images):
                return self._orig_mod(images)

        monkeypatch.setattr(torch, "compile", Wrapped)
        plain, wrapped = nets(), nets()
        fit(plain)
        fit(wrapped, compile=True, checkpoint=tmp_path / "run.ckpt")
        assert compiled == [wrapped[0]]
        torch.testing.assert_close(weights(*plain), weights(*wrapped), rtol=1e-5, atol=1e-6)
        assert list(checkpoints.load(tmp_path / "run.ckpt")["backbone"]) == list(wrapped[0].state_dict())


class TestAccumulation:
    @pytest.mark.parametrize("parts", [2, 3, 5])
    @pytest.mark.parametrize("batch", [16, 20])
    def test_is_exact(self, parts, batch):
        """Without batch normalisation the micro-batches give the whole batch's steps, uneven ends included."""
        whole, pieces = nets(norm=False), nets(norm=False)
        a = fit(whole, batch_size=batch)
        b = fit(pieces, batch_size=batch, accumulate=parts)
        torch.testing.assert_close(weights(*whole), weights(*pieces), rtol=1e-4, atol=1e-5)
        assert [r["loss"] for r in a.epochs] == pytest.approx([r["loss"] for r in b.epochs], rel=1e-4)


class TestSchedules:
    def test_values(self):
        rate = train.learning_rate
        assert rate(0, 100, peak=2.0) == 2.0
        assert rate(50, 100, peak=2.0) == pytest.approx(1.0)
        assert rate(99, 100, peak=2.0) == pytest.approx(2 * math.sin(math.pi / 200) ** 2)
        assert [rate(t, 100, peak=2.0, schedule="step") for t in (0, 49, 50, 74, 75, 99)] == pytest.approx(
            [2, 2, 0.2, 0.2, 0.02, 0.02]
        )
        assert rate(77, 100, peak=2.0, schedule="constant") == 2.0

    @pytest.mark.parametrize("schedule", ["cosine", "step", "constant"])
    def test_warmup_rises_in_a_straight_line(self, schedule):
        rates = [train.learning_rate(t, 50, peak=1.0, schedule=schedule, warmup=10) for t in range(50)]
        assert rates[:10] == pytest.approx([(t + 1) / 10 for t in range(10)])
        assert rates[10] == 1.0
        assert all(a >= b for a, b in pairwise(rates[10:]))

    def test_onecycle_is_torchs_up_to_its_last_value(self):
        solver = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1)
        theirs = torch.optim.lr_scheduler.OneCycleLR(
            solver, max_lr=0.2, total_steps=101, pct_start=31 / 101, final_div_factor=1e12
        )
        for step in range(101):
            ours = train.learning_rate(step, 100, peak=0.2, schedule="onecycle", warmup=30)
            assert ours == pytest.approx(solver.param_groups[0]["lr"], abs=2e-8)
            solver.step()
            if step < 100:
                theirs.step()


class TestCheckpoints:
    def interrupted(self, path, after, dropout=0.3, **options):
        """Run until ``after`` epochs are saved, then stop as Ctrl-C would."""
        modules = nets(dropout=dropout)

        def stop(record):
            if record["epoch"] == after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(modules, checkpoint=path, on_epoch=stop, **options)

    @pytest.mark.parametrize("options", [{}, {"optimizer": "adamw", "schedule": "onecycle"}])
    def test_a_resumed_run_ends_identically(self, tmp_path, options):
        options = {"augment": Augment(shift=1, flip=True), **options}
        straight = nets(dropout=0.3)
        expected = fit(straight, **options)
        self.interrupted(tmp_path / "run.ckpt", 2, **options)
        resumed = nets(dropout=0.3, seed=9)
        history = fit(resumed, checkpoint=tmp_path / "run.ckpt", **options)
        assert torch.equal(weights(*straight), weights(*resumed))
        assert [r["loss"] for r in history.epochs] == [r["loss"] for r in expected.epochs]
        assert history.resumed_from == 2

    def test_a_finished_run_is_not_run_again(self, tmp_path):
        first = nets()
        fit(first, checkpoint=tmp_path / "run.ckpt")
        second, called = nets(seed=5), []
        history = fit(second, checkpoint=tmp_path / "run.ckpt", on_epoch=called.append)
        assert not called
        assert history.resumed_from == len(history.epochs) == 3
        assert torch.equal(weights(*first), weights(*second))

    def test_resume_false_starts_again(self, tmp_path):
        fit(nets(), checkpoint=tmp_path / "run.ckpt")
        assert fit(nets(), checkpoint=tmp_path / "run.ckpt", resume=False).resumed_from == 0

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"lr": 0.1}, r"lr is 0\.05 there, 0\.1 here"),
            ({"seed": 1}, "seed is 0 there, 1 here"),
            ({"identity": "other"}, "identity"),
            ({"augment": Augment(flip=True)}, "augment"),
            ({"full": toy_set(40)}, "data is 'toy, 50 images"),
        ],
    )
    def test_another_runs_checkpoint_is_refused(self, tmp_path, change, said):
        fit(nets(), checkpoint=tmp_path / "run.ckpt", epochs=3)
        with pytest.raises(CheckpointError, match=f"belongs to another run: .*{said}"):
            fit(nets(), checkpoint=tmp_path / "run.ckpt", **change)

    def test_other_networks_are_refused(self, tmp_path):
        fit(nets(), checkpoint=tmp_path / "run.ckpt")
        with pytest.raises(CheckpointError, match="weights"):
            fit(nets(head=LinearHead), checkpoint=tmp_path / "run.ckpt")

    @pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
    def test_truncated(self, tmp_path, keep):
        path = tmp_path / "run.ckpt"
        fit(nets(), checkpoint=path, epochs=1)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * keep) if isinstance(keep, float) else keep])
        with pytest.raises(CheckpointError, match=r"run\.ckpt cannot be read as a checkpoint.*resume=False"):
            fit(nets(), checkpoint=path, epochs=1)

    def test_foreign(self, tmp_path):
        torch.save({"model": torch.zeros(2)}, tmp_path / "other.pt")
        with pytest.raises(CheckpointError, match="not a checkpoint of nbs_lib"):
            fit(nets(), checkpoint=tmp_path / "other.pt")

    def test_nothing_in_a_file_is_executed(self, tmp_path):
        class Evil:
            def __reduce__(self):
                return (os.mkdir, (str(tmp_path / "owned"),))

        torch.save({"format": Evil()}, tmp_path / "evil.ckpt")
        with pytest.raises(CheckpointError):
            checkpoints.load(tmp_path / "evil.ckpt")
        assert not (tmp_path / "owned").exists()

    def test_a_failing_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "run.ckpt"
        checkpoints.save(path, {"epochs": [1]})

        def full_disk(state, file):
            file.write(b"half")
            raise OSError("no space left on device")

        monkeypatch.setattr(torch, "save", full_disk)
        with pytest.raises(OSError, match="no space"):
            checkpoints.save(path, {"epochs": [1, 2]})
        monkeypatch.undo()
        assert checkpoints.load(path)["epochs"] == [1]

    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
    def test_kill_9_loses_at_most_an_epoch(self, tmp_path):
        script = textwrap.dedent(
            """
            import os, signal, sys
            sys.path.insert(0, sys.argv[2])
            from test_train import fit, nets
            def stop(record):
                if record["epoch"] == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            fit(nets(dropout=0.3), checkpoint=sys.argv[1], on_epoch=stop)
            """
        )
        path = tmp_path / "run.ckpt"
        done = subprocess.run([sys.executable, "-c", script, str(path), os.path.dirname(__file__)], check=False)
        assert done.returncode == -signal.SIGKILL
        straight, resumed = nets(dropout=0.3), nets(dropout=0.3, seed=4)
        fit(straight)
        assert fit(resumed, checkpoint=path).resumed_from == 1
        assert torch.equal(weights(*straight), weights(*resumed))


class TestDivergence:
    def breaking(self, step):
        calls = []

        def bad(features, head, target):
            calls.append(1)
            loss = objective(features, head, target)
            return loss * (math.nan if len(calls) == step + 1 else 1.0)

        return bad

    @pytest.mark.parametrize(("step", "epoch"), [(0, 0), (5, 1), (11, 2)])
    def test_a_nan_names_its_step(self, step, epoch):
        with pytest.raises(train.TrainingDiverged, match=rf"loss is nan at step {step} \(epoch {epoch}\)") as error:
            fit(nets(), self.breaking(step))
        assert (error.value.step, error.value.epoch, error.value.checkpoint) == (step, epoch, None)

    def test_the_last_good_checkpoint_is_named_and_good(self, tmp_path):
        path = tmp_path / "run.ckpt"
        with pytest.raises(train.TrainingDiverged, match=r"last good checkpoint is .*run\.ckpt") as error:
            fit(nets(), self.breaking(5), checkpoint=path)
        assert error.value.checkpoint == path
        state = checkpoints.load(path)
        assert len(state["epochs"]) == 1
        assert all(value.isfinite().all() for value in state["backbone"].values())

    def test_no_checkpoint_is_named_that_was_never_written(self, tmp_path):
        with pytest.raises(train.TrainingDiverged, match="no checkpoint was kept") as error:
            fit(nets(), self.breaking(1), checkpoint=tmp_path / "run.ckpt")
        assert error.value.checkpoint is None
        assert not any(tmp_path.iterdir())

    def test_a_gradient_that_is_not_finite_at_the_last_step_is_found(self):
        def bad(features, head, target):
            # finite loss, NaN gradient: d sqrt(x) at 0 times 0
            return objective(features, head, target) + (0 * features).square().sum().sqrt()

        with pytest.raises(train.TrainingDiverged, match="a weight is not finite at step 0"):
            fit(nets(), bad, batch_size=50, epochs=1)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"epochs": 0}, "epochs.*0"),
            ({"batch_size": 2.5}, r"batch_size.*2\.5"),
            ({"accumulate": True}, "accumulate.*True"),
            ({"lr": 0}, "lr.*0"),
            ({"lr": math.nan}, "lr.*nan"),
            ({"momentum": -1}, "momentum.*-1"),
            ({"weight_decay": math.nan}, "weight_decay.*nan"),
            ({"optimizer": "adam"}, "optimizer.*sgd, adamw.*'adam'"),
            ({"schedule": "linear"}, "schedule.*'linear'"),
            ({"warmup": 3}, "warmup.*3"),
            ({"clip": 0.0}, r"clip.*0\.0"),
            ({"device": "gpu"}, "device.*'gpu'"),
            ({"device": "cpu:1"}, "device.*'cpu:1'"),
            ({"device": "cuda:99"}, "device.*'cuda:99'"),
            ({"precision": "fp16"}, "precision.*'fp16'"),
            ({"batch_size": 7}, "batch_size=7 .*one image"),
            ({"batch_size": 16, "accumulate": 2}, "accumulate=2"),
        ],
    )
    def test_is_named_before_anything_is_trained(self, options, named):
        modules = nets()
        before = weights(*modules)
        with pytest.raises(ValueError, match=named):
            fit(modules, **options)
        assert torch.equal(weights(*modules), before)


class TestEvaluation:
    def test_chunks_agree_with_one_pass_and_modes_come_back(self):
        backbone, head = nets(dropout=0.5)
        backbone[1].eval()
        full = toy_set()
        whole, parts = (train.evaluate(backbone, head, full, batch_size=n) for n in (50, 7))
        for name in ("scores", "cosines", "features", "target", "prototypes"):
            torch.testing.assert_close(getattr(whole, name), getattr(parts, name), rtol=1e-5, atol=1e-6)
        assert [m.training for m in backbone] == [True, False, True, True, True, True]
        assert backbone.training
        assert head.training
        assert torch.equal(whole.target, full.labels)

    def test_scores_hold_no_margin_and_measures_are_the_definitions(self):
        backbone, head = nets(head=LinearHead)
        result = train.evaluate(backbone, head, toy_set())
        features, prototypes = result.features.double(), head.prototypes.detach().double()
        cosines = F.normalize(features) @ F.normalize(prototypes).T
        torch.testing.assert_close(result.cosines.double(), cosines, rtol=1e-4, atol=1e-6)
        scores = features @ prototypes.T + head.bias.detach().double()
        torch.testing.assert_close(result.scores.double(), scores, rtol=1e-4, atol=1e-5)
        own = cosines.gather(1, result.target[:, None]).squeeze(1)
        others = cosines.scatter(1, result.target[:, None], -9.0).amax(1)
        torch.testing.assert_close(result.sample_margins.double(), own - others, rtol=1e-4, atol=1e-5)
        assert result.mean_sample_margin == pytest.approx(float((own - others).mean()), abs=1e-5)
        assert result.accuracy == float((scores.argmax(1) == result.target).double().mean())
        norms = prototypes.norm(dim=1)
        assert result.prototype_norm_ratio == pytest.approx(float(norms.max() / norms.min()))
        between = F.normalize(prototypes) @ F.normalize(prototypes).T - 2 * torch.eye(3)
        assert result.class_margin == pytest.approx(math.degrees(math.acos(float(between.max()))), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", "0.1"), ("lr", None), ("momentum", "x"), ("warmup", "1"), ("clip", "x"), ("seed", -1), ("seed", 1.5)],
)
def test_settings_of_a_wrong_kind_are_named(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must.*{value}"):
        train.fit(*nets(), objective, toy_set(), **{**SHORT, name: value})


def test_an_incomplete_checkpoint_is_refused(tmp_path):
    checkpoints.save(tmp_path / "a.ckpt", {})
    with pytest.raises(CheckpointError, match=r"a\.ckpt is an incomplete checkpoint, without settings"):
        train.fit(*nets(), objective, toy_set(), **SHORT, checkpoint=tmp_path / "a.ckpt")
