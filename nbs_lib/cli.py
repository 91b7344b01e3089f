"""The ``nbs`` command: build the book, run a notebook with other parameters, refresh the committed ones."""

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from nbs_lib.parameters import ParameterError


def app(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 if all went well, 1 with a message if not, 2 if it was misused."""
    options = _parser().parse_args(arguments)
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if in_main else None
    try:
        sys.exit(_run_command(options))
    except ModuleNotFoundError as error:  # the commands import what they need, so that doctor works where it is missing
        extra = "book,sweep" if error.name in ("dask", "distributed", "pydantic", "pyarrow") else "book"
        _fail(f"{error.name} is not installed: run `pip install -e '.[{extra}]'` in the clone; `nbs doctor` says more")
    except KeyboardInterrupt:
        _fail("interrupted; what was finished before is kept", 130)
    except BrokenPipeError:  # the reader of our output has gone, as in `nbs doctor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """End as an interruption does: what was computed so far is kept, the kernel is shut down."""
    _fail("terminated; what was finished before is kept", 143)


def _run_command(options: argparse.Namespace) -> int:
    if options.command is _doctor:
        return _doctor(options)
    from nbs_lib.publish.notebooks import NotebookError

    try:
        return options.command(options)
    except (NotebookError, ParameterError) as error:
        _fail(str(error))


def _fail(message: str, status: int = 1) -> NoReturn:
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nbs", description="Build the book, run its notebooks, check the environment."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    build = commands.add_parser("build", help="execute what is stale and render the book")
    build.add_argument("--force", action="store_true", help="execute and render everything")
    build.set_defaults(command=_build)

    run = commands.add_parser("run", help="execute one notebook with other parameters")
    # argparse takes -1e-3 and -1,2 for options unless it is told that they are numbers
    run._negative_number_matcher = re.compile(r"-\.?\d")
    run.add_argument("notebook", help="13, 13_sample_margin or a path")
    run.add_argument(
        "-p",
        "--parameter",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a parameter; the value is read as the type the notebook declares (repeat for more)",
    )
    run.add_argument("-f", "--file", type=Path, help="YAML file of parameters; types are strict there")
    run.add_argument("-o", "--output", help="file or folder/ of the executed copy (default: here)")
    run.set_defaults(command=_run)

    results = commands.add_parser("results", help="tables, figure and published file of a sweep's runs")
    results.add_argument("sweep", help="a name in book/sweeps, or in --out")
    results.add_argument(
        "--by", nargs="+", default=[], metavar="NAME", help="one varied parameter (curves) or two (table, heat map)"
    )
    results.add_argument("--measure", metavar="NAME", help="the metric to show (with --by: accuracy, or the first)")
    results.add_argument(
        "--where", nargs="+", default=[], metavar="NAME=VALUE", help="show only runs with these values"
    )
    results.add_argument("--out", type=Path, metavar="FOLDER", help="where the sweeps lie (default: out/sweeps)")
    results.add_argument("--png", type=Path, metavar="FILE", help="draw the figure")
    results.add_argument("--publish", action="store_true", help="write book/results/NAME.csv")
    results.add_argument(
        "--nearest", nargs=2, metavar=("TABLE", "DATASET"), help="published rows are the nearest of ours to the paper's"
    )
    results.add_argument("--incomplete", action="store_true", help="publish although runs are missing, failed or stale")
    results.add_argument(
        "--stale", choices=("leave", "keep"), default="leave", help="runs made by other code: leave out, or keep"
    )
    results.set_defaults(command=_results)

    sweep = commands.add_parser("sweep", help="run a notebook over a grid of parameters, as far as results are missing")
    sweep.add_argument("name", help="a description in book/sweeps, or a path to one (NAME.yaml)")
    sweep.add_argument("-j", "--jobs", type=_count, metavar="N", help="runs at once (default: what fits)")
    sweep.add_argument("--scheduler", metavar="ADDRESS", help="an existing Dask scheduler, tcp://HOST:PORT")
    sweep.add_argument("--dry-run", action="store_true", help="say what would be run, and run nothing")
    sweep.add_argument("--out", type=Path, metavar="FOLDER", help="where the sweeps' folders lie (default: out/sweeps)")
    sweep.add_argument(
        "--stale",
        choices=("leave", "rerun"),
        default="leave",
        help="results of older code: leave (the default) or rerun",
    )
    sweep.set_defaults(command=_sweep)

    refresh = commands.add_parser("refresh", help="execute committed notebooks at their defaults and write them back")
    refresh.add_argument("notebooks", nargs="*", help="13, 13_sample_margin or a path; all if none is given")
    refresh.set_defaults(command=_refresh)

    doctor = commands.add_parser("doctor", help="report versions, device, kernel and data sets")
    doctor.set_defaults(command=_doctor)
    return parser


def _build(options: argparse.Namespace) -> int:
    from nbs_lib.publish import build, notebooks

    try:
        page = build.build(notebooks.root(), force=options.force, say=_say)
    except build.BuildError as error:
        _fail(str(error))
    _say(f"the book: {page}\n{page.resolve().as_uri()}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from nbs_lib.publish import runs

    bar = sys.stderr.isatty()
    output = runs.run(options.notebook, options.parameter, file=options.file, output=options.output, bar=bar)
    _say(f"{output}")
    return 0


def _results(options: argparse.Namespace) -> int:
    from nbs_lib.publish.sweep import report

    report.show(
        options.sweep,
        by=options.by,
        measure=options.measure,
        where=options.where,
        out=options.out,
        png=options.png,
        publish=options.publish,
        nearest=options.nearest,
        keep_stale=options.stale == "keep",
        incomplete=options.incomplete,
        say=_say,
    )
    return 0


def _sweep(options: argparse.Namespace) -> int:
    from nbs_lib.publish.sweep import driver

    complete = driver.sweep(
        options.name,
        jobs=options.jobs,
        scheduler=options.scheduler,
        dry_run=options.dry_run,
        out=options.out,
        stale=options.stale,
        say=_say,
    )
    return 0 if complete else 1


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _refresh(options: argparse.Namespace) -> int:
    from nbs_lib.publish import notebooks

    names = options.notebooks
    paths = [notebooks.find(n) for n in names] or sorted((notebooks.root() / "notebooks").glob("*.ipynb"))
    status = 0
    for path in paths:
        try:
            _say(f"{path.stem}: {'rewritten' if notebooks.refresh(path) else 'unchanged'}")
        except notebooks.NotebookError as error:
            status = 1
            print(f"error: {error}", file=sys.stderr, flush=True)
    return status


def _doctor(_: argparse.Namespace) -> int:
    from nbs_lib.publish import doctor

    broken = 0
    for finding in doctor.examine():
        sign = "ok" if finding.ok else "BAD" if finding.needed else "-"
        broken += finding.needed and not finding.ok
        _say(f"{sign:4}{finding.name:26}{finding.text}")
    _say("all that the book needs is here" if not broken else f"{broken} needed things are missing or wrong")
    return int(broken > 0)


def _say(line: str) -> None:
    print(line, flush=True)
