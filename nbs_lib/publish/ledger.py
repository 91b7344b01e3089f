"""The ledger: what the papers state (book/claims.yml) beside what the executed notebooks found, as one page."""

import html
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from nbformat import NotebookNode

from nbs_lib import claims
from nbs_lib.publish.notebooks import code_cells

KINDS = ("lemma", "theorem", "proposition", "equation", "claim", "table", "figure")
REQUIRED = ("id", "title", "paper", "where", "kind", "statement", "chapter")
OPTIONAL = ("open",)  # why a chapter that exists does not check the statement yet


class _Loader(yaml.SafeLoader):
    """YAML in which a key given twice is an error, not the last one's victory."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key '{key.value}' is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class LedgerError(Exception):
    """claims.yml is malformed, or the notebooks and it disagree; ``problems`` lists all of it."""

    def __init__(self, problems: list[str]):
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Entry:
    """One statement of a paper, as claims.yml gives it."""

    id: str
    title: str
    paper: str
    where: str
    kind: str
    statement: str
    chapter: str
    open: str = ""


@dataclass(frozen=True)
class Found:
    """One verdict in an executed notebook: its record, the notebook's stem, the number of the code cell."""

    record: dict[str, Any]
    notebook: str
    cell: int

    @property
    def place(self) -> str:
        """Say where it stands, for messages."""
        return f"{self.notebook}, code cell {self.cell}"


