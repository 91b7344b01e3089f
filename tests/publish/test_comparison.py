"""Paper and here: what stands beside what, what is refused, what the page and its script show."""

import csv
import html.parser
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from nbs_lib import records
from nbs_lib.publish import build, comparison, comparison_page, ledger, results
from nbs_lib.publish.build import BuildError
from nbs_lib.publish.comparison import ComparisonError, Ours, compare
from nbs_lib.publish.sweep import published

ROOT = Path(__file__).parents[2]
HEADER = "paper,table,dataset,model,setting,method,metric,value,note\n"
TABLE5 = HEADER + (
    "LargestMargins-ICLR2022,Table 5,MNIST,4-layer CNN,balanced,CE,acc,99.11,\n"
    "LargestMargins-ICLR2022,Table 5,MNIST,4-layer CNN,balanced,CE,mcls,87.39,a note\n"
    "LargestMargins-ICLR2022,Table 5,MNIST,4-layer CNN,balanced,NormFace (s = 10),acc,99.06,\n"
    "LargestMargins-ICLR2022,Table 5,CIFAR-10,ResNet-18,balanced,CE,acc,94.12,\n"
    "LargestMargins-ICLR2022,Table 5,CIFAR-10,ResNet-18,balanced,NormFace (s = 10),acc,,\n"
)
TABLE6 = HEADER + "".join(
    f"LargestMargins-ICLR2022,Table 6,Imbalanced CIFAR-10,ResNet-18,{setting},{method},{metric},{value},\n"
    for setting, start in (("long-tailed rho=100", 60), ("step rho=100", 50))
    for method in ("CE", "NormFace (λ = 0)", "NormFace (λ = 2)")
    for metric, value in (("acc", start + 0.5), ("mcls", start + 10))
)
RUN = {
    "dataset": "mnist",
    "model": "paper_cnn",
    "loss": "ce",
    "scale": "",
    "margin": "",
    "sample_margin": "0.0",
    "zero_centroid": "0.0",
    "epochs": "8",
    "lr": "0.01",
    "seed": "0",
    "limit_per_class": "",
    "imbalance": "",
    "imbalance_ratio": "1.0",
    "status": "finished",
    "accuracy": "0.99",
    "class_margin": "88.0",
}

DEFAULTS = {
    **dict.fromkeys(published.FIELDS.values(), ""),
    "dataset": "fashion_mini",
    "model": "mini_cnn",
    "loss": "ce",
    "scale_s": 0.0,
    "margin_m": 0.0,
    "bias": False,
    "nesterov": False,
    "epochs": 6,
    "lr": 0.01,
    "seed": 0,
    "limit_per_class": 0,
    "imbalance_ratio": 1.0,
    "sample_margin_mu": 0.0,
    "zero_centroid_lambda": 0.0,
}


@pytest.fixture
def book(tmp_path) -> Path:
    folder = tmp_path / "book"
    (folder / "paper_tables").mkdir(parents=True)
    (folder / "results").mkdir()
    (folder / "paper_tables" / "margins_table5.csv").write_text(TABLE5, "utf8")
    (folder / "paper_tables" / "margins_table6.csv").write_text(TABLE6, "utf8")
    return folder


def record(book: Path, *runs: dict[str, str], name: str = "runs") -> None:
    with (book / "results" / f"{name}.csv").open("w", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for run in runs for key in run)), restval="")
        writer.writeheader()
        writer.writerows(runs)


def run(**changes: str) -> dict[str, str]:
    return {**RUN, **changes}


def report(*rows: dict, cells: int = 1) -> nbformat.NotebookNode:
    """An executed notebook whose last code cell reported ``rows``."""
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1") for _ in range(cells)])
    stored = {"metrics": {}, "history": [], "context": {"rows": list(rows)}, "note": ""}
    data = {"text/plain": "-", "text/html": "<table></table>", records.MIME: stored}
    nb.cells[-1].outputs = [nbformat.v4.new_output("display_data", data)]
    return nb


def row(**changes) -> dict:
    return {"table": "margins_table5", "dataset": "MNIST", "method": "CE", "metric": "acc", "value": 98.0, **changes}


def beside(rows: list[comparison.Row]) -> dict[tuple[str, ...], Ours | None]:
    """What is recorded, by (table, data set, setting, method, measure)."""
    names = ("table", "dataset", "setting", "method", "metric")
    return {tuple(getattr(r.printed, n) for n in names): r.recorded for r in rows if r.recorded}


