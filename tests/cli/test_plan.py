"""What a command says before its libraries load: the runs, and time and disk by the records."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiment.harness import DIGITS, ROOT, TINY
from train.cli import plan
from train.cli.signals import REASON_FILE


def announced(capsys: pytest.CaptureFixture[str], module: str, *arguments: str) -> str:
    plan.announce(module, arguments)
    return capsys.readouterr().out


def test_time_and_disk_of_a_committed_experiment_are_those_of_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (str(DIGITS), "--device", "cpu", "--seeds", "3", "--out", str(tmp_path))
    first, machine, second = announced(capsys, "train.compare", *arguments).splitlines()
    assert max(map(len, (first, machine, second))) <= 80
    assert machine.startswith("on ")
    assert first == "resnet20_digits: 9 runs (fp32, bf16, fp16; 3 seeds)"
    record = json.loads((ROOT / "reports" / "results" / DIGITS.stem / "comparison.json").read_text())
    seconds = sum(3 * (row["train_seconds"] + 6) for row in record["rows"])
    parameters = json.loads((ROOT / "reports" / "estimates.json").read_text())[DIGITS.stem]["parameters"]
    mib = 9 * 3 * 2 * 4 * parameters / 2**20  # runs, checkpoints, weights and momentum, bytes
    assert f"about {seconds / 60:.0f} min to train, then the speed; up to {mib:.0f} MiB of disk" in second
    changed = announced(capsys, "train.compare", *arguments, "batch_size=16")
    assert f"time not known before the first run; up to {mib:.0f} MiB of disk" in changed
    other = announced(capsys, "train.compare", *arguments, "arch=resnet56")
    assert "time not known before the first run; disk not known either" in other


@pytest.mark.parametrize(
    ("module", "arguments", "first"),
    [
        ("train.compare", [str(TINY), "--precisions", "fp32", "--smoke"], "tiny: 1 run of a few steps (fp32; 1 seed)"),
        (
            "train.compare",
            ["log_every=3", str(TINY), "--starts", "3", "--seeds=2"],
            "tiny: 6 runs (fp32, bf16, fp16; 2",
        ),
        (
            "train.resnet",
            ["resnet20_digits", "--precision", "bf16"],
            "train.resnet: resnet20_digits bf16 seed 0: loading",
        ),
        ("train.resnet", [str(TINY), "--precision=fp16", "--seed", "4"], "train.resnet: tiny fp16 seed 4: loading"),
        ("train.check", [str(TINY)], ""),
        ("train.compare", [str(TINY), "--help"], ""),
        ("train.compare", [str(TINY), "--plan"], ""),
        ("train.compare", [str(TINY), "batch_sise=3"], ""),
        ("train.compare", [str(TINY), "--seeds", "many"], ""),
        ("train.compare", ["nothing.yaml"], ""),
        ("train.compare", [], ""),
    ],
)
def test_the_first_line_names_the_work_and_says_nothing_of_what_is_refused(
    module: str, arguments: list[str], first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = announced(capsys, module, *arguments, "--out", str(tmp_path))
    assert said.startswith(first)
    assert bool(said) is bool(first)


def test_a_run_of_a_comparison_does_not_announce_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(REASON_FILE, "reason")
    assert announced(capsys, "train.resnet", str(TINY), "--precision", "fp32") == ""


def test_the_announcement_loads_no_library_that_takes_long() -> None:
    code = "import sys, train.cli.plan as plan; plan.announce('train.compare', ['resnet20_digits'])\n"
    code += "print({'torch', 'scipy', 'numpy', 'rich', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.match(r"resnet20_digits: \d+ runs", done.stdout)
    assert done.stdout.endswith("set()\n")
