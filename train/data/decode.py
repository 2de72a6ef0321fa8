"""One image file as 8-bit pixels, the same for images in memory and for streamed ones."""

import io
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from train.engine.errors import Refused


def decode(item: Mapping[str, Any], mode: Literal["L", "RGB"], sample: str) -> Any:
    """The `PIL.Image.Image` of an undecoded image of `datasets`, {"bytes", "path"}, in grey or in colour.

    As torchvision's ImageFolder reads it: the first frame, transparency dropped, EXIF orientation not applied. Grey
    values of 16 bits are divided by 257, where ImageFolder clips them at 255. Raises `Refused` naming `sample` for a
    damaged file and for values whose range is not known.
    """
    from PIL import Image, UnidentifiedImageError

    file = f", {item['path']}," if item["path"] else ""
    try:
        with Image.open(item["path"] if item["bytes"] is None else io.BytesIO(item["bytes"])) as image:
            if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
                return _eight_bits(np.asarray(image)).convert(mode)
            if image.mode in ("I", "F"):
                values = {"I": "32-bit integers", "F": "floating point numbers"}[image.mode]
                raise Refused(f"{sample}{file} has {values} of unknown range; allowed: 8 or 16 bits a channel")
            return image.convert(mode)
    except Refused:
        raise
    except Exception as error:  # Pillow raises many kinds for a bad file
        reason: object = "it is empty" if item["bytes"] == b"" else error
        if item["bytes"] and isinstance(error, UnidentifiedImageError):  # whose words are an address in memory
            reason = "cannot identify the format of the image"
        raise Refused(f"{sample}{file} is damaged: {reason}") from error


def _eight_bits(values: np.ndarray) -> Any:
    """Grey values from 0 to 65,535 as those from 0 to 255, rounded."""
    from PIL import Image

    return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))
