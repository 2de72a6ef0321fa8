"""A run that trains while W&B follows it."""

import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.experiment.harness import Outcome, run
from tests.tracking.conftest import assert_whole
from tests.tracking.wandb_server import WandbServer


def test_what_a_run_writes_offline_is_uploaded_whole(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    done = run(tmp_path, precision="fp16")
    [line] = [line for line in done.out.splitlines() if "W&B" in line]
    [path] = done.folder.glob("wandb/offline-run-*")
    assert line == f"W&B offline: `wandb sync {path}` uploads it"
    monkeypatch.delenv("WANDB_MODE")
    subprocess.run([sys.executable, "-m", "wandb", "sync", path], check=True, capture_output=True, cwd=tmp_path)
    [there] = server.runs.values()
    assert_whole(there, done.folder)


def test_an_outage_does_not_touch_the_numbers(fp32: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = MagicMock()
    wandb.init.return_value.starting_step = 0
    wandb.init.return_value.log.side_effect = ConnectionError("the server is away")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_MODE", "online")
    done = run(tmp_path)
    assert done.status == 0
    assert done.numbers == fp32.numbers
    assert done.summary.final_weights_sha256 == fp32.summary.final_weights_sha256
    assert done.out.count("warning: Weights & Biases log failed (ConnectionError: the server is away)") == 1
