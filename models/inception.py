"""Inception v3 (Szegedy et al. 2016, *Rethinking the Inception Architecture*, https://arxiv.org/abs/1512.00567).

Torchvision's modules, with an auxiliary head for any image size and a narrow form for small images.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torchvision.models import inception
from torchvision.models.inception import Inception3


class TwoHeads(nn.Module):
    """Images (N, C, H, W) to logits: (N, 2, classes) in training, main head first; (N, classes) in evaluation.

    Torchvision's network returns a named tuple in training; here a model has one output.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        output = self.network(images)
        if not self.training:
            logits: Tensor = output
            return logits
        return torch.stack((output.logits, output.aux_logits), dim=1)


def inception_v3(num_classes: int, image_size: int) -> nn.Module:
    """As published; below 299 pixels the auxiliary head's 5x5 convolution shrinks to the map that is left."""
    size = _unpadded(image_size, 2) - 2
    size = _unpadded(_unpadded(size, 2) - 2, 2)
    return TwoHeads(_network(num_classes, map_size=_unpadded(size, 2), narrow=1))


def inception_small_image(num_classes: int, image_size: int) -> nn.Module:
    """A quarter of the channels, a stem that shrinks 32 pixels to 12, and the modules that change
    the number of channels, at 12, 5 and 2 pixels.
    """
    network = _network(num_classes, map_size=_unpadded(_unpadded(image_size - 6, 2), 2), narrow=4)
    first = network.get_submodule("Conv2d_1a_3x3.conv")
    assert isinstance(first, nn.Conv2d)
    first.stride = (1, 1)
    network.maxpool1 = nn.Identity()
    for repeated in ("Mixed_5d", "Mixed_6c", "Mixed_6d", "Mixed_6e", "Mixed_7c"):
        setattr(network, repeated, nn.Identity())
    return TwoHeads(network)


def _unpadded(size: int, stride: int) -> int:
    """What an unpadded 3x3 window leaves of `size` pixels."""
    return (size - 3) // stride + 1


def _network(num_classes: int, map_size: int, narrow: int) -> nn.Module:
    """The network with 1/`narrow` of the channels; its auxiliary head sees a map of `map_size` pixels."""

    def convolution(in_channels: int, out_channels: int, **settings: object) -> nn.Module:
        channels = in_channels if in_channels == 3 else in_channels // narrow
        block: nn.Module = inception.BasicConv2d(channels, out_channels // narrow, **settings)
        return block

    def auxiliary(in_channels: int, classes: int) -> nn.Module:
        head: nn.Module = inception.InceptionAux(in_channels, classes, conv_block=convolution)
        pooled = (map_size - 5) // 3 + 1
        head.conv1 = convolution(128, 768, kernel_size=min(5, pooled))
        head.fc = nn.Linear(768 // narrow, classes)
        return head

    blocks = [getattr(inception, f"Inception{letter}") for letter in "ABCDE"]
    network: nn.Module = Inception3(
        num_classes=num_classes,
        init_weights=True,
        inception_blocks=[convolution, *(partial(block, conv_block=convolution) for block in blocks), auxiliary],
    )
    if narrow > 1:
        network.fc = nn.Linear(2048 // narrow, num_classes)
    return network
