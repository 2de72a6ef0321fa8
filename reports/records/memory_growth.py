"""memory_growth.json: the resident memory of a long training on a CPU, step by step."""

import statistics

from reports.records.environment import Machine
from reports.records.files import Schema


class MemoryGrowth(Schema):
    """`rss_mib` is the resident set after each of `steps`."""

    experiment: str
    precision: str
    environment: Machine
    steps: list[int]
    rss_mib: list[float]

    @property
    def kib_per_step(self) -> float:
        """The slope of the least-squares line."""
        return 1024 * statistics.linear_regression(self.steps, self.rss_mib).slope
