"""Small data sets in the Hub's parquet layout, and the experiments that read them."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from train.experiment.config import Experiment


def experiment(data: dict[str, Any] | None = None, **changes: Any) -> Experiment:
    values: dict[str, Any] = {
        "name": "test", "model": "resnet", "arch": "resnet20", "num_classes": 10, "epochs": 1, "batch_size": 32,
        "optimizer": {"name": "sgd", "lr": 0.1}, "schedule": {"name": "constant"},
        "data": {"name": "digits"} | (data or {}),
    }  # fmt: skip
    return Experiment.model_validate(values | changes)


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
