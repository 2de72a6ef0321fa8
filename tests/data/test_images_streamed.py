import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.data.small_sets import image_table, png, random_pixels, specification, write_split
from train.data import catalog, images
from train.data.catalog import Columns
from train.data.images_streamed import MEAN, STD, StreamedImages
from train.data.specification import DataSpec
from train.engine.errors import Refused
from train.engine.step import Batch

SAMPLES = 11


@pytest.fixture(scope="module")
def encoded() -> list[bytes]:
    return [png(pixels) for pixels in random_pixels(SAMPLES, 20, 3)]


@pytest.fixture(scope="module")
def split(encoded: list[bytes]) -> Any:
    return image_table(encoded, list(range(SAMPLES)))


def streamed(split: Any, seed: int | None = 0, workers: int = 0, **settings: Any) -> StreamedImages:
    settings = {"batch_size": 4, "seed": seed or 0, "augment": "random_resized_crop", **settings}
    return StreamedImages(split, Columns(), 16, specification(workers=workers, **settings), training=seed is not None)


def assert_equal(first: list[Batch], second: list[Batch]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one["labels"], other["labels"])
        assert torch.equal(one["images"], other["images"])


def by_label(batches: list[Batch]) -> dict[int, Tensor]:
    return {int(y): x for batch in batches for x, y in zip(batch["images"], batch["labels"], strict=True)}


def test_batches_have_shape_dtype_and_layout(split: Any) -> None:
    batches = streamed(split, channels_last=True)
    assert (batches.samples, batches.batches) == (SAMPLES, 3)
    seen = list(batches.epoch(0))
    assert [tuple(batch["images"].shape) for batch in seen] == [(4, 3, 16, 16), (4, 3, 16, 16), (3, 3, 16, 16)]
    for batch in seen:
        assert (batch["images"].dtype, batch["labels"].dtype) == (torch.float32, torch.int64)
        assert batch["images"].is_contiguous(memory_format=torch.channels_last)


def test_workers_do_not_change_the_batches(split: Any) -> None:
    for epoch in (0, 1):
        assert_equal(list(streamed(split, workers=2).epoch(epoch)), list(streamed(split).epoch(epoch)))


def test_draws_differ_between_epochs_samples_and_seeds_and_repeat(split: Any) -> None:
    same_picture = image_table([png(random_pixels(1, 20, 3)[0])] * SAMPLES, list(range(SAMPLES)))
    first, again, other = (by_label(list(streamed(same_picture, seed).epoch(0))) for seed in (0, 0, 1))
    later = by_label(list(streamed(same_picture, 0).epoch(1)))
    for label in range(SAMPLES):
        assert torch.equal(first[label], again[label])
        assert not torch.equal(first[label], other[label])
        assert not torch.equal(first[label], later[label])
        assert not torch.equal(first[label], first[(label + 1) % SAMPLES])


def test_every_sample_comes_once_and_epochs_differ_in_order(split: Any) -> None:
    orders = [[int(y) for batch in streamed(split).epoch(epoch) for y in batch["labels"]] for epoch in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(SAMPLES))
    assert orders[0] != orders[1]


@pytest.mark.parametrize("start", [1, 2])
def test_a_resumed_epoch_goes_on_with_the_same_batches(split: Any, start: int) -> None:
    assert_equal(list(streamed(split).epoch(1, start)), list(streamed(split).epoch(1))[start:])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seed", [0, None])
