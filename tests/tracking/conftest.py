"""A W&B server for the tests that upload, and a record to upload."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb

from reports.records.metrics import read_lines
from reports.records.summary import read_summary
from tests.tracking.wandb_server import ServedRun, WandbServer

RESULTS = Path(__file__).resolve().parents[2] / "reports" / "results" / "resnet20_digits"
FAKE_KEY = "0123456789abcdef" * 2 + "secret00"


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


def assert_whole(there: ServedRun, folder: Path) -> None:
    """What the server has is metrics.jsonl, row by row, and summary.json."""
    rows, _ = read_lines(folder / "metrics.jsonl")
    for step, (sent, row) in enumerate(zip(there.history, rows, strict=True)):
        assert sent == pytest.approx({**row, "_step": step}, nan_ok=True)
    metrics = {name for row in rows for name in row}
    own = {name: value for name, value in there.summary.items() if not name.startswith("_") and name not in metrics}
    assert own == read_summary(folder / "summary.json").model_dump(mode="json", exclude_none=True)
    assert there.exit_code == 0
