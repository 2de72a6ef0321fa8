"""All that an experiment reads from elsewhere, fetched ahead of time for machines without a network.

Data come by `train.data.hub` and lie in the cache of `datasets`; weights and tokenizer lie in that of
huggingface_hub, where transformers finds them under the same name.
"""

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models import image_weights, text
from reports.records.config import Experiment
from train.data import hub, image_folder
from train.data.catalog import Embedded, Hub, ImageSet, TextSet
from train.engine.errors import Refused

WANTED = ["*.json", "*.safetensors", "*.txt", "*.model"]  # configuration, weights, vocabularies of all five families
UNWANTED = ["*/*"]  # the same weights in other formats
# Any one of these sets makes a tokenizer. Without one transformers makes an empty vocabulary, and says nothing.
TOKENIZERS = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"), ("spiece.model",))


def fetch(config: Experiment, entry: ImageSet | TextSet, smoke: bool = False) -> None:
    """Fetch the data set, whose `entry` is the catalogue's, and pretrained weights; print the folder and size of each.

    Raises `Refused`, after all else is fetched, with everything that is
    missing and the ways to get it, and before a download or a prepared copy that the disk has no room for.
    """
    if smoke:
        print("a smoke run needs neither data nor weights: nothing to fetch", flush=True)
        return
    missing = []
    for what, part in ((f"data set {config.data.name}", _data), (f"weights of {config.arch}", _weights)):
        try:
            print(f"{what}: {part(config, entry)}", flush=True)
        except Refused as error:
            print(f"{what}: missing", flush=True)
            missing.append(str(error))
    if missing:
        raise Refused("; and ".join(missing))


def amount(size: float) -> str:
    """A number of bytes in MiB, from 1 GiB on in GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def _data(config: Experiment, entry: ImageSet | TextSet) -> str:
    name, source = config.data.name, entry.source
    if isinstance(source, Embedded):
        return "comes with the installed packages, nothing to fetch"
    local = hub.local_folder(name)
    if local is not None and isinstance(entry, ImageSet) and image_folder.is_layout(local):
        return _described(local)
    try:
        builder = hub.builder(name, source)
    except Refused as error:
        known = source.size_bytes
        room = f" (to fetch and prepare it takes about {amount(2 * known)} of disk)" if known and not local else ""
        raise Refused(f"{error}{room}") from error
    prepared = Path(builder.cache_dir)
    if not prepared.is_dir():
        _check_room(f"data set {name}", _data_needs(source, local, builder))
        hub.load(name, source)
    return _described(prepared) if local is None else f"{_described(local)}, prepared in {_described(prepared)}"


def _data_needs(source: Hub, local: Path | None, builder: Any) -> list[tuple[str, Path, int | None]]:
    """What is to be written, where, and how many bytes at most; None where nobody says."""
    import datasets
    from huggingface_hub import constants

    copies = Path(datasets.config.HF_DATASETS_CACHE)
    known = source.size_bytes
    if local is not None:
        return [("prepared copy", copies, _size(local))]
    downloads = Path(constants.HF_HUB_CACHE)
    download = builder.info.download_size or known
    if download is not None:  # an interrupted download resumes from what it has
        download = max(0, download - _size(downloads / f"datasets--{source.id.replace('/', '--')}" / "blobs"))
    return [("download", downloads, download), ("prepared copy", copies, builder.info.dataset_size or known)]


def _weights(config: Experiment, entry: ImageSet | TextSet) -> str:
    if config.arch not in text.ARCHITECTURES:
        return _image_weights(config)
    try:
        origin = text.origin(config.arch, config.pretrained)
    except ValueError as error:
        raise Refused(str(error)) from error
    if origin is None:
        return "drawn at random, nothing to fetch"
    tokenizer = isinstance(entry, TextSet) and entry.needs_tokenizer
    if isinstance(config.pretrained, str):
        folder, ways = Path(origin), ""
    else:
        parts = "weights and a tokenizer" if tokenizer else "weights"
        ways = (
            f". Either set pretrained=FOLDER to a folder with config.json, {parts}, or give this command once "
            f"with a network and take over its cache (HF_HOME)"
        )
        folder = _snapshot(origin, ways)
    lacking = _lacking(folder, tokenizer)
    if lacking:
        raise Refused(f"pretrained: {origin}: {folder} lacks {' and '.join(lacking)}{ways}")
    return f"{origin} in {_described(folder)}"


def _image_weights(config: Experiment) -> str:
    """Those of `models.image_weights`; what is in the file is checked when a model takes it."""
    if not config.pretrained:
        return "drawn at random, nothing to fetch"
    try:
        file = image_weights.published_file(config.arch) if config.pretrained is True else Path(str(config.pretrained))
    except ValueError as error:
        raise Refused(str(error)) from error
    if not file.is_file():
        raise Refused(f"pretrained: there is no file {file}")
    return f"{file} ({amount(file.stat().st_size)})"


def _snapshot(origin: str, ways: str) -> Path:
    """The folder in the Hub's cache with the files of `origin`: fetched, or without a network those there are."""
    import huggingface_hub
    from huggingface_hub.errors import DryRunError

    choice: dict[str, Any] = {"allow_patterns": WANTED, "ignore_patterns": UNWANTED}
    try:
        try:
            files = huggingface_hub.snapshot_download(origin, dry_run=True, **choice)
        except DryRunError:
            return Path(huggingface_hub.snapshot_download(origin, local_files_only=True, **choice))
        download = sum(file.file_size or 0 for file in files if file.will_download)
        if download:
            _check_room(f"weights {origin}", [("download", Path(huggingface_hub.constants.HF_HUB_CACHE), download)])
        return Path(huggingface_hub.snapshot_download(origin, **choice))
    except Refused:
        raise
    except Exception as error:  # the Hub's client, the network and the disk each have their own
        raise Refused(f"pretrained: {origin} could not be fetched ({hub.root_cause(error)}){ways}") from error


