"""Figures of verification and retrieval say what the numbers say."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from nbs_lib import metrics, plots


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def pairs():
    generator = torch.Generator().manual_seed(0)
    genuine = torch.arange(600) < 100
    return torch.randn(600, generator=generator) / 5 + 0.4 * genuine, genuine


def test_score_histograms_hold_every_pair():
    scores, genuine = pairs()
    ax = plots.score_histograms(scores, genuine, thresholds={"FAR 1 %": 0.5})
    # the numbers stand in the legend, and each density integrates to one
    assert sorted(ax.get_legend_handles_labels()[1]) == ["100 genuine pairs", "500 impostor pairs"]
    bars = ax.containers[-1]
    assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1)
    assert any(np.allclose(line.get_xdata(), 0.5) for line in ax.lines)
    assert [text.get_text().strip() for text in ax.texts] == ["FAR 1 %"]


def test_roc_curves_draw_the_curve_and_its_band():
    curve = metrics.roc(*pairs())
    ax = plots.roc_curves({"ce": curve}, bands={"ce": ([0.01, 0.1], [0.1, 0.2], [0.3, 0.5])})
    assert ax.get_xscale() == "log"
    assert ax.get_xlim() == (1 / 500, 1)
    line = ax.lines[0]
    for far, tar in zip(line.get_xdata()[::20], line.get_ydata()[::20], strict=True):
        assert tar == curve.at_far(min(far, 1.0)).tar
    assert len(ax.collections) == 1


def test_interval_dots_keep_the_order():
    ax = plots.interval_dots({"CE": (0.5, 0.4, 0.7), "LM": (0.2, 0.1, 0.3)}, xlabel="mAP")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["CE", "LM"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first on top
    assert [float(line.get_xdata()[0]) for line in ax.lines] == [0.4, 0.5, 0.1, 0.2]
    assert ax.get_xlabel() == "mAP"
