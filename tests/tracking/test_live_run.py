"""A run that trains while W&B follows it."""

import functools
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from reports.records.config import read_config
from tests.experiment.harness import TINY, Outcome, build, offline_records, run, start, wait
from tests.tracking.conftest import assert_whole, machine_of
from tests.tracking.wandb_server import WandbServer
from train.cli.run import main
from train.experiment import run as run_module
from train.experiment.tasks import image_classification


def test_what_a_run_writes_offline_is_uploaded_whole(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    done = run(tmp_path, precision="fp16")
    [line] = [line for line in done.out.splitlines() if "W&B" in line]
    assert line == f"W&B offline: `python -m train.sync {done.folder}` uploads it"
    [path] = done.folder.glob("wandb/offline-run-*")
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


def test_a_smoke_run_is_not_tracked(server: WandbServer, tmp_path: Path) -> None:
    done = run(tmp_path, options=("--smoke",))
    assert done.status == 0
    assert "W&B" not in done.out
    assert not server.runs
    assert not list(tmp_path.rglob("wandb"))


def test_a_run_has_its_machine_its_best_value_and_no_text_in_its_history(server: WandbServer, tmp_path: Path) -> None:
    done = run(tmp_path, precision="fp16")
    [there] = server.runs.values()
    assert_whole(there, done.folder)
    config = {name: entry["value"] for name, entry in there.config.items() if name != "_wandb"}
    own = {"precision": "fp16", "seed": 0}
    assert config == {**read_config(done.folder / "config.yaml").model_dump(), **machine_of(done.folder), **own}
    accuracy = done.column("eval/accuracy").values()
    assert there.summary["eval/accuracy"] == {"max": max(accuracy), "last": list(accuracy)[-1]}
    assert any("throughput/reason" in row for row in done.rows)
    assert not [value for row in there.history for value in row.values() if isinstance(value, str)]


def _tiny(out: Path) -> int:
    """The run of a user's command, which prints to the process's own stdout and stderr."""
    run_module.COMPUTE_SECONDS = 0.0
    sys.argv = ["train/tiny.py", str(TINY), "--precision", "fp32", "--device", "cpu", "--out", str(out)]
    return main(build, image_classification)


def test_what_a_run_prints_is_in_its_log_tab(tmp_path: Path, log: Path) -> None:
    assert wait(start(functools.partial(_tiny, tmp_path), log, WANDB_MODE="offline")) == 0
    [path] = tmp_path.rglob("offline-run-*/*.wandb")
    records = [record.output_raw for record in offline_records(path) if record.HasField("output_raw")]
    printed = "".join(record.line for record in records)
    assert printed
    assert printed in log.read_text(), "what stands before and after it, no W&B run was there for"
    assert "step 12/12  accuracy" in printed