# --- what stands beside what ---------------------------------------------------------------------------------------


def test_the_mean_over_seeds_in_the_papers_unit(book):
    record(book, run(accuracy="0.98"), run(accuracy="0.99", seed="1"), run(accuracy="0.5", status="diverged", seed="2"))
    found = beside(compare(book, {}))
    assert set(found) == {("margins_table5", "MNIST", "balanced", "CE", metric) for metric in ("acc", "mcls")}
    ours = found["margins_table5", "MNIST", "balanced", "CE", "acc"]
    assert ours.value == pytest.approx(98.5)
    assert ours.std == pytest.approx(0.5**0.5)
    assert (ours.runs, ours.epochs, ours.model, ours.source) == (2, 8, "paper_cnn", "runs.csv")
    (first,) = [r for r in compare(book, {}) if r.recorded is ours or r.printed.value == "99.11"]
    assert first.difference == pytest.approx(98.5 - 99.11)


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "fashion_mnist"},
        {"dataset": "cifar10_jpeg"},
        {"dataset": "folder:cifar10#01234567"},
        {"limit_per_class": "300"},
        {"label_noise": "pair"},
        {"imbalance": "step", "imbalance_ratio": "10.0"},
        {"sample_margin": "0.5"},
        {"loss": "normface", "scale": "20.0"},
        {"status": "diverged"},
    ],
)
def test_what_is_not_the_papers_row_stands_beside_nothing(book, changes):
    record(book, run(**changes))
    assert beside(compare(book, {})) == {}


def test_imbalance_and_its_ratio_are_the_setting(book):
    thin = {"dataset": "cifar10", "imbalance": "long_tailed", "imbalance_ratio": "100.0"}
    cosine = {"loss": "normface", "scale": "5.0", "zero_centroid": "2.0"}
    record(book, run(**thin, accuracy="0.7"), run(**thin, **cosine, accuracy="0.71"))
    found = beside(compare(book, {}))
    values = {key[2:4]: round(ours.value, 3) for key, ours in found.items() if key[-1] == "acc"}
    assert values == {("long-tailed rho=100", "CE"): 70.0, ("long-tailed rho=100", "NormFace (λ = 2)"): 71.0}


@pytest.mark.parametrize(
    ("table", "printed", "ours"),
    [
        ("margins_table2", "CE", "CE"),
        ("margins_table2", "LDAM", "LDAM (λ = 0)"),
        ("margins_table2", "LDAM*", "LDAM*"),
        ("margins_table8", "Softmax", "CE"),
        ("margins_table6", "LDAM (λ = 2)", "LDAM (λ = 2)"),
    ],
)
def test_tables_have_their_own_names(table, printed, ours):
    assert comparison.our_name(table, printed) == ours


def test_other_data_are_nearest_only_where_the_file_says_so_and_never_a_difference(book):
    thin = run(dataset="fashion_mnist", imbalance="step", imbalance_ratio="100.0", accuracy="0.6")
    record(book, thin)
    assert beside(compare(book, {})) == {}
    record(book, {**thin, published.NEAREST: "margins_table6: Imbalanced CIFAR-10"})
    (found, *_) = [r for r in compare(book, {}) if r.recorded]
    assert (found.printed.setting, found.recorded.data, found.recorded.value) == ("step rho=100", "fashion_mnist", 60.0)
    assert found.difference is None


def test_runs_of_different_settings_are_not_averaged(book):
    record(book, run(accuracy="0.98"), run(accuracy="0.5", lr="9.0", seed="1"))
    ours = beside(compare(book, {}))["margins_table5", "MNIST", "balanced", "CE", "acc"]
    assert (ours.runs, ours.value) == (1, pytest.approx(98.0))


def test_the_longest_training_counts_then_the_most_runs(book):
    record(book, run(accuracy="0.9", epochs="2"), run(accuracy="0.98"))
    record(book, run(accuracy="0.97"), run(accuracy="0.95", seed="1"), name="more")
    place = ("margins_table5", "MNIST", "balanced", "CE", "acc")
    assert beside(compare(book, {}))[place].source == "more.csv"
    record(book, run(accuracy="0.91", epochs="9"), name="longest")
    assert beside(compare(book, {}))[place].source == "longest.csv"


