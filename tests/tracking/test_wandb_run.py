"""One W&B run: complete when W&B works, harmless when it does not."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from unittest.mock import MagicMock, PropertyMock

import pytest
import wandb

from reports.records.config import read_config
from reports.records.environment import Environment, RunPrecision
from reports.records.metric import ACCURACY, LOSS, Metric
from reports.records.metrics import STEP, Figure
from reports.records.summary import Summary
from tests.tracking.conftest import FAKE_KEY, RESULTS
from tests.tracking.wandb_server import WandbServer
from train.tracking import wandb_run
from train.tracking.runs import track_run
from train.tracking.wandb_run import WandbRun, chosen_mode

FINISHED = Summary(status="finished", skipped_steps=1)
INTERRUPTED = Summary(status="interrupted", reason="SIGTERM")
AWAY = ConnectionError("the server is away")
ROWS: list[dict[str, Figure]] = [{"train/step": step, "train/loss": 1.0 / step} for step in range(1, 9)]
SENT = [{**row, "_step": number} for number, row in enumerate(ROWS)]


def tracker(folder: Path, smoke: bool = False) -> WandbRun:
    config = read_config(RESULTS / "fp16-s0" / "config.yaml")
    precision = RunPrecision(requested="fp16")
    return track_run(folder, config, Environment(run_id="abcd1234", precision=precision, seed=0), ACCURACY, smoke)


def track(run: WandbRun, history: int = 0, end: int = len(ROWS), summary: Summary = FINISHED, status: int = 0) -> None:
    """An attempt that begins with `history` rows and logs those up to `end`."""
    run.open(ROWS[:history])
    for row in ROWS[history:end]:
        run.log(row)
    run.close(summary, status)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A wandb, online, in the place of the library; `fake.init.return_value` is its run."""
    wandb = MagicMock()
    wandb.init.return_value.starting_step = 0
    wandb.init.return_value.url = "https://wandb.ai/some/run"
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    return wandb


def fail_in_calls(log: MagicMock, calls: Collection[int]) -> list[dict[str, Figure]]:
    """Make `log` fail in some of its calls; the list gets the rows of the others."""
    sent: list[dict[str, Figure]] = []

    def take(row: dict[str, Figure], step: int, commit: bool) -> None:
        if log.call_count in calls:
            raise AWAY
        assert step == len(sent), "a gap, or a row twice"
        sent.append(row)

    log.side_effect = take
    return sent


