"""benchmark.json: seconds of equal blocks of training steps, each precision in turn, in several process starts."""

from collections.abc import Collection
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from reports.records.environment import Processor, Source
from reports.records.files import Schema

Seconds = Annotated[float, Field(gt=1e-9, lt=1e9, allow_inf_nan=False)]  # no clock measures less, nobody waits longer
Count = Annotated[int, Field(gt=0, lt=2**53)]


class Blocks(Schema):
    """`seconds[name][round]` of a block of `block_steps` steps."""

    block_steps: Count
    seconds: dict[str, list[Seconds]]

    @model_validator(mode="after")
    def _equally_many(self) -> Self:
        counts = [len(blocks) for blocks in self.seconds.values()]
        if min(counts, default=0) < 2 or min(counts) < max(counts):
            raise ValueError(f"blocks must be equally many and at least 2, not {counts}")
        return self


class Start(Blocks):
    """Blocks by precision of one process. `operators_ms` are a step's longest operators, by their own time."""

    git: Source = Field(default_factory=Source)
    samples_per_step: Count
    operators_ms: dict[str, dict[str, float]] = {}

    def has(self, precisions: Collection[str]) -> bool:
        """Whether all of them were measured in this process, side by side."""
        return self.seconds.keys() >= set(precisions)


class Conditions(Schema):
    """What all starts of a benchmark have in common; None is not recorded."""

    config_sha256: str
    source_sha256: str | None = None
    device: str
    cpu: Processor | None = None
    torch: str | None = None
    smoke: bool = False


class Benchmark(Conditions):
    """The starts that were measured under these conditions, and why the one after them failed, if it did."""

    starts: list[Start] = []
    reason: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_one_process(cls, values: Any) -> Any:
        """A record of the time when all rounds were in one process, which holds that start's own fields."""
        if isinstance(values, dict) and "seconds" in values:
            return {**values, "starts": [{key: values[key] for key in Start.model_fields if key in values}]}
        return values

    @property
    def sources(self) -> list[Source]:
        return [start.git for start in self.starts]
