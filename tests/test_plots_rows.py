"""Figures with a row or a column a method or class."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from nbs_lib import plots


def test_intervals_are_drawn_where_the_numbers_are():
    mean, low, high = [3.0, 2.0], [2.5, np.nan], [3.5, np.nan]
    single = [[2.6, 3.4], [2.0]]
    ax = plots.seed_intervals(
        ["a", "b"], mean, low, high, styles=["ce", "arcface"], single=single, filled=[True, False], xlabel="degrees"
    )
    bars, ticks, dots = ax.lines[0::3], ax.lines[1::3], ax.lines[2::3]
    assert bars[0].get_xdata().tolist() == [2.5, 3.5]
    assert [list(line.get_xdata()) for line in ticks] == single
    assert [float(line.get_xdata()[0]) for line in dots] == mean
    assert [float(line.get_ydata()[0]) for line in dots] == [0, 1]
    assert dots[1].get_markerfacecolor() == "white"
    assert dots[0].get_markerfacecolor() == plots.style_of("ce").colour
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert ax.yaxis_inverted()
    plt.close(ax.figure)


def test_lengths_of_intervals():
    with pytest.raises(ValueError, match=r"must have one length, got \[1, 2\]"):
        plots.seed_intervals(["a"], [1.0, 2.0], [1.0], [1.0], styles=["ce"])


def test_class_accuracies():
    names = ["shirt", "coat", "bag"]
    ax = plots.class_accuracies({"ce": [0.5, None, 1.0], "ldam": [0.25, 0.5, 0.75]}, names, [1000, 100, 10])
    first, second = ax.lines
    assert first.get_ydata()[[0, 2]].tolist() == [50, 100]
    assert np.isnan(first.get_ydata()[1])
    assert second.get_ydata().tolist() == [25, 50, 75]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["shirt\n1,000", "coat\n100", "bag\n10"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["softmax CE", "LDAM"]
    plt.close(ax.figure)
    many = plots.class_accuracies({"ce": [0.5] * 100}, [str(k) for k in range(100)], legend=False)
    assert "37" not in [label.get_text() for label in many.get_xticklabels()]
    plt.close(many.figure)
    with pytest.raises(ValueError, match="run 'ce' has 2 accuracies for 3 classes"):
        plots.class_accuracies({"ce": [0.5, 1.0]}, names)
