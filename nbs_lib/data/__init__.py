"""Image sets by name, held on the device, with batchwise normalisation and augmentation."""

from nbs_lib.data.augment import Augment
from nbs_lib.data.sets import ImageSet
from nbs_lib.data.sources import DataError, available, load

__all__ = ["Augment", "DataError", "ImageSet", "available", "load"]
