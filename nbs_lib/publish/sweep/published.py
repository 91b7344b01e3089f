"""From the runs of a sweep to ``book/results/NAME.csv``: the rows that chapters and "Paper and here" read."""

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbs_lib.publish.sweep import table
from nbs_lib.publish.sweep.store import FINISHED, SweepError
from nbs_lib.publish.sweep.table import Sweep

WORKBENCH = "90_workbench"
FIELDS = {
    "dataset": "dataset",
    "model": "model",
    "feature_dim": "feature_dim",
    "loss": "loss",
    "scale": "scale_s",
    "margin": "margin_m",
    "label_smoothing": "label_smoothing",
    "bias": "bias",
    "sample_margin": "sample_margin_mu",
    "zero_centroid": "zero_centroid_lambda",
    "freeze_prototypes": "freeze_prototypes",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "optimizer": "optimizer",
    "lr": "lr",
    "momentum": "momentum",
    "nesterov": "nesterov",
    "weight_decay": "weight_decay",
    "schedule": "schedule",
    "warmup": "warmup",
    "clip": "clip",
    "crop_pad": "crop_pad",
    "flip": "flip",
    "shift": "shift",
    "image_size": "image_size",
    "seed": "seed",
    "device": "device",
    "precision": "precision",
    "threads": "threads",
    "limit_per_class": "limit_per_class",
    "gamma": "focal_gamma",
    "imbalance": "imbalance",
    "imbalance_ratio": "imbalance_ratio",
    "label_noise": "label_noise",
    "noise_rate": "noise_rate",
    "reweight": "reweight",
    "reweight_from": "reweight_from",
    "mixup": "mixup",
}
"""The fields of a run's configuration, in the order of its table, and the workbench's parameter for each."""
NONE = ("clip", "limit_per_class")
"""Parameters of the workbench whose 0 stands for an empty cell; other empty numbers are of no use to the loss."""
PROVENANCE = (
    "hardware",
    "cores",
    "torch_threads",
    "python",
    "torch",
    "torchvision",
    "lightning_fabric",
    "numpy",
    "nbs_lib",
    "code",
    "commit",
    "date",
)
WRITTEN = (
    "results",
    "checkpoint",
    "csv",
    "record",
)  # parameters that say where a notebook writes, not what it computes
NEAREST = (
    "nearest"  # column of rows that are the nearest of ours to rows of the paper: "margins_table6: Imbalanced CIFAR-10"
)


