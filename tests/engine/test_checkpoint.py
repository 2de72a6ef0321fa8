import errno
import resource
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import IO, Any

import pytest
import torch

from tests.engine.tiny import assert_same, image_batches, make_trainer
from train.engine import checkpoint
from train.engine.errors import Refused

STATE: dict[str, Any] = {
    "weights": {"a": torch.arange(24, dtype=torch.float32).view(4, 6), "b": torch.tensor(True)},
    "list": [1, 2.5, None, "text", [torch.ones(3, dtype=torch.int64)]],
    "nan": float("nan"),
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"weights": STATE["weights"], "list": STATE["list"]})
    return path


def test_what_is_saved_is_what_is_loaded(saved: Path) -> None:
    state = checkpoint.load(saved)
    assert_same({key: state[key] for key in ("weights", "list")}, {key: STATE[key] for key in ("weights", "list")})
    assert [path.name for path in saved.parent.iterdir()] == ["last.pt"]


def test_the_state_of_a_trainer_loads_with_the_safe_default(tmp_path: Path) -> None:
    trainer = make_trainer("fp16", optimizer="adamw", ema_decay=0.9)
    trainer.step(image_batches(1))
    checkpoint.save(tmp_path / "last.pt", trainer.state_dict())
    loaded = torch.load(tmp_path / "last.pt", weights_only=True)
    assert loaded.pop("format") == checkpoint.FORMAT
    assert_same(loaded, trainer.state_dict())


# Written whole or not at all


def test_a_failure_while_writing_leaves_the_old_file_and_no_other(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def broken(state: object, file: IO[bytes]) -> None:
        file.write(before[: len(before) // 2])
        raise RuntimeError("PytorchStreamWriter failed writing file")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match=r"the checkpoint could not be written: .*failed writing file: '.*last\.pt'"):
        checkpoint.save(saved, {"weights": {}})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["last.pt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
def test_an_interruption_while_writing_leaves_the_old_file_and_no_other(
    saved: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    before = saved.read_bytes()

    def interrupted(state: object, file: IO[bytes]) -> None:
        file.write(b"half")
        raise error

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(error):
        checkpoint.save(saved, {"weights": {}})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["last.pt"]


def test_a_file_that_was_written_wrongly_never_takes_the_place_of_the_old_one(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()
    monkeypatch.setattr(torch, "save", lambda state, file: file.write(before[:-100]))
    with pytest.raises(OSError, match=r"last\.pt"):
        checkpoint.save(saved, {"weights": {}})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["last.pt"]


@pytest.mark.parametrize("values", [1, 500_000])
def test_a_full_disk_is_called_so_and_leaves_the_old_file_and_no_other(saved: Path, values: int) -> None:
    before = saved.read_bytes()
    saved.with_name("last.pt.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"could not be written: No space left on device: '.*last\.pt'") as caught:
        checkpoint.save(saved, {"weights": torch.zeros(values)})
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(saved))
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["last.pt"]


def test_a_file_size_limit_leaves_the_old_file_and_no_other(saved: Path) -> None:
    before = saved.read_bytes()
    code = (
        "import sys, torch; from pathlib import Path; from train.engine import checkpoint\n"
        "try: checkpoint.save(Path(sys.argv[1]), {'weights': torch.zeros(500_000)})\n"
        "except OSError as error: print('OSError', error)"
    )
    limit = 200 * 1024
    result = subprocess.run(
        [sys.executable, "-c", code, str(saved)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("OSError")
    assert str(saved) in result.stdout
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["last.pt"]


def test_a_missing_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"no_such_folder"):
        checkpoint.save(tmp_path / "no_such_folder" / "last.pt", {"weights": {}})


def test_the_old_file_is_replaced_and_never_written_over(saved: Path, tmp_path: Path) -> None:
    before = saved.read_bytes()
    reader = tmp_path / "the same file under another name"
    reader.hardlink_to(saved)
    checkpoint.save(saved, {"weights": {}})
    assert checkpoint.load(saved)["weights"] == {}
    assert reader.read_bytes() == before


# Verified when read


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"nowhere\.pt does not exist"):
        checkpoint.load(tmp_path / "nowhere.pt")


def test_a_truncated_file_is_refused_wherever_it_is_cut(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in [*range(0, len(whole), 53), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(Refused, match=r"checkpoint .*last\.pt is damaged"):
            checkpoint.load(saved)


def load_or_refusal(path: Path) -> dict[str, Any] | str:
    try:
        return checkpoint.load(path)
    except Refused as refusal:
        return str(refusal)


def test_a_flipped_bit_is_found_or_harmless_wherever_it_is(saved: Path) -> None:
    whole, state = saved.read_bytes(), checkpoint.load(saved)
    with zipfile.ZipFile(saved) as archive:
        directory = archive.start_dir  # sizes, offsets and attributes of the entries, which no CRC covers
    refused = 0
    for position in [*range(0, directory, 5), *range(directory, len(whole))]:
        saved.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        loaded = load_or_refusal(saved)
        if isinstance(loaded, str):
            assert str(saved) in loaded
            refused += 1
        else:  # in the padding between two entries, or in a time stamp
            assert_same(loaded, state)
    assert refused > 300


def test_every_flipped_byte_of_a_tensor_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    payload = STATE["weights"]["a"].numpy().tobytes()
    start = whole.index(payload)
    for position in range(start, start + len(payload)):
        saved.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(Refused, match=r"last\.pt is damaged.*CRC"):
            checkpoint.load(saved)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.pt"
    path.write_bytes(content)
    with pytest.raises(Refused, match=r"other\.pt is damaged"):
        checkpoint.load(path)


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "future.pt"
    torch.save({"format": 99}, path)
    with pytest.raises(Refused, match=r"future\.pt has format 99; this version reads format 1"):
        checkpoint.load(path)
    torch.save({"weights": torch.ones(1)}, path)
    with pytest.raises(Refused, match=r"has format None"):
        checkpoint.load(path)


def test_a_full_disk_that_torch_reports_as_a_position_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*arguments: object) -> None:
        try:
            raise OSError(28, "No space left on device")
        except OSError:
            raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 689344 vs 689232")  # noqa: B904

    monkeypatch.setattr(torch, "save", write)
    with pytest.raises(OSError, match=r"could not be written: No space left on device: '.*last\.pt'") as caught:
        checkpoint.save(tmp_path / "last.pt", {})
    assert caught.value.errno == 28
