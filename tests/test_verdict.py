"""--require and --until-decided: the verdict as an exit status, and seeds added until there is one."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from reports.analysis.statistics import LOOKS, judge
from reports.pages import experiment_page
from reports.records import layout
from reports.records.benchmark import Benchmark, Start
from reports.records.comparison import EQUIVALENT, Comparison
from reports.records.environment import EffectivePrecision, Environment, RunPrecision
from reports.records.files import read_record, write_record, write_text
from reports.records.metrics import to_line
from reports.records.summary import FINISHED, Steps, Summary
from tests.experiment.harness import DIGITS, ROOT
from train import compare
from train.experiment.config import load
from train.experiment.metrics import ACCURACY
from train.tracking.runs import ComparisonView

Accuracy = Callable[[str, int], float]
Runs = list[tuple[str, int]]
Trained = Callable[[Accuracy], Runs]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Puts `accuracy(precision, seed)` in the place of training; gives the runs in the order they were asked for.

    No page and no chart is made.
    """

    def use(accuracy: Accuracy) -> Runs:
        runs: Runs = []
        monkeypatch.setattr(compare, "require_reusable", lambda *_: None)  # they are built from nothing

        def train(self: compare.Experiments, precision: str, seed: int, seeds: Sequence[int]) -> int:
            if (precision, seed) not in runs:
                runs.append((precision, seed))
            figures: dict[str, float] = {
                ACCURACY.metric.key: accuracy(precision, seed),
                "memory/saved_for_backward_mib": 1.0,
            }
            summary = Summary(
                status=FINISHED,
                experiment=self.config.name,
                config_sha256="c",
                precision=RunPrecision(requested=precision, effective=EffectivePrecision(name=precision)),
                seed=seed,
                device="Some CPU",
                metric=ACCURACY.metric.key,
                metrics=[ACCURACY.metric],
                final={**figures},
                best={ACCURACY.metric.key: accuracy(precision, seed)},
                steps=Steps(planned=1, attempted=1),
                skipped_steps=0,
                eval_samples=10_000,
                initial_weights_sha256=str(seed),
                data_order_sha256=str(seed),
            )
            folder = self.folder / layout.run_name(precision, seed)
            write_record(folder / layout.SUMMARY, summary)
            write_record(folder / layout.ENVIRONMENT, Environment(run_id=folder.name))
            write_text(folder / layout.METRICS, to_line({"train/step": 1, "train/loss": 1.0, **figures}))
            write_text(folder / layout.CONFIG, self.config.to_yaml())
            return 0

        def benchmark(self: compare.Experiments, seeds: Sequence[int], starts: int) -> None:
            seconds = {precision: [1.0] * 9 for precision in self.precisions}
            start = Start(seconds=seconds, samples_per_step=1, block_steps=1)
            record = Benchmark(config_sha256="c", device="Some CPU", starts=[start])
            write_record(self.folder / layout.BENCHMARK, record)

        monkeypatch.setattr(compare.Experiments, "_train", train)
        monkeypatch.setattr(compare.Experiments, "_benchmark", benchmark)
        monkeypatch.setattr(experiment_page, "write", lambda folder, comparison: None)
        monkeypatch.setattr(compare, "comparison_view", lambda folder, comparison: ComparisonView("", [], [], {}, []))
        return runs

    return use


def run(out: Path, *options: str) -> int:
    return compare.main([str(DIGITS), "--precisions", "fp32,bf16", "--device", "cpu", "--out", str(out), *options])


def noise(seed: int) -> float:
    return (0.0003, -0.0002, 0.0001, -0.0004, 0.0002)[seed % 5]


