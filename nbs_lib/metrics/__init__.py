"""Measures on prototypes, cosines and predictions."""

from nbs_lib.metrics.accuracy import topk_accuracy
from nbs_lib.metrics.calibration import ReliabilityBins, expected_calibration_error, reliability_bins
from nbs_lib.metrics.margins import (
    class_margin,
    class_margins,
    mean_sample_margin,
    pairwise_cosines,
    prototype_norm_ratio,
    sample_margins,
)

__all__ = [
    "ReliabilityBins",
    "class_margin",
    "class_margins",
    "expected_calibration_error",
    "mean_sample_margin",
    "pairwise_cosines",
    "prototype_norm_ratio",
    "reliability_bins",
    "sample_margins",
    "topk_accuracy",
]
