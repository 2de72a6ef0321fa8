"""Torchvision's image models, and what can be made of its classes beyond its builders.

These are published architectures that it has no builder for, and for each family one small form for images
of 32 pixels: the same blocks, fewer and narrower.
"""

from collections.abc import Callable, Mapping

import torchvision
from torch import nn
from torchvision.models import convnext, densenet, efficientnet, mobilenetv2, mobilenetv3, regnet, resnet, vgg

from models.inception import inception_small_image, inception_v3


def build(arch: str, num_classes: int, image_size: int, small: bool) -> nn.Module:
    """Model `arch` of three input channels with random weights: torchvision's own unless `FORMS` has it.

    Of a `small` image a VGG has no hidden layers behind its features.
    """
    if arch in FORMS:
        return FORMS[arch](num_classes, image_size)
    if arch in VGG_LAYERS and small:
        return _vgg_without_hidden_layers(vgg.cfgs[VGG_LAYERS[arch]], num_classes)
    size = {"image_size": image_size} if arch.startswith("vit_") else {}
    model: nn.Module = torchvision.models.get_model(arch, num_classes=num_classes, **size)
    return model


def resnext_small_image(num_classes: int, image_size: int) -> nn.Module:
    """One bottleneck of 8 groups a stage, at 16, 8 and 4 pixels."""
    model = _three_bottlenecks(num_classes, groups=8, width_per_group=8)
    model.maxpool = nn.Identity()
    return model


def wide_resnet_small_image(num_classes: int, image_size: int) -> nn.Module:
    """One bottleneck of twice the width a stage, at 8, 4 and 2 pixels."""
    return _three_bottlenecks(num_classes, groups=1, width_per_group=128)


def _three_bottlenecks(num_classes: int, groups: int, width_per_group: int) -> nn.Module:
    """A ResNet without its last and widest stage."""
    model = _resnet([1, 1, 1, 1], num_classes, groups, width_per_group)
    model.layer4 = nn.Identity()
    model.fc = nn.Linear(1024, num_classes)
    return model


def resnext101_32x4d(num_classes: int, image_size: int) -> nn.Module:
    """Xie et al. 2017, *Aggregated Residual Transformations*, table 1's rule at 101 layers: 32 groups of 4."""
    return _resnet([3, 4, 23, 3], num_classes, groups=32, width_per_group=4)


def _resnet(layers: list[int], num_classes: int, groups: int, width_per_group: int) -> nn.Module:
    model: nn.Module = resnet.ResNet(
        resnet.Bottleneck, layers, num_classes, groups=groups, width_per_group=width_per_group
    )
    return model


VGG_LAYERS = {"vgg11_bn": "A", "vgg13_bn": "B", "vgg16_bn": "D", "vgg19_bn": "E"}


def vgg_small_image(num_classes: int, image_size: int) -> nn.Module:
    """Seven convolutions of 32 to 256 channels, at 32, 16, 8 and 4 pixels."""
    layers: list[int | str] = [32, 32, "M", 64, 64, "M", 128, 128, "M", 256, "M"]
    return _vgg_without_hidden_layers(layers, num_classes)


def _vgg_without_hidden_layers(layers: list[int | str], num_classes: int) -> nn.Module:
    """VGG's convolutions and one linear layer: of a small image no 7x7 map is left for the published head."""
    features = vgg.make_layers(layers, batch_norm=True)
    for module in features.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does
            nn.init.zeros_(module.bias)  # type: ignore[arg-type]
    channels = [width for width in layers if isinstance(width, int)][-1]
    return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


def densenet_small_image(num_classes: int, image_size: int) -> nn.Module:
    """Three dense blocks of four layers with growth 16, at 16, 8 and 4 pixels."""
    model: nn.Module = densenet.DenseNet(
        growth_rate=16, block_config=(4, 4, 4), num_init_features=32, num_classes=num_classes
    )
    model.get_submodule("features").pool0 = nn.Identity()
    return model


def regnet_small_image(num_classes: int, image_size: int) -> nn.Module:
    """RegNetY blocks (squeeze and excitation) of 48, 96 and 192 channels, at 16, 8 and 4 pixels."""
    stages = regnet.BlockParams(
        depths=[1, 2, 2],
        widths=[48, 96, 192],
        group_widths=[16, 16, 16],
        bottleneck_multipliers=[1.0, 1.0, 1.0],
        strides=[1, 2, 2],
        se_ratio=0.25,
    )
    model: nn.Module = regnet.RegNet(stages, num_classes)
    return model


