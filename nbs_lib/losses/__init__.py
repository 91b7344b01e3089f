"""Classification losses: :mod:`~nbs_lib.losses.functional` holds the formulas, the classes are thin modules over it."""

from nbs_lib.losses import functional
from nbs_lib.losses.build import NAMES, available, build, expects_cosines
from nbs_lib.losses.curve import target_logit
from nbs_lib.losses.margin import ArcFace, CosFace, GMSoftmax, NormFace, SphereFace, UnifiedMargin
from nbs_lib.losses.regularizers import PAPER_LAMBDA, SampleMargin, ZeroCentroid
from nbs_lib.losses.softmax import CrossEntropy, LMSoftmax, LMSoftmaxTotal

__all__ = [
    "NAMES",
    "PAPER_LAMBDA",
    "ArcFace",
    "CosFace",
    "CrossEntropy",
    "GMSoftmax",
    "LMSoftmax",
    "LMSoftmaxTotal",
    "NormFace",
    "SampleMargin",
    "SphereFace",
    "UnifiedMargin",
    "ZeroCentroid",
    "available",
    "build",
    "expects_cosines",
    "functional",
    "target_logit",
]
