"""A power cut, which ends all writing at once: whatever was being written, the run resumes to the same weights."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experiment.harness import Outcome, run
from train.experiment import environment
from train.experiment.record import RunRecord

SHORT = ("max_steps=4", "eval_every=2", "checkpoint_every=2", "data.eval_samples=8")


class PowerCut(BaseException):
    """No process sees one, so none handles it."""


class Power:
    """Counts what is written to the disk, and is cut off at a number of it; nothing is written from then on."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int) -> None:
        self.count, self.last = 0, last
        patch.setattr(os, "fsync", self.counted(lambda number: None))
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, self.counted(getattr(Path, name)))
        log = RunRecord.log

        def torn(record: RunRecord, step: int, metrics: dict[str, Any]) -> None:
            try:
                self.use()
            except PowerCut:
                if self.count == self.last + 1:
                    with (record.folder / "metrics.jsonl").open("a") as file:
                        file.write('{"train/step": ')
                raise
            log(record, step, metrics)

        patch.setattr(RunRecord, "log", torn)

    def use(self) -> None:
        self.count += 1
        if self.count > self.last:
            raise PowerCut

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any, **keywords: Any) -> Any:
            self.use()
            return function(*arguments, **keywords)

        return write


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("whole"), *SHORT)


def cut(out: Path, last: int) -> int:
    """Make the run until the power is cut after `last` writes; returns how many there were."""
    with pytest.MonkeyPatch.context() as patch:
        power = Power(patch, last)
        with contextlib.suppress(PowerCut):
            run(out, *SHORT)
    return power.count


def test_a_run_resumes_to_the_same_weights_after_a_power_cut_at_any_write(
    whole: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: torch.device
) -> None:
    machine = environment.describe(cpu)
    monkeypatch.setattr(environment, "describe", lambda *arguments: machine.model_copy())  # it takes half of the time
    writes = cut(tmp_path / "all", 10**6)
    assert writes > 30
    for last in range(writes):
        out = tmp_path / str(last)
        cut(out, last)
        done = run(out, *SHORT)
        assert done.status == 0, (last, done.err)
        assert done.numbers == whole.numbers, last
        for name in ("final_weights_sha256", "best", "steps"):
            assert getattr(done.summary, name) == getattr(whole.summary, name), (last, name)


def test_one_of_two_checkpoints_is_whole_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []
    replace = Path.replace

    def watched(path: Path, target: Path) -> Path:
        done = replace(path, target)
        if target.name in ("last.pt", "previous.pt"):
            seen.append({file.name for file in target.parent.glob("*.pt")} - {"best.pt"})
        return done

    monkeypatch.setattr(Path, "replace", watched)
    run(tmp_path, *SHORT)
    assert seen == [{"last.pt"}, {"previous.pt"}, {"last.pt", "previous.pt"}]
