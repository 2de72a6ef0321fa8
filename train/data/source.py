"""Where a data set comes from: `$DATA_ROOT/<name>`, then the Hugging Face Hub, both through `datasets`."""

import os
import socket
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from train.engine.errors import Refused

CONNECT_SECONDS = 3.0
TABLES = frozenset({".csv", ".tsv", ".json", ".jsonl"})  # that are text; others are .parquet and .arrow
TEXTS = TABLES | {".txt"}


def load(name: str, hub: str, configuration: str | None = None, revision: str | None = None) -> Any:
    """The `datasets.DatasetDict` of data set `name`, whose Hub id is `hub`.

    `configuration` and `revision` are the Hub's; a folder under `$DATA_ROOT` holds one data set.

    Raises `Refused`, saying both ways to get it, when it is in neither place, and naming the folder when
    the files there are damaged.
    """
    return _ask("load_dataset", name, hub, configuration, revision)


def builder(name: str, hub: str, configuration: str | None = None, revision: str | None = None) -> Any:
    """The `datasets.DatasetBuilder` that `load` would use: sizes and place, before anything large is fetched.

    Raises `Refused` as `load` does.
    """
    return _ask("load_dataset_builder", name, hub, configuration, revision)


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
    folder = _expected_folder(name)
    return folder if folder is not None and folder.is_dir() else None


def root_cause(error: BaseException) -> str:
    """Type and message of the innermost error, on one line."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _expected_folder(name: str) -> Path | None:
    root = os.environ.get("DATA_ROOT")
    return Path(root) / name if root else None


def _ask(function: str, name: str, hub: str, configuration: str | None, revision: str | None) -> Any:
    """What `function` of `datasets` gives for the data set, in the folder or on the Hub; its errors explained."""
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    ask = getattr(datasets, function)
    folder = local_folder(name)
    if folder is None:
        rely_on_cache_without_network()
        if not datasets.config.HF_HUB_OFFLINE:
            print(f"data set {name}: asking the Hugging Face Hub for {hub}", flush=True)
    try:
        if folder is not None and _is_plain_text(folder):
            return ask("text", data_dir=str(folder), keep_linebreaks=True)
        if folder is not None:
            return ask(str(folder))
        return ask(hub, configuration, revision=revision)
    except Exception as error:  # pyarrow, datasets and the Hub's client each have their own for a bad file
        what = f"data set {name!r}: "
        if folder is not None:
            damaged = _damaged_file(folder)
            subject = f"{damaged} is" if damaged else f"the files in {folder} are"
            raise Refused(f"{what}{subject} not readable: {root_cause(error)}") from error
        expected = _expected_folder(name)
        looked = f"not in {expected}, and " if expected else "DATA_ROOT is not set, and "
        options = [repr(hub), *([repr(configuration)] if configuration else [])]
        call = ", ".join([*options, *([f"revision={revision!r}"] if revision else [])])
        folders = " (or train/<class>/ and val/<class>/ folders)" if name == "imagenet" else ""
        raise Refused(
            f"{what}{looked}{hub} could not be loaded ({root_cause(error)}). Either set DATA_ROOT to a folder "
            f"that holds {name}/ with the Hub's parquet files{folders}, or load it once with a network: "
            f'python -c "import datasets; datasets.load_dataset({call})"'
        ) from error


def _is_plain_text(folder: Path) -> bool:
    """Whether a folder holds text files and no tables: their line breaks are part of the text."""
    suffixes = {file.suffix for file in folder.rglob("*") if file.is_file()}
    return ".txt" in suffixes and not suffixes & (TABLES | {".parquet", ".arrow"})


def rows(data: Any, name: str, split: str, columns: Iterable[str]) -> Any:
    """A split of `data`; raises `Refused` unless it has rows and all of `columns`, naming what is there."""
    if split not in data or len(data[split]) == 0:
        raise Refused(f"data set {name!r}: its split {split!r} is missing or empty; found: {', '.join(data)}")
    found = data[split].column_names
    for column in columns:
        if column not in found:
            raise Refused(f"data set {name!r}: no column {column!r}; found: {', '.join(found)}")
    return data[split]


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


def _damaged_file(folder: Path) -> Path | None:
    """The first file under `folder` that is parquet without rows or a readable footer, or text that is not UTF-8."""
    import pyarrow.parquet

    for file in sorted(folder.rglob("*")):
        try:
            if file.suffix == ".parquet":
                with pyarrow.parquet.ParquetFile(file) as table:
                    if table.metadata.num_rows == 0:  # `datasets` cannot read one
                        return file
            elif file.suffix in TEXTS:
                file.read_text(encoding="utf-8")
        except (OSError, ValueError):  # pyarrow's own errors are ValueErrors, and so is UnicodeDecodeError
            return file
    return None