def test_the_papers_data_go_before_a_longer_run_on_other_data(book):
    record(book, run(dataset="kmnist", epochs="99", nearest="margins_table5: MNIST"), run(accuracy="0.98", nearest=""))
    ours = beside(compare(book, {}))["margins_table5", "MNIST", "balanced", "CE", "acc"]
    assert (ours.data, ours.epochs) == ("", 8)


def test_the_command_gives_what_differs_from_the_workbench(book):
    record(book, run(loss="normface", scale="10.0", bias="False", nesterov="True"))
    rows = compare(book, {}, DEFAULTS)
    command = next(r.recorded.command for r in rows if r.recorded)
    assert command == (
        "nbs run 90 -p dataset mnist -p model paper_cnn -p loss normface -p scale_s 10.0 "
        "-p epochs 8 -p nesterov true -o out/"
    )
    without = {name: value for name, value in DEFAULTS.items() if name != "nesterov"}
    assert {r.recorded.command for r in compare(book, {}, without) if r.recorded} == {""}, "it would not be the run"


def test_a_chapter_reports_live_rows_with_a_link_to_the_cell(book):
    rows = row(epochs=6, model="mini_cnn", seeds=2), row(metric="mcls", data="fashion_mini")
    executed = {"13_x": report(*rows, cells=3)}
    first, second, *others = compare(book, executed)
    assert (first.live.value, first.live.epochs, first.live.runs) == (98.0, 6, 2)
    assert (first.live.source, first.live.link) == ("13_x, cell 3", "notebooks/13_x.html#record-1")
    assert first.live.command == "nbs run 13 -o out/"
    assert first.difference == pytest.approx(98.0 - 99.11)
    assert (second.live.data, second.difference) == ("fashion_mini", None)
    assert not any(other.live for other in others)


def test_a_chapter_makes_its_rows_from_its_means(book, monkeypatch):
    measures = {"accuracy": [98.0, 97.0], "class_margin": [80.0, 70.0], "mean_sample_margin": [0.5, float("nan")]}
    live = pd.DataFrame({**measures, "seeds": 2, "epochs": 6}, index=["CE", "Unknown (s = 3)"])
    monkeypatch.setattr(results, "book_folder", lambda: book)
    own = results.rows(live, "margins_table5", "MNIST", data="mnist", model="mini_cnn")
    assert [reported["metric"] for reported in own] == ["acc", "mcls"], "what the paper has"
    other = results.rows(live, "margins_table5", "CIFAR-10", data="fashion_mini")
    beside_ours = [r for r in compare(book, {"13_x": report(*own, *other)}) if r.live]
    assert [(r.live.value, r.live.data, r.difference is None) for r in beside_ours] == [
        *((98.0, "", False), (80.0, "", False)),
        (98.0, "fashion_mini", True),
    ]
    assert (beside_ours[0].live.epochs, beside_ours[0].live.runs, beside_ours[0].live.model) == (6, 2, "mini_cnn")


def test_a_results_file_may_hold_rows_of_its_own(book):
    record(book, {**row(value="97.5"), "seeds": "3"}, {**row(metric="mcls", value="")}, name="verification")
    (found,) = [r for r in compare(book, {}) if r.recorded]
    assert (found.recorded.value, found.recorded.runs, found.recorded.source) == (97.5, 3, "verification.csv")


# --- what is refused -----------------------------------------------------------------------------------------------


PAPER, RUNS = "paper_tables/margins_table5.csv", "results/runs.csv"


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (PAPER, "99.11", "99,11", "line 2: 10 cells, the header has 9"),
        (PAPER, "99.06", "n/a", "line 4: value 'n/a' is no number"),
        (PAPER, "metric", "metrik", "line 1: has no column metric"),
        (PAPER, "CE,mcls", "CE,acc", "line 3: CE, acc is there twice, first in line 2"),
        (PAPER, "94.12,", '94.12,"', "line 6: unexpected end of data"),
        (PAPER, TABLE5, "", "line 1: has no column paper"),
        (RUNS, "0.99,88.0", "high,88.0", "line 2: accuracy 'high' is no number"),
        (RUNS, "0.98,88.0,", "0.98,", "line 3: 16 cells, the header has 17"),
        (RUNS, "margins_table5: MNIST", "MNIST", "line 3: nearest must be 'table: data set', got 'MNIST'"),
        (RUNS, ": MNIST", ": MNOST", "line 3: nearest 'margins_table5: MNOST' is no table"),
        (RUNS, "epochs", "loss", "line 1: has the column loss twice"),
        (RUNS, ",,,1.0,finished,0.99", ",,step,x,finished,0.99", "line 2: imbalance 'step' without a number"),
        (RUNS, "ce,,,0.0", "ce,much,,0.0", "line 2: could not convert string to float: 'much'"),
    ],
)
def test_damaged_files_are_named_with_the_line(book, file, old, new, says):
    record(book, run(nearest=""), run(dataset="kmnist", accuracy="0.98", nearest="margins_table5: MNIST"))
    path = book / file
    text = path.read_bytes().decode().replace("\r", "")
    assert old in text
    path.write_bytes(text.replace(old, new, 1).encode())
    with pytest.raises(ComparisonError) as caught:
        compare(book, {})
    assert caught.value.problems[0].startswith(f"book/{file}, {says}")


