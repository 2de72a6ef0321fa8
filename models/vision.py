"""Image models by name: the CIFAR ResNets of this repository, and the families built on torchvision's classes."""

from torch import nn

from models import unknown_architecture
from models.cifar_resnet import ARCHITECTURES as CIFAR_ARCHITECTURES
from models.cifar_resnet import CifarResNet
from models.image_weights import load_pretrained
from models.small_nets import SMALL_NETS

SMALL_IMAGE = 64
# Architectures whose names end so are made for 32 pixels, their stem included; the others are as published.
SMALL_FORM = "_small_image"
FAMILIES = {
    "resnet": (*CIFAR_ARCHITECTURES, "resnet18", "resnet34", "resnet50"),
    "resnext": (
        "resnext_small_image",
        "resnext50_32x4d",
        "resnext101_32x4d",
        "resnext101_32x8d",
        "resnext101_64x4d",
    ),
    "wide_resnet": ("wide_resnet_small_image", "wide_resnet50_2", "wide_resnet101_2"),
    "vgg": ("vgg_small_image", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"),
    "densenet": ("densenet_small_image", "densenet121", "densenet161", "densenet169", "densenet201"),
    "inception": ("inception_small_image", "inception_v3"),
    "regnet": (
        "regnet_small_image",
        *(f"regnet_{kind}_{size}" for kind in "xy" for size in ("400mf", "800mf", "1_6gf", "3_2gf", "8gf")),
    ),
    "efficientnet": ("efficientnet_small_image", *(f"efficientnet_b{number}" for number in range(8))),
    "mobilenet": (
        "mobilenet_v2_small_image",
        "mobilenet_v3_small_image",
        "mobilenet_v2",
        "mobilenet_v3_small",
        "mobilenet_v3_large",
    ),
    "convnext": ("convnext_small_image", "convnext_tiny", "convnext_small", "convnext_base", "convnext_large"),
    "vit": ("vit_small_image", "vit_s_16", "vit_b_16", "vit_b_32", "vit_l_16", "deit_tiny", "deit_small", "deit_base"),
    "swin": ("swin_small_image", "swin_t", "swin_s", "swin_b"),
    "lenet": ("lenet5",),
    "mlp": ("mlp_256_128_100", "softmax_regression"),
    "fashion_simple_net": ("fashion_simple_net",),
    "two_convolutions": ("two_convolutions", "two_convolutions_83k"),
}
# Below these sizes an unpadded layer has nothing left to work on (Inception: its auxiliary head).
SMALLEST_IMAGE = {
    **dict.fromkeys(FAMILIES["vgg"], 32),
    **dict.fromkeys(FAMILIES["convnext"], 32),
    "vgg_small_image": 16,
    "convnext_small_image": 16,
    "inception_v3": 107,
    "inception_small_image": 29,
    "lenet5": 12,
}
SMALLEST_OTHERWISE = 8
PATCH = {**dict.fromkeys(FAMILIES["vit"], 16), "vit_b_32": 32, "vit_small_image": 4}


def build(
    family: str,
    arch: str,
    num_classes: int,
    in_channels: int,
    image_size: int,
    dropout: float | None = None,
    pretrained: bool | str = False,
) -> nn.Module:
    """Model `arch`: images (N, in_channels, image_size, image_size) to logits (N, num_classes).

    Weights are random, or `pretrained`: torchvision's (true) or those of a file, with a new head where the
    classes differ. Inception in training gives (N, 2, num_classes); see `models.inception.TwoHeads`.
    Raises ValueError for a name that `family` does not have, a size that the model cannot take, weights that
    do not fit, and a `dropout` other than the architecture's own.
    """
    if arch not in FAMILIES[family]:
        raise unknown_architecture(arch, FAMILIES[family])
    if dropout is not None:
        raise ValueError(f"dropout: {arch} keeps its architecture's own; leave it null, not {dropout:g}")
    _check_size(arch, image_size)
    if arch in SMALL_NETS:
        model: nn.Module = SMALL_NETS[arch](num_classes, in_channels, image_size)
    elif arch in CIFAR_ARCHITECTURES:
        model = CifarResNet(int(arch.removeprefix("resnet")), num_classes, in_channels)
    else:
        from models import vision_forms  # torchvision: two seconds that a CIFAR ResNet need not pay

        small = image_size <= SMALL_IMAGE
        model = vision_forms.build(arch, num_classes, image_size, small)
        _fit_stem(model, in_channels, small=small and not arch.endswith(SMALL_FORM))
    if pretrained:
        load_pretrained(model, arch, pretrained)
    return model


def _check_size(arch: str, image_size: int) -> None:
    smallest = SMALLEST_IMAGE.get(arch, SMALLEST_OTHERWISE)
    patch = PATCH.get(arch, 1)
    if image_size % patch:
        raise ValueError(f"arch: {arch} takes image sizes that are multiples of {patch}, not {image_size}")
    if image_size < smallest:
        raise ValueError(f"arch: {arch} takes image sizes from {smallest} on, not {image_size}")


def _fit_stem(model: nn.Module, in_channels: int, small: bool) -> None:
    """Put a first convolution for `in_channels` into `model`; a `small` one keeps the size of the image.

    Of 32 pixels a 7x7 stride-2 stem and its pooling would leave 8 before the first block. Convolutions that
    cut the image into patches (stride = kernel) stay as they are.
    """
    name, first = next((name, module) for name, module in model.named_modules() if isinstance(module, nn.Conv2d))
    kernel, stride, padding = first.kernel_size[0], first.stride[0], int(first.padding[0])
    overlapping = stride < kernel
    if small and overlapping:
        if kernel == 7:
            _replace(model, next(n for n, m in model.named_modules() if isinstance(m, nn.MaxPool2d)), nn.Identity())
        kernel, stride, padding = 3, 1, 1
    if (in_channels, kernel, stride) == (first.in_channels, first.kernel_size[0], first.stride[0]):
        return
    biased, device = first.bias is not None, first.weight.device
    stem = nn.Conv2d(in_channels, first.out_channels, kernel, stride, padding, bias=biased, device=device)
    if overlapping:
        nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does
    else:
        nn.init.normal_(stem.weight, std=stem.weight[0].numel() ** -0.5)  # as torchvision does for ViT
    if stem.bias is not None:
        nn.init.zeros_(stem.bias)
    _replace(model, name, stem)


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
