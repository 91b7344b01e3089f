"""Report what a run came to: a table for the reader, and the numbers themselves for whoever gathers many runs.

``report(metrics, history=..., context=...)`` shows the measures and stores everything in the cell's output under the
MIME type ``MIME``; a sweep collects those records from the notebooks it has executed.
"""

import html
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

MIME = "application/vnd.nbs-lib.record+json"


def report(
    metrics: Mapping[str, float],
    *,
    history: Sequence[Mapping[str, Any]] | None = None,
    context: Mapping[str, Any] | None = None,
    note: str = "",
) -> None:
    """Show ``metrics`` as a table, and leave the whole record in the output of the cell.

    The stored record is ``{"metrics": {...}, "history": [...], "context": {...}, "note": ...}`` in plain JSON: numbers
    keep all their digits, NaN and infinities become null, tensors and arrays become numbers and lists. A notebook may
    report several times; whoever gathers records merges them, and the later one wins.

    Args:
        metrics: name -> number (Python, NumPy or a tensor of one element).
        history: one mapping an epoch.
        context: whatever else a reader of many runs may want, such as the images of each class.
        note: one sentence about the run.

    Raises:
        TypeError: a metric is not a number, or something is no JSON; the message names where it stands.
    """
    record = {
        "metrics": {str(name): _number(name, value) for name, value in metrics.items()},
        "history": _plain(list(history or ()), "history"),
        "context": _plain(dict(context or {}), "context"),
        "note": note,
    }
    bundle = {"text/plain": _as_text(record), "text/html": _as_html(record), MIME: json.loads(json.dumps(record))}
    if "IPython" in sys.modules:
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is not None:
            display(bundle, raw=True)
            return
    print(bundle["text/plain"])


def _number(name: str, value: Any) -> float | None:
    found = _plain(value, f"metrics[{name!r}]")
    if found is not None and (isinstance(found, bool) or not isinstance(found, (int, float))):
        raise TypeError(f"metrics[{name!r}] must be one number, got {value!r}")
    try:
        float(found or 0)
    except OverflowError:  # a whole number beyond the reals
        return None
    return found


def _plain(value: Any, where: str) -> Any:
    """``value`` as JSON has it; None for a number that is not finite."""
    if hasattr(value, "tolist"):  # NumPy's and torch's numbers and arrays
        value = value.tolist()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"{where} cannot be stored as JSON: {value!r} ({type(value).__name__})")


def _shown(value: float | None) -> str:
    """Four significant digits, whole numbers whole; a dash for what has no value."""
    return "–" if value is None else str(value) if isinstance(value, int) else f"{value:.4g}"


def _as_text(record: Mapping[str, Any]) -> str:
    rows = record["metrics"]
    width = max(map(len, rows), default=0)
    lines = [f"{name:{width}}  {_shown(value)}" for name, value in rows.items()]
    return "\n".join([*lines, *([record["note"]] if record["note"] else [])]) or "no metrics"


def _as_html(record: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th style='text-align: left'>{html.escape(name)}</th><td>{_shown(value)}</td></tr>"
        for name, value in record["metrics"].items()
    )
    caption = f"<caption>{html.escape(record['note'])}</caption>" if record["note"] else ""
    return f"<table class='nbs-record'>{caption}<tbody>{rows}</tbody></table>"
