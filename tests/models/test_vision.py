import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.vision import build


def built(arch: str, size: int, channels: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return build("resnet", arch, num_classes=10, in_channels=channels, image_size=size)


@pytest.mark.parametrize("size", [28, 32, 64])
def test_the_stem_for_small_images_keeps_their_size_through_the_first_layer(size: int) -> None:
    model = built("resnet18", size).eval()
    shapes = []
    model.get_submodule("layer1").register_forward_hook(
        lambda module, inputs, output: shapes.append(tuple(output.shape))
    )
    with torch.no_grad():
        logits = model(torch.zeros(1, 3, size, size))
    assert shapes == [(1, 64, size, size)]
    assert logits.shape == (1, 10)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_stem_for_large_images_is_that_of_torchvision(channels: int) -> None:
    model = built("resnet18", 96, channels).eval()
    shapes = []
    model.get_submodule("layer1").register_forward_hook(
        lambda module, inputs, output: shapes.append(tuple(output.shape))
    )
    with torch.no_grad():
        model(torch.zeros(1, channels, 96, 96))
    assert shapes == [(1, 64, 24, 24)]
    assert model.get_parameter("conv1.weight").shape == (64, channels, 7, 7)


def test_parameters_of_the_large_model_are_those_of_torchvision() -> None:
    # 11,689,512 with 1,000 classes (torchvision's model page), less the head for the other 990.
    parameters = sum(parameter.numel() for parameter in built("resnet18", 224).parameters())
    assert parameters == 11_689_512 - 990 * 513


def loss_and_gradients(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    logits = model(images)
    loss = F.cross_entropy(logits, torch.arange(len(images)) % 10)
    loss.backward()
    return logits.detach(), loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("arch", ["resnet20", "resnet18"])
def test_channels_last_gives_the_same_numbers(arch: str) -> None:
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    contiguous = loss_and_gradients(built(arch, 32), images)
    model = built(arch, 32).to(memory_format=torch.channels_last)
    channels_last = loss_and_gradients(model, images.contiguous(memory_format=torch.channels_last))
    assert channels_last[1].item() == pytest.approx(contiguous[1].item(), abs=1e-5)
    assert distance(channels_last[0], contiguous[0]) < 1e-5
    # An activation within rounding of zero passes the gradient in one layout and not in the other.
    gradients, expected = (
        torch.cat([tensor.flatten() for tensor in result[2]]) for result in (channels_last, contiguous)
    )
    assert distance(gradients, expected) < 5e-3


def distance(actual: Tensor, expected: Tensor) -> float:
    """Relative, in the 2-norm."""
    return float((actual - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("arch", "hint"), [("resnet_20", "did you mean 'resnet20'"), ("resnet-18", "did you mean 'resnet18'")]
)
def test_an_unknown_architecture_is_answered_with_the_nearest_and_all_names(arch: str, hint: str) -> None:
    with pytest.raises(ValueError, match=rf"^arch: unknown architecture '{arch}': {hint}") as error:
        built(arch, 32)
    for name in ("resnet20", "resnet32", "resnet44", "resnet56", "resnet110", "resnet18", "resnet34", "resnet50"):
        assert name in str(error.value)


def test_a_name_like_no_other_gets_no_hint() -> None:
    with pytest.raises(ValueError, match=r"unknown architecture 'xyz': allowed: resnet20, "):
        built("xyz", 32)
