"""A Sphinx extension for the API page: docstrings may write |w| for a length and ``w_`` in running text.

reStructuredText would read the one as a substitution and the other as a link, and the build treats its complaints as
errors. The source, where most readers meet a docstring, stays plain; what is special is escaped on its way to the page.
"""

import re
from typing import Any

_QUOTED = re.compile(r"(``.*?``|`[^`]*`_?)")
_SPECIAL = re.compile(r"\||(?<=\w)_(?!\w)")


def escape(lines: list[str]) -> list[str]:
    """Return ``lines`` with a backslash before bars and before underscores that end a word, outside backquotes."""
    return [
        "".join(part if _QUOTED.fullmatch(part) else _SPECIAL.sub(r"\\\g<0>", part) for part in _QUOTED.split(line))
        for line in lines
    ]


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = escape(lines)


def setup(app: Any) -> dict[str, bool]:
    """Connect to autodoc; Sphinx calls this."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
