"""The command line: what it accepts, what it says, how it exits; and papermill without it."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from nbs_lib import cli
from nbs_lib.publish import doctor, notebooks, runs


@pytest.fixture
def clone(tmp_path, monkeypatch, make_notebook) -> Path:
    """A repository with one small notebook; the working directory is a folder beside it."""
    root = tmp_path / "clone"
    (root / "book").mkdir(parents=True)
    cells = ("print(scale, lr, flag, seed)", "if seed == 13:\n    raise RuntimeError('unlucky')")
    notebooks.write(make_notebook(*cells), root / "notebooks" / "13_small.ipynb")
    monkeypatch.chdir(root)
    return root


def nbs(*arguments: str) -> int:
    with pytest.raises(SystemExit) as status:
        cli.app(arguments)
    return status.value.code


@pytest.fixture
def executed(monkeypatch) -> list:
    """What would be executed, without executing: (output, parameters)."""
    calls = []
    monkeypatch.setattr(notebooks, "execute", lambda source, output, values, **_: calls.append((output, values)))
    return calls


def test_typed_text_becomes_the_declared_type(clone, executed, capsys):
    assert nbs("run", "13", "-p", "lr", "1", "-p", "flag", "false", "-p", "seed", "7", "-p", "scale", "paper") == 0
    ((output, values),) = executed
    assert values == {"lr": 1.0, "flag": False, "seed": 7, "scale": "paper"}
    assert [type(value) for value in values.values()] == [float, bool, int, str]
    assert str(output) == "13_small-lr=1.0-flag=False-seed=7-scale=paper.ipynb"
    assert str(output) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-p", "sede", "1"], "sede: no such parameter; did you mean seed?"),
        (["-p", "lr", "fast"], "lr: expected a real number, got 'fast'"),
        (["-p", "lr", "-1"], "lr: expected at least 0.0, got -1.0"),
        (["-p", "flag", "0"], "flag: expected true or false, got '0'"),
        (["-p", "seed", "1.5"], "seed: expected a whole number, got '1.5'"),
        (["-p", "scale", "papre"], "did you mean 'paper'?"),
        (["-o", "notebooks/13_small.ipynb"], "13_small.ipynb is a notebook of the book"),
        (["-f", "missing.yaml"], "missing.yaml"),
    ],
)
def test_mistakes_stop_before_anything_runs(clone, executed, capsys, arguments, says):
    assert nbs("run", "13", *arguments) == 1
    assert says in capsys.readouterr().err
    assert executed == []


def test_all_mistakes_are_told_at_once(clone, executed, capsys):
    nbs("run", "13", "-p", "sede", "1", "-p", "lr", "fast")
    error = capsys.readouterr().err
    assert "sede" in error
    assert "lr: expected a real number" in error


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("lr: 1e-3", "lr: expected a real number, got '1e-3' (str); YAML reads 1e-3 as text: write 0.001"),
        ("lr: 1", "lr: expected a real number, got 1 (int); write 1.0"),
        ("flag: 'no'", "flag: expected True or False, got 'no' (str)"),
        ("seed: 1.0", "seed: expected a whole number, got 1.0 (float)"),
        ("sede: 1", "did you mean seed?"),
        ("- lr", "must hold parameters, one 'name: value' a line"),
        ("lr: [", "while parsing"),
    ],
)
def test_yaml_is_strict(clone, executed, capsys, content, says):
    Path("p.yaml").write_text(content)
    assert nbs("run", "13", "-f", "p.yaml") == 1
    assert says in capsys.readouterr().err
    assert executed == []


def test_yaml_is_read_and_the_command_line_wins(clone, executed):
    Path("p.yaml").write_text("lr: 1.0e-3\nflag: no\nseed: 3\n")
    assert nbs("run", "13", "-f", "p.yaml", "-p", "seed", "4") == 0
    assert executed[0][1] == {"lr": 1e-3, "flag": False, "seed": 4}


def test_output_names(clone, executed):
    Path("out").mkdir()
    nbs("run", "13", "-o", "out")
    nbs("run", "13", "-o", "out/mine")
    nbs("run", "notebooks/13_small.ipynb", "-o", "new/mine.ipynb")
    assert [str(output) for output, _ in executed] == [
        "out/13_small-defaults.ipynb",
        "out/mine.ipynb",
        "new/mine.ipynb",
    ]
    awkward = runs.default_name(Path("13_small.ipynb"), {"dataset": "folder:/a b/c"})
    assert awkward == runs.default_name(Path("13_small.ipynb"), {"dataset": "folder:/a b/c"})
    assert awkward != runs.default_name(Path("13_small.ipynb"), {"dataset": "folder:/a b/d"})
    assert "/" not in awkward


def test_unknown_notebook(clone, capsys):
    assert nbs("run", "14") == 1
    assert "no notebook 14" in capsys.readouterr().err


def test_misuse_exits_2(clone, capsys):
    assert nbs("run", "13", "-p", "lr") == 2
    assert nbs() == 2
    assert nbs("bild") == 2
    assert "invalid choice: 'bild'" in capsys.readouterr().err


@pytest.mark.slow
def test_run_and_failing_run(clone, capsys):
    """Two kernels: a good run, and one whose cell raises after others have run."""
    before = (clone / "notebooks" / "13_small.ipynb").read_bytes()
    assert nbs("run", "13", "-p", "lr", "2", "-o", "good.ipynb") == 0
    assert "quick 2.0 True 0\n" in Path("good.ipynb").read_text("utf8").replace("\\n", "\n")
    assert nbs("run", "13", "-p", "seed", "13", "-o", "bad.ipynb") == 1
    error = capsys.readouterr().err
    assert "13_small.ipynb: cell In [5] raised RuntimeError: unlucky" in error
    assert "bad.failed.ipynb" in error
    assert "quick 1.0 True 13" in Path("bad.failed.ipynb").read_text("utf8")
    assert not Path("bad.ipynb").exists()
    assert (clone / "notebooks" / "13_small.ipynb").read_bytes() == before
    left = {path.name for path in clone.iterdir()}
    assert left == {"book", "notebooks", "good.ipynb", "bad.failed.ipynb"}


def papermill(clone: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Papermill as a reader runs it; nothing of ours but the notebook."""
    with notebooks.own_kernel():
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "papermill",
                "notebooks/13_small.ipynb",
                "out.ipynb",
                "--no-progress-bar",
                *arguments,
            ],
            cwd=clone,
            env=dict(os.environ),
            capture_output=True,
            text=True,
        )


