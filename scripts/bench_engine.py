"""What the engine costs and gains: its step against a plain PyTorch loop, and the precisions against each other.

    python -m scripts.bench_engine [--starts N] [--output FILE] [--tiny]

ResNet-20, batch 128, 32x32, channels_last. In each of several processes all variants take turns, block by block, and
only ratios are reported, each with its 95% interval over these process starts. --tiny is a check that it runs.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from models.cifar_resnet import CifarResNet
from reports import command
from reports.pages.engine_table import table_of
from reports.records.benchmark import Blocks
from reports.records.engine_benchmark import EngineBenchmark, NativeHalf
from reports.records.files import write_record
from train.data.images_in_memory import ImagesInMemory, Pixels
from train.data.specification import DataSpec
from train.engine.allocator import keep_freed_memory
from train.engine.emulated_fp16 import emulate_fp16
from train.engine.meter import synchronize
from train.engine.precision import Precision
from train.engine.step import Batch, Trainer
from train.experiment import environment
from train.experiment.benchmark import ROUNDS, STARTS, Step, in_new_process, interleave
from train.experiment.optimizers import build_optimizer
from train.experiment.tasks import image_classification as task

PRECISIONS = ("fp32", "bf16", "fp16")
DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def fresh_model(device: torch.device) -> CifarResNet:
    """The same weights for every variant."""
    torch.manual_seed(0)
    return CifarResNet(20, 10).to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def plain_step(precision: str, batch: Batch, emulate: bool = True) -> Step:
    """The loop that one would write by hand, with torch.amp and nothing of the engine but its fp16 kernels."""
    images, labels = batch["images"], batch["labels"]
    device = images.device
    model = fresh_model(device)
    fused = device.type == "cuda"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, weight_decay=1e-4, fused=fused)
    dtype = DTYPES[precision]
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    half = precision == "fp16" and emulate and device.type == "cpu"

    def step() -> Tensor:
        emulate_fp16(half)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def engine_step(precision: str, batch: Batch) -> Step:
    """The same step through the engine, with its checks, its gradient norm and its transaction."""
    device = batch["images"].device
    model = fresh_model(device)
    optimizer = build_optimizer(model, "sgd", 0.0, 1e-4, True, None, {"momentum": 0.9}, device)
    trainer = Trainer(
        model, task.forward, F.cross_entropy, task.weight, [optimizer], lambda step: 1.0, Precision(precision, device)
    )
    return lambda: trainer.step([batch])


def loader_seconds(batch_size: int, device: torch.device, batches: int) -> float:
    """Median seconds for one batch of crops and flips from a CIFAR-sized set in memory."""
    images = torch.randint(0, 256, (5000, 32, 32, 3), dtype=torch.uint8)
    half = torch.full((3,), 0.5)
    spec = DataSpec(name="noise", batch_size=batch_size, seed=0, device=device, augment="crop_flip", channels_last=True)
    loader = ImagesInMemory(Pixels(images, torch.zeros(5000, dtype=torch.int64)), spec, half, half, training=True)
    return sorted(_seconds(loader.epoch(0), batches, device))[batches // 2]


def native_half(device: torch.device, batch_size: int) -> NativeHalf:
    """Throughput of PyTorch's own fp16 kernels over FP32's, from one step each at a batch small enough to wait for."""
    batch = _batch(batch_size, device)
    seconds = {}
    for name in ("fp32", "fp16"):
        step = plain_step(name, batch, emulate=False)
        step()
        seconds[name] = min(_seconds((step() for _ in range(2)), 2, device))
    return NativeHalf(batch_size=batch_size, throughput_over_fp32=seconds["fp32"] / seconds["fp16"])


def blocks(tiny: bool) -> Blocks:
    """Seconds of the blocks of all variants, in turn in this process."""
    device = environment.resolve_device("auto")
    keep_freed_memory()  # for the plain loop too: both run in this process
    batch = _batch(_batch_size(tiny), device)
    builds: dict[str, Callable[[], Step]] = {}
    for name in PRECISIONS:
        builds |= {
            f"plain {name}": partial(plain_step, name, batch),
            f"engine {name}": partial(engine_step, name, batch),
        }
    rounds, seconds = (2, 0.01) if tiny else (ROUNDS, 0.5)
    return interleave(builds, lambda: synchronize(device), rounds, seconds)


def measure(tiny: bool, starts: int) -> EngineBenchmark:
    """The record: machine, and the raw blocks of each process start."""
    device = environment.resolve_device("auto")
    measured = [in_new_process(blocks, tiny) for _ in range(starts)]
    steps = [statistics.median(one.seconds["engine bf16"]) / one.block_steps for one in measured]
    batch_size = _batch_size(tiny)
    return EngineBenchmark(
        experiment=f"ResNet-20, batch {batch_size}, 3x32x32, channels_last, SGD",
        tiny=tiny,
        environment=environment.describe(device),
        starts=measured,
        loader_share_of_bf16_step=loader_seconds(batch_size, device, 20) / statistics.median(steps),
        native_fp16=native_half(device, 1 if tiny else 8) if device.type == "cpu" else None,
    )


def main() -> None:
    """Measure, print the table, write the record."""
    options = command.parser("scripts.bench_engine", __doc__)
    options.add_argument("--starts", type=int, default=STARTS, metavar="N", help=f"processes that measure; {STARTS}")
    options.add_argument("--output", type=Path, metavar="FILE", help="where the record goes")
    options.add_argument("--tiny", action="store_true", help="few small steps: shows that it runs, measures nothing")
    given = options.parse_args()
    record = measure(given.tiny, given.starts)
    print(table_of(record))
    if given.output:
        write_record(given.output, record)


def _batch_size(tiny: bool) -> int:
    return 8 if tiny else 128


def _batch(size: int, device: torch.device) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(size, 3, 32, 32, generator=draw).to(device=device, memory_format=torch.channels_last)
    return {"images": images, "labels": torch.randint(0, 10, (size,), generator=draw).to(device)}


def _seconds(work: Iterable[object], count: int, device: torch.device) -> list[float]:
    """Seconds of each of the first `count` items of `work`."""
    seconds, stream = [], iter(work)
    for _ in range(count):
        synchronize(device)
        started = time.perf_counter()
        next(stream)
        synchronize(device)
        seconds.append(time.perf_counter() - started)
    return seconds


if __name__ == "__main__":
    main()