def test_the_global_generator_is_neither_used_nor_moved(split: Any, workers: int, seed: int | None) -> None:
    expected = list(streamed(split, seed).epoch(0))
    torch.manual_seed(77)
    state = torch.get_rng_state()
    assert_equal(list(streamed(split, seed, workers).epoch(0)), expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_evaluation_resizes_and_crops_the_centre(split: Any, encoded: list[bytes]) -> None:
    evaluated = by_label(list(streamed(split, seed=None).epoch(0)))
    assert list(evaluated) == list(range(SAMPLES))
    for label in (0, 5):
        picture = torch.from_numpy(np.array(Image.open(io.BytesIO(encoded[label])))).permute(2, 0, 1)
        resized = torch.nn.functional.interpolate(
            picture[None].float(), size=(18, 18), mode="bilinear", antialias=True
        )  # 16 * 256 / 224
        expected = (resized[0, :, 1:17, 1:17] / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(
            3, 1, 1
        )
        # torchvision resizes uint8 images in whole steps of 1/255.
        torch.testing.assert_close(evaluated[label], expected, rtol=0, atol=1.5 / 255 / min(STD))


def test_grey_images_become_colour_ones() -> None:
    grey = image_table([png(pixels) for pixels in random_pixels(2, 20, 1)], [0, 1])
    batch = next(streamed(grey, seed=None).epoch(0))
    channels = batch["images"] * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    torch.testing.assert_close(channels[:, 0], channels[:, 1])


def refusal_of(batches: StreamedImages) -> str:
    try:
        list(batches.epoch(0))
    except Refused as refusal:  # not kept, because its traceback would keep the workers alive
        return str(refusal)
    return "no refusal"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_sample_is_named_in_one_line(encoded: list[bytes], workers: int) -> None:
    damaged = image_table([*encoded[:5], b"no image", *encoded[6:]], list(range(SAMPLES)))
    message = refusal_of(streamed(damaged, seed=None, workers=workers))
    assert re.match(r"sample 5 of the .*split is damaged: ", message)
    assert "Traceback" not in message


# By name, from files


@pytest.fixture
def imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: list[bytes]) -> Path:
    """ImageNet in name and layout: eleven training and six validation images of four classes."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setitem(catalog.IMAGE_SETS, "imagenet", replace(catalog.IMAGE_SETS["imagenet"], classes=4, size=16))
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    write_split(tmp_path / "imagenet", "train", encoded, [number % 4 for number in range(SAMPLES)])
    write_split(tmp_path / "imagenet", "validation", encoded[:6], [0, 1, 2, 3, 0, 1])
    return tmp_path / "imagenet"


def imagenet_spec(**changes: Any) -> DataSpec:
    return specification("imagenet", **{"augment": "random_resized_crop", "classes": 4, "batch_size": 4} | changes)


@pytest.mark.usefixtures("imagenet")
def test_a_streamed_set_is_found_by_name() -> None:
    splits = images.load(imagenet_spec())
    train, evaluation = splits.train, splits.evaluation
    assert (train.samples, evaluation.samples) == (SAMPLES, 6)
    labels = torch.cat([batch["labels"] for batch in evaluation.epoch(0)])
    assert labels.tolist() == [0, 1, 2, 3, 0, 1]
    first, second = (next(evaluation.epoch(epoch))["images"] for epoch in (0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(next(train.epoch(0))["images"], next(train.epoch(1))["images"])


@pytest.mark.usefixtures("imagenet")
def test_limits_hold_for_a_streamed_set() -> None:
    splits = images.load(imagenet_spec(train_samples=5, eval_samples=3, eval_batch_size=2))
    train, evaluation = splits.train, splits.evaluation
    assert [len(batch["labels"]) for batch in train.epoch(0)] == [4]  # and one left over, which BatchNorm cannot use
    assert [len(batch["labels"]) for batch in evaluation.epoch(0)] == [2, 1]


@pytest.mark.usefixtures("imagenet")
def test_labels_of_a_streamed_set_are_checked() -> None:
    with pytest.raises(Refused, match="imagenet train split has label 2 at sample 2, but num_classes=2"):
        images.load(imagenet_spec(classes=2))


@pytest.mark.usefixtures("imagenet")
def test_a_batch_larger_than_a_streamed_set_is_refused() -> None:
    with pytest.raises(Refused, match="batch_size: 12 is larger than the 11 training samples"):
        images.load(imagenet_spec(batch_size=12))


def test_a_column_that_a_streamed_set_lacks_is_named(imagenet: Path, encoded: list[bytes]) -> None:
    write_split(imagenet, "train", encoded, [0] * SAMPLES, image="picture")
    write_split(imagenet, "validation", encoded, [0] * SAMPLES, image="picture")
    with pytest.raises(Refused, match=r"no column 'image'; found: picture, label"):
        images.load(imagenet_spec())
