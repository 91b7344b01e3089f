"""Validate a notebook's parameters before it computes: names, types and ranges.

papermill runs a notebook with a misspelt parameter as if nothing had happened, and hands ``-p flag false`` over as
the (true) text "false". The cell after the one tagged ``parameters`` therefore calls, in every notebook,

    parameters.check(globals(), scale=one_of("quick", "paper"), seed=integer(0), lr=real(0, 10), device=text())
"""

import ast
import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_LITERALS = (bool, int, float, str, list, tuple, dict, type(None))


class ParameterError(ValueError):
    """One or more parameters are unknown, missing, of the wrong type or out of range."""

    def __init__(self, problems: list[str]):
        self.problems = problems
        super().__init__("\n".join(["bad parameters:", *(f"  - {p}" for p in problems)]))


@dataclass(frozen=True)
class Spec:
    """What one parameter may be: how to judge a value, and how to read one typed on a command line.

    Attributes:
        kind: the name of the type, for messages.
        problem: value -> what is wrong with it, or None.
        parse: text -> value; raises ValueError if the text is not of this type.
        adapt: value of a notebook's cell -> the same value in this type; what does not fit stays as it is.
    """

    kind: str
    problem: Callable[[Any], str | None]
    parse: Callable[[str], Any]
    adapt: Callable[[Any], Any] = lambda value: value


def text() -> Spec:
    """Any text."""

    def problem(value: Any) -> str | None:
        return None if type(value) is str else f"expected text, got {_shown(value)}"

    return Spec("text", problem, str)


def one_of(*choices: str | int) -> Spec:
    """One of the given texts (or whole numbers)."""
    listed = ", ".join(map(repr, choices))

    def problem(value: Any) -> str | None:
        if any(type(value) is type(c) and value == c for c in choices):
            return None
        close = difflib.get_close_matches(str(value), [str(c) for c in choices], n=1)
        return f"expected one of {listed}, got {_shown(value)}" + (f"; did you mean {close[0]!r}?" if close else "")

    def parse(typed: str) -> Any:
        return next((c for c in choices if str(c) == typed), typed)

    return Spec(f"one of {listed}", problem, parse)


def boolean() -> Spec:
    """Accept True or False; the text "false", which papermill makes of ``-p flag false``, would count as true."""

    def problem(value: Any) -> str | None:
        if type(value) is bool:
            return None
        hint = ""
        if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no"):
            hint = "; papermill's -p passes it as text: use `nbs run -p`, or True/False with papermill"
        return f"expected True or False, got {_shown(value)}{hint}"

    def parse(typed: str) -> bool:
        if typed.lower() in ("true", "false"):
            return typed.lower() == "true"
        raise ValueError(f"expected true or false, got {typed!r}")

    return Spec("True or False", problem, parse)


def integer(low: int | None = None, high: int | None = None) -> Spec:
    """A whole number between ``low`` and ``high``, both included."""

    def problem(value: Any) -> str | None:
        if type(value) is not int:
            return f"expected a whole number, got {_shown(value)}"
        return _range_problem(value, low, high)

    def parse(typed: str) -> int:
        try:
            return int(typed)
        except ValueError:
            raise ValueError(f"expected a whole number, got {typed!r}") from None

    return Spec("a whole number", problem, parse)


def real(low: float | None = None, high: float | None = None) -> Spec:
    """A finite real number between ``low`` and ``high``, both included; a float, so 1.0 and not 1.

    In a notebook a whole number becomes a float, because papermill turns ``-p lr 1`` into one.
    """

    def problem(value: Any) -> str | None:
        if type(value) is float:
            return (
                _range_problem(value, low, high) if math.isfinite(value) else f"expected a finite number, got {value}"
            )
        hint = ""
        if type(value) is int:
            hint = f"; write {value}.0 (`nbs run -p` does so for you)"
        elif isinstance(value, str) and _as_float(value) is not None:
            hint = f"; YAML reads {value} as text: write {_yaml_float(_as_float(value))}"
        return f"expected a real number, got {_shown(value)}{hint}"

    def parse(typed: str) -> float:
        value = _as_float(typed)
        if value is None:
            raise ValueError(f"expected a real number, got {typed!r}")
        return value

    def adapt(value: Any) -> Any:
        return float(value) if type(value) is int and abs(value) < 2**53 else value

    return Spec("a real number", problem, parse, adapt)


def list_of(item: Spec, least: int = 1) -> Spec:
    """A list of at least ``least`` values, each as ``item`` demands; on the command line separated by commas."""

    def problem(value: Any) -> str | None:
        if not isinstance(value, (list, tuple)):
            return f"expected a list of {item.kind}, got {_shown(value)}"
        if len(value) < least:
            return f"expected at least {least} values, got {len(value)}"
        return next((f"entry {i}: {p}" for i, v in enumerate(value) if (p := item.problem(v))), None)

    def parse(typed: str) -> list[Any]:
        return [item.parse(part.strip()) for part in typed.strip("[]()").split(",") if part.strip()]

    def adapt(value: Any) -> Any:
        return [item.adapt(entry) for entry in value] if isinstance(value, (list, tuple)) else value

    return Spec(f"a list of {item.kind}", problem, parse, adapt)


