"""Data sets from `$DATA_ROOT/<name>`, then from the Hugging Face Hub, both through `datasets`."""

import hashlib
import os
import socket
import sys
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from train.data.catalog import Hub, Source
from train.engine.errors import Refused

CONNECT_SECONDS = 3.0
TABLES = frozenset({".csv", ".tsv", ".json", ".jsonl"})  # that are text; others are .parquet and .arrow
TEXTS = TABLES | {".txt"}


def load(name: str, source: Source) -> Any:
    """The `datasets.DatasetDict` of `name`, from its folder under `$DATA_ROOT` or from `source`.

    Raises `Refused`, saying both ways to get a set that is in neither place, and naming damaged files and files whose
    classes are not those of the others.
    """
    import datasets

    data = _ask("load_dataset", name, source)
    if local_folder(name) is not None:
        files = [file for split in builder(name, source).config.data_files.values() for file in split]
        _check_classes([file for file in files if file.lower().endswith(".parquet")])
        if len(files) > 1 and files[0].lower().endswith(".txt"):
            print(f"data set {name}: text of {len(files)} files, from {files[0]} to {files[-1]}", flush=True)
    elif isinstance(source, Hub) and datasets.config.HF_HUB_OFFLINE:
        print(f"data set {name}: {source.id} as it is in the cache of the Hub", flush=True)
    return data


def builder(name: str, source: Source) -> Any:
    """The `datasets.DatasetBuilder` that `load` would use, for sizes and place; raises `Refused` as `load` does."""
    return _ask("load_dataset_builder", name, source)


def rely_on_cache_without_network() -> None:
    """Let the Hub's clients read their cache alone where the Hub does not answer; they would retry for half a minute.

    With a proxy the Hub may answer though no connection to it can be made, so nothing is changed then.
    """
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE or urllib.request.getproxies().get(address.scheme) or address.hostname is None:
        return
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname, port), timeout=CONNECT_SECONDS).close()
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"  # for libraries that are not imported yet
        constants.HF_HUB_OFFLINE = True
        if "datasets" in sys.modules:
            sys.modules["datasets"].config.HF_HUB_OFFLINE = True


def local_folder(name: str) -> Path | None:
    """The folder `$DATA_ROOT/<name>` of a data set; None where there is none."""
    root = os.environ.get("DATA_ROOT")
    return Path(root, name) if root and Path(root, name).is_dir() else None


