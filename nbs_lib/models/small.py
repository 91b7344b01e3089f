"""The two small convolutional networks of the largest-margins chapters."""

from torch import Tensor, nn


def _block(in_channels: int, out_channels: int) -> list[nn.Module]:
    # No bias: the batch normalisation that follows would subtract it again. ReLU and maximum commute, so pooling first
    # gives the same function and gradient with a quarter of the ReLU's work.
    return [
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
    ]


def _neck(in_features: int, out_features: int) -> list[nn.Module]:
    return [nn.Linear(in_features, out_features, bias=False), nn.BatchNorm1d(out_features), nn.ReLU(inplace=True)]


class PaperCNN(nn.Module):
    """The "4-layer CNN" that Zhou et al. 2022 train on MNIST (appendix C.2).

    The paper lists Conv(1, 32, 3)-BN-ReLU-MaxPool-Conv(32, 64, 3)-BN-ReLU-MaxPool-Linear(): three layers with weights,
    if the last one is the classifier. We read it as the MNIST network of the same group's earlier work on asymmetric
    losses: the Linear is a hidden layer of width 128 with batch normalisation and ReLU, the prototypes are the fourth.
    The paper's own numbers speak for ReLU features: no sample margin in its Tables 1 and 5 passes the cap
    sqrt(K/(K-1)) = 1.054 that non-negative features have at K = 10 (without ReLU the cap is K/(K-1) = 1.111).

    Args:
        in_channels: channels of the images.
        image_size: height and width of the images in pixels (at least 4).
        feature_dim: width d of the features.

    Shapes: images (N, C, H, W) -> features (N, d), all non-negative.
    """

    def __init__(self, in_channels: int = 1, image_size: int = 28, feature_dim: int = 128) -> None:
        super().__init__()
        self.out_features = feature_dim
        side = image_size // 4
        self.layers = nn.Sequential(
            *_block(in_channels, 32),
            *_block(32, 64),
            nn.Flatten(),
            *_neck(64 * side * side, feature_dim),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, d) of ``images`` (N, C, H, W)."""
        return self.layers(images)


class Halve(nn.Module):
    """Average pooling over 2 x 2 pixels by four slices: ten times faster than ``nn.AvgPool2d`` on grey images."""

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W) -> (N, C, H // 2, W // 2); an odd last row or column is left out."""
        height, width = (side - side % 2 for side in images.shape[-2:])
        rows = images[..., 0:height:2, :] + images[..., 1:height:2, :]
        return (rows[..., 0:width:2] + rows[..., 1:width:2]) / 4


class MiniCNN(nn.Module):
    """A network that learns Fashion-MNIST's small edition in seconds on a CPU.

    Halve-Conv(16)-BN-ReLU-MaxPool-Conv(32)-BN-ReLU-MaxPool-Linear(d)-BN-ReLU. Halving the image first costs
    two points of accuracy and saves a factor of four in time. The batch-normalised Linear is what lets the margins of
    Zhou et al. 2022, Table 1, grow within a few epochs.

    Args:
        in_channels: channels of the images.
        image_size: height and width of the images in pixels (at least 8).
        feature_dim: width d of the features.

    Shapes: images (N, C, H, W) -> features (N, d), all non-negative.
    """

    def __init__(self, in_channels: int = 1, image_size: int = 28, feature_dim: int = 64) -> None:
        super().__init__()
        self.out_features = feature_dim
        side = image_size // 8
        self.layers = nn.Sequential(
            Halve(),
            *_block(in_channels, 16),
            *_block(16, 32),
            nn.Flatten(),
            *_neck(32 * side * side, feature_dim),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, d) of ``images`` (N, C, H, W)."""
        return self.layers(images)
