"""The page "Paper and here": each table of the papers, our numbers beside it, and what repeats them."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from nbs_lib.publish import ledger
from nbs_lib.publish.comparison import Ours, Printed, Row
from nbs_lib.publish.ledger import Entry, Found

NAME = "paper_and_here"
BIBLIOGRAPHY_KEYS = {"LargestMargins-ICLR2022": "zhou-2022"}
"""The papers' short names in ``paper_tables``: their keys in references.bib and claims.yml."""
MEASURES = {
    "acc": ("accuracy (%)", 2),
    "mcls": ("class margin (°)", 2),
    "msamp": ("mean sample margin", 3),
    **{name: (f"accuracy, {name.lower()} (%)", 2) for name in ("All", "Many", "Medium", "Few")},
}
"""How a measure is called on the page, and to how many decimals ours is shown; others keep the papers' own name."""
NONE = "–"
_INTRODUCTION = """\
Every number in the result tables of the papers, and what we have beside it. *Recorded* numbers come from
`book/results`: long runs with seed, hardware and versions on file. *Live* numbers were computed by a chapter when this
book was built; they link to their cell. The *difference* is ours minus the paper's, of the recorded number where
there is one; it is given only where data set, protocol and method carry the same name. How long we trained, with which
network and how often, stands in the row: most of our runs are shorter than the paper's. Where we have other data only,
a row says *nearest of ours*, names the data and gives no difference.

A click on the head of a column sorts by it, a second click turns the order round, a third restores the paper's."""


def page(
    rows: Sequence[Row],
    *,
    entries: Sequence[Entry] = (),
    verdicts: Mapping[str, list[Found]] | None = None,
    sweeps: Sequence[str] = (),
    bibliography: Path | None = None,
) -> str:
    """Write the page (MyST Markdown): an overview, then of each table our rows, and the rest folded.

    Args:
        rows: of `comparison.compare`.
        entries: the statements of claims.yml; those about a table are shown with it.
        verdicts: the verdicts found for each statement.
        sweeps: names of the descriptions in ``book/sweeps``: a results file of that name is repeated by its sweep.
        bibliography: BibTeX file with the papers' authors and titles.
    """
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row.printed.table, []).append(row)
    lines = ["---", "html_theme.sidebar_secondary.remove: true", "---", "", "# Paper and here", "", _INTRODUCTION, ""]
    lines += ["| table | numbers printed | recorded here | live here |", "|---|---:|---:|---:|"]
    lines += [_overview(name, own) for name, own in tables.items()]
    paper = ""
    for name, own in tables.items():
        printed = own[0].printed
        if printed.paper != paper:
            paper = printed.paper
            title = ledger.paper_title(BIBLIOGRAPHY_KEYS.get(paper, paper), bibliography)
            lines += ["", f"## {title}"]
        lines += ["", f"({_label(name)})=", f"### {_title(printed)}: {', '.join(_datasets(own))}", ""]
        lines += _about(printed, entries, verdicts or {})
        lines += _section(own, sweeps)
    return "\n".join(lines) + "\n"


def _title(printed: Printed) -> str:
    return printed.title if printed.title.startswith("Table") else f"Table {printed.title}"


def _label(table: str) -> str:
    return table.replace("_", "-")


def _datasets(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.printed.dataset for row in rows))


def _overview(name: str, rows: Sequence[Row]) -> str:
    printed = sum(bool(row.printed.value) for row in rows)
    recorded, live = (sum(getattr(row, kind) is not None for row in rows) for kind in ("recorded", "live"))
    title = f"[{_title(rows[0].printed)}](#{_label(name)}) ({', '.join(_datasets(rows))})"
    return f"| {title} | {printed} | {recorded or NONE} | {live or NONE} |"


def _about(printed: Printed, entries: Sequence[Entry], verdicts: Mapping[str, list[Found]]) -> list[str]:
    """List the ledger's verdicts on this table, each with a link to the cell that gave it."""
    paper, title = BIBLIOGRAPHY_KEYS.get(printed.paper, printed.paper), _title(printed)
    own = [e for e in entries if e.paper == paper and (e.where == title or e.where.startswith(f"{title},"))]
    checked = [(entry, verdicts[entry.id]) for entry in own if verdicts.get(entry.id)]
    lines = [f"- {ledger.badge(ledger.verdict(found))} {e.title}: {ledger.links(e.id, found)}" for e, found in checked]
    return [*lines, ""] if lines else []


def _section(rows: Sequence[Row], sweeps: Sequence[str]) -> list[str]:
    lines = _lines(rows)
    ours = {key: line for key, line in lines.items() if any(row.recorded or row.live for row in line.values())}
    rest = {key: line for key, line in lines.items() if key not in ours}
    written = []
    if ours:
        own = [row for line in ours.values() for row in line.values()]
        files = sorted({row.recorded.source.removesuffix(".csv") for row in own if row.recorded})
        for name in (name for name in files if name in sweeps):
            written += [f"All of `{name}.csv` again: `nbs sweep {name}`, then `nbs results {name} --publish`.", ""]
        for data in dict.fromkeys(data for data, _ in ours):
            written += [_compared(data, {key: line for key, line in ours.items() if key[0] == data}), ""]
    if rest:
        count = sum(bool(row.printed.value) for line in rest.values() for row in line.values())
        what = f"{count} more numbers of the paper" if ours else f"The paper's {count} numbers"
        # no blank line inside: it would end the HTML
        written += [f"<details><summary>{what}, none of ours beside them yet</summary>", _alone(rest), "</details>", ""]
    return written