def publish(
    sweep: Sweep,
    root: Path,
    *,
    nearest: Sequence[str] | None = None,
    keep_stale: bool = False,
    incomplete: bool = False,
) -> str:
    """Write ``book/results/NAME.csv`` of the repository ``root``, whole or not at all; return a line that says so.

    One row a finished run, in the order of the description: configuration, status, metrics, wall_time (s), provenance.

    Args:
        sweep: the runs.
        root: the repository.
        nearest: table and data set of the paper that these runs, on other data, are the nearest of ours to.
        keep_stale: publish runs made by other code than today's, too.
        incomplete: publish although runs are missing, failed or stale.

    Raises:
        SweepError: runs are missing, failed or stale, with their numbers; ``nearest`` is in no table of a paper; the
            file cannot be written.
    """
    if nearest:
        _check_nearest(root / "book" / "paper_tables", *nearest)
    stale = [record for record in sweep.records if record["key"] in sweep.stale and record["status"] == FINISHED]
    good = [r for r in sweep.records if r["status"] == FINISHED and (keep_stale or r["key"] not in sweep.stale)]
    unfinished = sum(record["status"] != FINISHED for record in sweep.records)
    path = root / "book" / "results" / f"{sweep.name}.csv"
    faults = {"failed": unfinished, "stale": 0 if keep_stale else len(stale)}
    told = ["an unknown number missing"] if sweep.missing is None else []
    told += [f"{n} {what}" for what, n in {"missing": sweep.missing or 0, **faults}.items() if n]
    if told and not incomplete:
        raise SweepError(
            f"{path.name} is not written: {', '.join(told)}. Run `nbs sweep {sweep.name}` first, or publish the "
            "others with --incomplete" + ("; --stale keep publishes stale runs too" if faults["stale"] else "")
        )
    if not good:
        raise SweepError(f"{path.name} is not written: no run to publish")
    rows = [_row(record) for record in good]
    columns = [
        name for name in dict.fromkeys(name for row in rows for name in row) if name not in (*PROVENANCE, "wall_time")
    ]
    columns += ["wall_time", *PROVENANCE]
    if nearest:
        columns.append(NEAREST)
        rows = [{**row, NEAREST: f"{nearest[0]}: {nearest[1]}"} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    former = path.read_text("utf8").splitlines() if path.is_file() else []
    if former and not {"status", "seed", "code"} <= set(next(csv.reader(former[:1]))):
        raise SweepError(f"{path} is no table of runs, and is not overwritten: give the sweep another name")
    before = max(0, len(former) - 1)
    table.save(path, lambda target: target.write_text(text.getvalue(), "utf8"))
    return (
        f"{path}: {len(rows)} rows"
        + (f" (before: {before})" if before else "")
        + (f"; {', '.join(told)}" if told else "")
    )


def _check_nearest(folder: Path, name: str, dataset: str) -> None:
    """Raise SweepError unless the paper's table has such a data set."""
    table.choose("table of a paper", name, [path.stem for path in sorted(folder.glob("*.csv"))])
    with (folder / f"{name}.csv").open(encoding="utf8", newline="") as file:
        datasets = dict.fromkeys(row["dataset"] for row in csv.DictReader(file))
    table.choose(f"data set in {name} called", dataset, list(datasets))


def _row(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells of one run, as a row of `nbs_lib.run.run_all` has them."""
    metrics = {name: None if value is None else float(f"{value:.6g}") for name, value in record["metrics"].items()}
    told = record.get("context", {})
    versions = record.get("versions", {})
    origin = {
        **{name: told.get(name, "") for name in PROVENANCE},
        **versions,
        "hardware": record.get("hardware"),
        "torch_threads": record.get("threads"),
        "code": record["code"][:12],
        "commit": f"{record.get('commit') or ''}"[:12] + ("+changes" if record.get("dirty") else ""),
        "date": f"{record.get('started') or ''}".replace("+00:00", "Z"),
    }
    cells = {
        **configuration(record),
        "status": told.get("status", record["status"]),
        **metrics,
        "wall_time": round(record.get("wall_time") or 0.0, 1),
        **{name: origin[name] for name in PROVENANCE},
    }
    return {name: "" if value is None else str(value) for name, value in cells.items()}


def configuration(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run computed with; no value holds a path of the machine.

    A notebook that reports a configuration, as the workbench does (a loss knows its own usual scale), has its columns,
    and what varied beside it; any other notebook has its parameters.
    """
    told = record.get("context", {}).get("config") or {}
    extra = record["varied"] if told else record["parameters"]
    known = {*told, *WRITTEN, *(FIELDS.values() if told else ())}
    cells = told | {name: value for name, value in extra.items() if name not in known}
    return {name: _private(value) for name, value in cells.items()}


def parameters_of(cells: Mapping[str, str]) -> dict[str, str]:
    """Turn a published row of the workbench back into its parameters, as they are typed behind ``nbs run 90 -p``."""
    texts = {"True": "true", "False": "false"}
    typed = {name: texts.get(cells[field], cells[field]) for field, name in FIELDS.items() if field in cells}
    return {name: text or "0" for name, text in typed.items() if text or name in NONE}


def _private(value: Any) -> Any:
    """Hide where files lie: of ``folder:PATH`` the last part and a digest of all, of another path the last part."""
    if not isinstance(value, str):
        return value
    if value.startswith("folder:"):
        path = Path(value.removeprefix("folder:")).expanduser().resolve()
        return f"folder:{path.name}#{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    return Path(value).name if Path(value).is_absolute() or value.startswith("~") else value