@pytest.mark.slow
def test_papermill_alone_fails_on_bad_parameters(clone):
    done = papermill(clone, "-p", "sede", "1", "-p", "flag", "false", "-p", "lr", "fast", "-p", "scale", "7")
    assert done.returncode == 1
    assert "ParameterError" in done.stderr
    assert "sede: no such parameter; did you mean seed?" in done.stderr
    assert "flag: expected True or False, got 'false' (str)" in done.stderr
    assert "lr: expected a real number, got 'fast' (str)" in done.stderr
    assert "scale: expected one of 'quick', 'paper', got 7 (int)" in done.stderr


@pytest.mark.slow
def test_papermill_alone_fails_on_yaml_text(clone):
    done = papermill(clone, "-y", "lr: 1e-3")
    assert done.returncode == 1
    assert "YAML reads 1e-3 as text: write 0.001" in done.stderr


@pytest.mark.slow
def test_papermill_alone_runs_with_good_parameters(clone):
    done = papermill(clone, "-p", "lr", "0.5", "-y", "flag: false")
    assert done.returncode == 0, done.stderr
    assert "quick 0.5 False 0" in (clone / "out.ipynb").read_text("utf8")


def test_refresh_reports_every_notebook(clone, monkeypatch, capsys):
    def refresh(path):
        if path.stem == "14_bad":
            raise notebooks.NotebookError("14_bad.ipynb: code cell 2 raised ValueError: no")
        return True

    monkeypatch.setattr(notebooks, "refresh", refresh)
    (clone / "notebooks" / "14_bad.ipynb").write_text("{}")
    (clone / "notebooks" / "15_good.ipynb").write_text("{}")
    assert nbs("refresh") == 1
    shown = capsys.readouterr()
    assert shown.out == "13_small: rewritten\n15_good: rewritten\n"
    assert shown.err == "error: 14_bad.ipynb: code cell 2 raised ValueError: no\n"


