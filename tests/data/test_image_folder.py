import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.datasets import ImageFolder

from tests.data.small_sets import png, random_pixels, specification
from train.data import catalog, image_folder, images
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
    import datasets

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
    assert capsys.readouterr().out == f"left out, no image: {folder}/train/valprep.sh and 2 more\n"
