"""engine_benchmark.json: what the engine's step costs against a plain loop, and gains by each precision."""

from typing import Annotated

from pydantic import Field

from reports.records.benchmark import Blocks
from reports.records.environment import Machine
from reports.records.files import Schema

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NativeHalf(Schema):
    """Throughput of PyTorch's own fp16 kernels on this CPU."""

    batch_size: int
    throughput_over_fp32: Positive


class EngineBenchmark(Schema):
    """`ratios` are medians with the ends of their 95% intervals; a `tiny` record is a trial of the command."""

    experiment: str
    tiny: bool = False
    environment: Machine
    ratios: dict[str, Annotated[tuple[Positive, Positive, Positive], Field(strict=False)]]
    loader_share_of_bf16_step: Positive
    blocks: Blocks | None = None
    native_fp16: NativeHalf | None = None