def test_doctor_here(capsys):
    findings = {finding.name: finding for finding in doctor._distributions()}
    assert findings["torch"].ok
    assert findings["jupyter-book"].ok
    assert doctor._kernel().ok
    assert [finding.name for finding in doctor._device()] == ["device", "precision"]


@pytest.mark.parametrize(
    ("name", "version", "status", "says"),
    [
        ("jupyter-book", "2.0.0", 1, "BAD jupyter-book"),
        ("torch", "2.1.0", 1, "BAD torch"),
        ("hypothesis", None, 0, "-   hypothesis"),
        ("papermill", None, 1, "BAD papermill"),
    ],
)
def test_doctor_finds_what_is_broken(monkeypatch, capsys, name, version, status, says):
    real = metadata.version

    def pretend(wanted):
        if wanted != name:
            return real(wanted)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", pretend)
    monkeypatch.setattr(doctor, "_image_sets", lambda: iter(()))
    assert nbs("doctor") == status
    assert says in capsys.readouterr().out


def test_doctor_on_data(monkeypatch, capsys):
    from nbs_lib import data

    def load(name, **options):
        assert options["download"] is False
        if name != "fashion_mini":
            raise data.DataError(f"{name} is not here: a download needs a network")
        return range(2000)

    monkeypatch.setattr(data, "load", load)
    findings = {finding.name: finding for finding in doctor._image_sets()}
    assert findings["fashion_mini"].text == "found (2,000 test images)"
    assert not findings["mnist"].ok
    assert not findings["mnist"].needed
    assert findings["mnist"].text == "mnist is not here: a download needs a network"


@pytest.mark.parametrize(("command", "status"), [("refresh", 1), ("build", 1), ("doctor", 1)])
def test_bare_environment(command, status):
    """Without the book's packages: a sentence, no traceback; doctor still reports all it finds."""
    hide = "import sys; sys.modules.update(nbformat=None, papermill=None, ipykernel=None, torch=None); "
    code = f"{hide}from nbs_lib import cli; cli.app(['{command}'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    if command == "doctor":
        assert "BAD kernel" in done.stdout
    else:
        assert "error: nbformat is not installed: run `pip install -e '.[book]'`" in done.stderr


def test_help_names_every_command(capsys):
    assert nbs("--help") == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("build", "run", "sweep", "results", "refresh", "doctor"))


def test_a_run_from_elsewhere_keeps_the_books_notebooks(clone, executed, capsys):
    own = clone / "own.ipynb"
    own.write_bytes((clone / "notebooks" / "13_small.ipynb").read_bytes())
    assert nbs("run", "own.ipynb", "-o", "notebooks/13_small.ipynb") == 1
    assert "is a notebook of the book" in capsys.readouterr().err
    assert executed == []


def test_a_trailing_slash_means_a_folder(clone, executed):
    assert nbs("run", "13", "-o", "fresh/deep/") == 0
    assert str(executed[0][0]) == "fresh/deep/13_small-defaults.ipynb"
    assert Path("fresh/deep").is_dir()


def test_unusable_files_are_one_line(clone, executed, capsys):
    Path("p.yaml").write_bytes(b"lr: \xff")
    Path("plain").write_text("")
    for arguments in (["-f", "p.yaml"], ["-o", "plain/a.ipynb"], ["-o", "plain/"], ["-o", "plain/b/c.ipynb"]):
        assert nbs("run", "13", *arguments) == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1
    assert executed == []


def test_negative_values_are_no_options(clone, executed, capsys):
    assert nbs("run", "13", "-p", "lr", "-1e-3") == 1
    assert "lr: expected at least 0.0, got -0.001" in capsys.readouterr().err
    assert cli._parser().parse_args(["run", "13", "-p", "scales", "-1,2"]).parameter == [["scales", "-1,2"]]


@pytest.mark.slow
def test_termination_keeps_what_ran(clone):
    nb = notebooks.read(clone / "notebooks" / "13_small.ipynb")
    nb.cells[-1].source = "import os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)"
    notebooks.write(nb, clone / "notebooks" / "13_small.ipynb")
    command = [sys.executable, "-c", "from nbs_lib import cli; cli.app()", "run", "13", "-o", "out.ipynb"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == 143
    assert "error: terminated" in done.stderr
    assert "quick 1.0 True 0" in (clone / "out.failed.ipynb").read_text("utf8")
    assert not (clone / "out.ipynb").exists()
