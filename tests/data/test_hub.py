import os
import shutil
import socket
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from tests.data.small_sets import in_memory, png, random_pixels, specification, write_split
from train.data import hub
from train.data.catalog import Hub
from train.data.images import load
from train.engine.errors import Refused

SPEC = specification("fashion_mnist", batch_size=2)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def pixels() -> np.ndarray:
    return random_pixels(6, 28, 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pixels: np.ndarray) -> Path:
    """A data set of six training and four evaluation images under DATA_ROOT."""
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "root"))
    folder = tmp_path / "root" / "fashion_mnist"
    write_split(folder, "train", [png(image) for image in pixels], [0, 1, 2, 3, 4, 9])
    write_split(folder, "test", [png(image) for image in pixels[:4]], [5, 6, 7, 9])
    return folder


def test_parquet_in_the_layout_of_the_hub_gives_every_pixel_and_label(folder: Path, pixels: np.ndarray) -> None:
    train, evaluation = in_memory(load(SPEC))
    assert (train.samples, evaluation.samples) == (6, 4)
    assert np.array_equal(train.images.numpy()[..., 0], pixels)
    assert train.labels.tolist() == [0, 1, 2, 3, 4, 9]
    assert evaluation.labels.tolist() == [5, 6, 7, 9]


@pytest.mark.parametrize("length", [0, 100, -100])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_truncated_file_is_named(folder: Path, split: str, length: int) -> None:
    path = folder / "data" / f"{split}-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(Refused) as refusal:
        load(SPEC)
    assert str(folder) in str(refusal.value)
    assert path.name in str(refusal.value)


def test_a_file_that_was_cut_after_it_was_read_once_is_noticed(folder: Path) -> None:
    load(SPEC)
    path = folder / "data" / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(Refused, match="not readable"):
        load(SPEC)


@pytest.mark.parametrize("damage", [b"", b"no image at all", "cut"])
def test_a_damaged_image_is_named_by_its_number(folder: Path, pixels: np.ndarray, damage: bytes | str) -> None:
    encoded = [png(image) for image in pixels]
    encoded[3] = encoded[3][: len(encoded[3]) // 2] if isinstance(damage, str) else damage
    write_split(folder, "train", encoded, [0, 1, 2, 3, 4, 9])
    with pytest.raises(Refused, match=r"data set 'fashion_mnist': sample 3 of the train split is damaged"):
        load(SPEC)


def test_an_image_of_another_size_is_named_by_its_number(folder: Path, pixels: np.ndarray) -> None:
    encoded = [*(png(image) for image in pixels[:5]), png(random_pixels(1, 32, 1)[0])]
    write_split(folder, "train", encoded, [0, 1, 2, 3, 4, 9])
    with pytest.raises(Refused, match=r"sample 5 of the train split has 32x32 pixels; allowed: 28x28"):
        load(SPEC)


def test_a_label_outside_the_classes_is_named(folder: Path, pixels: np.ndarray) -> None:
    write_split(folder, "test", [png(image) for image in pixels[:3]], [1, 12, 2])
    with pytest.raises(Refused, match="fashion_mnist evaluation split has label 12 at sample 1, but num_classes=10"):
        load(SPEC)


def test_a_label_that_is_no_integer_is_named(folder: Path, pixels: np.ndarray) -> None:
    for split in ("train", "test"):
        write_split(folder, split, [png(image) for image in pixels[:3]], [1.0, 2.5, 9.0], label_type="float32")
    with pytest.raises(Refused, match=r"'fashion_mnist': column 'label' holds 1\.0 at sample 0, not an integer"):
        load(SPEC)


def test_a_missing_split_is_named_with_those_that_are_there(folder: Path) -> None:
    (folder / "data" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(Refused, match=r"'fashion_mnist': its split 'test' is missing or empty; found: train"):
        load(SPEC)


def test_a_missing_column_is_named_with_those_that_are_there(folder: Path, pixels: np.ndarray) -> None:
    for split in ("train", "test"):
        write_split(folder, split, [png(image) for image in pixels], [0, 1, 2, 3, 4, 9], image="picture")
    with pytest.raises(Refused, match=r"no column 'image'; found: picture, label"):
        load(SPEC)


def test_an_empty_folder_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fashion_mnist").mkdir()
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    with pytest.raises(Refused, match=rf"files in {tmp_path}/fashion_mnist are not readable"):
        load(SPEC)


def test_a_set_from_the_cache_of_the_hub_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "mistyped"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "rely_on_cache_without_network", lambda: None)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: {"train": []})
    assert hub.load("mine", Hub("you/mine", revision="v2")) == {"train": []}
    assert capsys.readouterr().out == "data set mine: you/mine as it is in the cache of the Hub\n"


