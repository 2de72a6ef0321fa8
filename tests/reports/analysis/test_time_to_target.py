"""How long each precision trains until it is as good as FP32 is in the end."""

from pathlib import Path

import pytest

from reports.analysis.time_to_target import TimeToTarget, times_to_target
from tests.reports.made_runs import compared, write_benchmark, write_evaluations, write_run


def evaluated(folder: Path, precision: str, *runs: tuple[float, ...], key: str = "eval/accuracy") -> None:
    """Runs with one evaluation after each of their last steps."""
    for seed, values in enumerate(runs):
        final, better = {key: values[-1]}, key == "eval/accuracy"
        run = write_run(folder, precision, seed, final=final, metric=key, higher_is_better=better)
        write_evaluations(run, *({key: value} for value in values))


def times(folder: Path, seeds: int) -> dict[str, TimeToTarget]:
    return {one.precision: one for one in times_to_target(folder, compared(folder, "fp32,bf16", seeds))}


def test_time_is_the_steps_to_the_first_evaluation_as_good_as_the_mean_of_fp32_at_the_measured_speed(
    tmp_path: Path,
) -> None:
    evaluated(tmp_path, "fp32", (0.5, 0.6, 0.7, 0.8), (0.5, 0.9, 0.8, 0.9), (0.5, 0.6, 0.88, 0.85))  # mean 0.85
    evaluated(tmp_path, "bf16", (0.85, 0.1, 0.1, 0.1), (0.8, 0.9, 0.9, 0.9), (0.8, 0.8, 0.8, 0.86))
    write_benchmark(tmp_path, fp32=[1.0, 1.0], bf16=[0.5, 0.5])  # 0.1 and 0.05 s a step
    found = times(tmp_path, 3)
    # FP32: never, at step 2, at step 3; bf16: at steps 1, 2 and 4.
    assert [(one.runs, one.reached, one.steps) for one in found.values()] == [(3, 2, 3), (3, 3, 2)]
    assert [found[name].seconds for name in ("fp32", "bf16")] == pytest.approx([3 * 0.1, 2 * 0.05])


def test_a_loss_is_reached_from_above(tmp_path: Path) -> None:
    evaluated(tmp_path, "fp32", (3.0, 2.0, 1.5, 1.0), key="eval/loss")
    evaluated(tmp_path, "bf16", (3.0, 2.0, 1.0, 1.1), key="eval/loss")
    write_benchmark(tmp_path, fp32=[1.0, 1.0], bf16=[0.5, 0.5])
    assert [one.steps for one in times(tmp_path, 1).values()] == [4, 3]


def test_a_precision_of_which_half_the_runs_never_get_there_has_no_time(tmp_path: Path) -> None:
    evaluated(tmp_path, "fp32", (0.9,), (0.9,))
    evaluated(tmp_path, "bf16", (0.9,), (0.8,))
    write_benchmark(tmp_path, fp32=[1.0, 1.0], bf16=[0.5, 0.5])
    assert times(tmp_path, 2)["bf16"] == TimeToTarget("bf16", 2, 1, None, None)


def test_without_a_measured_speed_there_are_steps_and_no_seconds(tmp_path: Path) -> None:
    evaluated(tmp_path, "fp32", (0.9,))
    evaluated(tmp_path, "bf16", (0.95,))
    assert times(tmp_path, 1)["bf16"] == TimeToTarget("bf16", 1, 1, 4, None)
    assert times_to_target(tmp_path / "none", compared(tmp_path / "none", seeds=1)) == []


def test_equal_values_reach_their_mean(tmp_path: Path) -> None:
    evaluated(tmp_path, "fp32", *((0.1 * 7 / 9,) for _ in range(11)))
    assert times(tmp_path, 11)["fp32"].reached == 11
