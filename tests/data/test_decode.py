"""Image files as 8-bit pixels, against values computed by hand and against torchvision's ImageFolder."""

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets.folder import default_loader

from tests.data.small_sets import image_table, in_memory, random_pixels, specification, write_split
from train.data import images
from train.data.catalog import Columns
from train.data.decode import decode
from train.data.images_streamed import MEAN, STD, StreamedImages
from train.engine.errors import Refused

SIXTEEN_BITS = np.array([[0, 128, 129, 257], [385, 386, 32_768, 65_535]], dtype=np.uint16)
EIGHT_BITS = [[0, 0, 1, 1], [1, 2, 128, 255]]  # the nearest of the 256 equal steps of 257


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def pixels(data: bytes, mode: Any = "L") -> np.ndarray:
    return np.asarray(decode({"bytes": data, "path": None}, mode, "sample 0"))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_grey_values_of_16_bits_keep_their_range(kind: str) -> None:
    data = encoded(Image.fromarray(SIXTEEN_BITS), kind)
    assert pixels(data).tolist() == EIGHT_BITS
    assert np.array_equal(pixels(data, "RGB"), np.repeat(np.array(EIGHT_BITS)[..., None], 3, axis=2))


def test_big_endian_grey_values_of_16_bits_are_the_same() -> None:
    data = encoded(Image.frombytes("I;16B", (4, 2), SIXTEEN_BITS.astype(">u2").tobytes()), "TIFF")
    assert pixels(data).tolist() == EIGHT_BITS


@pytest.mark.parametrize(("dtype", "values"), [("float32", "floating point numbers"), ("int32", "32-bit integers")])
def test_values_of_unknown_range_are_refused_with_the_file(tmp_path: Path, dtype: str, values: str) -> None:
    path = tmp_path / "x.tif"
    path.write_bytes(encoded(Image.fromarray(SIXTEEN_BITS.astype(dtype)), "TIFF"))
    with pytest.raises(Refused) as refusal:
        decode({"bytes": None, "path": str(path)}, "RGB", "sample 7 of the train split")
    expected = f"sample 7 of the train split, {path}, has {values} of unknown range; allowed: 8 or 16 bits a channel"
    assert str(refusal.value) == expected


def palette_with_transparency() -> Image.Image:
    image = Image.fromarray(random_pixels(1, 8, 3)[0]).quantize(16)
    image.info["transparency"] = 3
    return image


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[Image.ExifTags.Base.Orientation] = 6
    return exif


COLOUR = Image.fromarray(random_pixels(1, 8, 3)[0])
FILES = {
    "two levels": encoded(COLOUR.convert("1")),
    "grey with transparency": encoded(COLOUR.convert("LA")),
    "colour with transparency": encoded(Image.merge("RGBA", (*COLOUR.split(), COLOUR.split()[0]))),
    "palette": encoded(COLOUR.quantize(16)),
    "palette with transparency": encoded(palette_with_transparency()),
    "four inks": encoded(COLOUR.convert("CMYK"), "JPEG"),
    "turned by EXIF": encoded(COLOUR.crop((0, 0, 8, 4)), "JPEG", exif=turned()),
    "animated": encoded(COLOUR, "GIF", save_all=True, append_images=[COLOUR.rotate(90)]),
}


@pytest.mark.parametrize("name", FILES)
def test_other_files_are_read_as_torchvision_reads_them(name: str, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(FILES[name])
    expected = np.asarray(default_loader(str(path)))
    assert expected.std() > 10
    assert np.array_equal(pixels(FILES[name], "RGB"), expected)
    assert np.array_equal(np.asarray(decode({"bytes": None, "path": str(path)}, "RGB", "sample 0")), expected)


def test_grey_of_16_bits_is_the_same_streamed_and_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [encoded(Image.fromarray(np.full((28, 28), grey * 257, dtype=np.uint16))) for grey in (10, 200)]
    streamed = StreamedImages(image_table(files, [0, 1]), Columns(), 28, specification(batch_size=2), training=False)
    levels = next(streamed.epoch(0))["images"] * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    torch.testing.assert_close(levels[:, :, 0, 0], torch.tensor([[10.0] * 3, [200.0] * 3]) / 255)
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    for split in ("train", "test"):
        write_split(tmp_path / "fashion_mnist", split, files, [0, 1])
    train, _ = in_memory(images.load(specification("fashion_mnist", batch_size=2)))
    assert train.images[:, 0, 0, 0].tolist() == [10, 200]


def test_a_streamed_image_of_unknown_range_is_refused() -> None:
    split = image_table([encoded(Image.fromarray(np.zeros((8, 8), np.float32)), "TIFF")] * 2, [0, 1])
    streamed = StreamedImages(split, Columns(), 8, specification(batch_size=2), training=False)
    with pytest.raises(Refused, match=r"sample 0 of the .* split has floating point numbers of unknown range"):
        list(streamed.epoch(0))


def test_a_file_that_is_no_image_is_refused_without_an_address_in_memory() -> None:
    with pytest.raises(Refused) as caught:
        decode({"bytes": b"no image at all", "path": None}, "L", "sample 3")
    assert str(caught.value) == "sample 3 is damaged: cannot identify the format of the image"
