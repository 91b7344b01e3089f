"""The figures every chapter shares, in one look: functions of data and axes; :func:`show` puts them on the page."""

from nbs_lib.plots.classes import class_accuracies
from nbs_lib.plots.curves import degree_axis, gradient_curves, target_logit_curves
from nbs_lib.plots.decision import decision_circle
from nbs_lib.plots.histograms import cosine_histograms, sample_margin_histograms
from nbs_lib.plots.intervals import seed_intervals
from nbs_lib.plots.pairs import paired_dots
from nbs_lib.plots.recognition import interval_dots, roc_curves, score_histograms
from nbs_lib.plots.rotatable import rotatable_sphere
from nbs_lib.plots.sphere import contacts, sphere_scatter
from nbs_lib.plots.style import (
    CLASS_COLOURS,
    DASHES,
    DPI,
    LOSS_STYLES,
    PAGE_WIDTH,
    LossStyle,
    show,
    style_of,
    use_style,
)
from nbs_lib.plots.training import reliability_diagram, training_curves

__all__ = [
    "CLASS_COLOURS",
    "DASHES",
    "DPI",
    "LOSS_STYLES",
    "PAGE_WIDTH",
    "LossStyle",
    "class_accuracies",
    "contacts",
    "cosine_histograms",
    "decision_circle",
    "degree_axis",
    "gradient_curves",
    "interval_dots",
    "paired_dots",
    "reliability_diagram",
    "roc_curves",
    "rotatable_sphere",
    "sample_margin_histograms",
    "score_histograms",
    "seed_intervals",
    "show",
    "sphere_scatter",
    "style_of",
    "target_logit_curves",
    "training_curves",
    "use_style",
]
