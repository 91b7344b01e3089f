"""Verdicts: judged or computed, contradictions refused, and outputs that do not change with the last bits."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from nbs_lib import claims


def words(**arguments) -> str:
    return claims.check("a-1", **arguments).verdict


@pytest.mark.parametrize(
    ("arguments", "word", "true"),
    [
        ({"holds": True}, "holds", True),
        ({"holds": True, "condition": "K <= d + 1"}, "holds under a condition", True),
        ({"holds": False}, "fails as written", False),
        ({"holds": False, "condition": "K > d + 1"}, "fails as written", False),
        ({"measured": 1.005, "expected": 1, "tolerance": 0.01}, "holds", True),
        ({"measured": 1.02, "expected": 1, "tolerance": 0.01}, "not reproduced", False),
        ({"measured": 1.0, "expected": 1.0, "tolerance": 0}, "holds", True),
        ({"measured": 1.0, "expected": 1.0, "tolerance": 0, "condition": "s = 1"}, "holds under a condition", True),
        ({"measured": 99.1, "expected": 99.0, "tolerance": 0.2, "recorded": True}, "recorded at paper scale", True),
        ({"measured": 98.1, "expected": 99.0, "tolerance": 0.2, "recorded": True}, "not reproduced", False),
        ({"holds": True, "recorded": True}, "recorded at paper scale", True),
        ({"holds": True, "recorded": True, "condition": "8 of 100 epochs"}, "holds under a condition", True),
        ({"holds": False, "recorded": True}, "not reproduced", False),
        ({"measured": float("nan"), "expected": 1.0, "tolerance": 9.0}, "not reproduced", False),
        ({"measured": float("inf"), "expected": float("inf"), "tolerance": 0.1}, "holds", True),
        ({"holds": np.bool_(True)}, "holds", True),
        ({"holds": torch.tensor(True)}, "holds", True),
        ({"measured": torch.tensor(2.0), "expected": np.float32(2), "tolerance": 1e-6}, "holds", True),
        ({"holds": True, "measured": 3.0, "expected": 2.0}, "holds", True),  # an inequality, judged by the caller
    ],
)
def test_verdict(arguments, word, true):
    verdict = claims.check("a-1", **arguments)
    assert verdict.verdict == word
    assert bool(verdict) is true


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({}, ValueError, "nothing to judge by"),
        ({"measured": 1.0}, ValueError, "nothing to judge by"),
        ({"measured": 1.0, "tolerance": 0.1}, ValueError, "give all three"),
        ({"holds": True, "measured": 2.0, "expected": 1.0, "tolerance": 0.5}, ValueError, "contradicts"),
        ({"holds": False, "measured": 1.0, "expected": 1.0, "tolerance": 0.5}, ValueError, "contradicts"),
        ({"measured": 1.0, "expected": 1.0, "tolerance": -1}, ValueError, "tolerance must be >= 0, got -1"),
        ({"measured": 1.0, "expected": 1.0, "tolerance": float("nan")}, ValueError, "tolerance"),
        ({"holds": 1.0}, TypeError, "holds must be True or False, got 1.0"),
        ({"holds": torch.tensor([True, True])}, TypeError, "reduce an array"),
        ({"holds": np.array([True])}, TypeError, "reduce an array"),
        ({"measured": np.ones(1), "expected": 1.0, "tolerance": 1.0}, TypeError, "measured must be one number"),
        ({"measured": "1", "expected": 1.0, "tolerance": 1.0}, TypeError, "measured must be one number"),
        ({"measured": True, "expected": 1.0, "tolerance": 1.0}, TypeError, "measured must be one number"),
    ],
)
def test_refused(arguments, error, says):
    with pytest.raises(error, match=says):
        claims.check("a-1", **arguments)


@pytest.mark.parametrize("bad", ["", "A-1", "a_1", "a-", "a 1", "a--1", "<b>", 3])
def test_id_is_checked(bad):
    with pytest.raises(ValueError, match="id must be lower-case words"):
        claims.check(bad, holds=True)


def test_outputs_do_not_change_with_the_last_digits():
    """Nbval compares every form of the output, so noise below the tolerance must not show in any of them."""
    first = claims.check("a-1", measured=68.4996, expected=68.5, tolerance=0.01).mime_bundle()
    assert first == claims.check("a-1", measured=68.5004, expected=68.5, tolerance=0.01).mime_bundle()
    zero = claims.check("a-1", measured=1.3e-15, expected=0.0, tolerance=1e-9).mime_bundle()
    assert zero == claims.check("a-1", measured=-2.1e-16, expected=0.0, tolerance=1e-9).mime_bundle()
    assert "measured 0;" in zero["text/plain"]


@pytest.mark.parametrize(
    ("measured", "expected", "tolerance", "line"),
    [
        (-0.11112, -1 / 9, 1e-4, "measured -0.1111; expected -0.1111 ± 0.0001"),
        (74.8612, 74.8585, 0.01, "measured 74.86; expected 74.86 ± 0.01"),
        (68.2, 68.5, 0.5, "measured 68.2; expected 68.5 ± 0.5"),
        (12345.6, 12345.0, 1.0, "measured 12346; expected 12345 ± 1"),
        (2.0, 2.0, 0.0, "measured 2; expected 2 exactly"),
        (0.0, 0.0, 0.1, "measured 0; expected 0 ± 0.1"),
    ],
)
def test_numbers_as_shown(measured, expected, tolerance, line):
    assert line in str(claims.check("a-1", measured=measured, expected=expected, tolerance=tolerance))


def test_bundle_is_json_and_escaped():
    verdict = claims.check("a-1.5", measured=float("nan"), expected=1, tolerance=1, condition="K < 3 & d", note="<b>")
    bundle = json.loads(json.dumps(verdict.mime_bundle(), allow_nan=False))
    assert 'id="claim-a-1.5"' in bundle["text/html"]
    assert "K &lt; 3 &amp; d" in bundle["text/html"]
    assert "<b>" not in bundle["text/html"]
    assert bundle[claims.MIME] == {
        "id": "a-1.5",
        "verdict": "not reproduced",
        "measured": "nan",
        "expected": 1.0,
        "tolerance": 1.0,
        "condition": "K < 3 & d",
        "note": "<b>",
    }


def test_plain_python_prints_one_line_and_loads_nothing_heavy():
    code = (
        "import sys; from nbs_lib import claims; claims.check('a-1', holds=True, note='seen'); "
        "assert not {'torch', 'numpy', 'IPython'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "✓ a-1: holds (seen)\n"


def test_every_verdict_has_sign_and_colour():
    assert claims.SIGNS.keys() == claims.COLOURS.keys()
    assert len(set(claims.SIGNS.values())) == len(claims.SIGNS)


@pytest.mark.parametrize(
    ("measured", "expected", "tolerance", "line"),
    [
        (1.014, 1.0, 0.01, "≠ a-1: not reproduced (measured 1.014; expected 1 ± 0.01)"),
        (1.0000001, 1.0, 0.0, "≠ a-1: not reproduced (measured 1.0000001; expected 1 exactly)"),
        (1.01, 1.0, 0.01, "✓ a-1: holds (measured 1.01; expected 1 ± 0.01)"),
        (0.0, 1.23456, 1.2345, "≠ a-1: not reproduced (measured 0; expected 1.235 ± 1.234)"),
        (1.0, 1.0 + 2**-52, 0.0, "≠ a-1: not reproduced (measured 1.0; expected 1.0000000000000002 exactly)"),
    ],
)
def test_shown_numbers_give_the_verdict(measured, expected, tolerance, line):
    verdict = claims.check("a-1", measured=measured, expected=expected, tolerance=tolerance)
    assert str(verdict) == line


def test_tolerance_is_finite_and_note_is_text():
    with pytest.raises(ValueError, match="tolerance must be finite, got inf"):
        claims.check("a-1", measured=1.0, expected=2.0, tolerance=float("inf"))
    with pytest.raises(ValueError, match="note must be a text, got 3"):
        claims.check("a-1", holds=True, note=3)
