"""Check a statement of a paper where the chapter derives or measures it, and leave the verdict in the notebook.

``check("zhou-lemma-2.1", measured=-0.1111, expected=-1 / 9, tolerance=1e-4)`` shows one badge and stores the whole
record in the cell's output under the MIME type ``MIME``; the book's ledger page is collected from those records.
"""

import html
import json
import math
import re
import sys
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, SupportsFloat

MIME = "application/vnd.nbs-lib.claim+json"

HOLDS = "holds"
CONDITIONAL = "holds under a condition"
FAILS = "fails as written"
RECORDED = "recorded at paper scale"
NOT_REPRODUCED = "not reproduced"
OPEN = "open"  # the ledger's word for a statement no chapter has checked yet

# A sign for each verdict, so that it never rests on colour alone, and a colour readable on white and on black.
SIGNS = {HOLDS: "✓", CONDITIONAL: "◐", FAILS: "✗", RECORDED: "▣", NOT_REPRODUCED: "≠", OPEN: "○"}
COLOURS = {
    HOLDS: "#2e8b57",
    CONDITIONAL: "#b8860b",
    FAILS: "#c0392b",
    RECORDED: "#3d7ab8",
    NOT_REPRODUCED: "#a0522d",
    OPEN: "#808080",
}

ID_PATTERN = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")


@dataclass(frozen=True)
class Verdict:
    """What became of one statement; true when the statement stands.

    Numbers are kept as they are shown: to the tolerance's own decimal place, and four significant digits at most, or
    as many more as it takes for the numbers shown to give the verdict.
    Digits beyond those differ between processors, and a stored output must be equal on all of them.
    """

    id: str
    verdict: str
    measured: float | None = None
    expected: float | None = None
    tolerance: float | None = None
    condition: str | None = None
    note: str = ""

    def __bool__(self) -> bool:
        return self.verdict in (HOLDS, CONDITIONAL, RECORDED)

    @property
    def evidence(self) -> str:
        """Measured and expected number, condition and note in one line (empty if there are none)."""
        parts = []
        digits = _digits(self.measured, self.expected, self.tolerance)
        if self.measured is not None:
            parts.append(f"measured {number(self.measured, digits)}")
        if self.expected is not None:
            parts.append(f"expected {number(self.expected, digits)}" + tolerance_text(self.tolerance, digits))
        if self.condition:
            parts.append(f"condition: {self.condition}")
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)

    def __str__(self) -> str:
        line = f"{SIGNS[self.verdict]} {self.id}: {self.verdict}"
        return f"{line} ({self.evidence})" if self.evidence else line

    def mime_bundle(self) -> dict[str, Any]:
        """Return the output of the cell: a plain line, a badge and the record, keyed by MIME type."""
        badge = (
            f'<div class="nbs-claim" id="{anchor(self.id)}" style="border-left: 4px solid {COLOURS[self.verdict]}; '
            f'padding: 0.2em 0.8em; margin: 0.3em 0;"><strong>{SIGNS[self.verdict]} {self.verdict}</strong> '
            f"<code>{html.escape(self.id)}</code> {html.escape(self.evidence)}</div>"
        )
        # Through JSON and back: a front end gets what a file will hold, and NaN (no JSON) travels as text.
        record = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}
        return {"text/plain": str(self), "text/html": badge, MIME: json.loads(json.dumps(record))}

    def show(self) -> None:
        """Display the badge in a notebook; print the plain line elsewhere."""
        if "IPython" in sys.modules:
            from IPython import get_ipython
            from IPython.display import display

            if get_ipython() is not None:
                display(self.mime_bundle(), raw=True)
                return
        print(self)

    def _ipython_display_(self) -> None:
        """Show nothing: `check` has shown the badge, and a cell that ends with it must not show it twice."""


def anchor(claim_id: str) -> str:
    """Return the HTML id at which a claim's badge stands in its page."""
    return f"claim-{claim_id}"


def number(value: float, digits: int = 4) -> str:
    """Write a number with ``digits`` significant digits (17: all it has), without trailing zeros."""
    return repr(float(value)) if digits > 16 else f"{float(f'{value:.{digits}g}'):.{max(digits, 6)}g}"


def tolerance_text(tolerance: float | None, digits: int = 4) -> str:
    """Write a tolerance as `` ± 0.01`` (empty for none, ``exactly`` for zero)."""
    if tolerance is None:
        return ""
    return f" ± {number(tolerance, digits)}" if tolerance else " exactly"


