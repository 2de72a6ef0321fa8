"""The small published networks: their parameter counts, initialisation and Keras's loss on sigmoid outputs."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from models import vision
from models.small_nets import SMALL_NETS, LogSigmoid

# Of 28x28 grey images and 10 classes. LeNet-5: 61,706 with padded first convolution; the MLP: its README's table.
PARAMETERS = {
    "lenet5": 61_706,
    "mlp_256_128_100": 200_960 + 32_896 + 12_900 + 1_010,
    "fashion_simple_net": 421_642,
    "two_convolutions": 832 + 51_264 + 3_212_288 + 10_250,
    "two_convolutions_83k": 83_466,
    "softmax_regression": 784 * 10 + 10,
}
FAMILY = {arch: family for family, names in vision.FAMILIES.items() for arch in names}


@pytest.mark.parametrize("arch", SMALL_NETS)
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32)])
def test_images_become_logits(arch: str, channels: int, size: int) -> None:
    model = vision.build(FAMILY[arch], arch, 7, channels, size)
    assert model(torch.randn(2, channels, size, size)).shape == (2, 7)


@pytest.mark.parametrize("arch", SMALL_NETS)
def test_parameters_are_those_of_the_source(arch: str) -> None:
    model = vision.build(FAMILY[arch], arch, 10, 1, 28)
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[arch]


def test_the_loss_is_keras_cross_entropy_of_sigmoid_outputs() -> None:
    outputs, labels = torch.randn(5, 4, dtype=torch.float64).float(), torch.tensor([0, 1, 2, 3, 0])
    probabilities = outputs.sigmoid() / outputs.sigmoid().sum(dim=1, keepdim=True)
    expected = -probabilities[torch.arange(5), labels].log().mean()
    torch.testing.assert_close(F.cross_entropy(LogSigmoid()(outputs), labels), expected)


@pytest.mark.parametrize(
    ("arch", "deviation"), [("lenet5", (2 / (400 + 120)) ** 0.5), ("mlp_256_128_100", (2 / 784) ** 0.5)]
)
def test_weights_begin_as_in_the_source(arch: str, deviation: float) -> None:
    torch.manual_seed(0)
    model = vision.build(FAMILY[arch], arch, 10, 1, 28)
    linear = next(module for module in model.modules() if isinstance(module, nn.Linear))
    assert linear.weight.std().item() == pytest.approx(deviation, rel=0.02)
    assert not linear.bias.any()
