"""The README tells the truth: its code runs, its commands and links exist, its table is the book's."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf8")
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [source for found, source in FENCED.findall(README) if found == language]


@pytest.mark.parametrize("source", blocks("python"))
def test_python_blocks_run(source):
    namespace: dict = {}
    exec(compile(source, "README.md", "exec"), namespace)
    assert namespace["loss"].isfinite()
    assert namespace["head"].prototypes.grad.abs().sum() > 0


def test_the_two_commands_are_the_first_thing():
    first = blocks("bash")[0].splitlines()
    assert [line.split("#")[0].strip() for line in first] == ["make book", "make test"]


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)", "\n".join([*blocks("bash"), *re.findall(r"`([^`]+)`", README)])))
    assert named
    assert named <= targets


def test_conda_commands_name_the_environment():
    name = yaml.safe_load((ROOT / "environment.yml").read_text("utf8"))["name"]
    assert f"conda activate {name}\n" in README


def test_relative_links_exist():
    links = re.findall(r"\]\(([^)#\s]+)", re.sub(FENCED, "", README))
    relative = [link for link in links if "://" not in link]
    assert relative
    assert [link for link in relative if not (ROOT / link).exists()] == []


def test_chapter_table_lists_the_notebooks_of_the_book():
    table = re.findall(r"^\| \[`(\w+)`\]\(notebooks/(\w+)\.ipynb\)", README, re.MULTILINE)
    assert all(shown == linked for shown, linked in table)
    stems = [stem for stem, _ in table]
    assert stems == sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    toc = (ROOT / "book" / "_toc.yml").read_text("utf8")
    assert stems == re.findall(r"notebooks/(\w+)", toc)


def test_no_placeholder_is_left():
    assert not re.search(r"TIMING|TODO|FIXME", README)


def test_readme_says_what_the_licence_says():
    assert (ROOT / "LICENSE").read_text("utf8").startswith("MIT License")
    assert "MIT licence" in README