def test_splits_whose_labels_mean_other_classes_are_refused(folder: Path) -> None:
    several: dict[str, list[str]] = {"train": ["cat", "dog", "fox"], "test": ["cat", "fox"]}
    for split, names in several.items():
        labels = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
        rows = {"image": [{"bytes": png(random_pixels(1, 28, 1)[0]), "path": None}] * 2, "label": [0, 1]}
        path = folder / "data" / f"{split}-00000-of-00001.parquet"
        datasets.Dataset.from_dict(rows, features=labels).to_parquet(path)
    with pytest.raises(
        Refused, match=r"test-00000.*: the classes of column 'label' are \['cat', 'fox'\], but in .*'dog'"
    ):
        load(SPEC)


def test_images_in_folders_of_other_names_are_refused(folder: Path) -> None:
    shutil.rmtree(folder)
    for place in ("training/0", "training/10", "testing/0", "testing/2"):
        (folder / place).mkdir(parents=True)
        (folder / place / "1.png").write_bytes(png(random_pixels(1, 28, 1)[0]))
    with pytest.raises(Refused, match=f"{folder}: images need the folders train/<class>/ and val/<class>/"):
        load(SPEC)


def test_a_text_of_several_files_is_announced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder.parent / "plain"
    place.mkdir()
    for name in ("LICENSE.txt", "input.txt"):
        (place / name).write_text(f"{name}\n")
    assert hub.load("plain", Hub("karpathy/tiny_shakespeare"))["train"]["text"][:] == ["LICENSE.txt\n", "input.txt\n"]
    expected = f"data set plain: text of 2 files, from {place}/LICENSE.txt to {place}/input.txt\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("root", ["empty", "unset"])
def test_a_missing_data_set_says_both_ways_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    if root == "empty":
        monkeypatch.setenv("DATA_ROOT", str(tmp_path))
        looked = f"not in {tmp_path}/fashion_mnist, and "
    else:
        monkeypatch.delenv("DATA_ROOT", raising=False)
        looked = "DATA_ROOT is not set, and "
    with pytest.raises(Refused) as refusal:
        load(SPEC)
    message = str(refusal.value)
    assert message.startswith(f"data set 'fashion_mnist': {looked}")
    assert "zalando-datasets/fashion_mnist could not be loaded" in message
    assert "set DATA_ROOT to a folder that holds fashion_mnist/" in message
    assert "datasets.load_dataset('zalando-datasets/fashion_mnist')" in message


STORED_AT = 1_700_000_000  # one second for all files, as an archive unpacks them


def prepare(root: Path, listed: bool, labels: list[int], pixels: np.ndarray) -> list[int]:
    """Write a set under `root`, its files listed in README.md or not; gives the training labels that are read then."""
    folder = root / "fashion_mnist"
    paths = [write_split(folder, "train", [png(image) for image in pixels], labels)]
    paths.append(write_split(folder, "test", [png(image) for image in pixels[:4]], [5, 6, 7, 9]))
    if listed:
        files = "".join(f"  - {{split: {path.name.split('-')[0]}, path: data/{path.name}}}\n" for path in paths)
        (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: a\n  data_files:\n{files}---\n")
    for path in paths:
        os.utime(path, (STORED_AT, STORED_AT))
    train, _ = in_memory(load(SPEC))
    return train.labels.tolist()


@pytest.mark.parametrize("listed", [True, False], ids=["listed in README.md", "not listed"])
@pytest.mark.parametrize("moved", [True, False], ids=["another DATA_ROOT", "rewritten"])
def test_what_is_read_are_the_files_that_are_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pixels: np.ndarray, listed: bool, moved: bool
) -> None:
    for number, labels in enumerate([[0, 1, 2, 3, 4, 9], [5, 6, 7, 8, 9, 0]]):
        root = tmp_path / (f"root{number}" if moved else "root")
        monkeypatch.setenv("DATA_ROOT", str(root))
        assert prepare(root, listed, labels, pixels) == labels


