"""Mixup (Zhang et al. 2018, https://arxiv.org/abs/1710.09412): blends of two images, with blends of their losses.

Both halves stand around a backbone and an objective, so the training loop need not know.
"""

import torch
from torch import Tensor, nn

from nbs_lib.train import Objective
from nbs_lib.validation import check_in


class Mixup(nn.Module):
    """A backbone that in training sees x = t x_i + (1 - t) x_π(i), t ~ Beta(α, α) and π a permutation, drawn a batch.

    Args:
        backbone: images (N, C, H, W) -> features (N, d); in evaluation mode it is all there is.
        alpha: α, from 0.01; 1 spreads t evenly, a small one keeps it near 0 and 1.
    """

    def __init__(self, backbone: nn.Module, alpha: float) -> None:
        super().__init__()
        # below 0.01 single precision cannot draw from Beta: it gives halves, where there should be zeros and ones
        self.backbone, self.alpha = backbone, check_in("alpha", alpha, 0.01, 1e6)
        self.share, self.partner = 1.0, torch.empty(0, dtype=torch.int64)

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, d) of the blended images."""
        if self.training:
            # from torch's CPU generator, which the training loop seeds epoch by epoch
            self.share = float(torch.distributions.Beta(self.alpha, self.alpha).sample())
            self.partner = torch.randperm(len(images)).to(images.device)
            images = torch.lerp(images[self.partner], images, self.share)
        return self.backbone(images)

    def blend(self, objective: Objective) -> Objective:
        """The objective to train with, t L(z, y_i) + (1 - t) L(z, y_π(i)); of cross-entropy, that of blended labels."""

        def blended(features: Tensor, head: nn.Module, target: Tensor) -> Tensor:
            loss = objective(features, head, target)
            if not self.training:
                return loss
            return self.share * loss + (1 - self.share) * objective(features, head, target[self.partner])

        return blended
