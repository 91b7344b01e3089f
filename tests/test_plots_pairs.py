import math

import matplotlib.pyplot as plt
import numpy as np
import pytest

from nbs_lib import plots


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_each_row_has_a_ring_and_a_dot_from_top_to_bottom():
    ax = plots.paired_dots(
        ["a", "b"], [1, 2], [3, math.nan], labels=("off", "on"), styles=["ce", "normface"], xlabel="x"
    )
    rings = [line for line in ax.lines if line.get_marker() == "o" and line.get_markerfacecolor() == "white"]
    assert [tuple(np.ravel(line.get_data())) for line in rings[:2]] == [(1, 0), (2, 1)]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b"]
    low, high = ax.get_ylim()
    assert low > high, "the first row stands on top"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["off", "on"]
    assert rings[0].get_markeredgecolor() == plots.style_of("ce").colour


def test_a_reference_is_named():
    ax = plots.paired_dots(["a"], [1], [2], labels=("off", "on"), reference=1.5, reference_label="cap", legend=False)
    assert "cap" in [text.get_text() for text in ax.texts]
    assert ax.get_legend() is None


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="one length"):
        plots.paired_dots(["a"], [1, 2], [2, 3], labels=("off", "on"))