def test_files_that_did_not_change_are_prepared_once(folder: Path) -> None:
    load(SPEC)
    tables = {path: path.stat().st_mtime_ns for path in (folder.parents[1] / "cache").rglob("*.arrow")}
    (folder / ".DS_Store").write_text("")
    load(SPEC)
    assert {path: path.stat().st_mtime_ns for path in (folder.parents[1] / "cache").rglob("*.arrow")} == tables


@pytest.mark.parametrize("kept", [True, False], ids=["same time", "new time"])
def test_a_text_that_was_rewritten_is_read_again(folder: Path, kept: bool) -> None:
    source = Hub("karpathy/tiny_shakespeare")
    path = folder.parent / "plain" / "INPUT.TXT"
    path.parent.mkdir()
    for text in ("first\n", "other\n"):
        path.write_text(text)
        if kept:
            os.utime(path, (STORED_AT, STORED_AT))
        assert hub.load("plain", source)["train"]["text"][:] == [text]


@pytest.mark.parametrize(("values", "kind"), [([True, False, True], "bool"), ([0, None, 1], "int64")])
def test_labels_that_are_no_numbers_or_missing_are_named(folder: Path, values: list[Any], kind: str) -> None:
    pictures = [png(image) for image in random_pixels(3, 28, 1)]
    for split in ("train", "test"):
        write_split(folder, split, pictures, values, label_type=kind)
    wrong = next(index for index, value in enumerate(values) if type(value) is not int)
    with pytest.raises(Refused, match=rf"column 'label' holds {values[wrong]} at sample {wrong}, not an integer"):
        load(SPEC)


def has_real(name: str) -> bool:
    root = os.environ.get("DATA_ROOT")
    return root is not None and (Path(root) / name).is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train_samples", "shape", "labels_of_a_class"),
    [("fashion_mnist", 60_000, (28, 28, 1), 6000), ("cifar10", 50_000, (32, 32, 3), 5000)],
)
def test_the_real_data_sets_are_whole(
    name: str, train_samples: int, shape: tuple[int, ...], labels_of_a_class: int
) -> None:
    if not has_real(name):
        pytest.skip(f"needs {name} under DATA_ROOT")
    train, evaluation = in_memory(load(specification(name)))
    assert train.images.shape == (train_samples, *shape)
    assert evaluation.images.shape == (10_000, *shape)
    assert torch.bincount(train.labels).tolist() == 10 * [labels_of_a_class]
    assert torch.bincount(evaluation.labels).tolist() == 10 * [1000]
    assert 0.2 < train.std.mean() < 0.4


def test_without_a_network_the_hub_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    refusing = socket.create_server(("127.0.0.1", 0))
    port = refusing.getsockname()[1]
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # what is set below is undone after the test
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr("urllib.request.getproxies", dict)
    hub.rely_on_cache_without_network()
    assert not constants.HF_HUB_OFFLINE
    refusing.close()
    hub.rely_on_cache_without_network()
    assert constants.HF_HUB_OFFLINE
    assert datasets.config.HF_HUB_OFFLINE
    assert os.environ["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_column_of_digits_in_one_file_and_of_words_in_the_other_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "reviews").mkdir()
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    for split, values in (("train", [12, 34]), ("validation", ["good", "bad"])):
        table = datasets.Dataset.from_dict({"sentence": values, "label": [0, 1]})
        (table.to_csv if kind == "csv" else table.to_json)(folder / f"{split}.{kind}")
    with pytest.raises(Refused) as caught:
        hub.load("reviews", Hub("nobody/reviews"))
    train, other = folder / f"train.{kind}", folder / f"validation.{kind}"
    expected = f"column 'sentence' has different types: string in {other}, int64 in {train}"
    assert str(caught.value) == f"data set 'reviews': {expected}"