def efficientnet_small_image(num_classes: int, image_size: int) -> nn.Module:
    """EfficientNet-B0's first stages with half its shrinking, at 16, 8 and 4 pixels."""
    stages = [
        efficientnet.MBConvConfig(1, 3, 1, 32, 16, 1),
        efficientnet.MBConvConfig(6, 3, 1, 16, 24, 1),
        efficientnet.MBConvConfig(6, 5, 2, 24, 40, 2),
        efficientnet.MBConvConfig(6, 3, 2, 40, 80, 2),
    ]
    model: nn.Module = efficientnet.EfficientNet(
        stages, dropout=0.2, stochastic_depth_prob=0.1, num_classes=num_classes, last_channel=320
    )
    return model


def mobilenet_v2_small_image(num_classes: int, image_size: int) -> nn.Module:
    """Inverted residuals of 16 to 64 channels with expansion 6, at 16, 8 and 4 pixels."""
    stages = [[1, 16, 1, 1], [6, 24, 2, 1], [6, 32, 2, 2], [6, 64, 2, 2]]
    model: nn.Module = mobilenetv2.MobileNetV2(num_classes, inverted_residual_setting=stages)
    return model


def mobilenet_v3_small_image(num_classes: int, image_size: int) -> nn.Module:
    """MobileNetV3-Small's kinds of blocks with half its shrinking, at 16, 8 and 4 pixels.

    BatchNorm has its usual momentum: the published 0.01 averages over more steps than a short run has.
    """
    block = mobilenetv3.InvertedResidualConfig
    stages = [
        block(16, 3, 16, 16, True, "RE", 1, 1, 1.0),
        block(16, 3, 72, 24, False, "RE", 1, 1, 1.0),
        block(24, 5, 96, 40, True, "HS", 2, 1, 1.0),
        block(40, 5, 240, 40, True, "HS", 1, 1, 1.0),
        block(40, 5, 288, 96, True, "HS", 2, 1, 1.0),
    ]
    model: nn.Module = mobilenetv3.MobileNetV3(
        stages, last_channel=512, num_classes=num_classes, norm_layer=nn.BatchNorm2d
    )
    return model


def convnext_small_image(num_classes: int, image_size: int) -> nn.Module:
    """Stages of 64, 128 and 256 channels, at 8, 4 and 2 pixels.

    Layer scale begins at 0.1: from the published 1e-6 a short run never lets the blocks take part.
    """
    stages = [
        convnext.CNBlockConfig(64, 128, 2),
        convnext.CNBlockConfig(128, 256, 2),
        convnext.CNBlockConfig(256, None, 2),
    ]
    model: nn.Module = convnext.ConvNeXt(stages, stochastic_depth_prob=0.1, layer_scale=0.1, num_classes=num_classes)
    return model


def vit_small_image(num_classes: int, image_size: int) -> nn.Module:
    """Patches of 4x4 pixels, 4 layers of 128 channels and 4 heads."""
    return _vit(num_classes, image_size, patch=4, layers=4, heads=4, channels=128)


def deit_tiny(num_classes: int, image_size: int) -> nn.Module:
    """Touvron et al. 2021, *Training data-efficient image transformers*, table 1: DeiT-Ti."""
    return _vit(num_classes, image_size, patch=16, layers=12, heads=3, channels=192)


def deit_small(num_classes: int, image_size: int) -> nn.Module:
    """Touvron et al. 2021, table 1: DeiT-S, without distillation the same network as ViT-S/16."""
    return _vit(num_classes, image_size, patch=16, layers=12, heads=6, channels=384)


def deit_base(num_classes: int, image_size: int) -> nn.Module:
    """Touvron et al. 2021, table 1: DeiT-B, without distillation the same network as ViT-B/16."""
    return _vit(num_classes, image_size, patch=16, layers=12, heads=12, channels=768)


def _vit(num_classes: int, image_size: int, patch: int, layers: int, heads: int, channels: int) -> nn.Module:
    model: nn.Module = torchvision.models.VisionTransformer(
        image_size, patch, layers, heads, channels, mlp_dim=4 * channels, num_classes=num_classes
    )
    return model


def swin_small_image(num_classes: int, image_size: int) -> nn.Module:
    """Patches of 2x2 pixels in windows of 4x4: two stages of 48 and 96 channels, at 16 and 8 patches a side."""
    model: nn.Module = torchvision.models.SwinTransformer(
        patch_size=[2, 2],
        embed_dim=48,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=[4, 4],
        stochastic_depth_prob=0.1,
        num_classes=num_classes,
    )
    return model


FORMS: Mapping[str, Callable[[int, int], nn.Module]] = {
    form.__name__: form
    for form in (
        resnext_small_image,
        resnext101_32x4d,
        wide_resnet_small_image,
        vgg_small_image,
        densenet_small_image,
        inception_small_image,
        inception_v3,
        regnet_small_image,
        efficientnet_small_image,
        mobilenet_v2_small_image,
        mobilenet_v3_small_image,
        convnext_small_image,
        vit_small_image,
        deit_tiny,
        deit_small,
        deit_base,
        swin_small_image,
    )
} | {"vit_s_16": deit_small}