@pytest.mark.parametrize("call", ["init", "define_metric", "summary.update", "finish"])
def test_a_failure_of_any_call_is_one_warning(
    call: str, fake: MagicMock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attrgetter(call)(fake if call == "init" else fake.init.return_value).side_effect = AWAY
    track(run := tracker(tmp_path))
    assert capsys.readouterr().out.count("failed (ConnectionError: the server is away)") == 1
    assert not run.complete


def test_an_outage_in_log_and_finish_holds_nothing_up(
    fake: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = fail_in_calls(fake.init.return_value.log, range(5, 100))
    fake.init.return_value.finish = lambda exit_code: threading.Event().wait(30)
    monkeypatch.setattr(wandb_run, "FINISH_SECONDS", 0.2)
    started = time.monotonic()
    track(tracker(tmp_path))
    assert time.monotonic() - started < 10
    assert capsys.readouterr().out.splitlines() == [
        "warning: Weights & Biases log failed (ConnectionError: the server is away)",
        "warning: Weights & Biases did not finish within 0.2 s",
        f"warning: 4 calls to Weights & Biases failed; {tmp_path} has everything",
    ]
    assert sent == ROWS[:4]


def test_rows_that_could_not_be_sent_follow_once_they_can(fake: MagicMock, tmp_path: Path) -> None:
    sent = fail_in_calls(fake.init.return_value.log, (2, 3, 6))
    track(tracker(tmp_path))
    assert sent == ROWS


@pytest.mark.parametrize("mode", ["online", "disabled"])
def test_no_row_is_kept_that_is_sent_or_never_will_be(mode: str, fake: MagicMock, tmp_path: Path) -> None:
    run = replace(tracker(tmp_path), mode=mode)
    run.open(ROWS[:1])
    for row in ROWS[1:]:
        run.log(row)
    assert not any(run.rows)


def test_whatever_w_and_b_raises_training_goes_on_but_for_ctrl_c(fake: MagicMock, tmp_path: Path) -> None:
    run = tracker(tmp_path)
    run.open()
    fake.init.return_value.log.side_effect = SystemExit
    run.log(ROWS[0])
    fake.init.return_value.log.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        run.log(ROWS[1])


def test_a_server_that_never_answers_does_not_hold_the_run_up(tmp_path: Path) -> None:
    # W&B's own limit is far off: the tracker's has to be enough. At the exit W&B's clean-up would wait for its own.
    code = """
import os, pathlib, sys, wandb
from train.tracking import wandb_run
settings, wandb_run.START_SECONDS = wandb.Settings, 1.0
wandb.Settings = lambda **given: settings(**{**given, "init_timeout": 20.0})
run = wandb_run.WandbRun(pathlib.Path(sys.argv[1]), "abcd1234", {})
run.open([{"train/step": 1}])
run.log({"train/step": 2})
print(run.complete, run.location(), flush=True)
os._exit(0)
"""
    with socket.create_server(("127.0.0.1", 0)) as server:  # the kernel takes connections; nobody reads from them
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        online = {"WANDB_MODE": "online", "WANDB_API_KEY": FAKE_KEY, "WANDB_BASE_URL": address}
        command = [sys.executable, "-c", code, str(tmp_path)]
        root = str(RESULTS.parents[2])
        done = subprocess.run(
            command, env={**os.environ, **online, "PYTHONPATH": root}, capture_output=True, text=True, timeout=60
        )
    assert done.stdout.splitlines() == ["warning: Weights & Biases did not start within 1 s", "False None"], done.stderr


def test_w_and_b_gets_the_limits_and_how_the_run_ended(
    fake: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    track(run := tracker(tmp_path), status=3)
    assert run.location() == "W&B: https://wandb.ai/some/run"
    fake.init.return_value.finish.assert_called_once_with(exit_code=3)
    assert fake.init.call_args.kwargs["project"] == "mine"
    assert fake.Settings.call_args.kwargs["init_timeout"] == 30
    assert fake.Settings.call_args.kwargs["x_graphql_retry_max"] == 2
    assert not fake.Settings.return_value.x_disable_machine_info
    track(WandbRun(tmp_path, "abcd1234", {}, "other", live=False))
    assert fake.init.call_args.kwargs["project"] == "other"
    assert fake.Settings.return_value.x_disable_machine_info, "this machine's load is not the run's"


def test_the_mode_follows_variable_then_key_then_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")
    assert chosen_mode() == "offline"
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine api.wandb.ai login user password {FAKE_KEY}\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert chosen_mode() == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert chosen_mode() == "offline"
    netrc.write_text(f"machine wandb.example.org login user password {FAKE_KEY}\n")
    assert chosen_mode() == "online"
    netrc.unlink()
    assert chosen_mode() == "offline"
    for name in ("online", "run"):
        monkeypatch.setenv("WANDB_MODE", name)
        assert chosen_mode() == "offline", "W&B would ask for a key"
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    for name, expected in (("", "online"), ("run", "online"), ("dryrun", "offline"), ("disabled", "disabled")):
        monkeypatch.setenv("WANDB_MODE", name)
        assert chosen_mode() == expected


def test_a_key_for_the_server_that_wandb_login_chose_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings").write_text("[default]\nbase_url = https://wandb.example.org\n")
    (tmp_path / "netrc").write_text(f"machine wandb.example.org login user password {FAKE_KEY}\n")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_MODE")
    wandb.teardown()  # it reads its settings once
    try:
        assert chosen_mode() == "online"
    finally:
        wandb.teardown()


def test_without_wandb_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it is an ImportError
    track(run := tracker(tmp_path))
    assert run.location() is None
    assert "warning: Weights & Biases start failed (ModuleNotFoundError" in capsys.readouterr().out


def test_an_address_that_fails_does_not_reach_the_run(fake: MagicMock, tmp_path: Path) -> None:
    type(fake.init.return_value).url = PropertyMock(side_effect=AWAY)
    track(run := tracker(tmp_path))
    assert run.location() is None
    assert run.failures == 1


def test_a_resumed_run_has_the_machine_it_ran_on_last(server: WandbServer, tmp_path: Path) -> None:
    config = read_config(RESULTS / "fp16-s0" / "config.yaml")
    for torch in ("2.0", "2.1"):
        environment = Environment(
            run_id="abcd1234", precision=RunPrecision(requested="fp16"), seed=0, versions={"torch": torch}
        )
        track(track_run(tmp_path, config, environment, ACCURACY))
    [there] = server.runs.values()
    assert there.config["versions"]["value"] == {"torch": "2.1"}


def test_names_of_the_machine_hide_no_key_of_the_experiment(tmp_path: Path) -> None:
    config = read_config(RESULTS / "fp16-s0" / "config.yaml")
    given = tracker(tmp_path).arguments["config"]
    assert given.items() >= config.model_dump().items()
    own = {"precision", "seed", "config_sha256", "device", "threads", "versions", "commit", "dirty"}
    assert given.keys() - config.model_dump().keys() == own


@pytest.mark.parametrize(("metric", "best"), [(ACCURACY, "max"), (LOSS, "min")])
def test_the_best_value_is_the_highest_or_the_lowest(
    metric: Metric, best: str, fake: MagicMock, tmp_path: Path
) -> None:
    WandbRun(tmp_path, "abcd1234", {}, metric=metric).open()
    fake.init.return_value.define_metric.assert_called_with(metric.key, step_metric=STEP, summary=f"{best},last")


def test_disabled_leaves_no_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = tracker(tmp_path)
    track(run)
    assert run.location() is None
    assert not list(tmp_path.rglob("*"))
    assert capfd.readouterr() == ("", "")


def test_an_interrupted_run_is_resumed_without_gap_or_repetition(server: WandbServer, tmp_path: Path) -> None:
    track(tracker(tmp_path), end=6, summary=INTERRUPTED, status=75)
    [there] = server.runs.values()
    assert (there.exit_code, there.summary["reason"]) == (75, "SIGTERM")
    track(run := tracker(tmp_path), history=4)
    assert list(server.runs.values()) == [there]
    assert there.history == SENT
    assert (there.exit_code, there.summary["status"], there.summary["skipped_steps"]) == (0, "finished", 1)
    assert "reason" not in there.summary, "that of the earlier attempt"
    assert run.complete


def test_three_offline_attempts_are_uploaded_as_one_run(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for history, end in ((0, 4), (2, 6), (5, 8)):
        track(tracker(tmp_path), history, end)
    assert len(list(tmp_path.glob("wandb/superseded/*/*.wandb"))) == 2
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 1, "wandb sync appends what each file has"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if FAKE_KEY.encode() in path.read_bytes()] == []
    assert not server.runs
    [path] = tmp_path.glob("wandb/offline-run-*")
    monkeypatch.delenv("WANDB_MODE")
    subprocess.run([sys.executable, "-m", "wandb", "sync", path], check=True, capture_output=True, cwd=tmp_path)
    [there] = server.runs.values()
    assert there.history == SENT
    assert there.upserted["displayName"] == "resnet20_digits-fp16-s0"
    assert (there.exit_code, there.summary["status"]) == (0, "finished")