KINDS: dict[str, Callable[..., Spec]] = {f.__name__: f for f in (text, one_of, boolean, integer, real, list_of)}


def check(namespace: dict[str, Any], /, **specs: Spec) -> None:
    """Raise unless the notebook's parameters are exactly those declared, each of its type and in its range.

    Call it in the cell after the one tagged ``parameters``, with ``globals()``. In a notebook only names that a
    parameters cell (or the one papermill injects) assigns are judged; in a plain mapping, every literal in it.
    Whole numbers become floats there where reals are declared.

    Args:
        namespace: the notebook's ``globals()``.
        **specs: for each parameter what it may be: `text`, `one_of`, `boolean`, `integer`, `real`, `list_of`.

    Raises:
        ParameterError: lists every problem: unknown names (with the closest declared one), missing names, wrong types
            (with how to write the value), values out of range.
    """
    namespace.update({name: spec.adapt(namespace[name]) for name, spec in specs.items() if name in namespace})
    raise_problems(find_problems(_candidates(namespace, specs), specs))


def find_problems(values: Mapping[str, Any], specs: Mapping[str, Spec], *, complete: bool = True) -> list[str]:
    """List what is wrong with ``values``; with ``complete=False`` a missing parameter is no problem."""
    problems = [unknown_name(name, specs) for name in values if name not in specs]
    for name, spec in specs.items():
        if name in values:
            wrong = spec.problem(values[name])
            problems += [f"{name}: {wrong}"] if wrong else []
        elif complete:
            problems.append(f"{name}: declared, but the parameters cell does not set it")
    return problems


def unknown_name(name: str, known: Mapping[str, Any]) -> str:
    """Say that ``name`` is no parameter, with the closest one that is."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"{name}: no such parameter" + (f"; did you mean {close[0]}?" if close else f" (known: {', '.join(known)})")


def raise_problems(problems: list[str]) -> None:
    """Raise one `ParameterError` with all problems, if there are any."""
    if problems:
        raise ParameterError(problems)


def declared(source: str) -> dict[str, Spec]:
    """Read the specs out of a cell's ``check(globals(), ...)`` call, without running it (empty if there is none).

    Raises:
        ValueError: the call's arguments are not plain `text()`, `one_of("a", "b")`, ... with literals.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _called(node) == "check" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Call) and _called(first) == "globals":
                return {k.arg: _spec(k.value) for k in node.keywords if k.arg}
    return {}


def literal_assignments(source: str) -> dict[str, Any] | None:
    """Return the names and values that a cell of literal assignments sets; None if the cell holds anything else."""
    try:
        statements = ast.parse(source).body
        values = {}
        for statement in statements:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                target = statement.target
            else:
                return None
            if not isinstance(target, ast.Name):
                return None
            values[target.id] = ast.literal_eval(statement.value)
    except (SyntaxError, ValueError, TypeError):
        return None
    return values


def _candidates(namespace: Mapping[str, Any], specs: Mapping[str, Spec]) -> dict[str, Any]:
    """Pick the parameters out of a namespace: what parameter cells assigned, or every literal if no cells are known."""
    cells = namespace.get("In")
    if not (isinstance(cells, list) and "get_ipython" in namespace and len(cells) > 1):
        literal = {k: v for k, v in namespace.items() if not k.startswith("_") and isinstance(v, _LITERALS)}
        # a constant that was imported, by its capitals, is no parameter
        return {k: v for k, v in literal.items() if k in specs or not (k.isupper() or k in ("In", "Out"))}
    # The last run of each kind of cell counts: a reader may have edited and rerun the parameters cell.
    own: dict[str, Any] = {}
    injected: dict[str, Any] = {}
    for source in cells[:-1]:
        assigned = literal_assignments(source)
        if assigned and source.lstrip().startswith("# Parameters"):  # papermill's heading of the cell it injects
            injected = assigned
        elif assigned and assigned.keys() & specs.keys():
            own = assigned
    names = dict.fromkeys([*own, *injected, *(name for name in specs if name in namespace)])
    return {name: namespace[name] for name in names if name in namespace}


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _spec(node: ast.expr) -> Spec:
    if isinstance(node, ast.Call) and _called(node) in KINDS:
        arguments = [_spec(a) if isinstance(a, ast.Call) else ast.literal_eval(a) for a in node.args]
        return KINDS[_called(node)](*arguments, **{k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg})
    raise ValueError(f"parameters.check takes {', '.join(KINDS)} with literals, got {ast.unparse(node)}")


def _range_problem(value: float, low: float | None, high: float | None) -> str | None:
    if low is not None and value < low:
        return f"expected at least {low}, got {value}"
    if high is not None and value > high:
        return f"expected at most {high}, got {value}"
    return None


def _as_float(typed: str) -> float | None:
    try:
        return float(typed)
    except ValueError:
        return None


def _yaml_float(value: float) -> str:
    """Write a float so that YAML 1.1 reads it as one: 1e-3 is text there, 1.0e-3 a number."""
    written = repr(value)
    mantissa, e, exponent = written.partition("e")
    return written if not e or "." in mantissa else f"{mantissa}.0e{exponent}"


def _shown(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})"
