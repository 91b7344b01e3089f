"""pyproject.toml, requirements.txt and environment.yml say the same, and the lock is complete."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
LOCK = {
    canonicalize_name(requirement.name): requirement
    for line in (ROOT / "requirements.txt").read_text("utf8").splitlines()
    if line and not line.startswith("#")
    for requirement in [Requirement(line)]
}
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text("utf8"))
# torch asks for these itself, where its build needs them
FROM_TORCH = re.compile(r"nvidia-|cuda-|triton")


def declared() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    return [Requirement(line) for line in PROJECT["dependencies"] + extras["book"] + extras["sweep"] + extras["test"]]


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_lock_is_within_the_declared_range(requirement):
    locked = LOCK[canonicalize_name(requirement.name)]
    (pin,) = locked.specifier
    assert pin.operator == "=="
    assert requirement.specifier.contains(pin.version, prereleases=True)


def test_ranges_of_users_stay_open():
    """An installed torch or numpy is never replaced: no exact pin, no upper bound, among the core dependencies."""
    for line in PROJECT["dependencies"]:
        assert all(part.operator == ">=" for part in Requirement(line).specifier), line


def test_extra_all_is_all():
    assert PROJECT["optional-dependencies"]["all"] == ["nbs-lib[book,sweep,test]"]


def test_jupyter_book_stays_below_2():
    book = next(r for r in declared() if r.name == "jupyter-book")
    assert not book.specifier.contains("2.0.0")


def test_lock_is_exactly_what_the_declared_packages_need():
    waiting = [(canonicalize_name(r.name), frozenset(r.extras)) for r in declared()]
    seen = set()
    while waiting:
        item = waiting.pop()
        if item in seen or FROM_TORCH.match(item[0]):
            continue
        seen.add(item)
        name, extras = item
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras or {""}):
                waiting.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    assert {name for name, _ in seen} == set(LOCK)


def test_what_runs_here_is_the_lock():
    differing = {name: metadata.version(name) for name, r in LOCK.items() if metadata.version(name) not in r.specifier}
    local = {name: version for name, version in differing.items() if "+" not in version}
    assert local == {}


def test_conda_installs_the_lock_and_the_package():
    (pip,) = [entry["pip"] for entry in CONDA["dependencies"] if isinstance(entry, dict)]
    assert pip == ["-r requirements.txt", "-e .[all]"]
    named = [entry for entry in CONDA["dependencies"] if isinstance(entry, str)]
    assert not {re.split(r"[=<>]", entry)[0] for entry in named} & set(LOCK)


def test_python_versions_agree():
    (python,) = [e for e in CONDA["dependencies"] if isinstance(e, str) and e.startswith("python=")]
    version = python.removeprefix("python=")
    assert SpecifierSet(PROJECT["requires-python"]).contains(version)
    assert f"Python {version}" in (ROOT / "requirements.txt").read_text("utf8").splitlines()[0]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf8"))
    steps = workflow["jobs"]["test"]["steps"]
    assert [s["with"]["python-version"] for s in steps if "setup-python" in s.get("uses", "")] == [version]


def test_ci_runs_the_readme_command():
    assert (ROOT / ".ci" / "run").read_text("utf8").rstrip().splitlines()[-1] == "make test"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf8"))["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
