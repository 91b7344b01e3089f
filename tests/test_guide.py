"""The guide's code runs, page by page, and its links and commands exist."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from nbs_lib.losses import functional, regularizers
from nbs_lib.publish import notebooks, runs

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "book" / "guide").glob("*.md")), ROOT / "book" / "index.md"]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [source for found, source in FENCED.findall(page.read_text("utf8")) if found == language]


def test_add_a_loss_works_as_written(monkeypatch, capsys):
    """Define, wrap, test and check the example loss exactly as the page shows it."""
    function, module, tests, *ledger = blocks(ROOT / "book" / "guide" / "add_a_loss.md", "python")
    space = dict(vars(functional))
    exec(function, space)
    monkeypatch.setattr(functional, "mean_margin_loss", space["mean_margin_loss"], raising=False)
    space = dict(vars(regularizers))
    exec(module, space)
    exec(tests, space)
    checks = [check for name, check in space.items() if name.startswith("test_")]
    assert len(checks) == 4
    for check in checks:
        check()
    cosines, target = space["torch"].eye(3), space["torch"].arange(3)
    assert space["MeanMargin"]()(cosines, target) == functional.mean_margin_loss(cosines, target)
    for source in ledger:
        exec(source, space)
    printed = capsys.readouterr().out
    assert "zhou-eq-b.2: holds (" in printed
    assert printed.rstrip().endswith("-1.3333")


def test_add_a_loss_quotes_the_ledger():
    quoted = yaml.safe_load(blocks(ROOT / "book" / "guide" / "add_a_loss.md", "yaml")[0])[0]
    entries = {entry["id"]: entry for entry in yaml.safe_load((ROOT / "book" / "claims.yml").read_text("utf8"))}
    entry = entries[quoted["id"]]
    assert entry.pop("statement").startswith(quoted.pop("statement").removesuffix(" ..."))
    assert entry == quoted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_relative_links_exist(page):
    made_by_the_build = {"ledger.md", "paper_and_here.md"}
    links = re.findall(r"\]\(([^)#\s]+)", re.sub(FENCED, "", page.read_text("utf8")))
    for link in links:
        if "://" in link or Path(link).name in made_by_the_build:
            continue
        # a stage lays the chapters at notebooks/ beside the pages
        place = (page.parent / link).resolve()
        chapter = ROOT / place.relative_to(ROOT / "book")
        assert place.exists() or chapter.exists(), link


def test_the_measured_tables_are_filled():
    text = (ROOT / "book" / "guide" / "choose.md").read_text("utf8")
    assert "not measured yet" not in text
    assert "Measured on: …" not in text


def commands() -> list[str]:
    """The `nbs run` lines of README and guide, with the variables of their shell loops filled in."""
    loop = {"seed": "0", "dataset": "mnist"}
    sources = [source for page in (ROOT / "README.md", *PAGES) for source in blocks(page, "bash")]
    lines = [line.strip() for source in sources for line in source.splitlines() if "nbs run" in line]
    return sorted({re.sub(r"\$\{?(\w+)\}?", lambda found: loop[found[1]], line) for line in lines})


@pytest.mark.parametrize("command", commands())
def test_commands_pass_parameters_that_the_notebook_declares(command):
    words = shlex.split(command)
    name, *options = words[words.index("run") + 1 :]
    typed = [tuple(options[i + 1 : i + 3]) for i, word in enumerate(options) if word == "-p"]
    assert "-o" in options, "a command of the guide says where its output goes"
    runs.values_for(notebooks.find(name, ROOT / "notebooks"), typed)
