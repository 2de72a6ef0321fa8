"""The vision families: shapes, sizes and channels, parameter counts, gradients, and Inception's two heads."""

import importlib
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from models import vision, vision_forms
from models.cifar_resnet import ARCHITECTURES as CIFAR_ARCHITECTURES
from models.small_nets import SMALL_NETS
from models.vision import FAMILIES, SMALL_FORM, SMALLEST_IMAGE
from train.experiment.config import load
from train.experiment.tasks import cross_entropy

ROOT = Path(__file__).resolve().parents[2]

FAMILY = {arch: family for family, names in FAMILIES.items() for arch in names}
SMALL_FORMS = [arch for arch in FAMILY if arch.endswith(SMALL_FORM)]
# One or two a family; the larger ones differ in depth and width alone.
PUBLISHED = [
    "resnext50_32x4d",
    "wide_resnet50_2",
    "vgg16_bn",
    "densenet121",
    "efficientnet_b0",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
]
OURS = {
    # Touvron et al. 2021, table 1, and Xie et al. 2017 as counted for timm's models of these names.
    "resnext101_32x4d": 44_177_704,
    "deit_tiny": 5_717_416,
    "deit_small": 22_050_664,
    "deit_base": 86_567_656,
    "vit_s_16": 22_050_664,
}
CHEAP = ["resnext_small_image", "mobilenet_v2_small_image", "convnext_small_image", "vit_small_image"]


def built(arch: str, size: int = 32, channels: int = 3, classes: int = 10) -> nn.Module:
    torch.manual_seed(0)
    return vision.build(FAMILY[arch], arch, classes, channels, size)


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def first_convolution(model: nn.Module) -> nn.Conv2d:
    return next(module for module in model.modules() if isinstance(module, nn.Conv2d))


