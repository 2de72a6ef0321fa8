"""What is there, what is missing and what does not fit: in folders, in caches, on a server in place of the Hub."""

import contextlib
import functools
import hashlib
import json
import shutil
import threading
from collections import namedtuple
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.data.small_sets import png, random_pixels
from tests.experiment.harness import start, wait
from train import check
from train.data import hub
from train.data.catalog import Embedded, TextSet, image_set
from train.engine.errors import Refused
from train.experiment import download as downloads

BERT = "google-bert/bert-base-cased"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "dull", "film"]
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "home" / "datasets")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "root"))


def write_weights(folder: Path) -> Path:
    """A BERT of nine words and one small layer: configuration, weights and vocabulary."""
    from transformers import BertConfig, BertModel

    settings: dict[str, Any] = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    BertModel(BertConfig(vocab_size=len(WORDS), **settings)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return folder


def write_sst2(root: Path) -> Path:
    import datasets

    for split in ("train", "validation"):
        path = root / "sst2" / "data" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = {"sentence": ["a fine film", "a dull film"] * 20, "label": [1, 0] * 20}
        datasets.Dataset.from_dict(rows).to_parquet(path)
    return root / "sst2"


def write_snapshot(hub: Path) -> Path:
    """The weights in the Hub's cache, as a finished download leaves them."""
    repository = hub / "models--google-bert--bert-base-cased"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return write_weights(repository / "snapshots" / COMMIT)


def download(*arguments: str) -> int:
    return check.main([*arguments, "--download"])


def test_what_is_embedded_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert download("configs/resnet20_digits.yaml") == 0
    assert capsys.readouterr().out.splitlines() == [
        "data set digits_16x16: comes with the installed packages, nothing to fetch",
        "weights of resnet20: drawn at random, nothing to fetch",
        "digits_16x16: 1078 samples to train on, 719 to evaluate",
    ]


def test_a_smoke_run_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert download("configs/bert_base_sst2.yaml", "--smoke") == 0
    assert "a smoke run needs neither data nor weights" in capsys.readouterr().out


def test_folders_are_named_with_their_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, weights = write_sst2(tmp_path / "root"), write_weights(tmp_path / "bert")
    (weights / "more.bin").write_bytes(bytes(3 * 2**20))
    assert download("configs/bert_base_sst2.yaml", f"pretrained={weights}") == 0
    printed = capsys.readouterr().out
    assert f"data set sst2: {data} (0.0 MiB), prepared in {tmp_path}/home/datasets/" in printed
    assert f"weights of bert_base_cased: {weights} in {weights} (3.0 MiB)" in printed
    assert "sst2: 40 samples to train on, 40 to evaluate\n" in printed
    assert printed.endswith(f"pretrained {weights}: 23 loaded, 2 missing, 0 unexpected\n")


def test_class_folders_are_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("train/n1", "train/n2", "val/n1", "val/n2"):
        (tmp_path / "root" / "imagenet" / place).mkdir(parents=True)
        path = tmp_path / "root" / "imagenet" / place / "1.JPEG"
        path.write_bytes(png(random_pixels(1, 20, 3)[0]).ljust(2**20, b"\0"))
    monkeypatch.setattr(hub, "builder", lambda *_: pytest.fail("nothing is to be prepared"))
    assert download("configs/resnet50_imagenet.yaml", "batch_size=2") == 0
    printed = capsys.readouterr().out
    assert f"data set imagenet: {tmp_path}/root/imagenet (4.0 MiB)\n" in printed
    assert "imagenet: 2 samples to train on, 2 to evaluate" in printed


def test_all_that_is_missing_is_named_with_the_ways_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert download("configs/bert_base_sst2.yaml") == 2
    printed = capsys.readouterr()
    assert printed.out == "data set sst2: missing\nweights of bert_base_cased: missing\n"
    assert printed.err.startswith("error: data set 'sst2': not in ")
    assert "Either set DATA_ROOT to a folder that holds sst2/" in printed.err
    assert "datasets.load_dataset('stanfordnlp/sst2')" in printed.err
    assert f"; and pretrained: {BERT} could not be fetched (" in printed.err
    assert "Either set pretrained=FOLDER to a folder with config.json, weights and a tokenizer, or give" in printed.err


def test_what_is_there_is_said_where_the_rest_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sst2(tmp_path / "root")
    assert download("configs/bert_base_sst2.yaml") == 2
    printed = capsys.readouterr()
    assert f"data set sst2: {tmp_path}/root/sst2 (" in printed.out
    assert "weights of bert_base_cased: missing" in printed.out
    assert printed.err.startswith(f"error: pretrained: {BERT}")


def test_a_missing_imagenet_says_how_much_disk_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert download("configs/resnet50_imagenet.yaml") == 2
    assert "(to fetch and prepare it takes about 311.7 GiB of disk)" in capsys.readouterr().err


def bert_weights(pretrained: bool | str = True, subwords: bool = True) -> None:
    """Fetch the weights of bert_base_cased alone, for text that a tokenizer cuts or not."""
    config = SimpleNamespace(arch="bert_base_cased", pretrained=pretrained, data=SimpleNamespace(name="made"))
    downloads.fetch(config, TextSet(Embedded("pydoc"), vocabulary=None if subwords else 96))  # type: ignore[arg-type]


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def test_weights_in_the_cache_of_the_hub_are_found_without_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_snapshot(tmp_path / "home" / "hub")
    bert_weights()
    assert f"weights of bert_base_cased: {BERT} in {folder} (0.0 MiB)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "lacking"),
    [
        (lambda folder: (folder / "vocab.txt").unlink(), r"a tokenizer \(tokenizer.json, vocab.txt, vocab.json with"),
        (lambda folder: (folder / "model.safetensors").unlink(), "lacks model.safetensors"),
        (lambda folder: shorten(folder / "model.safetensors"), r"a readable model.safetensors \(.*; delete it\)"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), r"a readable model.safetensors \("),
        (lambda folder: (folder / "config.json").unlink(), "lacks config.json"),
    ],
)
def test_a_part_that_the_cache_lacks_is_named(tmp_path: Path, change: Any, lacking: str) -> None:
    change(write_snapshot(tmp_path / "home" / "hub"))
    with pytest.raises(Refused, match=f"{BERT}: .*{lacking}") as refusal:
        bert_weights()
    assert "give this command once with a network" in str(refusal.value)


