"""metrics.jsonl and summary.json: strict JSON, whole lines, true values."""

import json
import math
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reports.records.environment import Source
from reports.records.files import Schema, from_json, read_record, to_json, write_record
from reports.records.metrics import Figure, read_lines
from reports.records.summary import FINISHED, MISSING, Summary, read_summary
from tests.experiment.harness import TINY, AtCall, Outcome, Poisoned, folder_of, run, run_apart
from train.experiment.record import RunRecord


class KeepingTracker:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Figure]] = []
        self.closed: tuple[Summary, int] | None = None

    def open(self, rows: Sequence[Mapping[str, Figure]]) -> None:
        self.rows = list(rows)

    def log(self, row: Mapping[str, Figure]) -> None:
        self.rows.append(row)

    def close(self, summary: Summary, exit_status: int) -> None:
        self.closed = (summary, exit_status)

    def location(self) -> str | None:
        return None


def strict(text: str) -> Any:
    """`json.loads` without the constants that JSON does not have."""

    def refuse(name: str) -> None:
        raise ValueError(f"not JSON: {name}")

    return json.loads(text, parse_constant=refuse)


def steps_of(path: Path) -> list[Figure]:
    return [row["train/step"] for row in read_lines(path)[0]]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (np.float16(math.nan), "NaN"),
        (np.float32(math.inf), "Infinity"),
        (torch.tensor(-math.inf, dtype=torch.float16), "-Infinity"),
        (torch.tensor(math.nan, dtype=torch.bfloat16), "NaN"),
        (torch.tensor(3), 3),
        (torch.tensor(True), True),
        (np.int64(2**40), 2**40),
        (np.float32(0.5), 0.5),
        (True, True),
        (None, None),
        ("text", "text"),
        (2**63, 2**63),
    ],
)
def test_every_kind_of_number_becomes_strict_json(value: Any, written: Any) -> None:
    assert to_json(value) == written
    assert type(to_json(value)) is type(written)
    assert strict(json.dumps(to_json({"a": [value, {"b": (value,)}]}))) == {"a": [written, {"b": [written]}]}


class Values(Schema):
    value: float
    inner: list[float | dict[str, float]] = []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, 5e-324])