def test_undecodable_bytes(book):
    (book / "results" / "runs.csv").write_bytes(b"a,b\n\xff,1\n")
    with pytest.raises(ComparisonError, match=r"book/results/runs\.csv: not UTF-8 text"):
        compare(book, {})


@pytest.mark.parametrize(
    ("reported", "says"),
    [
        (row(method="CEE"), "margins_table5 has no number with dataset 'MNIST', method 'CEE', metric 'acc'"),
        (row(table="table5"), "no table 'table5' in book/paper_tables"),
        (row(value="much"), "value 'much' is no number"),
        (row(seeds="some"), "invalid literal for int"),
        ({"table": "margins_table5"}, "a row needs table, dataset, method, metric, value"),
        ("CE", "a row needs"),
        (row(table="margins_table6", dataset="Imbalanced CIFAR-10"), "is in margins_table6 more than once"),
    ],
)  # fmt: skip
def test_rows_that_fit_nothing_are_named_with_the_cell(book, reported, says):
    with pytest.raises(ComparisonError, match=rf"13_x, cell 2: .*{re.escape(says)}"):
        compare(book, {"13_x": report(reported, cells=2)})


def test_the_committed_tables_and_results_are_sound():
    rows = compare(ROOT / "book", {})
    files = (ROOT / "book" / "paper_tables").glob("*.csv")
    assert len(rows) == sum(len(path.read_text("utf8").splitlines()) - 1 for path in files)
    balanced = [r for r in rows if r.recorded and r.printed.table in ("margins_table1", "margins_table5")]
    assert len(balanced) >= 120
    assert {r.printed.dataset for r in balanced if r.difference is not None} == {"MNIST"}, "no CIFAR was trained on"


# --- the page ------------------------------------------------------------------------------------------------------


class Tables(html.parser.HTMLParser):
    """The tables of a page: rows of cell texts, and whether each stands in a folded part."""

    def __init__(self, text: str):
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.folded: list[bool] = []
        self.depth = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.depth += tag == "details"
        if tag == "table":
            self.tables.append([])
            self.folded.append(self.depth > 0)
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        self.depth -= tag == "details"

    def handle_data(self, data):
        if self.tables and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1][-1][-1] += data.strip() and f"{data.strip()} "


@pytest.fixture
def page(book) -> str:
    thin = run(dataset="fashion_mnist", imbalance="step", imbalance_ratio="100.0", accuracy="0.6")
    thin["nearest"] = "margins_table6: Imbalanced CIFAR-10"
    record(book, run(accuracy="0.9855"), name="swept")
    record(book, thin, name="loose")
    executed = {"13_x": report(row(method="NormFace (s = 10)", value=98.765, data="fashion_mini", epochs=1))}
    entries = [ledger.Entry("zhou-5", "MNIST column", "zhou-2022", "Table 5, p. 21", "table", "S", "13_x")]
    found = {"zhou-5": [ledger.Found({"id": "zhou-5", "verdict": "holds"}, "13_x", 7)]}
    return comparison_page.page(
        compare(book, executed, DEFAULTS), entries=entries, verdicts=found, sweeps=["swept", "other"]
    )


