"""The calibration's runs: what is refused before any of them, and which records they may stand in."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from reports.records.files import read_json, write_json
from scripts import run_calibration
from train.engine.errors import Refused
from train.experiment import environment

CONFIG = "configs/softmax_regression_digits_8x8.yaml"
FACTS = {
    "versions": {"torch": "2.14.1"},
    "device": {"type": "cpu", "name": "Some CPU, 1 threads"},
    "git": {"commit": "1234", "dirty": False},
}
NEW = {
    "experiment": "tiny",
    "overrides": [],
    "config_sha256": "c" * 64,
    "smoke": False,
    "margin": 0.005,
    "pairs": 5,
    "environment": FACTS,
}
OLD = {**NEW, "pairs": 2, "accuracies": [0.9, 0.91], "eval_samples": 100, "speed": []}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was trained and measured, by stand-ins that take no time, on a machine and a commit that do not change."""
    work: list[str] = []

    def train(build: Any, task: Any, config: Any, seed: int, device: torch.device, smoke: bool) -> tuple[float, int]:
        work.append(f"seed {seed}")
        return 0.9 + seed / 1000, 100

    def speed(*arguments: Any) -> dict[str, Any]:
        work.append("speed")
        return {"first": [1.0, 1.0], "second": [1.0, 1.0]}

    monkeypatch.setattr(run_calibration, "train", train)
    monkeypatch.setattr(run_calibration, "speed", speed)
    monkeypatch.setattr(environment, "describe", lambda device: FACTS)
    return work


def test_a_record_grows_and_other_pairs_keep_its_accuracies(tmp_path: Path, counted: list[str]) -> None:
    output = ["--output", str(tmp_path / "calibration.json")]
    assert run_calibration.main([CONFIG, "--pairs", "2", "--comparisons", "1", *output, "max_steps=3"]) == 0
    assert counted == ["seed 0", "seed 1", "seed 2", "seed 3", "speed"]
    counted.clear()
    assert run_calibration.main([CONFIG, "--pairs", "3", "--comparisons", "1", *output, "max_steps=3"]) == 0
    assert counted == ["seed 4", "seed 5"]
    counted.clear()
    assert run_calibration.main([CONFIG, "--pairs", "2", "--comparisons", "1", *output, "max_steps=3"]) == 0
    assert counted == []
    found = read_json(tmp_path / "calibration.json")
    assert found is not None
    assert found["accuracies"] == pytest.approx([0.9, 0.901, 0.902, 0.903, 0.904, 0.905])
    assert (found["pairs"], found["overrides"]) == (2, ["max_steps=3"])


def test_another_configuration_is_refused_and_leaves_the_record(
    tmp_path: Path, counted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["--pairs", "2", "--comparisons", "1", "--output", str(tmp_path / "calibration.json")]
    assert run_calibration.main([CONFIG, *output]) == 0
    counted.clear()
    before = (tmp_path / "calibration.json").read_text()
    assert run_calibration.main([CONFIG, *output, "batch_size=3"]) == 2
    assert counted == []
    assert (tmp_path / "calibration.json").read_text() == before
    message = capsys.readouterr().err
    assert f"{tmp_path / 'calibration.json'} has runs of another kind: configuration (SHA-256) is " in message
    assert "move it away or name another --output" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([CONFIG, "--pairs", "0"], "argument --pairs: 0 is less than 2"),
        ([CONFIG, "--pairs", "1"], "argument --pairs: 1 is less than 2"),
        ([CONFIG, "--comparisons", "0"], "argument --comparisons: 0 is less than 1"),
        ([CONFIG, "--comparisons", "many"], "argument --comparisons: invalid whole number value: 'many'"),
        (["configs/gpt2_pydoc.yaml"], "configs/gpt2_pydoc.yaml: its metric is loss; a calibration is of one whose"),
    ],
)
def test_what_cannot_be_counted_is_refused_before_any_work(
    tmp_path: Path, counted: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    try:
        status: object = run_calibration.main([*arguments, "--output", str(tmp_path / "calibration.json")])
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert f"error: {message}" in capsys.readouterr().err
    assert counted == []
    assert not (tmp_path / "calibration.json").exists()


@pytest.mark.parametrize(
    ("old", "message"),
    [
        ({"config_sha256": "d" * 64}, f"configuration (SHA-256) is {'c' * 64}, not {'d' * 64}"),
        ({"smoke": True}, "smoke is False, not True"),
        ({"environment": {**FACTS, "device": {"name": "Other, 2 threads"}}}, "1 threads, not Other, 2 threads"),
        ({"environment": {**FACTS, "versions": {"torch": "2.13"}}}, "torch is 2.14.1, not 2.13"),
        ({"environment": {**FACTS, "git": {"commit": "0", "dirty": False}}}, "commit is 1234, not 0"),
        ({"environment": {**FACTS, "git": {"commit": "1234", "dirty": True}}}, "those of a commit without changes"),
        ({"accuracies": [math.nan]}, "no calibration record to go on with: accuracies.0: "),
    ],
)
def test_a_record_of_other_runs_is_not_gone_on_with(tmp_path: Path, old: dict[str, Any], message: str) -> None:
    file = tmp_path / "calibration.json"
    write_json(file, {**OLD, **old})
    with pytest.raises(Refused) as caught:
        run_calibration.resumed(file, NEW)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_source_with_changes_goes_on_with_no_record(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    write_json(file, OLD)
    assert run_calibration.resumed(file, NEW) == OLD
    changed = {**NEW, "environment": {**FACTS, "git": {"commit": "1234", "dirty": True}}}
    with pytest.raises(Refused, match="uncommitted changes is True, not False"):
        run_calibration.resumed(file, changed)


def test_a_torn_record_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    assert run_calibration.resumed(file, NEW) == {"accuracies": [], "speed": []}
    file.write_text('{"accuracies": [0.9,')
    with pytest.raises(Refused, match="not readable as JSON"):
        run_calibration.resumed(file, NEW)
