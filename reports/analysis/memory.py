"""Peak memory of emulated precisions from short runs, where the runs of a comparison record none that is right."""

from collections.abc import Sequence
from pathlib import Path

from reports.records.comparison import RunResult
from reports.records.environment import UNCOMMITTED
from reports.records.files import read_record
from reports.records.short_runs import ShortRuns


def read_short_runs(
    path: Path, runs: Sequence[RunResult] = (), publish: bool = False
) -> tuple[ShortRuns | None, str | None]:
    """The short runs beside the finished `runs`, None without any, and the reason why they may not be shown.

    Their configuration must be that of the runs; to `publish` them, their source must be a commit.
    """
    if not path.exists():
        return None, None
    try:
        short_runs = read_record(ShortRuns, path)
        if runs and short_runs.config_sha256 not in {run.summary.config_sha256 for run in runs}:
            raise ValueError(f"config_sha256 of {path.name} is not that of the runs")
        if publish and not short_runs.git.committed:
            raise ValueError(f"the source of {path.name} {UNCOMMITTED}")
    except ValueError as error:
        return None, f"its peak memory is left out: {error}"
    return short_runs, None