@pytest.mark.parametrize(
    ("loss", "required", "status"),
    [(0.0, "EQUIVALENT", 0), (0.02, "EQUIVALENT", 4), (0.02, "WORSE", 0), (-0.02, "BETTER", 0), (0.0, "WORSE", 4)],
)
def test_the_verdict_asked_for_is_the_exit_status(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str], loss: float, required: str, status: int
) -> None:
    trained(lambda precision, seed: 0.9 + noise(seed) - (loss + noise(seed + 1) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "3", "--require", required) == status
    assert (f"not {required}" in capsys.readouterr().err) == (status == 4)


def test_seeds_are_added_until_it_is_decided(trained: Trained, tmp_path: Path) -> None:
    runs = trained(lambda precision, seed: 0.9 + (20 * noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "2", "--until-decided", "--max-seeds", "60") == 0
    comparison = read_record(Comparison, tmp_path / "resnet20_digits" / layout.COMPARISON)
    assert [row.verdict for row in comparison.mixed_rows] == ["EQUIVALENT"]
    assert comparison.looks == LOOKS
    assert 2 < len(comparison.seeds) <= 60
    assert {seed for _, seed in runs} == set(comparison.seeds)


def test_no_seed_is_added_once_it_is_decided(trained: Trained, tmp_path: Path) -> None:
    runs = trained(lambda precision, seed: 0.9 + (noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "4", "--until-decided") == 0
    assert len(runs) == 8


def test_what_stays_open_stops_at_twenty_seeds_unless_told(trained: Trained, tmp_path: Path) -> None:
    runs = trained(lambda precision, seed: 0.5 + (400 * noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "2", "--until-decided") == 0
    assert len(runs) == 40


def test_what_stays_open_stops_at_the_most_seeds(trained: Trained, tmp_path: Path) -> None:
    runs = trained(lambda precision, seed: 0.5 + (400 * noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "2", "--until-decided", "--max-seeds", "7", "--require", "EQUIVALENT") == 4
    assert len(runs) == 14


def record(out: Path) -> Comparison:
    return read_record(Comparison, out / "resnet20_digits" / layout.COMPARISON)


def test_raising_the_most_seeds_counts_on_from_the_looks_before(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(lambda precision, seed: 0.5 + (400 * noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "2", "--until-decided", "--max-seeds", "7") == 0
    before = record(tmp_path)
    # From two seeds the estimate is that more than 7 are needed, so the second look is the last one.
    assert (before.looks, [look.pairs for look in before.looks_taken]) == (LOOKS, [2, 7])
    assert run(tmp_path, "--seeds", "2", "--until-decided", "--max-seeds", "9") == 0
    after = record(tmp_path)
    assert (after.looks, [look.pairs for look in after.looks_taken]) == (LOOKS, [2, 7, 9])
    assert run(tmp_path, "--until-decided", "--max-seeds", "12") == 0
    last = record(tmp_path)
    assert (last.looks, [look.pairs for look in last.looks_taken]) == (LOOKS + 1, [2, 7, 9, 12])
    assert "the intervals are those for 4 looks" in " ".join(capsys.readouterr().out.split())


def test_adding_seeds_by_hand_counts_as_adding_them_by_option(trained: Trained, tmp_path: Path) -> None:
    trained(lambda precision, seed: 0.5 + (400 * noise(seed) if precision == "bf16" else 0.0))
    for seeds in ("2", "3", "4"):
        assert run(tmp_path, "--seeds", seeds) == 0
    assert record(tmp_path).looks == 3
    assert run(tmp_path, "--seeds", "4") == 0
    assert record(tmp_path).looks == 3


def test_fewer_seeds_later_keep_the_larger_result_and_say_so(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(lambda precision, seed: 0.9 + (noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "3") == 0
    rows = record(tmp_path).rows
    capsys.readouterr()
    assert run(tmp_path, "--seeds", "1") == 0
    assert "the earlier comparison is kept: seed 1, seed 2 stay in it" in capsys.readouterr().out
    assert record(tmp_path).rows == rows


def test_a_damaged_comparison_is_refused_by_name(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = trained(lambda precision, seed: 0.9)
    write_text(tmp_path / "resnet20_digits" / layout.COMPARISON, "{")
    assert run(tmp_path, "--seeds", "2") == 2
    assert "comparison.json: not readable" in capsys.readouterr().err
    assert runs == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "1", "--require", "WORSE"], "one seed gives no verdict"),
        (["--seeds", "5", "--until-decided", "--max-seeds", "3"], "--max-seeds: 3 is less than the 5 seeds"),
        (["--require", "SAME"], "invalid choice: 'SAME'"),
        (["--precisions", "bf16", "--require", "WORSE"], "--require: a verdict needs fp32 and another precision"),
        (
            ["--precisions", "bf16,fp16", "--until-decided"],
            "--until-decided: a verdict needs fp32 and another precision",
        ),
        (["--precisions", "fp32", "--until-decided"], "--until-decided: a verdict needs fp32 and another precision"),
        (["--max-seeds", "7"], "--max-seeds: only --until-decided adds seeds"),
        (["--seeds", "1", "--until-decided", "--max-seeds", "0"], "--max-seeds: 0 is less than the 1 seeds"),
    ],
)
def test_what_cannot_give_a_verdict_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    try:
        status = run(tmp_path, *options)
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    assert status == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_quick_start_has_a_verdict_in_95_of_100_comparisons_at_its_own_noise() -> None:
    script = (ROOT / "scripts" / "run_resnet_amp.sh").read_text(encoding="utf-8")
    seeds = int(script.partition("digits.yaml --seeds ")[2].partition('"')[0])
    samples, accuracy, deviation = 719, 0.9939, 0.0023
    draws = np.random.default_rng(0).normal(accuracy, deviation, (2, 400, seeds))
    first, second = np.round(draws * samples) / samples
    judgements = [judge(pair.tolist(), load(DIGITS).margin, True, 1 / samples) for pair in first - second]
    equivalent = [judgement is not None and judgement.verdict == EQUIVALENT for judgement in judgements]
    assert np.mean(equivalent) >= 0.95
