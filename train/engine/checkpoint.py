"""Checkpoints: written whole or not at all, verified when read, exact to the bit.

A file holds tensors and plain values alone, so `torch.load` reads it with its safe default
(weights_only). It is a zip archive whose entries carry CRCs: a flipped byte, which `torch.load`
would take for a weight, is found before anything is restored.
"""

import errno
import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from .errors import Refused

FORMAT = 1


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` to `path` through a temporary file in the same folder, checked and then renamed.

    Raises OSError naming `path` when the folder or the disk does not take it; `path` is then what it was before.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        # Into a file of Python's: for a full disk torch's own writer knows no better word than "unexpected pos".
        with partial.open("wb") as file:
            torch.save({"format": FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        _verify(partial)
        partial.replace(path)
    except (OSError, RuntimeError, zipfile.BadZipFile) as error:
        number, fault = getattr(error, "errno", None) or errno.EIO, getattr(error, "strerror", None) or str(error)
        raise OSError(number, f"the checkpoint could not be written: {fault}", str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote, onto the CPU. Raises `Refused`, naming the file, when it is missing or damaged."""
    if not path.is_file():
        raise Refused(f"checkpoint {path} does not exist")
    try:
        _verify(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load has no common type for damage: EOFError, RuntimeError, OSError, ...
        raise Refused(
            f"checkpoint {path} is damaged ({error}); resume from another file with --resume FILE, "
            "or start again with --resume never"
        ) from error
    if not isinstance(state, dict):
        raise Refused(f"checkpoint {path} holds {type(state).__name__}, not the state of a run")
    if state.get("format") != FORMAT:
        raise Refused(f"checkpoint {path} has format {state.get('format')!r}; this version reads format {FORMAT}")
    return state


def _verify(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"entry {damaged} fails its CRC")
        for entry in archive.infolist():
            # No CRC covers the directory. torch.save writes plain stored entries; read as anything else,
            # such as a folder, an entry's tensor would be memory that nobody filled.
            stored = entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
            if entry.external_attr or not stored:
                raise zipfile.BadZipFile(f"the directory entry of {entry.filename} is damaged")
