"""From the description of a sweep, ``book/sweeps/NAME.yaml``, to its points; mistakes are told before a run starts."""

import difflib
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nbs_lib import parameters
from nbs_lib.parameters import Spec
from nbs_lib.publish import notebooks
from nbs_lib.publish.notebooks import NotebookError
from nbs_lib.publish.sweep.store import SweepError

MOST_POINTS = 100_000
SEED = "seed"
Place = tuple[str | int, ...]
"""Where something stands in the file: keys, and indices of lists, from the top."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Resources(_Strict):
    """What one run needs, and where it is stopped.

    Attributes:
        threads: threads a run computes with, and cores it counts as.
        gpus: GPUs it sees; a fraction lets several runs share one. With 0 it sees none.
        memory_gb: it is killed above this resident memory, in 10^9 bytes; None for no limit.
        minutes: it is killed after so long; None for no limit.
    """

    threads: int = Field(default=1, ge=1)
    gpus: float = Field(default=0, ge=0)
    memory_gb: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)

    @field_validator("gpus")
    @classmethod
    def _whole_above_one(cls, value: float) -> float:
        if value > 1 and not value.is_integer():
            raise ValueError("more than one GPU must be a whole number")
        return value


class Description(_Strict):
    """The file, key by key: see the guide's page on sweeps."""

    title: str
    notebook: str | int
    fixed: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}
    zip: list[dict[str, list[Any]]] = []
    seeds: list[int] | int | None = None
    exclude: list[dict[str, Any]] = []
    resources: Resources = Resources()


@dataclass(frozen=True)
class Point:
    """One run to make.

    Attributes:
        key: names its files; a hash over the notebook's name and all parameters.
        parameters: all of them, those that keep the notebook's default as well.
        varied: the part that grid and zip give it; without the seed.
        seed: its parameter ``seed``, if the notebook has one.
    """

    key: str
    parameters: dict[str, Any]
    varied: dict[str, Any]
    seed: int | None


@dataclass(frozen=True)
class Plan:
    """A sweep that may run: its points are distinct, and valid as far as the notebook declares what is."""

    name: str
    title: str
    file: Path
    notebook: Path
    resources: Resources
    points: list[Point]


def find(name: str | Path) -> Path:
    """Return the description called ``name`` in ``book/sweeps``, or at that path.

    Raises:
        SweepError: there is none; says which there are.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if path.is_file():
            return path
        raise SweepError(f"no sweep {name}: there is no such file")
    folder = notebooks.root() / "book" / "sweeps"
    known = {p.stem: p for p in sorted(folder.glob("*.yaml"))}
    if str(name) in known:
        return known[str(name)]
    raise SweepError(f"no sweep {name} in {folder}; there are: {', '.join(known) or 'none'}")


def read(file: Path) -> Plan:
    """Read a description, check it against its notebook, and multiply it out.

    Raises:
        SweepError: lists every problem with its line and key.
        NotebookError: the notebook itself is malformed.
    """
    raw, lines, problems = _load(file)
    description = _validated(raw, problems)
    source = None
    if description.notebook == "" and not any(place[0] == "notebook" for place, _ in problems if place):
        problems.append((("notebook",), "is empty"))
    elif description.notebook != "":
        try:
            source = _notebook(str(description.notebook), file)
        except NotebookError as error:
            problems.append((("notebook",), str(error)))
    points: list[Point] = []
    if source is not None:
        points = _points(description, source, problems)
    if problems:
        told = sorted({(_line(place, lines), _told(place, text)) for place, text in problems})
        head = f"{file}: {len(told)} problem{'s' * (len(told) > 1)}"
        raise SweepError("\n".join([head, *(f"  - line {line}: {text}" for line, text in told)]))
    assert source is not None
    return Plan(file.stem, description.title, file, source, description.resources, points)


def key(stem: str, values: Mapping[str, Any]) -> str:
    """Return the name of a run: 16 hexadecimal digits that follow from the notebook's name and all its parameters."""
    whole = {"notebook": stem, "parameters": dict(values)}
    return hashlib.sha256(_canonical(whole).encode()).hexdigest()[:16]


Problems = list[tuple[Place, str]]