Lines = dict[tuple[str, str], dict[str, Row]]
"""Rows as the page lays them out: a line for data set and method (as HTML), and in it a row for each measure."""
Cell = tuple[str, float | None]
"""HTML of a table's cell, and the number to sort it by."""
EMPTY: Cell = (NONE, None)


def _lines(rows: Sequence[Row]) -> Lines:
    lines: Lines = {}
    for row in rows:
        lines.setdefault((_data(row.printed), html.escape(row.printed.method)), {})[row.printed.metric] = row
    return lines


def _compared(data: str, lines: Lines) -> str:
    """Lay out our lines on one data set: for each measure paper, recorded, live if there is any, difference."""
    rows = [row for line in lines.values() for row in line.values()]
    kinds: dict[str, list[str]] = {row.printed.metric: ["paper", "recorded", "difference"] for row in rows}
    for metric in {row.printed.metric for row in rows if row.live}:
        kinds[metric].insert(2, "live")
    heads = [f"<small>{_measure(metric)}</small><br>{kind}" for metric, own in kinds.items() for kind in own]
    body = []
    for (_, method), line in lines.items():
        numbers = [cell for metric, own in kinds.items() for cell in _numbers(line.get(metric), own)]
        made = dict.fromkeys(text for row in line.values() for text in _made_of(row))
        body.append([(method, None), *numbers, ("".join(made), None)])
    return _table(["method", *heads, "how ours was made"], body, caption=data)


def _numbers(row: Row | None, kinds: Sequence[str]) -> list[Cell]:
    if row is None:
        return [EMPTY] * len(kinds)
    places, difference = _places(row.printed), row.difference
    cells = {
        "paper": _paper(row.printed),
        "recorded": _here(row.recorded, places),
        "live": _here(row.live, places),
        "difference": EMPTY if difference is None else (f"{difference:+.{places}f}".replace("-", "−"), difference),
    }
    return [cells[kind] for kind in kinds]


def _alone(lines: Lines) -> str:
    """Lay out lines of the paper alone: a column a measure."""
    metrics = list(dict.fromkeys(metric for line in lines.values() for metric in line))
    body = []
    for (data, method), line in lines.items():
        numbers = [_paper(line[metric].printed) if metric in line else EMPTY for metric in metrics]
        body.append([(method, None), (data, None), *numbers])
    return _table(["method", "data set", *map(_measure, metrics)], body)


def _data(printed: Printed) -> str:
    setting = "" if printed.setting == "balanced" else f", {printed.setting}"
    return f"{html.escape(printed.dataset + setting)} <small>({html.escape(printed.model)})</small>"


def _paper(printed: Printed) -> Cell:
    if not printed.value:
        return NONE, None
    note = f"<br><small>{html.escape(printed.note)}</small>" if printed.note else ""
    return html.escape(printed.value) + note, float(printed.value)


def _here(ours: Ours | None, places: int) -> Cell:
    if ours is None:
        return NONE, None
    text = f"{ours.value:.{places}f}" + (f" ± {ours.std:.{places}f}" if ours.std is not None else "")
    text = f'<a href="{html.escape(ours.link)}">{text}</a>' if ours.link else text
    return text + ("<br><small>nearest of ours</small>" if ours.data else ""), ours.value


def _made_of(row: Row) -> list[str]:
    return [_made(kind, ours) for kind, ours in (("recorded", row.recorded), ("live", row.live)) if ours is not None]


def _made(kind: str, ours: Ours) -> str:
    """Say what our number rests on: data if not the paper's, length, network, number of runs, source, command."""
    count = f"{ours.runs} run{'s' * (ours.runs > 1)}" if ours.runs else ""
    length = f"{ours.epochs} epoch{'s' * (ours.epochs > 1)}" if ours.epochs else ""
    told = ", ".join(html.escape(part) for part in (ours.data, length, ours.model, count) if part)
    command = f"<br><code>{html.escape(ours.command)}</code>" if ours.command else ""
    return f"<details><summary>{kind}: {told}</summary>{html.escape(ours.source)}{command}</details>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str = "") -> str:
    """Write a table that the script beside the page (_static/tables.js) makes sortable; a wide one scrolls."""
    lines = ['<div class="nbs-sortable nbs-comparison" tabindex="0"><table class="table">']
    lines += [f"<caption>{caption}</caption>"] if caption else []
    lines += ["<thead><tr>", *(f'<th scope="col">{head}</th>' for head in heads), "</tr></thead><tbody>"]
    for row in rows:
        keys = ["" if key is None else f' data-value="{key:.9g}"' for _, key in row]
        cells = [f"<td{key}>{text}</td>" for (text, _), key in zip(row, keys, strict=True)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _measure(metric: str) -> str:
    """Return how a measure is called, as HTML."""
    return MEASURES[metric][0] if metric in MEASURES else f"{html.escape(metric)} (%)"


def _places(printed: Printed) -> int:
    """Return to how many decimals a measure is shown: as many as the paper prints."""
    digits = len(printed.value.partition(".")[2])
    return max(digits, 2) if digits else MEASURES.get(printed.metric, ("", 2))[1]
