"""A W&B server for the tests that upload, and a record to upload."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb

from tests.tracking.wandb_server import WandbServer

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
