"""How a command is stopped, from its first line to its last."""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from reports.records.config import Experiment
from tests.experiment.harness import ROOT, TINY, AtCall, build, folder_of, run, start, wait
from train.cli import signals

LEFT = "interrupted: {}, with nothing to save yet; the same command starts it again\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("module", ["train.resnet", "train.compare", "train.check", "train.cli.benchmark"])
def test_a_signal_while_libraries_load_ends_any_command_as_interrupted(
    module: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(f"import signal\nsignal.raise_signal({int(number)})\nprint('went on')\n")
    command = [sys.executable, "-m", module, str(TINY), "--precision", "fp32", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 75
    assert done.stderr == LEFT.format(number.name)
    first = {
        "train.resnet": "train.resnet: tiny fp32 seed 0: loading",
        "train.compare": "tiny: 9 runs (fp32, bf16, fp16",
    }
    assert done.stdout.startswith(first.get(module, "")), "said before torch loads"
    assert not (tmp_path / "out").exists()


def test_who_imports_the_package_keeps_the_handlers() -> None:
    code = "import signal; before = signal.getsignal(signal.SIGINT); import train\n"
    code += "print(signal.getsignal(signal.SIGINT) is before, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_a_signal_while_the_model_is_built_leaves_nothing_behind(tmp_path: Path, log: Path) -> None:
    process = start(functools.partial(_run_terminated_in_build, tmp_path), log)
    assert wait(process) == 75
    assert log.read_text() == LEFT.format("SIGTERM")
    assert not folder_of(tmp_path, TINY, "fp32").exists()


def _run_terminated_in_build(out: Path) -> int:
    return run(out, build=_terminated).status


def _terminated(config: Experiment) -> nn.Module:
    signal.raise_signal(signal.SIGTERM)
    return build(config)


def test_a_hangup_saves_a_checkpoint_as_sigterm_does(tmp_path: Path) -> None:
    stopped = run(tmp_path, forward=AtCall(5, functools.partial(signal.raise_signal, signal.SIGHUP)))
    assert stopped.status == 75
    assert stopped.err == "interrupted: SIGHUP: stopped at step 5 of 12; the same command resumes from there\n"
    assert "resumes from step 5 of 12" in run(tmp_path).out


def test_a_run_that_a_comparison_started_leaves_it_to_the_comparison_to_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(signals.REASON_FILE, str(tmp_path / "reason"))
    stopped = run(tmp_path, forward=AtCall(5, functools.partial(signal.raise_signal, signal.SIGINT)))
    assert (stopped.status, stopped.err) == (75, "")
    assert (tmp_path / "reason").read_text() == "stopped at step 5 of 12"
    monkeypatch.setattr(signals, "PARENT", os.getppid() + 1)  # the comparison was killed, and nobody else speaks
    stopped = run(tmp_path, forward=AtCall(5, functools.partial(signal.raise_signal, signal.SIGTERM)))
    assert stopped.err == "interrupted: SIGTERM: stopped at step 10 of 12; the same command resumes from there\n"


@pytest.mark.parametrize("code", [0, 3, None])
@pytest.mark.parametrize("part", ["build", "forward"])
def test_a_model_that_leaves_the_process_does_not_pass_for_a_finished_run(
    part: str, code: int | None, tmp_path: Path
) -> None:
    def leave(config: Experiment) -> nn.Module:
        sys.exit(code)

    leaving = (
        run(tmp_path, build=leave) if part == "build" else run(tmp_path, forward=AtCall(2, lambda: sys.exit(code)))
    )
    assert leaving.status == 1
    assert leaving.err == f"error: the model or its data called sys.exit({code!r})\n"
    if part == "forward":
        assert leaving.reason == f"sys.exit({code!r}) was called"


def test_a_hangup_that_nohup_had_ignored_stays_ignored(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    received: list[int] = []
    signals.on_stop(lambda number, frame: received.append(number))
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.raise_signal(number)
    assert received == [signal.SIGTERM]


def test_an_interrupted_smoke_run_says_that_it_starts_again(tmp_path: Path) -> None:
    terminate = functools.partial(signal.raise_signal, signal.SIGTERM)
    stopped = run(tmp_path, options=("--smoke",), forward=AtCall(2, terminate))
    assert stopped.status == 75
    assert stopped.err == "interrupted: SIGTERM: stopped at step 2 of 4; a smoke run starts again\n"
    again = run(tmp_path, options=("--smoke",))
    assert again.status == 0
    assert "resumes" not in again.out
