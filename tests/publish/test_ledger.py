"""The ledger: claims.yml is checked key by key, and verdicts must fit it."""

from pathlib import Path

import pytest

from nbs_lib import claims
from nbs_lib.publish import ledger
from nbs_lib.publish.ledger import Found, LedgerError

ROOT = Path(__file__).parents[2]
GOOD = """\
- {id: a-1, title: T, paper: p, where: Lemma 1, kind: lemma, statement: 'S $|x|$', chapter: 11_one}
- {id: a-2, title: T, paper: p, where: Lemma 2, kind: lemma, statement: S, chapter: 12_two}
"""


def read(tmp_path: Path, text: str) -> list[ledger.Entry]:
    path = tmp_path / "claims.yml"
    path.write_text(text)
    return ledger.read_claims(path)


def found(claim_id: str, notebook: str = "11_one", cell: int = 4, **arguments) -> Found:
    arguments = arguments or {"holds": True}
    record = claims.check(claim_id, **arguments).mime_bundle()[claims.MIME]
    return Found(record, notebook, cell)


def problems(entries, verdicts, chapters=frozenset()) -> str:
    with pytest.raises(LedgerError) as caught:
        ledger.match(entries, verdicts, set(chapters))
    return str(caught.value)


def test_committed_claims_are_well_formed():
    assert len(ledger.read_claims(ROOT / "book" / "claims.yml")) > 50


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "claims.yml, line 1: not YAML"),
        ("a: b", "must be a list of entries"),
        ("- just text", "entry 1: must be keys and values"),
        (GOOD.replace("kind: lemma, ", "", 1), r"entry 1 \(a-1\): key 'kind' is missing"),
        (GOOD.replace("kind: lemma", "kind: hunch", 1), r"entry 1 \(a-1\): key 'kind' must be one of .*, got 'hunch'"),
        (GOOD.replace("chapter:", "capter:", 1), r"entry 1 \(a-1\): unknown key 'capter'"),
        (GOOD.replace("where: Lemma 2", "where: 2"), r"entry 2 \(a-2\): key 'where' must be a text, got 2"),
        (GOOD.replace("where: Lemma 2", "where: ''"), r"entry 2 \(a-2\): key 'where' must be a text, got ''"),
        (GOOD.replace("a-2", "a-1"), r"entry 2 \(a-1\): key 'id' is used twice"),
        (GOOD.replace("a-2", "A_2"), r"entry 2 \(A_2\): key 'id' must be lower-case"),
    ],
)
def test_malformed_claims_name_file_entry_and_key(tmp_path, text, says):
    with pytest.raises(LedgerError, match=says):
        read(tmp_path, text)


def test_missing_file(tmp_path):
    with pytest.raises(LedgerError, match="no such file"):
        ledger.read_claims(tmp_path / "claims.yml")


def test_unknown_id(tmp_path):
    says = problems(read(tmp_path, GOOD), [found("b-9")])
    assert says == "11_one, code cell 4: no statement 'b-9' in claims.yml"


def test_two_verdicts(tmp_path):
    verdicts = [found("a-1"), found("a-1", "12_two", 5, holds=False)]
    says = problems(read(tmp_path, GOOD), verdicts)
    assert "'a-1' has two verdicts: 'holds' (11_one, code cell 4) and 'fails as written' (12_two, code cell 5)" in says


def test_the_same_verdict_twice_is_fine(tmp_path):
    by_id = ledger.match(read(tmp_path, GOOD), [found("a-1"), found("a-1", cell=9)], {"11_one"})
    assert len(by_id["a-1"]) == 2


def test_chapter_that_exists_must_check_its_statements(tmp_path):
    says = problems(read(tmp_path, GOOD), [found("a-1")], {"11_one", "12_two"})
    assert "'a-2' names chapter 12_two, which does not check it" in says


def test_chapter_to_come_leaves_it_open(tmp_path):
    entries = read(tmp_path, GOOD)
    page = ledger.page(entries, ledger.match(entries, [found("a-1")], {"11_one"}))
    assert "check 1 of them" in page
    assert "*to come in 12_two*" in page


def test_statement_checked_in_another_chapter_only(tmp_path):
    says = problems(read(tmp_path, GOOD), [found("a-1"), found("a-2")], {"11_one"})
    assert says == "claims.yml: 'a-2' names chapter 12_two, but 11_one checks it"


def test_open_says_why_and_must_go_once_checked(tmp_path):
    entries = read(tmp_path, GOOD.replace("chapter: 12_two", "chapter: 12_two, open: needs ImageNet"))
    by_id = ledger.match(entries, [found("a-1")], {"11_one", "12_two"})
    assert "*needs ImageNet*" in ledger.page(entries, by_id)
    says = problems(entries, [found("a-1"), found("a-2", "12_two")], {"11_one", "12_two"})
    assert says == "claims.yml: 'a-2' is checked, so it must not have the key 'open'"


def test_row_shows_verdict_in_words_evidence_and_link(tmp_path):
    entries = read(tmp_path, GOOD)
    verdict = found("a-1", measured=2.0, expected=1.0, tolerance=0.5, condition="K_max < 3 | $d$")
    page = ledger.page(entries, ledger.match(entries, [verdict], {"11_one"}))
    row = next(line for line in page.splitlines() if "a-1" in line)
    assert "≠ not reproduced" in row
    assert "measured 2; expected 1 ± 0.5" in row
    assert "K&#95;max &lt; 3 \\| &#36;d&#36;" in row
    assert '<a href="notebooks/11_one.html#claim-a-1">11_one, cell 4</a>' in row
    assert r"S $\|x\|$" in row


def test_papers_come_with_their_titles():
    entries = ledger.read_claims(ROOT / "book" / "claims.yml")
    page = ledger.page(entries, {e.id: [] for e in entries}, bibliography=ROOT / "book" / "references.bib")
    assert "## Zhou et al. (2022): Learning" in page


def test_a_key_given_twice_and_undecodable_bytes(tmp_path):
    with pytest.raises(LedgerError, match=r"claims\.yml, line 1: .*key 'kind' is given twice"):
        read(tmp_path, GOOD.replace("kind: lemma", "kind: claim, kind: lemma", 1))
    (tmp_path / "claims.yml").write_bytes(b"- id: \xff")
    with pytest.raises(LedgerError, match=r"claims\.yml: not UTF-8 text: .* at byte 6"):
        ledger.read_claims(tmp_path / "claims.yml")
