"""engine_benchmark.json: seconds of the engine's step and of a plain loop's in each precision."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from reports.records.benchmark import Blocks
from reports.records.environment import Machine
from reports.records.files import Schema

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NativeHalf(Schema):
    """Throughput of PyTorch's own fp16 kernels on this CPU."""

    batch_size: int
    throughput_over_fp32: Positive


class EngineBenchmark(Schema):
    """`starts` are the blocks of one process each, by variant; a `tiny` record is a trial of the command."""

    experiment: str
    tiny: bool = False
    environment: Machine
    starts: list[Blocks] = Field(min_length=1)
    loader_share_of_bf16_step: Positive
    native_fp16: NativeHalf | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_one_process(cls, values: Any) -> Any:
        """A record of the time when all rounds were in one process, which holds their `blocks`."""
        return {**values, "starts": [values["blocks"]]} if isinstance(values, dict) and "blocks" in values else values
