"""The ``nbs`` command: build the book, run a notebook with other parameters, refresh the committed ones."""

from typing import Annotated

import typer

from nbs_lib.publish import notebooks

app = typer.Typer(
    help="Build the book, run its notebooks, check the environment.", no_args_is_help=True, add_completion=False
)


@app.callback()
def main() -> None:
    """Build the book, run its notebooks, check the environment."""


@app.command()
def refresh(
    names: Annotated[list[str] | None, typer.Argument(help="13, 13_sample_margin or a path; all if none given")] = None,
) -> None:
    """Execute committed notebooks at their defaults; write back, cleaned, those that a reader would see change."""
    paths = [notebooks.find(n) for n in names] if names else sorted((notebooks.root() / "notebooks").glob("*.ipynb"))
    failed = False
    for path in paths:
        try:
            typer.echo(f"{path.stem}: {'rewritten' if notebooks.refresh(path) else 'unchanged'}")
        except notebooks.NotebookError as error:
            failed = True
            typer.echo(f"error: {error}", err=True)
    raise typer.Exit(int(failed))
