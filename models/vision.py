"""Image models by name: the CIFAR ResNets of this repository and the ResNets of torchvision."""

from torch import nn

from models import unknown_architecture
from models.cifar_resnet import ARCHITECTURES as CIFAR_ARCHITECTURES
from models.cifar_resnet import CifarResNet

TORCHVISION_ARCHITECTURES = ("resnet18", "resnet34", "resnet50")
SMALL_IMAGE = 64


def resnet(arch: str, num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    """ResNet `arch`: images (N, in_channels, image_size, image_size) to logits (N, num_classes), random weights.

    Raises ValueError for an unknown name.
    """
    if arch in CIFAR_ARCHITECTURES:
        return CifarResNet(int(arch.removeprefix("resnet")), num_classes, in_channels)
    if arch in TORCHVISION_ARCHITECTURES:
        return _torchvision_resnet(arch, num_classes, in_channels, image_size)
    raise unknown_architecture(arch, CIFAR_ARCHITECTURES + TORCHVISION_ARCHITECTURES)


def _torchvision_resnet(arch: str, num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    import torchvision  # two seconds that a CIFAR ResNet need not pay

    model: nn.Module = getattr(torchvision.models, arch)(num_classes=num_classes)
    if image_size <= SMALL_IMAGE:
        # The 7x7 stride-2 stem and its pooling would leave 8 of 32 pixels before the first block.
        stem = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    else:
        stem = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does
    model.conv1 = stem
    return model
