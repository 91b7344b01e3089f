"""Measures on prototypes, cosines and predictions."""

from nbs_lib.metrics.accuracy import class_accuracy, topk_accuracy
from nbs_lib.metrics.bootstrap import bootstrap_mean, interval
from nbs_lib.metrics.calibration import ReliabilityBins, expected_calibration_error, reliability_bins
from nbs_lib.metrics.margins import (
    class_margin,
    class_margins,
    mean_sample_margin,
    pairwise_cosines,
    prototype_norm_ratio,
    sample_margins,
)
from nbs_lib.metrics.retrieval import Retrieval, retrieve
from nbs_lib.metrics.seeds import mean_interval, tied_with_best
from nbs_lib.metrics.verification import (
    FoldAccuracy,
    Roc,
    RocSamples,
    TarAtFar,
    all_pairs,
    auc,
    bootstrap_roc,
    fold_accuracy,
    pair_scores,
    roc,
    tar_at_far,
)

__all__ = [
    "FoldAccuracy",
    "ReliabilityBins",
    "Retrieval",
    "Roc",
    "RocSamples",
    "TarAtFar",
    "all_pairs",
    "auc",
    "bootstrap_mean",
    "bootstrap_roc",
    "class_accuracy",
    "class_margin",
    "class_margins",
    "expected_calibration_error",
    "fold_accuracy",
    "interval",
    "mean_interval",
    "mean_sample_margin",
    "pair_scores",
    "pairwise_cosines",
    "prototype_norm_ratio",
    "reliability_bins",
    "retrieve",
    "roc",
    "sample_margins",
    "tar_at_far",
    "tied_with_best",
    "topk_accuracy",
]