def test_a_value_comes_back_as_the_number_it_was(value: float, tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_record(path, Values(value=value, inner=[math.inf, {"x": -math.inf}]))
    strict(path.read_text())
    back = read_record(Values, path)
    assert back.value == pytest.approx(value, rel=0, abs=0, nan_ok=True)
    assert back.inner == [math.inf, {"x": -math.inf}]
    assert from_json(["finite", to_json(math.inf)]) == ["finite", math.inf]


def test_a_run_with_a_non_finite_loss_writes_strict_json(tmp_path: Path) -> None:
    done = run(tmp_path, precision="fp16", forward=Poisoned(range(3, 4)))
    lines = [strict(line) for line in (done.folder / "metrics.jsonl").read_text().splitlines()]
    summary = strict((done.folder / "summary.json").read_text())
    strict((done.folder / "environment.json").read_text())
    [line] = [line for line in lines if line["train/step"] == 3 and "train/loss" in line]
    assert line["train/loss"] == "NaN"
    assert line["train/grad_norm"] in ("NaN", "Infinity")
    assert line["train/nonfinite_loss_steps"] == 1
    assert summary["nonfinite_loss_steps"] == 1
    others = [line["train/grad_norm"] for line in lines if line.get("train/step") != 3 and "train/grad_norm" in line]
    assert all(isinstance(value, float) for value in others)


def test_a_mean_over_several_steps_says_how_many_were_not_finite(tmp_path: Path) -> None:
    done = run(tmp_path, "log_every=4", precision="fp16", forward=Poisoned(range(2, 4)))
    assert done.column("train/nonfinite_loss_steps") == {4: 2}
    assert math.isnan(done.column("train/loss")[4])
    assert all(math.isfinite(done.column("train/loss")[step]) for step in (8, 12))
    assert done.summary.nonfinite_loss_steps == 2


def test_each_line_is_on_disk_when_log_returns(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "", KeepingTracker())
    for step in (1, 2):
        record.log(step, {"train/loss": 1.0 / step})
        assert (tmp_path / "metrics.jsonl").read_text().count("\n") == step
    record.close(Summary(), 0)


def test_a_value_that_was_not_measured_is_left_out(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "", KeepingTracker())
    record.log(1, {"throughput/samples_per_sec": None})
    record.close(Summary(), 0)
    assert read_lines(tmp_path / "metrics.jsonl") == ([{"train/step": 1}], 0)


def test_lines_after_the_resumed_step_are_dropped(tmp_path: Path) -> None:
    first = RunRecord(tmp_path, "", KeepingTracker())
    for step in range(1, 9):
        first.log(step, {"train/loss": 1.0})
    first.file.close()
    tracker = KeepingTracker()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    second = RunRecord(tmp_path, "".join(lines[:5]), tracker)
    assert steps_of(tmp_path / "metrics.jsonl") == [1, 2, 3, 4, 5]
    assert [row["train/step"] for row in tracker.rows] == [1, 2, 3, 4, 5]
    for step in range(6, 13):
        second.log(step, {"train/loss": 2.0})
    second.close(Summary(status=FINISHED), 0)
    rows, _ = read_lines(tmp_path / "metrics.jsonl")
    assert [row["train/step"] for row in rows] == list(range(1, 13))
    assert [row["train/loss"] for row in rows] == [1.0] * 5 + [2.0] * 7
    assert tracker.rows == rows
    assert tracker.closed == (Summary(status=FINISHED), 0)


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_an_incomplete_last_line_is_left_out_with_a_warning(cut: int, fp32: Outcome, tmp_path: Path) -> None:
    stopped = run(tmp_path, forward=AtCall(8, _fail))
    assert stopped.status == 1
    path = stopped.folder / "metrics.jsonl"
    whole = path.read_text()
    last = whole.splitlines()[-1]
    path.write_text(whole + last[: len(last) - cut])
    rows, damaged = read_lines(path)
    assert damaged == 1
    assert len(rows) == whole.count("\n")
    resumed = run(tmp_path)
    assert f"warning: {path} had 1 damaged lines; they are left out" in resumed.out
    assert resumed.status == 0
    assert resumed.numbers == fp32.numbers
    assert read_lines(path)[1] == 0


def _fail() -> None:
    raise RuntimeError("stopped here")


@pytest.mark.parametrize("line", ["12", '"text"', "[1, 2]", "null", "{", '{"train/step": 1', "\x00\x00"])
def test_a_line_that_is_no_object_is_counted_as_damaged(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"train/step": 1}\n' + line + "\n")
    assert read_lines(path) == ([{"train/step": 1}], 1)


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "metrics.jsonl") == ([], 0)
    assert read_summary(tmp_path / "summary.json").status == MISSING


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_record_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "git.json"
    write_record(path, Source(commit="first"))
    with pytest.raises(TypeError):
        write_record(path, Source.model_construct(commit=object()))  # type: ignore[arg-type]
    assert read_record(Source, path) == Source(commit="first")
    write_record(path, Source(commit="second"))
    assert read_record(Source, path) == Source(commit="second")
    assert [file.name for file in tmp_path.iterdir()] == ["git.json"]


def test_a_second_kill_in_the_resumed_run_still_leaves_one_history(fp32: Outcome, tmp_path: Path, log: Path) -> None:
    folder = folder_of(tmp_path, TINY, "fp32")
    for step in (5, 4):  # of the process; the second one resumes from step 3
        assert run_apart(tmp_path, log, forward=AtCall(step, _kill)) == -9
    assert list(Outcome(0, "", "", folder).losses) == [1, 2, 3, 4, 5, 6]
    resumed = run(tmp_path)
    assert [attempt.from_step for attempt in resumed.environment.attempts] == [0, 3, 6]
    assert resumed.numbers == fp32.numbers


def _kill() -> None:
    signal.raise_signal(signal.SIGKILL)
