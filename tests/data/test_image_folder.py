import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torchvision.datasets import ImageFolder

from tests.data.small_sets import in_memory, png, random_pixels, specification
from train.data import catalog, image_folder, images
from train.data.catalog import Hub
from train.data.specification import Splits
from train.engine.errors import Refused

# In the order in which a file system may list them; upper case sorts before lower case, 10 before 9.
CLASSES = {"n9": 2, "n10": 3, "Zebra": 1, "apple": 2}


@pytest.fixture(params=["val", "validation"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ImageNet in name, four classes in class folders: eight training and four evaluation images of 20 pixels."""
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    monkeypatch.setitem(catalog.IMAGE_SETS, "imagenet", replace(catalog.IMAGE_SETS["imagenet"], classes=4, size=16))
    pictures = iter(random_pixels(12, 20, 3))
    for split, counts in (("train", CLASSES), (request.param, dict.fromkeys(CLASSES, 1))):
        for name, count in counts.items():
            place = tmp_path / "imagenet" / split / name
            place.mkdir(parents=True)
            for number in range(count):
                suffix = ("JPEG", "png", "jpg")[number]
                (place / f"{name}_{9 + number}.{suffix}").write_bytes(png(next(pictures)))
    return tmp_path / "imagenet"


def evaluation_of(folder: Path) -> Path:
    return next(folder / name for name in ("val", "validation") if (folder / name).is_dir())


def load(**changes: Any) -> Splits:
    settings = {"augment": "random_resized_crop", "classes": 4, "batch_size": 4} | changes
    return images.load(specification("imagenet", **settings))


def refusal(folder: Path) -> str:
    with pytest.raises(Refused) as refused:
        image_folder.read(folder, "image", "label")
    return str(refused.value)


def test_classes_labels_and_order_are_those_of_torchvision(folder: Path) -> None:
    data = image_folder.read(folder, "image", "label")
    assert list(data) == ["train", "validation"]
    for split, place in (("train", folder / "train"), ("validation", evaluation_of(folder))):
        theirs = ImageFolder(str(place))
        assert theirs.classes == ["Zebra", "apple", "n10", "n9"]
        assert data[split].features["label"].names == theirs.classes
        encoded = data[split].cast_column("image", datasets.Image(decode=False))
        ours = [(row["image"]["path"], row["label"]) for row in encoded]
        assert ours == theirs.samples


def test_pixels_are_those_of_torchvision(folder: Path) -> None:
    data = image_folder.read(folder, "image", "label")
    for row, (picture, label) in zip(data["train"], ImageFolder(str(folder / "train")), strict=True):
        assert np.array_equal(np.asarray(row["image"]), np.asarray(picture))
        assert row["label"] == label


@pytest.mark.usefixtures("folder")
def test_class_folders_are_found_by_name_and_trained_on() -> None:
    splits = load()
    train, evaluation = splits.train, splits.evaluation
    assert (train.samples, evaluation.samples) == (8, 4)
    labels = torch.cat([batch["labels"] for batch in train.epoch(0)])
    assert torch.bincount(labels).tolist() == [1, 2, 3, 2]
    assert [batch["labels"].tolist() for batch in evaluation.epoch(0)] == [[0, 1, 2, 3]]
    assert next(evaluation.epoch(0))["images"].shape == (4, 3, 16, 16)


@pytest.mark.usefixtures("folder")
def test_a_limit_takes_samples_of_all_classes() -> None:
    splits = load(train_samples=4, eval_samples=2)
    assert [sorted(batch["labels"].tolist()) for batch in splits.train.epoch(0)] == [[0, 1, 2, 3]]
    assert [batch["labels"].tolist() for batch in splits.evaluation.epoch(0)] == [[0, 2]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("damage", ["empty", "cut", "text"])
def test_a_damaged_image_is_named_by_its_path(folder: Path, workers: int, damage: str) -> None:
    path = folder / "train" / "n10" / "n10_10.png"
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"no image"}[damage])
    message = ""
    try:
        list(load(workers=workers).train.epoch(0))
    except Refused as error:  # not stored, because its traceback would keep the workers alive
        message = str(error)
    assert message.startswith(f"sample 3 of the train split, {path}, is damaged: ")
    assert "Traceback" not in message


@pytest.mark.parametrize("split", ["train", "evaluation"])
def test_a_class_that_the_other_split_lacks_is_named(folder: Path, split: str) -> None:
    places = {"train": folder / "train", "evaluation": evaluation_of(folder)}
    lacking = places.pop(split)
    (having,) = places.values()
    for path in (lacking / "n10").iterdir():
        path.unlink()
    (lacking / "n10").rmdir()
    assert refusal(folder) == f"{lacking}: no class folder n10, which {having} has"


@pytest.mark.parametrize("split", ["train", "evaluation"])
def test_a_class_without_images_is_named(folder: Path, split: str) -> None:
    place = folder / "train" if split == "train" else evaluation_of(folder)
    for path in (place / "apple").iterdir():
        path.unlink()
    assert refusal(folder).startswith(f"{place}/apple: the class holds no image; allowed: .jpg, .jpeg, .png")


def test_an_empty_split_is_named(folder: Path) -> None:
    place = evaluation_of(folder)
    place.rename(folder / "put_aside")
    place.mkdir()
    assert refusal(folder) == f"{place}: the split is empty; expected {place.name}/<class>/<image>"


def test_a_missing_evaluation_split_is_named_with_what_is_there(folder: Path) -> None:
    evaluation_of(folder).rename(folder / "valid")
    expected = f"{folder}: expected train/ and either val/ or validation/; found: train, "
    assert refusal(folder) == expected + "valid"
    (folder / "valid").rename(folder / "val")
    (folder / "validation").mkdir()
    assert refusal(folder) == expected + "val, validation"


def test_an_image_outside_a_class_folder_is_named(folder: Path) -> None:
    loose = evaluation_of(folder) / "ILSVRC2012_val_00000001.JPEG"
    loose.write_bytes(png(random_pixels(1, 20, 3)[0]))
    assert refusal(folder) == f"{loose}: an image outside a class folder; expected {loose.parent.name}/<class>/<image>"


def test_images_without_any_class_folder_are_named(folder: Path, tmp_path: Path) -> None:
    (folder / "train").rename(tmp_path / "put_aside")
    (folder / "train").mkdir()
    (folder / "train" / "1.jpg").write_bytes(b"")
    with pytest.raises(Refused, match=re.escape(f"{folder}/train/1.jpg: an image outside a class folder")):
        load()


def test_a_folder_inside_a_class_folder_is_named(folder: Path) -> None:
    (folder / "train" / "n9" / "more").mkdir()
    assert refusal(folder).startswith(f"{folder}/train/n9/more: a folder inside a class folder")


def test_files_that_are_no_images_are_left_out_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train" / "valprep.sh").write_text("mkdir -p n01440764")
    (folder / "train" / "n9" / "notes.txt").write_text("")
    (folder / "train" / "n9" / "._n9_9.JPEG").write_bytes(b"")
    data = image_folder.read(folder, "image", "label")
    assert (data["train"].num_rows, data["validation"].num_rows) == (8, 4)
    assert f"left out, no image: {folder}/train/valprep.sh and 2 more\n" in capsys.readouterr().out


def test_classes_named_by_integers_are_numbered_by_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (f"{split}/{name}" for split in ("train", "val") for name in ("10", "2", "0", "11", "1")):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "1.PNG").write_bytes(png(random_pixels(1, 8, 3)[0]))
    data = image_folder.read(tmp_path, "image", "label")
    assert data["train"].features["label"].names == ["0", "1", "2", "10", "11"]
    for split, place in (("train", "train"), ("validation", "val")):
        files = [row["image"]["path"] for row in data[split].cast_column("image", datasets.Image(decode=False))]
        assert files == [f"{tmp_path}/{place}/{name}/1.PNG" for name in (0, 1, 2, 10, 11)]
        assert data[split]["label"][:] == [0, 1, 2, 3, 4]
    expected = f"{tmp_path}: 5 classes numbered by the value of their names, from 0 to 11\n"
    assert capsys.readouterr().out == expected
    for split in ("train", "val"):
        (tmp_path / split / "2").rename(tmp_path / split / "two")
    assert image_folder.read(tmp_path, "image", "label")["train"].features["label"].names == [
        "0",
        "1",
        "10",
        "11",
        "two",
    ]
    assert "5 classes numbered by their sorted names, from 0 to two" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_the_names_of_the_classes_go_with_the_batches() -> None:
    assert load().classes == ("Zebra", "apple", "n10", "n9")


@pytest.mark.parametrize("kind", ["empty", "missing"])
def test_a_file_without_bytes_is_named_before_any_epoch(folder: Path, kind: str) -> None:
    path = folder / "train" / "n10" / "n10_10.png"
    path.unlink()
    reason = "there is no such file"
    if kind == "empty":
        path.touch()
        reason = "it is empty"
    else:
        path.symlink_to(folder / "nowhere.png")
    with pytest.raises(Refused) as refused:
        load()
    assert str(refused.value) == f"sample 3 of the train split, {path}, is damaged: {reason}"


MEMORY_SETS = [
    name for name, entry in catalog.IMAGE_SETS.items() if isinstance(entry.source, Hub) and not entry.streamed
]


@pytest.mark.parametrize("name", MEMORY_SETS)
@pytest.mark.parametrize("evaluation", ["test", "val"])
def test_sets_in_memory_are_read_from_class_folders(
    name: str, evaluation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    entry = catalog.IMAGE_SETS[name]
    pictures = random_pixels(6, entry.size, entry.channels)
    for split, numbers in (("train", range(4)), (evaluation, range(4, 6))):
        for number in numbers:
            path = tmp_path / name / split / ("cat", "dog")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(pictures[number]))
    splits = images.load(specification(name, classes=2, batch_size=2))
    train, evaluated = in_memory(splits)
    expected = pictures.reshape(6, entry.size, entry.size, entry.channels)
    assert np.array_equal(train.images.numpy(), expected[[0, 2, 1, 3]])
    assert np.array_equal(evaluated.images.numpy(), expected[[4, 5]])
    assert (train.labels.tolist(), evaluated.labels.tolist()) == ([0, 0, 1, 1], [0, 1])
    assert splits.classes == ("cat", "dog")
    limited, _ = in_memory(images.load(specification(name, classes=2, batch_size=2, train_samples=2)))
    assert limited.labels.tolist() == [0, 1]


def test_a_damaged_file_of_a_set_in_memory_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    for place in ("train/a", "test/a"):
        (tmp_path / "cifar10" / place).mkdir(parents=True)
        (tmp_path / "cifar10" / place / "1.png").write_bytes(png(random_pixels(1, 32, 3)[0]))
    path = tmp_path / "cifar10/train/a/2.png"
    for content, problem in (
        (b"", "is damaged: "),
        (png(random_pixels(1, 16, 3)[0]), "has 16x16 pixels; allowed: 32x32"),
    ):
        path.write_bytes(content)
        with pytest.raises(Refused, match=re.escape(f"sample 1 of the train split, {path}, {problem}")):
            images.load(specification("cifar10", classes=1, batch_size=2))


@pytest.mark.parametrize("name", [b"caf\xe9", b"caf\xe9.png"])
def test_a_name_that_is_not_utf8_is_refused(name: bytes, tmp_path: Path) -> None:
    for split in ("train", "val"):
        for label in ("a", "b"):
            (tmp_path / split / label).mkdir(parents=True)
            (tmp_path / split / label / "0.png").write_bytes(b"an image")
    bad = os.fsencode(tmp_path / "train") + (b"/a/" if name.endswith(b".png") else b"/") + name
    os.makedirs(bad) if not name.endswith(b".png") else Path(os.fsdecode(bad)).write_bytes(b"an image")
    with pytest.raises(Refused) as caught:
        image_folder.read(tmp_path, "image", "label")
    assert str(caught.value) == f"{os.fsdecode(bad)!r}: the name is not UTF-8; rename it"
    str(caught.value).encode("utf-8")


def test_a_left_out_file_whose_name_is_not_utf8_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "val"):
        (tmp_path / split / "a").mkdir(parents=True)
        (tmp_path / split / "a" / "0.png").write_bytes(b"an image")
    Path(os.fsdecode(os.fsencode(tmp_path / "train" / "a") + b"/caf\xe9.txt")).write_text("no image")
    image_folder.read(tmp_path, "image", "label")
    assert "left out, no image: " in (said := capsys.readouterr().out)
    assert "caf\\udce9.txt" in said