def check(
    id: str,
    *,
    holds: bool | None = None,
    measured: SupportsFloat | None = None,
    expected: SupportsFloat | None = None,
    tolerance: SupportsFloat | None = None,
    condition: str | None = None,
    note: str = "",
    recorded: bool = False,
) -> Verdict:
    """Judge the statement ``id`` of ``book/claims.yml``, show the verdict and return it.

    With ``holds`` the caller has judged: True gives "holds", False "fails as written". Without it the verdict is
    computed from ``|measured - expected| <= tolerance``: "holds" or "not reproduced". A ``condition`` (plain text, such
    as "K <= d + 1") turns "holds" into "holds under a condition". ``recorded=True`` says that the numbers come from a
    recorded run at the paper's scale: "recorded at paper scale" or "not reproduced"; from a smaller one, name the scale
    as the ``condition``.

    Args:
        id: the statement's key in ``book/claims.yml``, such as ``"zhou-thm-3.2"``.
        holds: the caller's own judgement, for statements that are not one number.
        measured: the number found here.
        expected: the number of the paper, or the one the statement implies.
        tolerance: largest accepted distance between the two, in their unit; 0 asks for equality.
        condition: under which condition the statement holds, or failed.
        note: one short remark.
        recorded: the numbers come from a recorded run, not from this notebook's own computation.

    Returns:
        The `Verdict`: true when the statement holds, holds under the condition, or was recorded in agreement.

    Raises:
        ValueError: malformed ``id``; nothing to judge; ``holds`` contradicts the numbers; a negative or infinite
            tolerance; a note that is not text.
        TypeError: ``holds`` is not a truth value, or a number is not one number.
    """
    if not isinstance(id, str) or not ID_PATTERN.fullmatch(id):
        raise ValueError(f"id must be lower-case words joined by '-' or '.', as in 'zhou-thm-3.2', got {id!r}")
    if not isinstance(note, str):
        raise ValueError(f"{id}: note must be a text, got {note!r}")
    judged = None if holds is None else _truth(holds)
    found, wanted = _one_number("measured", measured), _one_number("expected", expected)
    within = _one_number("tolerance", tolerance)
    if within is not None and not within >= 0:
        raise ValueError(f"tolerance must be >= 0, got {within}")
    if within is not None and math.isinf(within):
        raise ValueError(f"tolerance must be finite, got {within}")
    if within is not None and (found is None or wanted is None):
        raise ValueError(f"{id}: tolerance compares measured with expected: give all three")

    computed = None
    if found is not None and wanted is not None and within is not None:
        computed = _agree(found, wanted, within)
    if judged is None and computed is None:
        raise ValueError(f"{id}: nothing to judge by: give holds=..., or measured=, expected= and tolerance=")
    if judged is not None and computed is not None and judged != computed:
        raise ValueError(
            f"{id}: holds={judged} contradicts the numbers: |{number(found)} - {number(wanted)}| "
            f"{'<=' if computed else '>'} {number(within)}"
        )

    if judged if judged is not None else computed:
        word = CONDITIONAL if condition else RECORDED if recorded else HOLDS
    else:
        word = NOT_REPRODUCED if recorded or judged is None else FAILS
    verdict = Verdict(id, word, *_round_as_shown(found, wanted, within), condition or None, note)
    verdict.show()
    return verdict


def _truth(value: Any) -> bool:
    """Accept Python, NumPy and 0-d tensor truth values; a float or a whole array is a mistake of the caller."""
    plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if not isinstance(plain, bool):
        raise TypeError(f"holds must be True or False, got {value!r}; reduce an array with .all()")
    return plain


def _one_number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, (bool, str)) or getattr(value, "ndim", 0) != 0:
        raise TypeError(f"{name} must be one number, got {value!r}")
    return float(value)


def _agree(measured: float, expected: float, tolerance: float) -> bool:
    """Compare as a reader of the decimals would: 1.01 is within 0.01 of 1, though not in binary."""
    if not (math.isfinite(measured) and math.isfinite(expected)):
        return measured == expected
    return abs(Fraction(repr(measured)) - Fraction(repr(expected))) <= Fraction(repr(tolerance))


def _digits(measured: float | None, expected: float | None, tolerance: float | None) -> int:
    """Return how many digits (at least four) the numbers need so that what is shown agrees with what they say."""
    if measured is None or expected is None or tolerance is None:
        return 4
    numbers = (measured, expected, tolerance)
    return next(d for d in range(4, 18) if _agree(*(float(number(x, d)) for x in numbers)) == _agree(*numbers))


def _round_as_shown(
    measured: float | None, expected: float | None, tolerance: float | None
) -> tuple[float | None, float | None, float | None]:
    """Round to four digits, or to as many more as it takes to give the verdict that the unrounded numbers give."""
    for digits in range(4, 17):
        within = None if tolerance is None else float(number(tolerance, digits))
        shown = (*_rounded_pair(measured, expected, tolerance, digits), within)
        if None in shown or _agree(*shown) == _agree(measured, expected, tolerance):
            return shown
    return measured, expected, tolerance


def _rounded_pair(
    measured: float | None, expected: float | None, tolerance: float | None, digits: int
) -> tuple[float | None, float | None]:
    """Round both to ``digits`` digits of the larger; the measured one not much finer than the tolerance's place."""
    sizes = [abs(x) for x in (measured, expected) if x is not None and math.isfinite(x) and x]
    if not sizes:
        return measured, expected
    decimals = digits - 1 - math.floor(math.log10(max(sizes)))
    coarse = decimals if not tolerance else min(decimals, math.ceil(-math.log10(tolerance)) + digits - 4)

    def rounded(x: float | None, places: int) -> float | None:
        # + 0.0 turns -0.0 into 0.0, whose sign is rounding noise
        return x if x is None or not math.isfinite(x) else round(x, places) + 0.0

    return rounded(measured, coarse), rounded(expected, decimals)
