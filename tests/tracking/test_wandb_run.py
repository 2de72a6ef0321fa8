"""Weights & Biases as a mirror of the record: complete when it works, harmless when it does not."""

import functools
import json
import math
import os
import socket
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.experiment.harness import TINY, AtCall, Outcome, Poisoned, folder_of, offline_records, run, start, wait
from train.tracking import wandb_names as mirrored
from train.tracking import wandb_run as mirror_module
from train.tracking.wandb_run import Mirror, mode

FAKE_KEY = "0123456789abcdef" * 2 + "secret00"


def offline_files(folder: Path) -> list[Path]:
    """The offline files that are to be uploaded."""
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"))


def superseded_files(folder: Path) -> list[Path]:
    """The offline files whose rows a later one has, oldest first."""
    return sorted(folder.glob("wandb/superseded/*/*.wandb"))


def history(path: Path) -> list[dict[str, Any]]:
    """The lines that an offline file holds, without W&B's own columns."""
    rows = []
    for record in offline_records(path):
        if record.WhichOneof("record_type") == "history":
            items = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            rows.append({key: json.loads(value) for key, value in items.items() if not key.startswith("_")})
    return rows


def the(kind: str, path: Path) -> Any:
    """The one record of a kind."""
    [record] = [record for record in offline_records(path) if record.WhichOneof("record_type") == kind]
    return getattr(record, kind)


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run with a key in the environment, told to stay offline."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_API_KEY", FAKE_KEY)
        return run(tmp_path_factory.mktemp("offline"), precision="fp16", forward=Poisoned(range(3, 4)))


def test_the_offline_file_holds_exactly_the_metrics(offline: Outcome) -> None:
    [path] = offline_files(offline.folder)
    mirrored = history(path)
    assert len(mirrored) == len(offline.rows)
    for there, here in zip(mirrored, offline.rows, strict=True):
        assert there.keys() == here.keys()
        for name, value in here.items():
            if isinstance(value, float) and not math.isfinite(value):
                assert str(float(there[name])) == str(value)
            else:
                assert there[name] == pytest.approx(value), name


def test_the_run_has_its_names_group_and_step_axis(offline: Outcome) -> None:
    [path] = offline_files(offline.folder)
    there = the("run", path)
    assert there.run_id == offline.environment["run_id"]
    assert there.project == "amp-zoo"
    assert there.run_group == f"tiny-{offline.summary['config_sha256'][:8]}"
    assert there.job_type == "fp16"
    assert there.display_name == "tiny-fp16-s0"
    assert set(there.tags) == {"resnet", "tiny", "digits", "fp16"}
    config = {item.key: json.loads(item.value_json) for item in there.config.update}
    assert config["precision"] == "fp16"
    assert config["seed"] == 0
    assert config["optimizer"]["lr"] == 0.05
    metrics = [record.metric for record in offline_records(path) if record.WhichOneof("record_type") == "metric"]
    assert {(metric.name, metric.glob_name, metric.step_metric) for metric in metrics} == {
        ("train/step", "", ""),
        ("", "*", "train/step"),
    }
    assert the("exit", path).exit_code == 0


def test_the_summary_is_mirrored(offline: Outcome) -> None:
    [path] = offline_files(offline.folder)
    sent: dict[str, Any] = {}
    for record in offline_records(path):
        if record.WhichOneof("record_type") == "summary":
            sent |= {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.summary.update
            }
    assert sent["status"] == "finished"
    assert sent["final_weights_sha256"] == offline.summary["final_weights_sha256"]
    assert sent["skipped_steps"] == 1


def test_no_secret_is_in_the_folder(offline: Outcome) -> None:
    files = [path for path in offline.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files)
    assert [path for path in files if FAKE_KEY.encode() in path.read_bytes()] == []
    assert FAKE_KEY not in offline.out + offline.err


def test_its_folder_lies_in_the_run_folder_and_one_line_says_how_to_go_on(offline: Outcome) -> None:
    [path] = offline_files(offline.folder)
    [line] = [line for line in offline.out.splitlines() if "W&B" in line]
    assert f"wandb sync {path.parent}" in line


