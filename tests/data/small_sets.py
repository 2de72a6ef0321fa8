"""Small data sets in the Hub's parquet layout, and specifications that read them."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from train.data.images_in_memory import ImagesInMemory
from train.data.specification import DataSpec, Splits

CPU = torch.device("cpu")


def specification(name: str = "digits", **changes: Any) -> DataSpec:
    """Ten classes in batches of 32, or as `changes` say."""
    values: dict[str, Any] = {"batch_size": 32, "seed": 0, "device": CPU, "classes": 10} | changes
    return DataSpec(name=name, **values)


def in_memory(splits: Splits) -> tuple[ImagesInMemory, ImagesInMemory]:
    """The training and evaluation batches of a set in memory."""
    assert isinstance(splits.train, ImagesInMemory)
    assert isinstance(splits.evaluation, ImagesInMemory)
    return splits.train, splits.evaluation


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def random_pixels(count: int, size: int, channels: int, seed: int = 0) -> np.ndarray:
    shape = (count, size, size, channels) if channels == 3 else (count, size, size)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def image_table(
    encoded: list[bytes],
    labels: Sequence[float],
    image: str = "image",
    label: str = "label",
    label_type: str = "int64",
) -> Any:
    import datasets

    features = datasets.Features({image: datasets.Image(), label: datasets.Value(label_type)})
    rows = {image: [{"bytes": data, "path": None} for data in encoded], label: labels}
    return datasets.Dataset.from_dict(rows, features=features)


def write_split(folder: Path, split: str, encoded: list[bytes], labels: Sequence[float], **columns: str) -> Path:
    """One split as `<folder>/data/<split>-00000-of-00001.parquet`."""
    path = folder / "data" / f"{split}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    image_table(encoded, labels, **columns).to_parquet(path)
    return path
