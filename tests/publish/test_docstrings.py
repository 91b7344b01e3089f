"""Docstrings reach the API page without bars that reStructuredText would read as substitutions."""

import docutils.utils
import pytest
from docutils.core import publish_doctree

from nbs_lib.publish.docstrings import escape_bars


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("R_w = |(1/K) Σ_j w_j|² on unit w", "R_w = |(1/K) Σ_j w_j|² on unit w"),
        ("the norm |z_i|: pass it", "the norm |z_i|: pass it"),
        ("literals keep theirs: ``str | None`` and |h|", "literals keep theirs: str | None and |h|"),
        ("no bar at all", "no bar at all"),
    ],
)
def test_bars_are_shown_as_written(written, shown):
    text = "\n".join(escape_bars([written]))
    tree = publish_doctree(text, settings_overrides={"report_level": 2, "halt_level": 2})
    assert tree.astext() == shown


def test_unescaped_bars_do_fail():
    """The reason for all this: without the escape docutils complains."""
    with pytest.raises(docutils.utils.SystemMessage):
        publish_doctree("length |w_j| of w", settings_overrides={"report_level": 2, "halt_level": 2})
