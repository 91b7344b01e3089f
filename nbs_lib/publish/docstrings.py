"""A Sphinx extension for the API page: docstrings may write |w| for a length, as the papers do.

reStructuredText would read the bars as a substitution, and the build treats its complaint as an error. The bars stay
plain in the source, where most readers meet them, and are escaped on their way into the page.
"""

import re
from typing import Any

_LITERAL = re.compile(r"(``.*?``)")


def escape_bars(lines: list[str]) -> list[str]:
    """Return ``lines`` with a backslash before every bar that stands outside double backquotes."""
    return [
        "".join(part if _LITERAL.fullmatch(part) else part.replace("|", r"\|") for part in _LITERAL.split(line))
        for line in lines
    ]


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = escape_bars(lines)


def setup(app: Any) -> dict[str, bool]:
    """Connect to autodoc; Sphinx calls this."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
