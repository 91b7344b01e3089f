"""Parameters: every mistake named, all at once, with the way to write it."""

import pytest

from nbs_lib import parameters
from nbs_lib.parameters import ParameterError, boolean, integer, list_of, one_of, real, text

SPECS = {
    "scale": one_of("quick", "paper"),
    "seed": integer(0),
    "lr": real(0.0, 10.0),
    "flag": boolean(),
    "dataset": text(),
    "scales": list_of(real(0.0)),
}
GOOD = {"scale": "quick", "seed": 0, "lr": 0.1, "flag": False, "dataset": "mnist", "scales": [10.0, 64.0]}


def test_good_values_pass():
    assert parameters.check(GOOD, **SPECS) is None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("scale", "papre", r"scale: expected one of 'quick', 'paper', got 'papre' \(str\); did you mean 'paper'\?"),
        ("scale", None, "scale: expected one of"),
        ("seed", 0.0, r"seed: expected a whole number, got 0.0 \(float\)"),
        ("seed", True, r"seed: expected a whole number, got True \(bool\)"),
        ("seed", -1, "seed: expected at least 0, got -1"),
        ("seed", "7", r"seed: expected a whole number, got '7' \(str\)"),
        ("lr", 2**60, r"lr: expected a real number, got 1152921504606846976 \(int\)"),
        ("lr", 11, "lr: expected at most 10.0, got 11.0"),
        ("lr", True, r"lr: expected a real number, got True \(bool\)"),
        ("lr", "1e-3", r"lr: .*YAML reads 1e-3 as text: write 0.001"),
        ("lr", "1e-7", r"lr: .*YAML reads 1e-7 as text: write 1.0e-07"),
        ("lr", "fast", r"lr: expected a real number, got 'fast' \(str\)$"),
        ("lr", 10.5, "lr: expected at most 10.0, got 10.5"),
        ("lr", float("nan"), "lr: expected a finite number, got nan"),
        ("flag", "false", r"flag: expected True or False, got 'false' \(str\); papermill's -p passes it as text"),
        ("flag", 1, r"flag: expected True or False, got 1 \(int\)"),
        ("dataset", 7, r"dataset: expected text, got 7 \(int\)"),
        ("scales", 10.0, "scales: expected a list of a real number, got 10.0"),
        ("scales", [], "scales: expected at least 1 values, got 0"),
        ("scales", [10.0, "64"], r"scales: entry 1: expected a real number, got '64' \(str\)"),
    ],
)
def test_bad_value(name, value, says):
    with pytest.raises(ParameterError, match=says):
        parameters.check({**GOOD, name: value}, **SPECS)


def test_whole_numbers_become_reals_in_the_notebook():
    """papermill's ``-p lr 1`` is an int; the notebook goes on with a float."""
    space = {**GOOD, "lr": 1, "scales": [10, 64.0], "seed": 3}
    parameters.check(space, **SPECS)
    assert (space["lr"], space["scales"], space["seed"]) == (1.0, [10.0, 64.0], 3)
    assert [type(x) for x in (space["lr"], *space["scales"], space["seed"])] == [float, float, float, int]


def test_where_types_are_strict_a_whole_number_is_no_real():
    """A file of parameters, and the notebook's own defaults."""
    problems = parameters.find_problems({**GOOD, "lr": 1, "scales": [10.0, 64]}, SPECS)
    assert problems == [
        "lr: expected a real number, got 1 (int); write 1.0 (`nbs run -p` does so for you)",
        "scales: entry 1: expected a real number, got 64 (int); write 64.0 (`nbs run -p` does so for you)",
    ]


def test_all_problems_at_once():
    values = {**GOOD, "sead": 1, "flag": "false", "seed": -1}
    del values["lr"]
    with pytest.raises(ParameterError) as caught:
        parameters.check(values, **SPECS)
    assert len(caught.value.problems) == 4
    assert "sead: no such parameter; did you mean seed?" in str(caught.value)
    assert "lr: declared, but the parameters cell does not set it" in str(caught.value)


def test_unknown_without_a_close_match_lists_what_there_is():
    with pytest.raises(ParameterError, match=r"zzz: no such parameter \(known: scale, seed,"):
        parameters.check({**GOOD, "zzz": 1}, **SPECS)