def read_claims(path: Path) -> list[Entry]:
    """Read and check claims.yml.

    Raises:
        LedgerError: not UTF-8, not YAML, a key given twice, not a list of entries, a key missing, unknown, empty or not
            text, an id malformed or used twice, an unknown kind; each problem names file, entry and key.
    """
    try:
        raw = yaml.load(path.read_text("utf8"), _Loader)
    except FileNotFoundError:
        raise LedgerError([f"{path}: no such file"]) from None
    except UnicodeDecodeError as error:
        raise LedgerError([f"{path}: not UTF-8 text: {error.reason} at byte {error.start}"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise LedgerError([f"{path}{where}: not YAML: {getattr(error, 'problem', error)}"]) from None
    if not isinstance(raw, list):
        raise LedgerError([f"{path}: must be a list of entries, each starting with '- id: ...'"])
    problems, entries, seen = [], [], set()
    for number, item in enumerate(raw, start=1):
        label = f"{path}: entry {number}"
        if not isinstance(item, dict):
            problems.append(f"{label}: must be keys and values, got {item!r}")
            continue
        label += f" ({item.get('id', 'without id')})"
        wrong = [f"{label}: key '{key}' is missing" for key in REQUIRED if key not in item]
        wrong += [f"{label}: unknown key '{key}'" for key in item if key not in REQUIRED + OPTIONAL]
        wrong += [
            f"{label}: key '{key}' must be a text, got {value!r}"
            for key, value in item.items()
            if not isinstance(value, str) or not value.strip()
        ]
        if not wrong:
            entry = Entry(**{key: " ".join(value.split()) for key, value in item.items()})
            if not claims.ID_PATTERN.fullmatch(entry.id):
                wrong.append(f"{label}: key 'id' must be lower-case words joined by '-' or '.'")
            if entry.id in seen:
                wrong.append(f"{label}: key 'id' is used twice")
            if entry.kind not in KINDS:
                wrong.append(f"{label}: key 'kind' must be one of {', '.join(KINDS)}, got {entry.kind!r}")
            seen.add(entry.id)
            entries.append(entry)
        problems += wrong
    if problems:
        raise LedgerError(problems)
    return entries


def collect(notebook: NotebookNode, name: str) -> list[Found]:
    """Return the verdicts that `claims.check` left in an executed notebook."""
    return [
        Found(dict(output.data[claims.MIME]), name, number)
        for number, cell in enumerate(code_cells(notebook), start=1)
        for output in cell.outputs
        if claims.MIME in output.get("data", {})
    ]


def match(entries: list[Entry], found: list[Found], chapters: set[str]) -> dict[str, list[Found]]:
    """Bring statements and verdicts together; ``chapters`` are the stems of the notebooks there are.

    Raises:
        LedgerError: a verdict for an unknown id; two verdicts on one id that differ; a statement whose chapter exists
            but does not check it, unless the entry says with ``open`` why; ``open`` on a statement that is checked.
    """
    problems: list[str] = []
    by_id: dict[str, list[Found]] = {entry.id: [] for entry in entries}
    for verdict in found:
        claim_id = verdict.record["id"]
        if claim_id not in by_id:
            problems.append(f"{verdict.place}: no statement '{claim_id}' in claims.yml")
            continue
        first = next(iter(by_id[claim_id]), verdict)
        if first.record["verdict"] != verdict.record["verdict"]:
            problems.append(
                f"'{claim_id}' has two verdicts: '{first.record['verdict']}' ({first.place}) and "
                f"'{verdict.record['verdict']}' ({verdict.place})"
            )
        by_id[claim_id].append(verdict)
    for entry in entries:
        places = {verdict.notebook for verdict in by_id[entry.id]}
        if places and entry.open:
            problems.append(f"claims.yml: '{entry.id}' is checked, so it must not have the key 'open'")
        elif places and entry.chapter not in places:
            problems.append(
                f"claims.yml: '{entry.id}' names chapter {entry.chapter}, but {', '.join(sorted(places))} checks it"
            )
        elif not places and entry.chapter in chapters and not entry.open:
            problems.append(
                f"claims.yml: '{entry.id}' names chapter {entry.chapter}, which does not check it; "
                "check it there, or say with the key 'open' why not yet"
            )
    if problems:
        raise LedgerError(problems)
    return by_id


def page(
    entries: list[Entry], by_id: dict[str, list[Found]], *, bibliography: Path | None = None, guide: str = ""
) -> str:
    """Write the ledger page (MyST Markdown): a summary, then a table for each paper.

    Args:
        entries: the statements, in the order to show.
        by_id: the verdicts found for each id, from `match`.
        bibliography: BibTeX file with the papers' authors and titles.
        guide: path of the page that explains the verdicts, if the book has one.
    """
    papers = list(dict.fromkeys(entry.paper for entry in entries))
    verdicts = Counter(verdict(by_id[entry.id]) for entry in entries)
    checked = len(entries) - verdicts[claims.OPEN]
    lines = [
        "---",
        "html_theme.sidebar_secondary.remove: true",  # the tables need the width
        "---",
        "",
        "# Ledger of statements",
        "",
        f"The papers make {len(entries)} statements that can be derived or measured. The notebooks of this book check "
        f"{checked} of them; a verdict links to the cell that computed it, as it ran when this page was built."
        + (f" What the verdicts mean: [how to read this book]({guide})." if guide else ""),
        "",
        "| verdict | statements |",
        "|---|---:|",
        *(f"| {badge(word)} | {verdicts[word]} |" for word in claims.SIGNS if verdicts[word]),
        "",
    ]
    for paper in papers:
        own = [entry for entry in entries if entry.paper == paper]
        lines += [f"## {paper_title(paper, bibliography)}", ""]
        # The scripts beside the page (_static/tables.js, ledger.js) turn this element into sorting and filtering.
        lines += ['<div class="nbs-ledger nbs-sortable">', ""]
        lines += ["| verdict | statement and evidence | where |", "|---|---|---|"]
        lines += [_row(entry, by_id[entry.id]) for entry in own]
        lines += ["", "</div>", ""]
    return "\n".join(lines)


def _row(entry: Entry, found: list[Found]) -> str:
    statement = f"**{_cell(entry.title)}.** {_cell(entry.statement)} <small>`{entry.id}`</small>"
    evidence = _evidence(entry, found)
    where = f"{_cell(html.escape(entry.where))}<br><small>{entry.kind}</small>"
    return f"| {badge(verdict(found))} | {statement}<br>{evidence} | {where} |"


def _evidence(entry: Entry, found: list[Found]) -> str:
    if not found:
        return f"*{_cell(entry.open or f'to come in {entry.chapter}')}*"
    record = found[0].record
    shown = claims.Verdict(**{**record, **{k: _float(record[k]) for k in ("measured", "expected", "tolerance")}})
    # The evidence is plain text: nothing in it may turn into a formula or emphasis.
    text = _cell(html.escape(shown.evidence)).replace("$", "&#36;").replace("*", "&#42;").replace("_", "&#95;")
    return f'<span class="nbs-evidence">{text}</span>{" " if text else ""}→ {links(entry.id, found)}'


def links(claim_id: str, found: list[Found]) -> str:
    """Return links to the cells that judged a statement."""
    places = {(one.notebook, one.cell): None for one in found}
    address = {name: f"notebooks/{name}.html#{claims.anchor(claim_id)}" for name, _ in places}
    return ", ".join(f'<a href="{address[name]}">{name}, cell {cell}</a>' for name, cell in places)


def verdict(found: list[Found]) -> str:
    """Return the word for what the notebooks found; "open" if none looked."""
    return found[0].record["verdict"] if found else claims.OPEN


def badge(word: str) -> str:
    """Return a verdict as the pages show it: sign, word, and a colour at the side."""
    kind = "condition" if word == claims.CONDITIONAL else word.split()[0]
    return f'<span class="nbs-verdict nbs-verdict-{kind}">{claims.SIGNS[word]} {word}</span>'


def _cell(markdown: str) -> str:
    """Escape the bars, which would end the table cell (also inside formulas: the table syntax takes the slash away)."""
    return markdown.replace("|", r"\|")


def _float(value: float | str | None) -> float | None:
    return None if value is None else float(value)


def paper_title(key: str, bibliography: Path | None) -> str:
    """Return 'First author et al. (year), title' from the bibliography, or the key where it has no such entry."""
    if bibliography is None or not bibliography.is_file():
        return key
    from pybtex.database import parse_file

    entry = parse_file(str(bibliography), bib_format="bibtex").entries.get(key)
    if entry is None:
        return key
    people = entry.persons.get("author", [])
    names = " ".join(people[0].last_names) + (" et al." if len(people) > 1 else "") if people else key
    title = entry.fields.get("title", "").replace("{", "").replace("}", "")
    return f"{names} ({entry.fields.get('year', 'n. d.')}): {title}"
