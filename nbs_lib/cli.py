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
        _fail(f"{error.name} is not installed: run `pip install -e '.[book]'` in the clone; `nbs doctor` says more")
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
