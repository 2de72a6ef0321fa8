"""The runs of both calibrations: what is refused before any of them, and which records they may stand in."""

import math
from pathlib import Path
from typing import Any

import pytest

from reports.records.calibration import Calibration, SpeedCalibration
from reports.records.environment import Device, Machine, Source
from reports.records.files import read_record, write_record
from scripts import run_calibration, run_speed_calibration
from train.engine.errors import Refused
from train.experiment import environment

CONFIG = "configs/softmax_regression_digits_8x8.yaml"
MACHINE = Machine(
    versions={"torch": "2.14.1"},
    device=Device(type="cpu", name="Some CPU, 1 threads"),
    git=Source(commit="1234", dirty=False),
)
NEW = Calibration(experiment="tiny", config_sha256="c" * 64, smoke=False, margin=0.005, pairs=5, environment=MACHINE)
OLD = NEW.model_copy(update={"pairs": 2, "accuracies": [0.9, 0.91], "eval_samples": 100})


def on(**changes: Any) -> Machine:
    return MACHINE.model_copy(update=changes)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was trained, by a stand-in that takes no time, on a machine and a commit that do not change."""
    work: list[str] = []

    def train(script: object, config: object, seed: int, device: object, smoke: bool) -> tuple[float, int]:
        work.append(f"seed {seed}")
        return 0.9 + seed / 1000, 100

    monkeypatch.setattr(run_calibration, "train", train)
    monkeypatch.setattr(environment, "describe", lambda device: MACHINE)
    return work


def test_a_record_grows_and_other_pairs_keep_its_accuracies(tmp_path: Path, counted: list[str]) -> None:
    output = ["--output", str(tmp_path / "calibration.json")]
    assert run_calibration.main([CONFIG, "--pairs", "2", "--comparisons", "1", *output, "max_steps=3"]) == 0
    assert counted == ["seed 0", "seed 1", "seed 2", "seed 3"]
    counted.clear()
    assert run_calibration.main([CONFIG, "--pairs", "3", "--comparisons", "1", *output, "max_steps=3"]) == 0
    assert counted == ["seed 4", "seed 5"]
    counted.clear()
    assert run_calibration.main([CONFIG, "--pairs", "2", "--comparisons", "1", *output, "max_steps=3"]) == 0
    assert counted == []
    record = read_record(Calibration, tmp_path / "calibration.json")
    assert record.accuracies == pytest.approx([0.9, 0.901, 0.902, 0.903, 0.904, 0.905])
    assert (record.pairs, record.overrides) == (2, ["max_steps=3"])


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
        ({"environment": on(device=Device(name="Other, 2 threads"))}, "1 threads, not Other, 2 threads"),
        ({"environment": on(versions={"torch": "2.13"})}, "torch is 2.14.1, not 2.13"),
        ({"environment": on(git=Source(commit="0", dirty=False))}, "commit is 1234, not 0"),
        ({"environment": on(git=Source(commit="1234", dirty=True))}, "those of a commit without changes"),
        ({"accuracies": [math.nan]}, "calibration.json: accuracies.0: input should be "),
    ],
)
def test_a_record_of_other_runs_is_refused(tmp_path: Path, old: dict[str, Any], message: str) -> None:
    file = tmp_path / "calibration.json"
    write_record(file, OLD.model_copy(update=old))
    with pytest.raises(Refused) as caught:
        run_calibration.earlier(file, NEW)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)
    assert "move it away or name another --output" in str(caught.value)


def test_a_source_with_changes_adds_to_no_record(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    write_record(file, OLD)
    assert run_calibration.earlier(file, NEW) == OLD
    changed = NEW.model_copy(update={"environment": on(git=Source(commit="1234", dirty=True))})
    with pytest.raises(Refused, match="not known to be those of a commit without changes"):
        run_calibration.earlier(file, changed)


def test_a_damaged_record_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    assert run_calibration.earlier(file, NEW) is None
    file.write_text('{"accuracies": [0.9,')
    with pytest.raises(Refused, match="not readable as JSON"):
        run_calibration.earlier(file, NEW)


def test_process_starts_are_added_to_those_recorded_and_never_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[object] = []

    def in_new_process(function: object, *arguments: object) -> float:
        started.append(function)
        return len(started) / 100

    monkeypatch.setattr(run_speed_calibration, "in_new_process", in_new_process)
    monkeypatch.setattr(environment, "describe", lambda device: MACHINE)
    file = tmp_path / "speed_calibration.json"
    command = [CONFIG, "--device", "cpu", "--output", str(file)]
    assert run_speed_calibration.main([*command, "--starts", "2"]) == 0
    assert run_speed_calibration.main([*command, "--starts", "3"]) == 0
    assert started == [run_speed_calibration.one_start] * 3
    assert read_record(SpeedCalibration, file).log_ratios == [0.01, 0.02, 0.03]
    monkeypatch.setattr(run_speed_calibration, "BLOCK_SECONDS", 0.2)
    assert run_speed_calibration.main([*command, "--starts", "4"]) == 2
    assert "has runs of another kind: seconds of a block is 0.2, not 0.1; " in capsys.readouterr().err
    assert len(started) == 3


def test_a_process_start_measures_fp32_over_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_speed_calibration, "BLOCK_SECONDS", 0.001)
    assert abs(run_speed_calibration.one_start(Path(CONFIG), [], "cpu", smoke=True)) < 3
