"""The engine's own benchmark, engine_benchmark.json of `python -m scripts.bench_engine`, as a table."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from reports.records.environment import UNCOMMITTED, Environment
from reports.records.files import Part, read_as

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NO_RECORD = "No record: "


def _ordered(interval: list[float]) -> list[float]:
    median, low, high = interval
    if not low <= median <= high:
        raise ValueError(f"{interval} is no median between two limits")
    return interval


Interval = Annotated[list[Positive], Field(min_length=3, max_length=3), AfterValidator(_ordered)]  # median, low, high


class Native(Part):
    batch_size: int
    throughput_over_fp32: Positive


class Engine(Part):
    experiment: str
    tiny: bool = False
    environment: Environment
    ratios: dict[str, Interval]
    loader_share_of_bf16_step: Positive
    native_fp16: Native | None = None


def engine_table(path: Path) -> str:
    """The record in `path` as Markdown; of what may not be shown, why."""
    try:
        record = read_as(Engine, path, "one of scripts.bench_engine")
    except ValueError as error:
        return f"{NO_RECORD}{path.name} {error}."
    if record.tiny:
        return f"{NO_RECORD}{path.name} is of a trial of the command."
    source, device = record.environment.git, record.environment.device
    if source is None or not source.committed:
        return f"{NO_RECORD}the source of {path.name} {UNCOMMITTED}."
    lines = [f"{record.experiment}, on {device.shown if device else 'unknown hardware'}:", ""]
    lines += ["| ratio, measured in turns in one process | median | 95% interval |", "| :-- | --: | --: |"]
    for name, (value, low, high) in record.ratios.items():
        lines.append(f"| {name} | {value:.3f} | {low:.3f} to {high:.3f} |")
    lines.append(f"| loader time / bf16 step time | {record.loader_share_of_bf16_step:.4f} | |")
    if native := record.native_fp16:
        name = f"throughput, PyTorch's own fp16 kernels / fp32, batch {native.batch_size}"
        lines.append(f"| {name} | {native.throughput_over_fp32:.4f} | single steps |")
    return "\n".join(lines)
