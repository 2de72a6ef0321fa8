import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.cifar_resnet import DEPTHS, BasicBlock, CifarResNet

# He et al. 2015, *Deep Residual Learning*, table 6, in millions as printed.
PUBLISHED_PARAMETERS = {20: "0.27", 32: "0.46", 44: "0.66", 56: "0.85", 110: "1.7"}


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("depth", DEPTHS)
def test_parameters_are_those_of_the_paper(depth: int) -> None:
    printed = PUBLISHED_PARAMETERS[depth]
    decimals = len(printed.partition(".")[2])
    assert f"{parameter_count(CifarResNet(depth, 10)) / 1e6:.{decimals}f}" == printed


@pytest.mark.parametrize("depth", DEPTHS)
def test_depth_is_the_number_of_weighted_layers(depth: int) -> None:
    layers = [module for module in CifarResNet(depth, 10).modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth


def test_stages_have_the_sizes_of_the_paper() -> None:
    model = CifarResNet(20, 7).eval()
    shapes = {}
    for name in ("stage1", "stage2", "stage3"):
        getattr(model, name).register_forward_hook(
            lambda module, inputs, output, name=name: shapes.update({name: tuple(output.shape)})
        )
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert shapes == {"stage1": (2, 16, 32, 32), "stage2": (2, 32, 16, 16), "stage3": (2, 64, 8, 8)}


@pytest.mark.parametrize("channels", [1, 3])
def test_images_may_have_one_channel(channels: int) -> None:
    assert CifarResNet(20, 10, channels)(torch.zeros(2, channels, 28, 28)).shape == (2, 10)


def hand_written_block(block: BasicBlock, x: Tensor) -> Tensor:
    """The block in evaluation mode, its shortcut written out pixel by pixel and channel by channel."""
    out = F.relu(block.bn1(block.conv1(x)))
    out = block.bn2(block.conv2(out)).clone()
    samples, channels, height, width = out.shape
    for row in range(height):
        for column in range(width):
            for channel in range(min(channels, x.shape[1])):
                out[:, channel, row, column] += x[:, channel, row * block.stride, column * block.stride]
    assert samples == len(x)
    return F.relu(out)


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (4, 8, 2), (4, 6, 2)])
def test_the_shortcut_is_option_a_and_has_no_parameters(inputs: int, outputs: int, stride: int) -> None:
    torch.manual_seed(0)
    block = BasicBlock(inputs, outputs, stride).eval()
    expected = inputs * outputs * 9 + outputs * outputs * 9 + 2 * 2 * outputs  # two convolutions, two BatchNorms
    assert parameter_count(block) == expected
    x = torch.randn(2, inputs, 6, 6)
    with torch.no_grad():
        torch.testing.assert_close(block(x), hand_written_block(block, x))


def test_convolutions_are_initialised_for_relu() -> None:
    torch.manual_seed(0)
    weight = CifarResNet(20, 10).get_parameter("stage3.2.conv2.weight")
    assert weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)
    assert weight.mean().item() == pytest.approx(0.0, abs=1e-3)
