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


class Damaged(Refused):
    """A checkpoint file that is not what was written, in whole or in part."""


def save(path: Path, state: dict[str, Any], previous: Path | None = None) -> None:
    """Write `state` to `path` through a temporary file in the same folder, checked and then renamed.

    What was at `path` is kept as `previous`, where that is given. Whenever the power is cut, one of the two is whole.
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
        if previous is not None and path.exists():
            path.replace(previous)
        partial.replace(path)
    except (OSError, RuntimeError, zipfile.BadZipFile) as error:
        number, fault = _fault_of_system(error)
        raise OSError(number, f"the checkpoint could not be written: {fault}", str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote, onto the CPU. Raises `Refused`, naming the file, when it is missing, or `Damaged`."""
    if path.is_dir():
        raise Damaged(f"checkpoint {path} is damaged (it is a folder)")
    if not path.is_file():
        raise Refused(f"checkpoint {path} does not exist")
    try:
        _verify(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load has no common type for damage: EOFError, RuntimeError, OSError, ...
        # torch's words go on for lines, and end with the advice to switch its guard off.
        fault = (str(error) or type(error).__name__).splitlines()[0]
        raise Damaged(f"checkpoint {path} is damaged ({fault})") from error
    if not isinstance(state, dict):
        raise Refused(f"checkpoint {path} holds {type(state).__name__}, not the state of a run")
    if state.get("format") != FORMAT:
        raise Refused(f"checkpoint {path} has format {state.get('format')!r}; this version reads format {FORMAT}")
    return state


def is_whole(path: Path) -> bool:
    """Whether `path` is a file that `save` wrote, undamaged."""
    try:
        _verify(path)
    except (OSError, zipfile.BadZipFile):
        return False
    return True


def _fault_of_system(error: BaseException) -> tuple[int, str]:
    """Number and words of the system's error behind `error`: torch reports a full disk as an unexpected position."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            return cause.errno, cause.strerror or str(cause)
        cause = cause.__cause__ or cause.__context__
    return errno.EIO, str(error)


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
