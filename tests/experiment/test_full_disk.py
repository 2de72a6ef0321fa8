"""A disk that takes no more, for which /dev/full stands in: one message, and what was saved stays good."""

import os
from pathlib import Path

import pytest
from torch import Tensor, nn

from tests.experiment.harness import TINY, AtCall, Outcome, Poisoned, folder_of, run
from tests.experiment.test_record import KeepingTracker
from train.engine.step import Batch
from train.experiment.record import RunRecord

FULL = "No space left on device"


def no_room_for(path: Path) -> None:
    """The next file that is written in the place of `path` finds the disk full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".partial").symlink_to("/dev/full")


def no_more_room_in(path: Path) -> None:
    """From now on what this process writes to the open file `path` finds the disk full."""
    number = next(int(link.name) for link in Path("/proc/self/fd").iterdir() if os.readlink(link) == str(path))
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, number)
    os.close(full)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path, TINY, "fp32")


@pytest.mark.parametrize("name", ["last", "best"])
def test_no_room_for_a_checkpoint(name: str, folder: Path, fp32: Outcome, tmp_path: Path) -> None:
    file = folder / "checkpoints" / f"{name}.pt"
    saved: list[bytes] = []

    def fill() -> None:
        no_room_for(file)
        saved.append((folder / "checkpoints" / "last.pt").read_bytes())

    done = run(tmp_path, forward=AtCall(5, fill))  # a checkpoint after step 3, the next one and an evaluation after 6
    assert done.status == 1
    assert done.err == f"error: [Errno 28] the checkpoint could not be written: {FULL}: '{file}'\n"
    assert done.summary.status == "failed"
    assert FULL in done.reason
    assert list(folder.rglob("*.partial")) == []
    if name == "last":
        assert file.read_bytes() == saved[0]
    resumed = run(tmp_path)
    assert f"resumes from step {3 if name == 'last' else 6} of 12" in resumed.out
    assert resumed.numbers == fp32.numbers
    assert resumed.summary.final_weights_sha256 == fp32.summary.final_weights_sha256


def test_no_room_for_a_line_of_metrics(folder: Path, tmp_path: Path) -> None:
    done = run(tmp_path, forward=AtCall(1, lambda: no_more_room_in(folder / "metrics.jsonl")))
    assert done.status == 1
    assert done.err == f"error: [Errno 28] {FULL}: '{folder / 'metrics.jsonl'}'\n"
    assert done.summary.status == "failed"
    assert list(folder.rglob("*.partial")) == []


def test_no_room_for_the_history_leaves_the_lines_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"train/step": 1}\n')
    no_room_for(path)
    with pytest.raises(OSError, match=rf"{FULL}: '{path}'"):
        RunRecord(tmp_path, '{"train/step": 1}\n', KeepingTracker())
    assert path.read_text() == '{"train/step": 1}\n'
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_no_room_for_the_summary(folder: Path, fp32: Outcome, tmp_path: Path) -> None:
    done = run(tmp_path, forward=AtCall(5, lambda: no_room_for(folder / "summary.json")))
    assert done.status == 1
    assert done.err == f"error: [Errno 28] {FULL}: '{folder / 'summary.json'}'\n"
    assert not (folder / "summary.json").exists()
    assert list(folder.rglob("*.partial")) == []
    again = run(tmp_path)
    assert again.numbers == fp32.numbers


@pytest.mark.parametrize("name", ["config.yaml", "environment.json"])
def test_no_room_for_what_a_run_begins_with(name: str, folder: Path, tmp_path: Path) -> None:
    no_room_for(folder / name)
    done = run(tmp_path)
    assert done.status == 1
    assert done.err == f"error: [Errno 28] {FULL}: '{folder / name}'\n"
    assert list(folder.rglob("*.partial")) == []


def test_a_diverged_run_whose_summary_finds_no_room_is_still_diverged(folder: Path, tmp_path: Path) -> None:
    fill = AtCall(2, lambda: no_room_for(folder / "summary.json"))
    poison = Poisoned(range(3, 4))

    def forward(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        fill(model, batch)
        return poison(model, batch)

    done = run(tmp_path, forward=forward)
    assert done.status == 3
    assert done.err.startswith("diverged: step 3: ")
    assert f"warning: [Errno 28] {FULL}: '{folder / 'summary.json'}'" in done.out