def test_ours_come_first_and_the_rest_is_folded(page):
    tables = Tables(page)
    assert tables.folded == [False, True, False, True]
    head, cross_entropy, normface = tables.tables[0]
    assert head[:5] == ["method ", *(f"accuracy (%) {kind} " for kind in ("paper", "recorded", "live", "difference"))]
    assert cross_entropy[:5] == ["CE ", "99.11 ", "98.55 ", "– ", "−0.56 "]
    assert cross_entropy[5:8] == ["87.39 a note ", "88.00 ", "+0.61 "]
    assert cross_entropy[8].startswith("recorded: 8 epochs, paper_cnn, 1 run swept.csv nbs run 90 -p dataset mnist")
    assert normface[1:5] == ["99.06 ", "– ", "98.77 nearest of ours ", "– "]
    assert "live: fashion_mini, 1 epoch" in normface[-1]
    assert tables.tables[1][1] == ["CE ", "CIFAR-10 (ResNet-18) ", "94.12 "]
    assert tables.tables[2][1][1:4] == ["50.5 ", "60.00 nearest of ours ", "– "]
    assert len(tables.tables[3]) == 1 + 5


def test_links_commands_and_counts(page):
    assert 'holds</span> MNIST column: <a href="notebooks/13_x.html#claim-zhou-5">13_x, cell 7</a>' in page
    assert '<a href="notebooks/13_x.html#record-1">98.77</a>' in page
    assert "All of `swept.csv` again: `nbs sweep swept`, then `nbs results swept --publish`." in page
    assert "All of `loose.csv`" not in page, "no sweep describes it"
    assert "| [Table 5](#margins-table5) (MNIST, CIFAR-10) | 4 | 2 | 1 |" in page
    assert "<summary>1 more numbers of the paper, none of ours beside them yet</summary>" in page
    assert 'data-value="-0.56"' in page


def test_html_blocks_have_no_blank_lines_and_names_are_escaped(book):
    table = book / "paper_tables" / "margins_table5.csv"
    table.write_text(table.read_text("utf8").replace("NormFace (s = 10)", "<b>&"), "utf8")
    text = comparison_page.page(compare(book, {}))
    assert "&lt;b&gt;&amp;" in text
    for block in re.findall(r"<div class=\"nbs-sortable.*?</div>", text, re.DOTALL):
        assert "\n\n" not in block


def test_the_build_stages_the_page_and_leaves_an_id_to_link_to(tiny, book):
    (tiny / "book" / "claims.yml").unlink()
    toc = tiny / "book" / "_toc.yml"
    toc.write_text(toc.read_text().replace("file: ledger", "file: paper_and_here"))
    executed = {"10_tiny": report(row())}
    staged = build.stage(tiny, executed)
    assert "notebooks/10_tiny.html#record-1" in staged["paper_and_here.md"].decode()
    (output,) = nbformat.reads(staged["notebooks/10_tiny.ipynb"].decode(), 4).cells[0].outputs
    assert output.data["text/html"] == '<div id="record-1"><table></table></div>'
    assert records.MIME not in output.data
    assert staged == build.stage(tiny, executed), "the same sources, the same pages"
    (tiny / "book" / "results" / "x.csv").write_text("a,b\n1\n")
    with pytest.raises(BuildError, match=r"book/results/x\.csv, line 2: 1 cells, the header has 2"):
        build.stage(tiny, executed)


SORTED = """<!doctype html><div class="nbs-sortable"><table><thead><tr><th>name</th><th>x</th></tr></thead><tbody>
<tr><td>b10</td><td data-value="0.5014">0.5014</td></tr><tr><td>b9</td><td data-value="-2.0">−2</td></tr>
<tr><td>a</td><td>–</td></tr><tr><td>c</td><td data-value="0.62">0.62</td></tr></tbody></table></div>
<script>{script}</script><script>addEventListener("load", () => {{
  const shown = () => [...document.querySelectorAll("tbody tr")].map((r) => r.cells[0].textContent).join(" ");
  const out = [];
  for (const i of [1, 1, 1, 0]) {{
    document.querySelectorAll("th button")[i].click();
    out.push(shown() + " " + [...document.querySelectorAll("th")].map((h) => h.ariaSort));
  }}
  document.body.innerHTML = out.join("; ");
}});</script>"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_the_script_sorts_numbers_as_numbers_and_restores_the_order(tmp_path):
    script = (ROOT / "book" / "_static" / "tables.js").read_text("utf8")
    (tmp_path / "page.html").write_text(SORTED.format(script=script), "utf8")
    options = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --dump-dom"
    address = (tmp_path / "page.html").as_uri()
    command = ["chromium", *options.split(), f"--user-data-dir={tmp_path / 'profile'}", address]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert re.search("<body>(.*)</body>", shown, re.DOTALL)[1].strip().split("; ") == [
        "b9 b10 c a ,ascending",
        "c b10 b9 a ,descending",
        "b10 b9 a c ,",
        "a b9 b10 c ascending,",
    ]