def _load(file: Path) -> tuple[dict[str, Any], dict[Place, int], Problems]:
    """Read the file: its content, the line of every entry, and keys that stand twice (YAML would take the last)."""
    try:
        text = file.read_text("utf8")
        node, raw = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, yaml.YAMLError) as error:
        raise SweepError(f"{file}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise SweepError(f"{file}: is nested too deeply") from None
    if not isinstance(raw, dict):
        raise SweepError(f"{file}: must hold title, notebook, grid, ..., one 'key: value' a line")
    lines: dict[Place, int] = {}
    problems: Problems = []
    _walk(node, (), lines, problems)
    return raw, lines, problems


def _walk(node: Any, place: Place, lines: dict[Place, int], problems: Problems) -> None:
    if len(place) > 4:  # nothing of ours is deeper, and an alias may lead back
        return
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            inner = (*place, str(name.value))
            if inner in lines:
                again = name.start_mark.line + 1
                problems.append((inner, f"is there twice, and again in line {again}"))
                continue
            lines[inner] = name.start_mark.line + 1
            _walk(value, inner, lines, problems)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[*place, index] = value.start_mark.line + 1
            _walk(value, (*place, index), lines, problems)


def _line(place: Place, lines: dict[Place, int]) -> int:
    return next((lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines), 1)


def _told(place: Place, text: str) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    return f"{where}: {text}" if where else text


def _validated(raw: dict[str, Any], problems: Problems) -> Description:
    """Judge the shape of the file; what has a wrong shape is told and left out of what is returned."""
    try:
        return Description.model_validate(raw)
    except ValidationError as error:
        wrong = set()
        for entry in error.errors():
            place = tuple(part for part in entry["loc"] if part != "[key]")
            place = place[:1] if place[0] in ("seeds", "notebook") else place
            wrong.add(place[0])
            problems.append((place, _shape_problem(entry)))
    rest = {name: value for name, value in raw.items() if name in Description.model_fields and name not in wrong}
    return Description.model_validate({"title": "", "notebook": "", **rest})


def _shape_problem(entry: Any) -> str:
    kind, place = entry["type"], entry["loc"]
    if place[0] in ("seeds", "notebook") and kind != "missing":
        wanted = {"seeds": "a count, or a list of whole numbers", "notebook": "a number, a name or a path"}[place[0]]
        return f"expected {wanted}"
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        known = Resources.model_fields if place[0] == "resources" and len(place) > 1 else Description.model_fields
        close = difflib.get_close_matches(str(place[-1]), known, n=1)
        return "no such key" + (f"; did you mean {close[0]}?" if close else f" (known: {', '.join(known)})")
    text = entry["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    return f"{text}, got {entry['input']!r}"


def _notebook(name: str, file: Path) -> Path:
    beside = file.parent / name
    return beside if beside.suffix == ".ipynb" and beside.is_file() else notebooks.find(name)


def _points(description: Description, source: Path, problems: Problems) -> list[Point]:
    """Multiply the description out, with the notebook's defaults below it; no points if there is a problem."""
    notebook = notebooks.read(source)
    specs = notebooks.parameter_specs(notebook)
    defaults = {n: _as_declared(v, specs[n]) for n, v in notebooks.parameter_defaults(notebook).items() if n in specs}
    _judge_values(description, specs, problems)
    fixed = _declared(description.fixed, specs)
    axes = list(_axes(description, specs, problems))
    varying = [name for _, rows in axes for name in rows[0]]
    for name in dict.fromkeys([*fixed, *varying]):
        if name not in specs:
            continue
        if [*fixed, *varying].count(name) > 1:
            problems.append(
                (_last_place(description, name), f"{name} is given more than once (fixed, grid, zip, seeds)")
            )
    excluded = _excluded(description, specs, varying, problems)
    sizes = [len(rows) for _, rows in axes]
    if _product(sizes) > MOST_POINTS:
        problems.append(((), f"makes {_product(sizes):,} points, more than {MOST_POINTS:,}"))
    if problems:
        return []
    points, used = [], set()
    for rows in itertools.product(*(rows for _, rows in axes)):
        chosen = {name: value for row in rows for name, value in row.items()}
        hits = {i for i, entry in excluded.items() if all(_same(chosen[n], v) for n, v in entry.items())}
        used |= hits
        if not hits:
            values = {**defaults, **fixed, **chosen}
            varied = {name: value for name, value in chosen.items() if name != SEED}
            points.append(Point(key(source.stem, values), values, varied, values.get(SEED)))
    problems += [(("exclude", i), "no point has these values") for i in excluded.keys() - used]
    if not points:
        problems.append((("exclude",), "leaves no point"))
    return points


def _entries(description: Description) -> Iterator[tuple[Place, str, Any]]:
    """Yield every value that the file gives a parameter: where, which parameter, the value."""
    for name, value in description.fixed.items():
        yield ("fixed", name), name, value
    for name, values in description.grid.items():
        for index, value in enumerate(values):
            yield ("grid", name, index), name, value
    for block, lists in enumerate(description.zip):
        for name, values in lists.items():
            for index, value in enumerate(values):
                yield ("zip", block, name, index), name, value
    for index, seed in enumerate(_seeds(description)):
        yield ("seeds", index), SEED, seed
    for number, entry in enumerate(description.exclude):
        for name, value in entry.items():
            yield ("exclude", number, name), name, value


def _judge_values(description: Description, specs: Mapping[str, Spec], problems: Problems) -> None:
    for place, name, value in _entries(description):
        if name not in specs:
            place = place[:-1] if isinstance(place[-1], int) else place  # once, not for each of its values
            problems.append((place, _unknown(name, specs)))
        elif wrong := specs[name].problem(value):
            problems.append((place, wrong))


def _unknown(name: str, specs: Mapping[str, Spec]) -> str:
    return parameters.unknown_name(name, specs).partition(": ")[2]


def _axes(
    description: Description, specs: Mapping[str, Spec], problems: Problems
) -> Iterator[tuple[Place, list[dict[str, Any]]]]:
    """Yield what is multiplied: the place, and the settings to be taken in turn. None of them is empty."""
    axes: list[tuple[Place, list[dict[str, Any]]]] = []
    for name, values in description.grid.items():
        axes.append((("grid", name), [{name: value} for value in values]))
    for block, lists in enumerate(description.zip):
        lengths = {name: len(values) for name, values in lists.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            problems.append((("zip", block), f"the lists must be equally long: {told}"))
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=False)]
        axes.append((("zip", block), rows))
    if description.seeds is not None:
        axes.append((("seeds",), [{SEED: seed} for seed in _seeds(description)]))
    if "grid" in description.model_fields_set and not description.grid:
        problems.append((("grid",), "is empty: name a parameter, or leave the key out"))
    for place, rows in axes:
        if not rows:
            problems.append((place, "is empty: it makes no point"))
            continue
        rows = [_declared(row, specs) for row in rows]
        seen: dict[str, int] = {}
        for index, row in enumerate(rows):
            first = seen.setdefault(_canonical(row), index)
            if first != index:
                shown = ", ".join(f"{name} = {value!r}" for name, value in row.items())
                at = place if place[0] == "zip" else (*place, index)
                problems.append((at, f"the same point twice, entries {first + 1} and {index + 1}: {shown}"))
        yield place, rows


def _excluded(
    description: Description, specs: Mapping[str, Spec], varying: list[str], problems: Problems
) -> dict[int, dict[str, Any]]:
    found = {}
    for number, entry in enumerate(description.exclude):
        if not entry:
            problems.append((("exclude", number), "is empty: it would drop every point"))
        for name in entry:
            if name in specs and name not in varying:
                problems.append((("exclude", number, name), f"{name} does not vary in this sweep"))
        found[number] = _declared(entry, specs)
    return found


def _last_place(description: Description, name: str) -> Place:
    """Return where a parameter that is given more than once is given last."""
    return [place for place, found, _ in _entries(description) if found == name and place[0] != "exclude"][-1]


def _seeds(description: Description) -> list[int]:
    seeds = description.seeds
    # one more than allowed is enough to be told that there are too many
    return list(range(min(seeds, MOST_POINTS + 1))) if isinstance(seeds, int) else seeds or []


def _declared(values: Mapping[str, Any], specs: Mapping[str, Spec]) -> dict[str, Any]:
    return {name: _as_declared(value, specs[name]) if name in specs else value for name, value in values.items()}


def _as_declared(value: Any, spec: Spec) -> Any:
    """Bring whole numbers to floats where reals are declared: 1 and 1.0 are one point."""
    if spec.kind.endswith("a real number"):
        if isinstance(value, (list, tuple)):
            return [_real(item) for item in value]
        return _real(value)
    return value


def _real(value: Any) -> Any:
    """Bring a whole number to a float, and -0.0 to 0.0; what no float can hold, or is no number, stays."""
    try:
        return float(value) + 0.0 if type(value) in (int, float) else value
    except OverflowError:
        return value


def _same(one: Any, other: Any) -> bool:
    return _canonical(one) == _canonical(other)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


def _product(sizes: list[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
