"""The hash of what data hold, the same wherever they lie and however they are stored."""

import hashlib
from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from train.engine.fit import Batches


class Stored(Batches, Protocol):
    """Batches of samples that are stored in one order, whatever the order of training."""

    def content(self) -> Iterable[Tensor | bytes]:
        """All inputs and all labels, in the order in which they are stored."""
        ...


def content_sha256(train: Stored, evaluation: Stored, held_out: Stored | None = None) -> str:
    """SHA-256 of all samples of all splits as they are used, after limits; independent of seed and batch size."""
    digest = hashlib.sha256()
    for name, split in (("train", train), ("evaluation", evaluation), ("held_out", held_out)):
        for part in () if split is None else split.content():
            if isinstance(part, bytes):
                digest.update(f"{name} bytes {len(part)}\n".encode())
                digest.update(part)
            else:
                digest.update(f"{name} {part.dtype} {tuple(part.shape)}\n".encode())
                digest.update(part.cpu().flatten().numpy().data)
    return digest.hexdigest()
