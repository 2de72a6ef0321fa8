"""A W&B server for the tests that upload, and a record to upload."""

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import wandb

from reports.records.config import read_config
from reports.records.environment import Environment
from reports.records.files import read_record
from reports.records.metrics import Figure, read_lines
from reports.records.summary import read_summary
from tests.tracking.wandb_server import ServedRun, WandbServer

RESULTS = Path(__file__).resolve().parents[2] / "reports" / "results" / "resnet20_digits"
FAKE_KEY = "0123456789abcdef" * 2 + "secret00"
# In the lines of metrics.jsonl, and no series.
ONCE = ("memory/saved_for_backward_mib", "throughput/reason", "train/nonfinite_loss_steps")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """A server with nothing on it, to which this process is logged in."""
    served = WandbServer()
    threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True).start()
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", served.url)
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    wandb.teardown()  # it reads the environment once
    yield served
    wandb.teardown()
    served.shutdown()
    served.server_close()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The folder of a finished run, to be changed."""
    folder = tmp_path / "resnet20_digits" / "fp16-s0"
    shutil.copytree(RESULTS / "fp16-s0", folder)
    return folder


def machine_of(folder: Path) -> dict[str, object]:
    """What W&B is told of a run's machine and source, from its record."""
    environment = read_record(Environment, folder / "environment.json")
    return {
        "config_sha256": read_config(folder / "config.yaml").digest(),
        "device": environment.device.model_dump(include={"type", "name"}),
        "threads": environment.cpu.threads,
        "versions": environment.versions,
        "commit": environment.git.commit,
        "dirty": environment.git.dirty,
    }


def assert_rows(there: ServedRun, rows: Sequence[Mapping[str, Figure]]) -> None:
    """What the server has is the series of `rows`, row by row, and not a text among them."""
    for step, (sent, row) in enumerate(zip(there.history, rows, strict=True)):
        series = {name: value for name, value in row.items() if name not in ONCE}
        assert sent == pytest.approx({**series, "_step": step}, nan_ok=True)


def assert_whole(there: ServedRun, folder: Path) -> None:
    """What the server has is the series of metrics.jsonl, row by row, and summary.json."""
    rows, _ = read_lines(folder / "metrics.jsonl")
    assert_rows(there, rows)
    metrics = {name for row in rows for name in row}
    own = {name: value for name, value in there.summary.items() if not name.startswith("_") and name not in metrics}
    assert own == read_summary(folder / "summary.json").model_dump(mode="json", exclude_none=True)
    assert there.exit_code == 0