def root_cause(error: BaseException) -> str:
    """Type and message of the innermost error, on one line."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _ask(function: str, name: str, source: Source) -> Any:
    """The result of `function` of `datasets` for the data set, in the folder or on the Hub; its errors explained."""
    import datasets

    if not isinstance(source, Hub):
        raise Refused(f"data set {name!r}: its task cannot read the embedded {source.loader!r}")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    ask = getattr(datasets, function)
    folder = local_folder(name)
    if folder is None:
        rely_on_cache_without_network()
        if not datasets.config.HF_HUB_OFFLINE:
            print(f"data set {name}: asking the Hugging Face Hub for {source.id}", flush=True)
    try:
        if folder is not None and _is_plain_text(folder):
            return ask("text", data_dir=str(folder), keep_linebreaks=True, cache_dir=_prepared_copy(folder))
        if folder is not None:
            return ask(str(folder), cache_dir=_prepared_copy(folder))
        return ask(source.id, source.config, revision=source.revision)
    except Exception as error:  # pyarrow, datasets and the Hub's client each have their own for a bad file
        what = f"data set {name!r}: "
        if folder is not None:
            damaged = _damaged_file(folder)
            if damaged is None and (unlike := _unlike_tables(folder)):
                raise Refused(f"{what}{unlike}") from error
            subject = f"{damaged} is" if damaged else f"the files in {folder} are"
            raise Refused(f"{what}{subject} not readable: {root_cause(error)}") from error
        root = os.environ.get("DATA_ROOT")
        looked = f"not in {Path(root, name)}, and " if root else "DATA_ROOT is not set, and "
        options = [repr(source.id), *([repr(source.config)] if source.config else [])]
        call = ", ".join([*options, *([f"revision={source.revision!r}"] if source.revision else [])])
        raise Refused(
            f"{what}{looked}{source.id} could not be loaded ({root_cause(error)}). Either set DATA_ROOT to a folder "
            f"that holds {name}/ with the Hub's parquet files (images also in train/<class>/ and val/<class>/), or "
            f"load it once with a network: "
            f'python -c "import datasets; datasets.load_dataset({call})"'
        ) from error


def _prepared_copy(folder: Path) -> str:
    """Where `datasets` caches the tables of `folder`: another place for every other state of its files.

    Its own key has only the path where README.md lists the files, else the path and the times, which a copy may keep.
    """
    import datasets

    digest = hashlib.sha256()
    for place, _, names in sorted(os.walk(folder.resolve(), followlinks=True)):
        for file in sorted(os.path.join(place, name) for name in names if not name.startswith(".")):
            state = os.stat(file)
            digest.update(os.fsencode(file))
            digest.update(f"\0{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}\n".encode())
    return os.path.join(datasets.config.HF_DATASETS_CACHE, "local", digest.hexdigest()[:32])


def _is_plain_text(folder: Path) -> bool:
    """Whether a folder holds text files and no tables: their line breaks are part of the text."""
    suffixes = {file.suffix.lower() for file in folder.rglob("*") if file.is_file()}
    return ".txt" in suffixes and not suffixes & (TABLES | {".parquet", ".arrow"})


def rows(data: Any, name: str, split: str, columns: Iterable[str]) -> Any:
    """A split of `data`; raises `Refused` unless it has rows and all of `columns`, naming what is there."""
    if split not in data or len(data[split]) == 0:
        raise Refused(f"data set {name!r}: its split {split!r} is missing or empty; found: {', '.join(data)}")
    present = data[split].column_names
    for column in columns:
        if column not in present:
            raise Refused(f"data set {name!r}: no column {column!r}; found: {', '.join(present)}")
    return data[split]


def splits(name: str, source: Source, evaluation: str, columns: Iterable[str]) -> list[Any]:
    """The training and the evaluation split of a set, with all of `columns`."""
    data = load(name, source)
    return [rows(data, name, split, columns) for split in ("train", evaluation)]


def texts_of(split: Any, column: str, name: str) -> list[str]:
    """A column of texts; raises `Refused` naming the first sample that is none, such as null or bytes of no UTF-8."""
    try:
        values = split[column][:]
    except UnicodeDecodeError as error:
        folder = local_folder(name)
        where = _damaged_file(folder) if folder else None
        raise Refused(f"data set {name!r}: {where or f'column {column!r}'} is not UTF-8: {error}") from error
    wrong = next((index for index, value in enumerate(values) if not isinstance(value, str)), None)
    if wrong is not None:
        raise Refused(f"data set {name!r}: column {column!r} holds {values[wrong]!r} at sample {wrong}, not a text")
    return list(values)


def labels_of(split: Any, column: str, name: str) -> Tensor:
    """A column of labels (N,) int64; raises `Refused` naming the first sample that is not an integer."""
    values = split[column][:]
    wrong = next((index for index, value in enumerate(values) if type(value) is not int), None)
    if wrong is not None:
        raise Refused(f"data set {name!r}: column {column!r} holds {values[wrong]!r} at sample {wrong}, not an integer")
    return torch.tensor(values, dtype=torch.int64)


def class_names(split: Any, column: str) -> tuple[str, ...] | None:
    """The names of the classes of a column of labels, in the order of their numbers; None where it has none."""
    names = getattr(split.features[column], "names", None)
    return None if names is None else tuple(names)


def _check_classes(tables: Sequence[str]) -> None:
    """Every parquet file has the class names of the first; `datasets` would read its labels by those of the first."""
    import datasets
    import pyarrow.parquet

    first: dict[str, list[str]] = {}
    for table in tables:
        features = datasets.Features.from_arrow_schema(pyarrow.parquet.read_schema(table))
        for column, feature in features.items():
            names = getattr(feature, "names", None)
            if names is not None and first.setdefault(column, names) != names:
                raise Refused(
                    f"{table}: the classes of column {column!r} are {names}, but in {tables[0]} {first[column]}"
                )


def _unlike_tables(folder: Path) -> str | None:
    """The first column under `folder` that is text in one table and no text in another; None where there is none.

    `datasets` gives all splits the types of the first.
    """
    first: dict[str, tuple[Path, Any]] = {}
    for file in sorted(folder.rglob("*")):
        for column, found in _column_types(file):
            where, there = first.setdefault(column, (file, found))
            if _is_text(there) != _is_text(found):
                return f"column {column!r} has different types: {found} in {file}, {there} in {where}"
    return None


def _is_text(kind: Any) -> bool:
    import pyarrow.types

    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _column_types(file: Path) -> list[tuple[str, Any]]:
    """Names and types of the columns of a table, without those of no value; nothing for other files."""
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    separators, kind = {".csv": ",", ".tsv": "\t"}, file.suffix.lower()
    try:
        if kind in separators:
            options = pyarrow.csv.ParseOptions(delimiter=separators[kind], newlines_in_values=True)
            schema = pyarrow.csv.read_csv(file, parse_options=options).schema
        elif kind in (".json", ".jsonl"):
            schema = pyarrow.json.read_json(file).schema
        elif kind == ".parquet":
            schema = pyarrow.parquet.read_schema(file)
        else:
            return []
    except (OSError, ValueError):  # in a form that only `datasets` reads
        return []
    return [(column.name, column.type) for column in schema if not pyarrow.types.is_null(column.type)]


def _damaged_file(folder: Path) -> Path | None:
    """The first file under `folder` that is parquet without rows or a readable footer, or text that is not UTF-8."""
    import pyarrow.parquet

    for file in sorted(folder.rglob("*")):
        try:
            if file.suffix.lower() == ".parquet":
                with pyarrow.parquet.ParquetFile(file) as table:
                    if table.metadata.num_rows == 0:  # `datasets` cannot read one
                        return file
            elif file.suffix.lower() in TEXTS:
                file.read_text(encoding="utf-8")
        except (OSError, ValueError):  # pyarrow's own errors are ValueErrors, and so is UnicodeDecodeError
            return file
    return None
