"""The papers' networks as backbones: images in, features out, the width of the features in ``out_features``."""

from nbs_lib.models.build import available, build
from nbs_lib.models.small import MiniCNN, PaperCNN

__all__ = ["MiniCNN", "PaperCNN", "available", "build"]