def _lacking(folder: Path, tokenizer: bool) -> list[str]:
    """What is not there of a configuration, readable weights and, where it is needed, a tokenizer."""
    lacking = [] if (folder / "config.json").is_file() else ["config.json"]
    lacking += _lacking_weights(folder)
    if tokenizer and not any(all((folder / name).is_file() for name in names) for names in TOKENIZERS):
        lacking.append("a tokenizer (" + ", ".join(" with ".join(names) for names in TOKENIZERS) + ")")
    return lacking


def _lacking_weights(folder: Path) -> list[str]:
    from safetensors import SafetensorError, safe_open

    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            return [f"a readable {index.name} ({error}; delete it)"]
    elif (folder / "pytorch_model.bin").is_file() and not (folder / "model.safetensors").is_file():
        return []
    else:
        names = ["model.safetensors"]
    lacking = []
    for name in names:
        try:
            with safe_open(folder / name, framework="pt"):  # compares the file's length with its table of contents
                pass
        except FileNotFoundError:
            lacking.append(name)
        except (SafetensorError, OSError) as error:
            lacking.append(f"a readable {name} ({error}; delete it)")
    return lacking


def _check_room(what: str, needs: Sequence[tuple[str, Path, int | None]]) -> None:
    """Print what is to be written and what is free; raise `Refused` when a disk has no room for its part."""
    together: dict[int, int] = defaultdict(int)
    for kind, folder, size in needs:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(existing).free
        together[existing.stat().st_dev] += size or 0
        estimate = f"about {amount(size)}" if size is not None else "an unknown amount"
        print(f"{what}: {kind} takes {estimate} in {folder}, where {amount(free)} are free", flush=True)
        needed = together[existing.stat().st_dev]
        if needed > free:
            raise Refused(
                f"{what}: takes about {amount(needed)} in {folder}, but {amount(free)} are free; make room, or set "
                f"HF_HOME to a folder on a larger disk"
            )


def _described(folder: Path) -> str:
    return f"{folder} ({amount(_size(folder))})"


def _size(folder: Path) -> int:
    """Bytes of all files under `folder`, links followed; 0 where there is no such folder."""
    places = os.walk(folder, followlinks=True)
    files = (os.path.join(place, name) for place, _, names in places for name in names)
    return sum(os.path.getsize(file) for file in files if os.path.exists(file))