def random_images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def loss_and_gradients(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Logits, loss and all gradients of one training pass; random draws are the same in each call."""
    torch.manual_seed(1)
    logits = model(images)
    heads = logits.reshape(len(images), -1, logits.shape[-1])
    labels = torch.arange(len(images)) % logits.shape[-1]
    loss = torch.stack([F.cross_entropy(heads[:, head], labels) for head in range(heads.shape[1])]).sum()
    loss.backward()
    return logits.detach(), loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]


OWN = {*vision_forms.FORMS, *CIFAR_ARCHITECTURES, *SMALL_NETS}


@pytest.mark.parametrize("arch", [arch for arch in FAMILY if arch not in OWN])
def test_a_name_that_is_not_of_this_repository_is_one_of_torchvision(arch: str) -> None:
    assert torchvision.models.get_model_builder(arch)


def test_every_family_has_a_form_for_small_images_and_every_name_is_in_one_family() -> None:
    assert {FAMILY[arch] for arch in [*SMALL_FORMS, *CIFAR_ARCHITECTURES, *SMALL_NETS]} == set(FAMILIES)
    assert len(FAMILY) == sum(map(len, FAMILIES.values()))
    assert set(vision_forms.FORMS) <= set(FAMILY)
    assert set(SMALL_FORMS) <= set(vision_forms.FORMS)


@pytest.mark.parametrize("arch", SMALL_FORMS)
def test_a_small_form_gives_logits_and_every_parameter_a_finite_gradient(arch: str) -> None:
    model = built(arch, channels=1)
    logits, loss, gradients = loss_and_gradients(model, random_images(4, 1, 32, 32))
    assert logits.shape == ((4, 2, 10) if FAMILY[arch] == "inception" else (4, 10))
    assert loss.isfinite()
    assert len(gradients) == len(list(model.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
    model.eval()
    with torch.no_grad():
        assert model(random_images(2, 1, 32, 32)).shape == (2, 10)
    assert parameter_count(model) < 6e6


@pytest.mark.parametrize("arch", [arch for arch in SMALL_FORMS if not arch.startswith("inception")])
def test_a_small_form_takes_fashion_mnist(arch: str) -> None:
    model = built(arch, size=28, channels=1).eval()
    with torch.no_grad():
        assert model(random_images(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("arch", [*PUBLISHED, *OURS, "inception_v3", "regnet_y_400mf"])
def test_a_published_architecture_has_the_parameters_that_are_documented(arch: str) -> None:
    expected = OURS.get(arch) or torchvision.models.get_model_weights(arch).DEFAULT.meta["num_params"]
    # Inception's published auxiliary head is that of 299 pixels.
    size = 299 if arch == "inception_v3" else 224
    with torch.device("cpu" if FAMILY[arch] == "regnet" else "meta"):  # RegNet reads its widths from a tensor
        assert parameter_count(built(arch, size, classes=1000)) == expected


@pytest.mark.parametrize("arch", PUBLISHED)
@pytest.mark.parametrize(("size", "channels"), [(224, 3), (32, 1)])
def test_a_published_architecture_takes_imagenet_and_cifar_sizes(arch: str, size: int, channels: int) -> None:
    with torch.device("meta"):
        model = built(arch, size, channels).eval()
        assert model(torch.empty(2, channels, size, size)).shape == (2, 10)


@pytest.mark.parametrize(
    ("arch", "kernel", "stride"),
    [
        ("resnext50_32x4d", 3, 1),
        ("densenet121", 3, 1),
        ("mobilenet_v2", 3, 1),
        ("vgg16_bn", 3, 1),
        ("convnext_tiny", 4, 4),
        ("vit_b_16", 16, 16),
    ],
)
def test_a_small_image_keeps_its_size_through_every_stem_but_patches(arch: str, kernel: int, stride: int) -> None:
    with torch.device("meta"):
        small, large = built(arch, 32, channels=1), built(arch, 224, channels=1)
    stem = first_convolution(small)
    assert (stem.in_channels, stem.kernel_size, stem.stride) == (1, (kernel, kernel), (stride, stride))
    with torch.device("meta"):
        published = first_convolution(torchvision.models.get_model(arch))
    assert first_convolution(large).stride == published.stride
    assert first_convolution(large).kernel_size == published.kernel_size


@pytest.mark.parametrize("arch", CHEAP)
def test_channels_last_gives_the_same_numbers(arch: str) -> None:
    images = random_images(4, 3, 32, 32)
    contiguous = loss_and_gradients(built(arch), images)
    model = built(arch).to(memory_format=torch.channels_last)
    channels_last = loss_and_gradients(model, images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(channels_last[0], contiguous[0], rtol=1e-3, atol=1e-3)
    for actual, expected in zip(channels_last[2], contiguous[2], strict=True):
        # One ReLU that flips at zero changes a few elements; a wrong layout changes all of them.
        assert (actual - expected).norm() <= 1e-2 * expected.norm() + 1e-3


@pytest.mark.parametrize(
    ("arch", "size", "message"),
    [
        ("vit_b_16", 28, "multiples of 16, not 28"),
        ("vit_small_image", 30, "multiples of 4, not 30"),
        ("inception_v3", 32, "from 107 on, not 32"),
        ("inception_small_image", 28, "from 29 on, not 28"),
        ("vgg16_bn", 28, "from 32 on, not 28"),
        ("convnext_tiny", 28, "from 32 on, not 28"),
        ("resnext_small_image", 4, "from 8 on, not 4"),
    ],
)
def test_a_size_that_a_model_cannot_take_is_named_with_what_is_allowed(arch: str, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^arch: {arch} takes image sizes .*{message}$"):
        built(arch, size)


@pytest.mark.parametrize("arch", SMALLEST_IMAGE)
def test_the_smallest_size_is_enough(arch: str) -> None:
    size = SMALLEST_IMAGE[arch]
    with torch.device("meta"):
        model = built(arch, size)
        assert model(torch.empty(2, 3, size, size)).shape[-1] == 10


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unknown_architecture_is_answered_with_the_names_of_the_family(family: str) -> None:
    with pytest.raises(ValueError, match=r"^arch: unknown architecture 'xyz': allowed: ") as error:
        vision.build(family, "xyz", 10, 3, 32)
    assert all(name in str(error.value) for name in FAMILIES[family])


@pytest.mark.parametrize("size", [224, 299])
def test_inception_has_two_heads_in_training_and_the_main_one_in_evaluation(size: int) -> None:
    with torch.device("meta"):
        model = built("inception_v3", size)
        assert model(torch.empty(2, 3, size, size)).shape == (2, 2, 10)
        model.eval()
        assert model(torch.empty(2, 3, size, size)).shape == (2, 10)


def test_the_loss_of_inception_is_that_of_the_main_head_and_0_4_of_the_auxiliary_one() -> None:
    task = importlib.import_module("train.inception").task
    config = load(ROOT / "configs" / "inception_small_image_digits.yaml")
    smoothed = cross_entropy(config)
    model = built("inception_small_image", channels=1)
    batch = {"images": random_images(4, 1, 32, 32), "labels": torch.tensor([1, 5, 9, 0])}
    logits, labels = task.forward(model, batch)
    loss = task.loss(config)(logits, labels)
    expected = smoothed(logits[:, 0], labels) + 0.4 * smoothed(logits[:, 1], labels)
    assert loss.item() == pytest.approx(expected.item())
    (gradient,) = torch.autograd.grad(loss, model.get_parameter("network.AuxLogits.fc.bias"))
    # Of a mean cross entropy's gradient to the logits, summed over the batch, by way of the bias.
    share = logits[:, 1].softmax(dim=1) - (0.9 * F.one_hot(labels, 10) + 0.1 / 10)
    torch.testing.assert_close(gradient, 0.4 * share.mean(dim=0))


def test_evaluation_of_inception_uses_the_main_head_alone() -> None:
    task = importlib.import_module("train.inception").task
    model = built("inception_small_image", channels=1).eval()
    batch = {"images": random_images(4, 1, 32, 32), "labels": torch.arange(4)}
    with torch.no_grad():
        logits, labels = task.forward(model, batch)
        model.get_parameter("network.AuxLogits.fc.bias").fill_(1e3)
        again, _ = task.forward(model, batch)
    assert torch.equal(logits, again)
    right = int((logits.argmax(dim=1) == labels).sum())
    assert task.summarise(task.score(logits, labels))["eval/accuracy"] == right / 4