def test_all_shards_of_the_weights_have_to_be_there(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "bert")
    (folder / "model.safetensors").rename(folder / "model-1-of-2.safetensors")
    parts = {"weight_map": {"one": "model-1-of-2.safetensors", "two": "model-2-of-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(parts))
    with pytest.raises(Refused, match=f"pretrained: {folder}: {folder} lacks model-2-of-2.safetensors$"):
        bert_weights(pretrained=str(folder))


def test_data_without_subwords_need_no_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_weights(tmp_path / "bert")
    (folder / "vocab.txt").unlink()
    bert_weights(pretrained=str(folder), subwords=False)
    assert f"{folder} in {folder} (" in capsys.readouterr().out


def test_a_folder_that_is_none_of_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"pretrained: {tmp_path} holds no config.json"):
        bert_weights(pretrained=str(tmp_path))


# Room on the disk


def builder_of(folder: Path, download_size: int | None, dataset_size: int | None) -> SimpleNamespace:
    info = SimpleNamespace(download_size=download_size, dataset_size=dataset_size)
    return SimpleNamespace(cache_dir=str(folder), info=info)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The Hub's ImageNet of 10 GiB to download and 20 GiB to prepare; the names of the sets that were fetched."""
    names: list[str] = []

    def load(name: str, *_: Any) -> None:
        names.append(name)
        (tmp_path / "prepared").mkdir()

    monkeypatch.setattr(hub, "builder", lambda *_: builder_of(tmp_path / "prepared", 10 * 2**30, 20 * 2**30))
    monkeypatch.setattr(hub, "load", load)
    return names


def imagenet() -> None:
    config = SimpleNamespace(arch="resnet50", pretrained=False, data=SimpleNamespace(name="imagenet"))
    downloads.fetch(config, image_set("imagenet"))  # type: ignore[arg-type]


def set_free(monkeypatch: pytest.MonkeyPatch, gib: float) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, round(gib * 2**30)))


def test_a_download_that_does_not_fit_is_refused_before_it_begins(
    fetched: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_free(monkeypatch, 29)
    home = tmp_path / "home"
    with pytest.raises(Refused) as refusal:
        imagenet()
    assert str(refusal.value) == (
        f"data set imagenet: takes about 30.0 GiB in {home}/datasets, but 29.0 GiB are free; make room, or set HF_HOME "
        "to a folder on a larger disk"
    )
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"data set imagenet: download takes about 10.0 GiB in {home}/hub, where 29.0 GiB are free",
        f"data set imagenet: prepared copy takes about 20.0 GiB in {home}/datasets, where 29.0 GiB are free",
    ]
    assert fetched == []


