"""Classification losses: :mod:`~nbs_lib.losses.functional` holds the formulas, the classes are thin modules over it."""

from nbs_lib.losses import functional
from nbs_lib.losses.build import NAMES, available, build, expects_cosines
from nbs_lib.losses.curve import target_logit
from nbs_lib.losses.imbalance import class_balanced_weights
from nbs_lib.losses.margin import LDAM, ArcFace, CosFace, GMSoftmax, NormFace, SphereFace, UnifiedMargin
from nbs_lib.losses.regularizers import PAPER_LAMBDA, SampleMargin, ZeroCentroid
from nbs_lib.losses.smoothing import LabelAwareSmoothing, smoothing_by_class
from nbs_lib.losses.softmax import CrossEntropy, Focal, LMSoftmax, LMSoftmaxTotal

__all__ = [
    "LDAM",
    "NAMES",
    "PAPER_LAMBDA",
    "ArcFace",
    "CosFace",
    "CrossEntropy",
    "Focal",
    "GMSoftmax",
    "LMSoftmax",
    "LMSoftmaxTotal",
    "LabelAwareSmoothing",
    "NormFace",
    "SampleMargin",
    "SphereFace",
    "UnifiedMargin",
    "ZeroCentroid",
    "available",
    "build",
    "class_balanced_weights",
    "expects_cosines",
    "functional",
    "smoothing_by_class",
    "target_logit",
]
