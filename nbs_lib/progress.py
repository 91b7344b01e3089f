"""A progress bar where somebody watches, and nothing at all where nobody does."""

import os
import sys
import time
from types import TracebackType
from typing import Any


def _live_notebook() -> Any | None:
    """IPython's shell, if it belongs to a notebook that a person has open, else None.

    A kernel that papermill or nbval started looks the same from inside, but for what the front ends leave behind:
    Jupyter's server names the session, Colab has its module, VS Code puts a variable into the notebook.
    """
    if "IPython" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    if shell is None or type(shell).__name__ not in ("ZMQInteractiveShell", "Shell"):
        return None
    watched = (
        "JPY_SESSION_NAME" in os.environ
        or "google.colab" in sys.modules
        or "__vsc_ipynb_file__" in getattr(shell, "user_ns", {})
    )
    return shell if watched else None


def where(wanted: bool | None = None) -> str:
    """Say where progress goes: "terminal", "notebook" or "" (nowhere).

    ``wanted`` decides, then the environment variable ``NBS_PROGRESS`` (0 or 1), then whether there is a terminal or a
    live notebook to show it.
    """
    if wanted is None and os.environ.get("NBS_PROGRESS") in ("0", "1"):
        wanted = os.environ["NBS_PROGRESS"] == "1"
    if wanted is False:
        return ""
    if _live_notebook() is not None:
        return "notebook"
    return "terminal" if wanted or sys.stderr.isatty() else ""


class Progress:
    """Context manager that counts ``total`` steps; ``advance`` costs next to nothing when nobody watches.

    A terminal gets tqdm's bar, wiped at the end. A notebook gets one line of plain text that is rewritten in place and
    emptied at the end: no widget, whose state would outlive the kernel in the saved file.
    """

    def __init__(self, total: int, label: str, wanted: bool | None = None, done: int = 0) -> None:
        self.total, self.label, self.done, self.note = total, label, done, ""
        self.place = where(wanted)
        self._shown = 0.0

    def __enter__(self) -> "Progress":
        if self.place == "terminal":
            from tqdm.std import tqdm

            self._bar = tqdm(total=self.total, initial=self.done, desc=self.label, leave=False, file=sys.stderr)
        elif self.place == "notebook":
            from IPython.display import display

            self._handle = display({"text/plain": self._line()}, raw=True, display_id=True)
        return self

    def advance(self, note: str | None = None) -> None:
        """Count one step; ``note`` replaces the text behind the bar."""
        if not self.place:
            return
        self.done += 1
        if note is not None:
            self.note = note
        if self.place == "terminal":
            if note is not None:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update()
        elif time.monotonic() - self._shown > 0.5:
            self._shown = time.monotonic()
            self._handle.update({"text/plain": self._line()}, raw=True)

    def _line(self) -> str:
        return f"{self.label}: {100 * self.done / max(1, self.total):.0f} % {self.note}".rstrip()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.place == "terminal":
            self._bar.close()
        elif self.place == "notebook":
            self._handle.update({"text/plain": ""}, raw=True)
