"""The shell scripts, as people call them, with an interpreter that has the packages already."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiment.harness import ROOT

RESNET = str(ROOT / "scripts" / "run_resnet_amp.sh")


def bash(*command: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, "WANDB_MODE": "disabled", **extra}
    return subprocess.run(["bash", *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def echo(tmp_path: Path) -> str:
    """An interpreter that prints where it was started, with what search path and with what arguments."""
    program = tmp_path / "bin" / "echo_arguments"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$PWD" "$PYTHONSAFEPATH" "$PYTHONPATH"\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_the_quick_start_runs_from_any_folder_with_its_options(tmp_path: Path, echo: str) -> None:
    options = ["--smoke", "--precisions", "fp32,bf16", "--seeds", "1", "optimizer.lr=0.1"]
    done = bash(RESNET, *options, cwd=tmp_path, PYTHON=echo, PYTHONPATH="/elsewhere")
    assert done.returncode == 0, done.stderr
    place, *arguments = done.stdout.splitlines()
    assert place == f"{tmp_path} 1 {ROOT}:/elsewhere"
    assert arguments == ["-m", "train.compare", "configs/resnet20_digits.yaml", *options]


@pytest.mark.parametrize(
    ("options", "seeds"),
    [([], ["--seeds", "9"]), (["epochs=1"], ["--seeds", "9"]), (["--seeds=2"], []), (["--smoke"], [])],
)
def test_the_quick_start_trains_the_seeds_that_its_verdict_needs_unless_told_otherwise(
    tmp_path: Path, echo: str, options: list[str], seeds: list[str]
) -> None:
    done = bash(RESNET, *options, cwd=tmp_path, PYTHON=echo)
    assert done.stdout.splitlines()[1:] == ["-m", "train.compare", "configs/resnet20_digits.yaml", *seeds, *options]


@pytest.mark.slow
def test_the_quick_start_ends_with_a_report(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()  # a folder of the same name must not be taken for the repository's
    done = bash(RESNET, "--smoke", "--precisions", "fp32,bf16", "--seeds", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "smoke" / "resnet20_digits" / "report.html").exists()
    assert "A smoke run" in done.stdout
    assert "\nfp16 " not in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [["configs/lenet5_digits.yaml", "--seeds", "1"], ["--seeds", "1", "configs/lenet5_digits.yaml"], ["own.yml"]],
)
def test_a_configuration_can_be_named_before_or_after_options(tmp_path: Path, echo: str, arguments: list[str]) -> None:
    done = bash(RESNET, *arguments, cwd=tmp_path, PYTHON=echo)
    assert done.stdout.splitlines()[1:] == ["-m", "train.compare", *arguments]


def test_a_wrong_configuration_ends_a_script_with_the_commands_exit_status(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()  # a folder of the same name must not be taken for the repository's
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "other.yaml").touch()
    done = bash(RESNET, "--seeds", "1", "configs/nothing.yaml", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "unknown configuration file 'configs/nothing.yaml'" in done.stderr


def test_the_environment_is_made_only_when_requirements_changed(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    # An interpreter that installs nothing, and a python3 that makes no environment.
    installer = venv / "bin" / "python"
    installer.write_text('#!/bin/sh\necho "$@"\n')
    python3 = tmp_path / "python3"
    python3.write_text('#!/bin/sh\necho "$@"\n')
    for program in (installer, python3):
        program.chmod(0o755)
    stamp = venv / ".requirements.txt"
    stamp.write_bytes((ROOT / "requirements.txt").read_bytes())
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = 'source scripts/setup.sh && echo "python: $python"'
    done = bash("-c", command, cwd=ROOT, PYTHON="", VENV=str(venv), PATH=path)
    assert done.returncode == 0, done.stderr
    assert f"python: {venv}/bin/python" in done.stdout
    assert "installing" not in done.stderr
    stamp.write_text("something else\n")
    done = bash("-c", command, cwd=ROOT, PYTHON="", VENV=str(venv), PATH=path)
    assert done.returncode == 0, done.stderr
    assert "installing requirements.txt" in done.stderr
    assert done.stderr.count("\n") == 2, "a line before and a line after"
    log = (venv / ".setup.log").read_text()
    assert f"-m venv {venv}" in log
    assert "-m pip install" in log
    assert f"-r {ROOT}/requirements.txt" in log
    assert stamp.read_bytes() == (ROOT / "requirements.txt").read_bytes()


def setting_up(tmp_path: Path, fault: str) -> subprocess.CompletedProcess[str]:
    """Sourcing setup.sh, with a python3 that does `fault` where it makes the environment."""
    python3 = tmp_path / "python3"
    python3.write_text(f'#!/bin/sh\n[ "$1" != -m ] || {{ {fault}; }}\n')
    python3.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = "source scripts/setup.sh && echo went on"
    return bash("-c", command, cwd=ROOT, PYTHON="", VENV=str(tmp_path / "venv"), PATH=path)


def test_a_failed_installation_shows_its_error_in_full(tmp_path: Path) -> None:
    done = setting_up(tmp_path, "seq 1 100; echo no space left >&2; exit 3")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-2:] == ["no space left", "error: the packages could not be installed, see above"]
    assert "\n100\n" in done.stderr


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_an_interrupted_installation_is_one_line_and_75(tmp_path: Path, name: str) -> None:
    done = setting_up(tmp_path, f"kill -{name} $PPID; echo cancelled >&2; exit 1")
    assert (done.returncode, done.stdout) == (75, "")
    _, *after = done.stderr.splitlines()
    assert after == ["interrupted: while packages are installed; the same command continues"]
    assert not (tmp_path / "venv" / ".requirements.txt").exists()


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda path: path.name)
def test_help_is_a_few_lines_and_starts_nothing(tmp_path: Path, script: Path) -> None:
    for options in (["--help"], ["--seeds", "1", "-h"]):
        done = bash(str(script), *options, cwd=tmp_path, PYTHON="", VENV=str(tmp_path / "venv"), PATH="/usr/bin:/bin")
        assert (done.returncode, done.stderr) == (0, "")
        assert 1 <= len(done.stdout.splitlines()) <= 6
        assert "set -euo" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "default"),
    [
        (["lenet5_digits", "--seeds", "1"], False),
        (["--smoke", "lenet5_digits"], False),
        (["--out", "lenet5_digits"], True),
        (["--precisions", "fp32"], True),
    ],
)
def test_an_experiment_can_be_named_without_folder_and_ending(
    tmp_path: Path, echo: str, arguments: list[str], default: bool
) -> None:
    done = bash(RESNET, *arguments, cwd=tmp_path, PYTHON=echo)
    expected = ["configs/resnet20_digits.yaml", "--seeds", "9"] if default else []
    assert done.stdout.splitlines()[1:] == ["-m", "train.compare", *expected, *arguments]


def test_every_script_passes_its_arguments_on_and_stops_at_the_first_fault() -> None:
    for script in sorted((ROOT / "scripts").glob("*.sh")):
        text = script.read_text()
        assert text.startswith("#!/usr/bin/env bash\n"), script
        assert "set -euo pipefail" in text or "exec bash" in text, script
        if script.name.startswith(("run_", "test")):
            assert '"$@"' in text, script


def test_the_list_of_published_numbers_takes_nothing_behind_it_and_a_mistyped_id_gets_the_nearest() -> None:
    script = str(ROOT / "scripts" / "reproduce.sh")
    done = bash(script, "--list", "foo", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --list takes nothing behind it, not 'foo'\n"
    done = bash(script, "nanogpt-shk-cp", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown published row 'nanogpt-shk-cp': did you mean 'nanogpt-shk-cpu'?" in done.stderr