def test_three_attempts_are_one_run_whose_last_file_has_the_whole_history(
    fp32: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for step in (4, 4, None):
        attempt = run(tmp_path, forward=AtCall(step, _terminate) if step else AtCall(0, bool))
        assert attempt.status == (75 if step else 0)
    files = [*superseded_files(attempt.folder), *offline_files(attempt.folder)]
    assert len(files) == 3
    assert len(offline_files(attempt.folder)) == 1, "wandb sync appends: of two files with one history it makes two"
    assert {the("run", path).run_id for path in files} == {attempt.environment["run_id"]}
    assert [the("exit", path).exit_code for path in files] == [75, 75, 0]
    steps = [row["train/step"] for row in history(files[-1]) if "train/loss" in row]
    assert steps == list(range(1, 13))
    assert len(history(files[-1])) == len(attempt.rows)
    assert attempt.numbers == fp32.numbers


def _terminate() -> None:
    import signal

    signal.raise_signal(signal.SIGTERM)


def test_without_a_key_it_is_offline_and_never_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setattr("builtins.input", _no_input)
    monkeypatch.setattr("getpass.getpass", _no_input)
    monkeypatch.setattr(sys, "stdin", None)
    assert mode() == "offline"
    done = run(tmp_path, "max_steps=1")
    assert done.status == 0
    assert "warning" not in done.out
    assert len(offline_files(done.folder)) == 1


def _no_input(*arguments: object) -> str:
    raise AssertionError("it asked")


def test_the_mode_follows_variable_then_key_then_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")
    assert mode() == "offline"
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine api.wandb.ai login user password {FAKE_KEY}\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert mode() == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert mode() == "offline"
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    assert mode() == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert mode() == "disabled"


def test_the_project_of_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    done = run(tmp_path, "max_steps=1")
    [path] = offline_files(done.folder)
    assert the("run", path).project == "mine"


def test_disabled_leaves_no_trace(fp32: Outcome) -> None:
    assert not list(fp32.folder.rglob("*wandb*"))
    assert "W&B" not in fp32.out
    assert fp32.status == 0


class FakeWandb:
    """The part of wandb that is used; each of its calls can be told to fail or to block."""

    def __init__(self, **replaced: Any) -> None:
        self.lines: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.arguments: dict[str, Any] = {}
        self.exit_code: int | None = None
        self.replaced = replaced
        self.url = "https://wandb.ai/some/run"
        self.summary = SimpleNamespace(keys=dict, update=lambda summary: self._do("summary"))
        self.starting_step = 0

    Settings = SimpleNamespace

    def init(self, **arguments: Any) -> "FakeWandb":
        self.arguments = arguments
        self.starting_step = len(self.lines)
        self._do("init")
        return self

    def define_metric(self, name: str, **options: Any) -> None:
        self._do("define_metric")

    def log(self, metrics: dict[str, Any], step: int, commit: bool) -> None:
        self._do("log")
        assert step == len(self.lines), "a gap, or a row twice"
        self.lines.append(metrics)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._do("finish")

    def _do(self, name: str) -> None:
        self.calls.append(name)
        if action := self.replaced.get(name):
            action(self.calls.count(name))


def outage(*arguments: object) -> None:
    raise ConnectionError("the server is away")


def outage_from_call_5(call: int) -> None:
    if call >= 5:
        outage()


def fake(monkeypatch: pytest.MonkeyPatch, **replaced: Any) -> FakeWandb:
    """Put a fake wandb, online, in the place of the library; `finish` has 0.2 s."""
    wandb = FakeWandb(**replaced)
    monkeypatch.setitem(sys.modules, "wandb", wandb)  # type: ignore[arg-type]
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setattr(mirrored, "Mirror", functools.partial(Mirror, finish_seconds=0.2))
    return wandb


def test_an_outage_in_log_and_finish_does_not_touch_the_run(
    fp32: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = fake(monkeypatch, log=outage_from_call_5, finish=lambda call: threading.Event().wait(30))
    started = time.monotonic()
    done = run(tmp_path)
    assert time.monotonic() - started < 20
    assert done.status == 0
    assert done.numbers == fp32.numbers
    assert done.summary["final_weights_sha256"] == fp32.summary["final_weights_sha256"]
    assert done.out.count("warning: Weights & Biases log failed (ConnectionError: the server is away)") == 1
    assert "warning: Weights & Biases did not finish within 0.2 s" in done.out
    assert f"warning: {len(done.rows) - 4} calls to Weights & Biases failed; {done.folder} has everything" in done.out
    assert len(wandb.lines) == 4


def test_a_server_that_never_answers_does_not_hold_the_run_up(fp32: Outcome, tmp_path: Path, log: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # the kernel takes connections; nobody reads from them
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        online = {"WANDB_MODE": "online", "WANDB_API_KEY": FAKE_KEY, "WANDB_BASE_URL": address}
        assert wait(start(functools.partial(_run_with_a_second_to_start, tmp_path), log, **online)) == 0
    assert log.read_text().count("warning: Weights & Biases did not start within 1 s") == 1
    done = Outcome(0, "", "", folder_of(tmp_path, TINY, "fp32"))
    assert done.numbers == fp32.numbers


def _run_with_a_second_to_start(out: Path) -> int:
    # W&B's own limit is far off: the mirror's has to be enough.
    import wandb

    settings = wandb.Settings
    wandb.Settings = lambda **given: settings(**{**given, "init_timeout": 20.0})  # type: ignore[assignment, misc]
    mirrored.Mirror = functools.partial(Mirror, init_seconds=1.0)  # type: ignore[misc, assignment]
    done = run(out)
    print(done.out, flush=True)
    os._exit(done.status)  # W&B's own clean-up would wait for its limit


def test_w_and_b_is_told_the_limit_and_to_give_up_on_a_server_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = fake(monkeypatch)
    run(tmp_path, "max_steps=1")
    settings = wandb.arguments["settings"]
    assert settings.init_timeout == mirror_module.INIT_SECONDS
    assert settings.x_graphql_retry_max == mirror_module.RETRIES


@pytest.mark.parametrize("call", ["init", "define_metric", "summary", "finish"])
def test_a_failure_of_any_call_does_not_touch_the_run(
    call: str, fp32: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch, **{call: outage})
    done = run(tmp_path)
    assert done.status == 0
    assert done.numbers == fp32.numbers
    assert done.out.count("(ConnectionError: the server is away)") == 1


@pytest.mark.parametrize("batch", [2, 9], ids=["in an evaluation", "in the last one in fp32"])
def test_an_evaluation_that_was_interrupted_reaches_the_online_run(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = fake(monkeypatch)
    assert run(tmp_path, precision="bf16", forward=AtCall(batch, _terminate, training=False)).status == 75
    done = run(tmp_path, precision="bf16")
    assert done.status == 0
    assert wandb.lines == done.rows


def test_rows_that_could_not_be_sent_follow_once_they_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = fake(monkeypatch, log=lambda call: outage() if call in (2, 3, 6) else None)
    done = run(tmp_path)
    assert wandb.lines == done.rows
    assert "warning: 3 calls to Weights & Biases failed" in done.out


@pytest.mark.parametrize("forward", [Poisoned(range(3, 4)), AtCall(4, outage)], ids=["diverged", "failed"])
def test_a_run_that_did_not_finish_is_closed_with_its_exit_status(
    forward: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = fake(monkeypatch)
    done = run(tmp_path, forward=forward)
    assert done.status in (1, 3)
    assert wandb.exit_code == done.status
    assert wandb.calls[-1] == "finish"


def test_an_online_run_says_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    assert "W&B: https://wandb.ai/some/run" in run(tmp_path, "max_steps=1").out


def test_finish_has_a_minute(tmp_path: Path) -> None:
    assert Mirror(tmp_path, "id").finish_seconds == mirror_module.FINISH_SECONDS == 60.0
