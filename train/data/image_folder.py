"""Images in class folders, `train/<class>/*.JPEG` and `val/<class>/*.JPEG`: the layout of torchvision's ImageFolder."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from train.engine.errors import Refused

# The folders that may hold an evaluation split; one of them does.
FOLDERS = {"validation": ("val", "validation"), "test": ("test", "val", "validation")}


def is_layout(folder: Path) -> bool:
    """Whether `folder` holds class folders or loose images under `train/`, and not a split in files of its own."""
    train = folder / "train"
    return train.is_dir() and any(entry.is_dir() or _is_image(entry) for entry in os.scandir(train))


def read(folder: Path, image: str, label: str, evaluation: str = "validation") -> Any:
    """The `datasets.DatasetDict` of `folder`, splits "train" and `evaluation`, columns `image` and `label`.

    Images are sorted by path and classes numbered by their sorted names, as torchvision does; classes whose names are
    all integers are numbered by value, so that 2 comes before 10. The `imagefolder` builder of `datasets` takes minutes
    at each start for ImageNet's 1.3 million files, numbers classes over both splits together, and takes the innermost
    folder for the class. Files that are no images are left out.

    Raises `Refused` naming a missing or empty split or class, a class of one split alone, an image without a class, a
    name that is not UTF-8.
    """
    import datasets

    allowed = FOLDERS.get(evaluation, (evaluation,))
    present = [name for name in allowed if (folder / name).is_dir()]
    if len(present) != 1:
        there = ", ".join(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()))
        choice = " or ".join(f"{name}/" for name in allowed)
        raise Refused(f"{folder}: expected train/ and either {choice}; found: {there}")
    folders = {"train": folder / "train", evaluation: folder / present[0]}
    classes_of = {split: _classes(place) for split, place in folders.items()}
    _check_same_classes(folders, classes_of)
    names = list(classes_of["train"])
    rule = "the value of their names" if _are_integers(names) else "their sorted names"
    print(f"{folder}: {len(names)} classes numbered by {rule}, from {names[0]} to {names[-1]}", flush=True)
    splits = {}
    for split, classes in classes_of.items():
        paths = [path for files in classes.values() for path in files]
        labels = [number for number, files in enumerate(classes.values()) for _ in files]
        features = datasets.Features({image: datasets.Image(), label: datasets.ClassLabel(names=list(classes))})
        splits[split] = datasets.Dataset.from_dict(
            {image: paths, label: labels}, features=features, split=datasets.NamedSplit(split)
        )
    return datasets.DatasetDict(splits)


def _classes(place: Path) -> dict[str, list[str]]:
    """Class names of one split in the order of their labels, with their sorted image files."""
    entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    folders = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    if _are_integers(entry.name for entry in folders):
        folders.sort(key=lambda entry: int(entry.name))
    strays = [entry for entry in entries if not entry.is_dir()]
    classes: dict[str, list[str]] = {}
    for folder in folders:
        _require_utf8(folder.path)
        files = sorted(os.scandir(folder.path), key=lambda entry: entry.name)
        inner = next((entry for entry in files if entry.is_dir() and not entry.name.startswith(".")), None)
        if inner is not None:
            raise Refused(
                f"{_shown(inner.path)}: a folder inside a class folder; expected {place.name}/<class>/<image>"
            )
        classes[folder.name] = [_require_utf8(entry.path) for entry in files if _is_image(entry)]
        strays += [entry for entry in files if not _is_image(entry)]
        if not classes[folder.name]:
            raise Refused(f"{folder.path}: the class holds no image; allowed: {', '.join(_extensions())}")
    loose = next((entry for entry in strays if _is_image(entry)), None)
    if loose is not None:
        raise Refused(f"{_shown(loose.path)}: an image outside a class folder; expected {place.name}/<class>/<image>")
    if not classes:
        raise Refused(f"{place}: the split is empty; expected {place.name}/<class>/<image>")
    if strays:
        others = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
        print(f"left out, no image: {_shown(strays[0].path)}{others}", flush=True)
    return classes


def _check_same_classes(folders: dict[str, Path], classes: dict[str, dict[str, list[str]]]) -> None:
    for one, other in (tuple(folders), tuple(folders)[::-1]):
        absent = [name for name in classes[one] if name not in classes[other]]
        if absent:
            others = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise Refused(f"{folders[other]}: no class folder {absent[0]}{others}, which {folders[one]} has")


def _require_utf8(path: str) -> str:
    """`path`; raises `Refused` for one that `datasets` cannot hold, since its columns of text are UTF-8."""
    if _shown(path) != path:
        raise Refused(f"{path!r}: the name is not UTF-8; rename it")
    return path


def _shown(path: str) -> str:
    """`path` with its bytes that are not UTF-8 written out."""
    return path.encode("utf-8", errors="backslashreplace").decode("utf-8")


def _are_integers(names: Iterable[str]) -> bool:
    return all(re.fullmatch(r"-?[0-9]+", name) for name in names)


def _is_image(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(_extensions()) and not entry.is_dir() and not entry.name.startswith(".")


def _extensions() -> tuple[str, ...]:
    from torchvision.datasets.folder import IMG_EXTENSIONS

    return tuple(IMG_EXTENSIONS)