def test_private_names_and_modules_are_no_parameters():
    assert parameters.check({**GOOD, "_i": "x", "__name__": "__main__", "math": pytest, "f": print}, **SPECS) is None


def shell(*cells: str, **more) -> dict:
    """A notebook's globals after the given cells, the last of them running now."""
    space = {"In": ["", *cells], "Out": {}, "get_ipython": print, **more}
    for cell in cells[:-1]:
        exec(cell, space)
    return space


OWN = "scale = 'quick'  # str\nseed = 0  # int"
KNOWN = {"scale": one_of("quick", "paper"), "seed": integer(0)}


def test_in_a_notebook_only_parameter_cells_count():
    parameters.check(shell(OWN, "from math import pi\nK = 3", "check"), **KNOWN)


def test_misspelt_parameter_in_the_injected_cell():
    with pytest.raises(ParameterError, match=r"sede: no such parameter; did you mean seed\?"):
        parameters.check(shell(OWN, "# Parameters\nsede = 1", "check"), **KNOWN)


def test_misspelt_parameter_in_the_own_cell():
    with pytest.raises(ParameterError, match="sede: no such"):
        parameters.check(shell(OWN + "\nsede = 1", "check"), **KNOWN)


def test_rerun_after_mending_the_cell():
    """A reader mends the misspelt name and runs the cell again; the old name is still among the globals."""
    space = shell(OWN + "\nsede = 1", OWN, "check")
    assert "sede" in space
    parameters.check(space, **KNOWN)


def test_injected_value_is_judged():
    with pytest.raises(ParameterError, match="expected at least 0, got -1"):
        parameters.check(shell(OWN, "# Parameters\nseed = -1", "check"), **KNOWN)


@pytest.mark.parametrize(
    ("spec", "typed", "value"),
    [
        (boolean(), "false", False),
        (boolean(), "True", True),
        (integer(), "007", 7),
        (real(), "1", 1.0),
        (real(), "1e-3", 1e-3),
        (text(), "007", "007"),
        (one_of(8, 16), "8", 8),
        (one_of("a", "b"), "a", "a"),
        (list_of(real()), "10, 64", [10.0, 64.0]),
        (list_of(integer()), "[1,2]", [1, 2]),
    ],
)
def test_parse(spec, typed, value):
    parsed = spec.parse(typed)
    assert parsed == value
    assert type(parsed) is type(value)
    assert spec.problem(parsed) is None


@pytest.mark.parametrize(
    ("spec", "typed"), [(boolean(), "0"), (boolean(), "yes"), (integer(), "1.0"), (real(), "fast"), (integer(), "")]
)
def test_parse_refuses(spec, typed):
    with pytest.raises(ValueError, match="expected"):
        spec.parse(typed)


def test_declared_reads_the_call_without_running_it():
    source = "import torch\nparameters.check(globals(), scale=one_of('quick', 'paper'), xs=list_of(real(0.0), least=2))"
    specs = parameters.declared(source)
    assert specs["scale"].kind == "one of 'quick', 'paper'"
    assert specs["xs"].problem([1.0]) == "expected at least 2 values, got 1"
    assert parameters.declared("claims.check('a', holds=True)") == {}


def test_declared_refuses_what_it_cannot_read():
    with pytest.raises(ValueError, match="takes text, one_of"):
        parameters.declared("parameters.check(globals(), scale=helper())")


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("a = 1  # int\nb: float = 2.0\nc = [1, 2]", {"a": 1, "b": 2.0, "c": [1, 2]}),
        ('"""Doc."""\na = -1.5', {"a": -1.5}),
        ("", {}),
        ("a = b = 1", None),
        ("a = 1 + x", None),
        ("import os", None),
        ("a.b = 1", None),
        ("a = (", None),
    ],
)
def test_literal_assignments(source, values):
    assert parameters.literal_assignments(source) == values


def test_an_imported_constant_is_no_parameter_where_a_kernel_keeps_no_history():
    parameters.check({"get_ipython": print, "seed": 1, "BEST_KNOWN": {4: 109.47}}, seed=parameters.integer(0))
    with pytest.raises(parameters.ParameterError, match="sed: no such parameter; did you mean seed"):
        parameters.check({"get_ipython": print, "seed": 1, "sed": 2}, seed=parameters.integer(0))
