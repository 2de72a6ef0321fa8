"""The hash of the content: equal for equal data wherever they lie, another one for any other sample."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from tests.data.small_sets import png, random_pixels, specification, write_split
from train.data import catalog, images, images_streamed, text
from train.data.catalog import PRINTABLE
from train.data.content import content_sha256
from train.data.images_in_memory import ImagesInMemory, Pixels
from train.data.specification import Splits
from train.engine.errors import Refused


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "tokenizers"))
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "root"))
    monkeypatch.setitem(catalog.IMAGE_SETS, "imagenet", replace(catalog.IMAGE_SETS["imagenet"], classes=2, size=8))


def fashion(folder: Path, pixels: np.ndarray, labels: list[int], **changes: Any) -> str:
    write_split(folder, "train", [png(image) for image in pixels], labels)
    write_split(folder, "test", [png(image) for image in pixels[:4]], [5, 6, 7, 9])
    return sha256_of(images.load(specification("fashion_mnist", batch_size=2, **changes)))


def sha256_of(splits: Splits) -> str:
    assert splits.content_sha256 is not None
    return splits.content_sha256


def test_it_is_that_of_the_pixels_and_labels_of_all_splits(tmp_path: Path) -> None:
    pixels, labels = random_pixels(6, 28, 1), [0, 1, 2, 3, 4, 9]
    expected = hashlib.sha256()
    for split, count, numbers in (("train", 6, labels), ("evaluation", 4, [5, 6, 7, 9])):
        expected.update(f"{split} torch.uint8 ({count}, 28, 28, 1)\n".encode() + pixels[:count].tobytes())
        expected.update(f"{split} torch.int64 ({count},)\n".encode() + np.array(numbers, dtype="<i8").tobytes())
    assert fashion(tmp_path / "root" / "fashion_mnist", pixels, labels) == expected.hexdigest()


def test_any_pixel_or_label_changes_it_and_neither_root_nor_seed_nor_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "root" / "fashion_mnist"
    pixels, labels = random_pixels(6, 28, 1), [0, 1, 2, 3, 4, 9]
    first = fashion(folder, pixels, labels)
    assert fashion(folder, pixels, labels, seed=1, eval_batch_size=3, augment="crop_flip", channels_last=True) == first
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "other"))
    assert fashion(tmp_path / "other" / "fashion_mnist", pixels, labels) == first
    changed = pixels.copy()
    changed[5, 27, 27] ^= 1
    other_folder = tmp_path / "other" / "fashion_mnist"
    different = [
        fashion(other_folder, changed, labels),
        fashion(other_folder, pixels, [0, 1, 2, 3, 4, 8]),
        fashion(other_folder, pixels, labels, train_samples=5),
        fashion(other_folder, pixels, labels, eval_samples=3),
        fashion(other_folder, pixels, labels, held_out=2),
        fashion(other_folder, pixels[[1, 0, 2, 3, 4, 5]], labels),
    ]
    assert len({first, *different}) == 7


def class_folders(root: Path) -> Path:
    pictures = iter(random_pixels(6, 8, 3))
    for place, count in (("train/a", 2), ("train/b", 2), ("val/a", 1), ("val/b", 1)):
        (root / "imagenet" / place).mkdir(parents=True)
        for number in range(count):
            (root / "imagenet" / place / f"{number}.ppm").write_bytes(b"P6 8 8 255\n" + next(pictures).tobytes())
    return root / "imagenet"


def streamed_sha256(**changes: Any) -> str:
    return sha256_of(images.load(specification("imagenet", classes=2, batch_size=2, **changes)))


@pytest.mark.parametrize("limit", [0, 2**30], ids=["sizes alone", "bytes too"])
def test_of_streamed_files_it_is_that_of_names_sizes_and_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(images_streamed, "HASHED_BYTES", limit)
    folder = class_folders(tmp_path / "root")
    first = streamed_sha256()
    shutil.copytree(tmp_path / "root", tmp_path / "other")
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "other"))
    assert streamed_sha256(seed=1) == first
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "root"))
    seen = {first, streamed_sha256(train_samples=3)}
    with (folder / "train/b/1.ppm").open("ab") as file:
        file.write(b"\0")
    seen.add(streamed_sha256())
    (folder / "train/b/1.ppm").rename(folder / "train/a/3.ppm")
    seen.add(streamed_sha256())
    (folder / "val/a/0.ppm").rename(folder / "val/a/1.ppm")
    seen.add(streamed_sha256())
    assert len(seen) == 5


def test_one_pixel_of_a_small_streamed_set_changes_it(tmp_path: Path) -> None:
    path = class_folders(tmp_path / "root") / "train/b/1.ppm"
    first, data = streamed_sha256(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert streamed_sha256() != first


@pytest.mark.parametrize("limit", [0, 2**30], ids=["sizes alone", "bytes too"])
def test_of_a_streamed_table_it_is_that_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(images_streamed, "HASHED_BYTES", limit)
    files = [png(random_pixels(1, 8 + number, 3)[0]) for number in range(4)]

    def of(root: str, files: list[bytes], labels: list[int], **changes: Any) -> str:
        monkeypatch.setenv("DATA_ROOT", str(tmp_path / root))
        write_split(tmp_path / root / "imagenet", "train", files, labels)
        write_split(tmp_path / root / "imagenet", "validation", files[:2], [0, 1])
        return streamed_sha256(**changes)

    first = of("root", files, [0, 1, 0, 1])
    assert of("other", files, [0, 1, 0, 1]) == first
    different = [
        of("other", files, [0, 1, 1, 1]),
        of("other", [*files[:3], files[0]], [0, 1, 0, 1]),
        of("other", files, [0, 1, 0, 1], train_samples=3),
    ]
    assert len({first, *different}) == 4


def test_an_empty_image_of_a_streamed_table_is_named(tmp_path: Path) -> None:
    files = [png(random_pixels(1, 8, 3)[0])] * 3
    write_split(tmp_path / "root" / "imagenet", "train", [*files[:2], b""], [0, 1, 1])
    write_split(tmp_path / "root" / "imagenet", "validation", files[:2], [0, 1])
    with pytest.raises(Refused, match="sample 2 of the train split is damaged: it is empty"):
        streamed_sha256()


def write_texts(root: Path, rows: list[tuple[str, int]]) -> None:
    for split in ("train", "validation"):
        path = root / "sst2" / "data" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {"sentence": [words for words, _ in rows], "label": [label for _, label in rows]}
        names = datasets.Features(
            {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["-", "+"])}
        )
        datasets.Dataset.from_dict(columns, features=names).to_parquet(path)


@pytest.mark.parametrize("load", [text.load_classification, text.load_sequence_to_sequence])
def test_of_texts_it_is_that_of_tokens_and_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[Any], Splits]
) -> None:
    rows = [("a good film", 1), ("a bad film", 0), ("good", 1), ("bad", 0)]
    several = []
    for root, content in (
        ("root", rows),
        ("other", rows),
        ("labels", [*rows[:3], ("bad", 1)]),
        ("words", [*rows[:3], ("film", 0)]),
    ):
        monkeypatch.setenv("DATA_ROOT", str(tmp_path / root))
        write_texts(tmp_path / root, content)
        splits = load(specification("sst2", classes=2, length=16, vocab_size=60, batch_size=2))
        several.append(sha256_of(splits))
        assert splits.classes == (("-", "+") if load is text.load_classification else None)
    assert several[0] == several[1]
    assert len(set(several)) == 3


def test_of_running_text_it_is_that_of_the_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "root" / "tiny_shakespeare" / "input.txt"
    path.parent.mkdir(parents=True)
    several = []
    for words in ("to be or not to be\n" * 40, "to be or not to be\n" * 39 + "to be or not to me\n"):
        path.write_text(words)
        several.append(sha256_of(text.load_language(specification("tiny_shakespeare", length=8, batch_size=2))))
    assert several[0] != several[1]
    whole = text.load_language(specification("pydoc", length=64, vocab_size=len(PRINTABLE)))
    limited = text.load_language(specification("pydoc", length=64, train_samples=100))
    assert sha256_of(whole) != sha256_of(limited)


def test_padding_for_crops_and_the_seed_leave_it_alone() -> None:
    digits = {
        sha256_of(images.load(specification(augment=augment, seed=seed)))
        for augment in ("none", "crop")
        for seed in (0, 1)
    }
    assert len(digits) == 1


def test_where_one_split_ends_and_the_other_begins_matters() -> None:
    spec, statistics = specification(batch_size=2), (torch.zeros(1), torch.ones(1))
    whole = Pixels(torch.zeros(6, 4, 4, 1, dtype=torch.uint8), torch.zeros(6, dtype=torch.int64))
    parts = [ImagesInMemory(whole[:count], spec, *statistics, training=False) for count in (2, 4)]
    assert content_sha256(parts[0], parts[1]) != content_sha256(parts[1], parts[0])
    assert content_sha256(parts[0], parts[1], parts[0]) != content_sha256(parts[0], parts[1])
