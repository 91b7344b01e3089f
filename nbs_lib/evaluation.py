"""What a trained network says about an image set, and the measures of it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nbs_lib import metrics
from nbs_lib.data.sets import Batches


@dataclass
class Evaluation:
    """What a trained pair of backbone and head says about an image set; all tensors on the CPU.

    Attributes:
        scores: (N, K) float32.
        cosines: (N, K) float32, between features and prototypes.
        features: (N, d) float32.
        target: (N,) int64.
        prototypes: (K, d) float32.
    """

    scores: Tensor
    cosines: Tensor
    features: Tensor
    target: Tensor
    prototypes: Tensor

    @property
    def accuracy(self) -> float:
        """Share of images whose highest score is that of their class."""
        return metrics.topk_accuracy(self.scores, self.target)

    @property
    def class_margin(self) -> float:
        """Smallest angle between two prototypes, in degrees (Zhou et al. 2022, Eq. 2.2)."""
        return metrics.class_margin(self.prototypes)

    @property
    def sample_margins(self) -> Tensor:
        """(N,) cosine to the own prototype minus the largest other cosine (Zhou et al. 2022, Eq. 2.5 on the sphere)."""
        return metrics.sample_margins(self.cosines, self.target)

    @property
    def mean_sample_margin(self) -> float:
        """Mean of :attr:`sample_margins`, the paper's m_samp (appendix C.2)."""
        return metrics.mean_sample_margin(self.cosines, self.target)

    @property
    def prototype_norm_ratio(self) -> float:
        """Longest prototype over the shortest (Zhou et al. 2022, Fig. 1)."""
        return metrics.prototype_norm_ratio(self.prototypes)


@torch.no_grad()
def evaluate(backbone: nn.Module, head: nn.Module, image_set: Batches, batch_size: int = 1000) -> Evaluation:
    """Run ``image_set`` through ``backbone`` and ``head`` in evaluation mode and float32, ``batch_size`` at a time.

    The modules' training modes are put back afterwards; the set is moved to the head's device for the time of the call.
    """
    modes = [(module, module.training) for net in (backbone, head) for module in net.modules()]
    parts: tuple[list[Tensor], ...] = ([], [], [])
    image_set = image_set.to(head.prototypes.device)
    try:
        backbone.eval()
        head.eval()
        for images, _ in image_set.batches(batch_size, shuffle=False):
            features = backbone(images)
            for part, value in zip(parts, (head(features), head.cosine(features), features), strict=True):
                part.append(value.float())
    finally:
        for module, mode in modes:
            module.training = mode
    scores, cosines, features = (torch.cat(part).cpu() for part in parts)
    return Evaluation(scores, cosines, features, image_set.labels.cpu(), head.prototypes.detach().float().cpu())
