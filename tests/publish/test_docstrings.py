"""Docstrings reach the API page without what reStructuredText would read as substitutions and links."""

import docutils.utils
import pytest
from docutils.core import publish_doctree

from nbs_lib.publish.docstrings import escape


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("R_w = |(1/K) Σ_j w_j|² on unit w", "R_w = |(1/K) Σ_j w_j|² on unit w"),
        ("the norm |z_i|: pass it", "the norm |z_i|: pass it"),
        ("literals keep theirs: ``str | None`` and |h|", "literals keep theirs: str | None and |h|"),
        ('and, "train_...", on w_y', 'and, "train_...", on w_y'),
        ("a link `text <https://example.org>`_ stays one", "a link text stays one"),
        ("nothing special", "nothing special"),
    ],
)
def test_text_is_shown_as_written(written, shown):
    text = "\n".join(escape([written]))
    tree = publish_doctree(text, settings_overrides={"report_level": 2, "halt_level": 2})
    assert tree.astext() == shown


@pytest.mark.parametrize("text", ["length |w_j| of w", "names train_, test_"])
def test_unescaped_text_does_fail(text):
    """The reason for all this: without the escape docutils complains."""
    with pytest.raises(docutils.utils.SystemMessage):
        publish_doctree(text, settings_overrides={"report_level": 2, "halt_level": 2})
