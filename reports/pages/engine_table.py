"""What the engine's step costs and gains, as measured by `scripts.bench_engine` and `scripts.memory_growth`."""

from pathlib import Path

from reports.analysis.speed import engine_ratios
from reports.pages.text_table import Table
from reports.records.engine_benchmark import EngineBenchmark
from reports.records.environment import UNCOMMITTED
from reports.records.files import read_record
from reports.records.memory_growth import MemoryGrowth


def engine_table(path: Path) -> str:
    """The record in `path` as Markdown; raises ValueError saying why it may not be shown."""
    record = read_record(EngineBenchmark, path)
    if record.tiny:
        raise ValueError(f"{path.name} is of a trial of the command")
    if not record.environment.git.committed:
        raise ValueError(f"the source of {path.name} {UNCOMMITTED}")
    return table_of(record)


def table_of(record: EngineBenchmark) -> str:
    """Its ratios as Markdown, under a line on what was measured."""
    rows = []
    for name, ratio in engine_ratios(record).items():
        interval = f"{ratio.interval.low:.3f} to {ratio.interval.high:.3f}" if ratio.interval else "one start"
        rows.append([name, f"{ratio.value:.3f}", interval])
    rows.append(["loader time / bf16 step time", f"{record.loader_share_of_bf16_step:.4f}", ""])
    if native := record.native_fp16:
        name = f"throughput, PyTorch's own fp16 kernels / fp32, batch {native.batch_size}"
        rows.append([name, f"{native.throughput_over_fp32:.4f}", "single steps"])
    table = Table(["ratio, measured in turns", "mean", "95% interval over process starts"], rows)
    return f"{record.experiment}, on {record.environment.device.label}:\n\n{table.markdown()}"


def memory_growth(path: Path) -> str:
    """The record in `path` as a sentence; raises ValueError for one whose source is in no commit."""
    record = read_record(MemoryGrowth, path)
    if not record.environment.git.committed:
        raise ValueError(f"the source of {path.name} {UNCOMMITTED}")
    slope = f"{record.kib_per_step:+.2f} KiB a step over {record.steps[-1]:,} steps"
    where = f"{record.experiment} in {record.precision} on {record.environment.device.label}"
    return f"Resident memory of {where}: {slope} (least squares)."
