"""benchmark.json: seconds of equal blocks of training steps, each precision in turn in one process."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from reports.records.environment import Source
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


class Benchmark(Blocks):
    """Blocks by precision. `operators_ms` are the longest operators of a step, by the time each takes by itself."""

    config_sha256: str
    device: str
    torch: str | None = None
    smoke: bool = False
    git: Source = Field(default_factory=Source)
    samples_per_step: Count
    operators_ms: dict[str, dict[str, float]] = {}
