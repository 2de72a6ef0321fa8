"""How much a step of emulated fp16 leaves behind: python -m scripts.memory_growth --output FILE

Trains LeNet-5 on the digits for 5,000 steps of fp16 on the CPU and records the process's resident memory.
"""

from pathlib import Path

import psutil

from reports import command
from reports.records.files import write_record
from reports.records.memory_growth import MemoryGrowth
from train.cli.scripts import script_of
from train.engine.fit import micro_batches_by_step
from train.engine.meter import MIB
from train.experiment import environment
from train.experiment.setup import setup

CONFIG, PRECISION = Path("configs/lenet5_digits.yaml"), "fp16"
WARMUP_STEPS = 500  # in which the allocator reaches its size


def measure(steps: int, every: int) -> MemoryGrowth:
    """Train, and read the memory every `every` steps after the warm-up."""
    script, device = script_of(CONFIG), environment.resolve_device("cpu")
    config = script.read(CONFIG, ["epochs=null", f"max_steps={steps}"])
    wired = setup(script, config, PRECISION, 0, device)
    stream = micro_batches_by_step(wired.data.train, config.accumulate, 0)
    process, measured, memory = psutil.Process(), [], []
    wired.trainer.train_mode()
    for step in range(1, steps + 1):
        wired.trainer.step(next(stream))
        if step % every == 0 and step > min(WARMUP_STEPS, steps // 2):
            measured.append(step)
            memory.append(process.memory_info().rss / MIB)
    return MemoryGrowth(
        experiment=config.name,
        precision=PRECISION,
        environment=environment.describe(device),
        steps=measured,
        rss_mib=memory,
    )


def main() -> None:
    """Measure, print the slope, write the record."""
    options = command.parser("scripts.memory_growth", __doc__)
    options.add_argument("--output", type=Path, metavar="FILE", help="where the record goes")
    options.add_argument("--steps", type=int, default=5000)
    given = options.parse_args()
    record = measure(given.steps, max(given.steps // 100, 1))
    print(f"{record.experiment} {record.precision}: {record.kib_per_step:+.3f} KiB a step over {given.steps} steps")
    if given.output:
        write_record(given.output, record)


if __name__ == "__main__":
    main()
