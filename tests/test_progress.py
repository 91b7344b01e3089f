"""Progress shows where somebody watches and nowhere else."""

import sys
import types

import pytest

from nbs_lib import progress
from nbs_lib.progress import Progress


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch):
    """Neither terminal nor notebook, whatever runs the tests."""
    for name in ("NBS_PROGRESS", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))


def kernel(monkeypatch):
    """Pretend to run in a Jupyter kernel; returns what it was asked to show."""
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    def display(content, raw, display_id):
        shown.append(content["text/plain"])
        return Handle()

    shell = type("ZMQInteractiveShell", (), {"user_ns": {}})()
    fake = types.SimpleNamespace(get_ipython=lambda: shell, display=types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", fake.display)
    return shell, shown


def count(wanted=None, steps=3):
    with Progress(steps, "training", wanted) as bar:
        for step in range(steps):
            bar.advance(f"step {step}")
    return bar


def test_nobody_watches(capfd):
    assert count().place == ""
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_a_terminal_gets_a_bar_that_is_wiped(monkeypatch, capfd):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert count().place == "terminal"
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "training" in captured.err
    assert captured.err.split("\r")[-1].strip() == ""


@pytest.mark.parametrize(("value", "place"), [("0", ""), ("1", "terminal"), ("yes", "")])
def test_the_environment_decides(monkeypatch, value, place):
    monkeypatch.setenv("NBS_PROGRESS", value)
    assert progress.where() == place
    assert progress.where(False) == ""
    assert progress.where(True) == "terminal"


def test_a_kernel_without_a_front_end_is_silent(monkeypatch):
    """Papermill's, nbval's."""
    _, shown = kernel(monkeypatch)
    assert count().place == ""
    assert shown == []


@pytest.mark.parametrize("front_end", ["jupyter", "colab", "vscode"])
def test_a_live_notebook_gets_one_line_that_is_emptied(monkeypatch, front_end):
    shell, shown = kernel(monkeypatch)
    if front_end == "jupyter":
        monkeypatch.setenv("JPY_SESSION_NAME", "some.ipynb")
    elif front_end == "colab":
        monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    else:
        shell.user_ns["__vsc_ipynb_file__"] = "some.ipynb"
    assert count().place == "notebook"
    assert shown[0] == "training: 0 %"
    assert shown[-1] == ""


def test_an_interruption_tidies_up(monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "some.ipynb")
    _, shown = kernel(monkeypatch)

    def interrupted():
        with Progress(3, "training") as bar:
            bar.advance()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert shown[-1] == ""
