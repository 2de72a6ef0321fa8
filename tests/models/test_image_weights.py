"""Pretrained image weights fit whole but for the head, or are refused."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from models import vision


def built(classes: int = 10, pretrained: bool | str = False, arch: str = "resnet20", seed: int = 1) -> Any:
    torch.manual_seed(seed)
    family = "resnet" if arch.startswith("resnet") else "convnext"
    return vision.build(family, arch, classes, 3, 32, pretrained=pretrained)


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    state: dict[str, Tensor] = built(seed=0).state_dict()
    return state


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_all_weights_of_a_file_are_loaded(weights: dict[str, Tensor], tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"weights{suffix}"
    torch.save(weights, file) if suffix == ".pth" else save_file(weights, file)
    model = built(pretrained=str(file))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    assert model.pretrained == {
        "source": str(file), "loaded": len(weights), "missing": 0, "unexpected": 0, "missing_names": [],
    }  # fmt: skip


def test_a_head_for_other_classes_stays_new_and_is_named(weights: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save({**weights, "stray": torch.zeros(1)}, tmp_path / "weights.pth")
    model, fresh = built(7, pretrained=str(tmp_path / "weights.pth")), built(7)
    head = [name for name in weights if weights[name].shape != fresh.state_dict()[name].shape]
    assert model.pretrained["missing_names"] == sorted(head)
    assert model.pretrained["unexpected"] == 1
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, (fresh.state_dict() if name in head else weights)[name]), name


def test_renamed_weights_are_refused(weights: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save({f"module.{name}": tensor for name, tensor in weights.items()}, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=r"does not fit resnet20: \d+ of \d+ tensors, such as .* which is not there"):
        built(pretrained=str(tmp_path / "weights.pth"))


def test_weights_of_another_architecture_are_refused(weights: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(weights, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match="does not fit convnext_small_image"):
        built(pretrained=str(tmp_path / "weights.pth"), arch="convnext_small_image")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is not readable"), (b"not a checkpoint", "is not readable"), (None, "is not readable: .*No such file")],
)
def test_a_file_that_is_no_checkpoint_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    for suffix in (".pth", ".safetensors"):
        file = tmp_path / f"weights{suffix}"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ValueError, match=f"pretrained: {file} {message}"):
            built(pretrained=str(file))


def test_something_else_than_a_state_dict_is_named(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "weights.pth")
    with pytest.raises(ValueError, match="holds no state dict"):
        built(pretrained=str(tmp_path / "weights.pth"))


def test_weights_that_nobody_published_are_refused() -> None:
    with pytest.raises(ValueError, match="torchvision publishes no weights of resnet20; give a file"):
        built(pretrained=True)


def test_published_weights_are_found_where_torch_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.download_url_to_file", _unreachable)
    with pytest.raises(ValueError, match=rf"could not be fetched \(no network\). Put the file into {tmp_path}/hub"):
        vision.build("convnext", "convnext_tiny", 10, 3, 224, pretrained=True)


def _unreachable(*arguments: object, **keywords: object) -> None:
    raise OSError("no network")


def test_a_rate_of_dropout_that_would_be_passed_over_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dropout: resnet20 keeps its architecture's own; leave it null, not 0.3"):
        vision.build("resnet", "resnet20", 10, 3, 32, dropout=0.3)


@pytest.mark.parametrize("outer", [True, False])
def test_inception_takes_torchvisions_names_and_its_own_and_two_new_heads(tmp_path: Path, outer: bool) -> None:
    torch.manual_seed(0)
    made: Any = vision.build("inception", "inception_small_image", 10, 3, 32)
    torch.save((made if outer else made.network).state_dict(), tmp_path / "weights.pth")
    same, other = (
        vision.build("inception", "inception_small_image", classes, 3, 32, pretrained=str(tmp_path / "weights.pth"))
        for classes in (10, 7)
    )
    for name, tensor in same.state_dict().items():
        assert torch.equal(tensor, made.state_dict()[name]), name
    heads = ["AuxLogits.fc.bias", "AuxLogits.fc.weight", "fc.bias", "fc.weight"]
    assert other.pretrained["missing_names"] == heads


def test_densenet_takes_the_names_in_torchvisions_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = vision.build("densenet", "densenet_small_image", 10, 3, 32)
    old = {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])", r"\1.\2", k): v for k, v in made.state_dict().items()}
    assert old.keys() != made.state_dict().keys()
    torch.save(old, tmp_path / "weights.pth")
    model = vision.build("densenet", "densenet_small_image", 10, 3, 32, pretrained=str(tmp_path / "weights.pth"))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, made.state_dict()[name]), name


@pytest.mark.parametrize("averaged", [True, False])
def test_the_checkpoint_of_a_run_gives_the_weights_that_it_evaluated(tmp_path: Path, averaged: bool) -> None:
    first, average = built(seed=0), AveragedModel(built(seed=2))
    trainer = {"model": first.state_dict(), "ema": average.state_dict() if averaged else None, "step": 3}
    torch.save({"format": 1, "identity": {"seed": 0}, "trainer": trainer}, tmp_path / "best.pt")
    same, other = (built(classes, pretrained=str(tmp_path / "best.pt")) for classes in (10, 7))
    expected = average.module if averaged else first
    for name, tensor in expected.state_dict().items():
        assert torch.equal(same.state_dict()[name], tensor), name
    assert other.pretrained["missing_names"] == ["fc.bias", "fc.weight"]


class Command:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch ran",)


def test_a_file_that_could_run_code_is_refused_without_advice_to_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"fc.weight": Command()}, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="never read: they can run code") as refused:
        built(pretrained=str(tmp_path / "weights.pt"))
    assert "weights_only" not in str(refused.value)
    assert not (tmp_path / "ran").exists()