def test_a_download_that_fits_is_fetched_once(fetched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    set_free(monkeypatch, 30)
    imagenet()
    set_free(monkeypatch, 0)
    imagenet()
    assert fetched == ["imagenet"]


def test_what_an_interrupted_download_left_is_not_counted_again(
    fetched: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blobs = tmp_path / "home" / "hub" / "datasets--ILSVRC--imagenet-1k" / "blobs"
    blobs.mkdir(parents=True)
    with (blobs / "part").open("wb") as part:
        part.truncate(4 * 2**30)  # a hole, which takes no room
    set_free(monkeypatch, 26)
    imagenet()
    assert fetched == ["imagenet"]


def test_where_the_hub_gives_no_size_that_of_the_catalogue_counts(
    fetched: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub, "builder", lambda *_: builder_of(tmp_path / "prepared", None, None))
    set_free(monkeypatch, 300)
    with pytest.raises(Refused, match=r"takes about 311\.7 GiB in .*, but 300\.0 GiB are free"):
        imagenet()
    assert fetched == []


@pytest.mark.parametrize(("size", "text"), [(0, "0.0 MiB"), (2**30 - 2**20, "1023.0 MiB"), (2**30, "1.0 GiB")])
def test_sizes_are_in_mebibytes_then_gibibytes(size: int, text: str) -> None:
    assert downloads.amount(size) == text


# A Hub on this machine


@pytest.fixture
def hub_server(tmp_path: Path) -> Iterator[str]:
    """The address of a server that answers as the Hub does for the weights, and has files that nobody needs."""
    folder = write_weights(tmp_path / "served")
    (folder / "flax_model.msgpack").write_bytes(b"other weights")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    class Handler(BaseHTTPRequestHandler):
        def answer(self, body: bytes, headers: dict[str, str], status: int = 200) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            kind = {"Content-Type": "application/json"}
            if path == f"/api/models/{BERT}" or path.startswith(f"/api/models/{BERT}/revision/"):
                siblings = [{"rfilename": name} for name in files]
                self.answer(json.dumps({"id": BERT, "sha": COMMIT, "siblings": siblings}).encode(), kind)
            elif path.startswith(f"/api/models/{BERT}/tree/"):
                rows = [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in files.items()
                ]
                self.answer(json.dumps(rows).encode(), kind)
            elif path.startswith(f"/{BERT}/resolve/") and path.split("/", 5)[5] in files:
                data = files[path.split("/", 5)[5]]
                self.answer(data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT})
            else:
                self.answer(b"{}", kind | {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, 404)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def _download_printing_to(file: Path) -> int:
    with file.open("w") as out, contextlib.redirect_stdout(out):
        return download("configs/bert_base_sst2.yaml")


def test_what_was_fetched_with_a_network_is_enough_without_one(
    hub_server: str, tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sst2(tmp_path / "root")
    # In a process of its own, because the libraries read these when they are imported; here they have no network.
    online = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub_server, "CUDA_VISIBLE_DEVICES": ""}
    online |= {"HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0", "DATA_ROOT": str(tmp_path / "root")}
    fetched = functools.partial(_download_printing_to, tmp_path / "printed online")
    assert wait(start(fetched, log, **online)) == 0, log.read_text()
    capsys.readouterr()
    assert download("configs/bert_base_sst2.yaml") == 0
    outcomes = [(tmp_path / "printed online").read_text(), capsys.readouterr().out]
    folder = tmp_path / "home" / "hub" / "models--google-bert--bert-base-cased" / "snapshots" / COMMIT
    assert f"weights {BERT}: download takes about 0.0 MiB in {tmp_path}/home/hub, where " in outcomes[0]
    assert "download takes" not in outcomes[1]
    for printed in outcomes:
        assert f"weights of bert_base_cased: {BERT} in {folder} (" in printed
        assert "sst2: 40 samples to train on, 40 to evaluate\n" in printed
        assert printed.endswith(f"pretrained {BERT}: 23 loaded, 2 missing, 0 unexpected\n")
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there == {"config.json", "model.safetensors", "vocab.txt"}
