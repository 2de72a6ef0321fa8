"""ResNet-20/32/44/56/110 for 32x32 images (He et al. 2015, *Deep Residual Learning*, section 4.2).

Three stages of 16, 32 and 64 channels at 32x32, 16x16 and 8x8, n basic blocks each, 6n + 2 weighted
layers; shortcuts without parameters (option A: every second pixel, missing channels zero); He et al.
2015, *Delving Deep into Rectifiers*, initialisation. https://arxiv.org/abs/1512.03385
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DEPTHS = (20, 32, 44, 56, 110)
ARCHITECTURES = tuple(f"resnet{depth}" for depth in DEPTHS)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around an identity shortcut: (N, C_in, H, W) to (N, C_out, H / stride, W / stride)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.stride = stride
        self.new_channels = out_channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.new_channels:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(out + x)


class CifarResNet(nn.Module):
    """Images (N, in_channels, 32, 32) to logits (N, num_classes)."""

    def __init__(self, depth: int, num_classes: int, in_channels: int = 3) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.stage1 = self._stage(16, 16, blocks, stride=1)
        self.stage2 = self._stage(16, 32, blocks, stride=2)
        self.stage3 = self._stage(32, 64, blocks, stride=2)
        self.fc = nn.Linear(64, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(in_channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
        first = BasicBlock(in_channels, out_channels, stride)
        return nn.Sequential(first, *(BasicBlock(out_channels, out_channels, 1) for _ in range(blocks - 1)))

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(images)))
        x = self.stage3(self.stage2(self.stage1(x)))
        logits: Tensor = self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
        return logits
