"""Real runs for `reports.calibrate`: FP32 with many seeds, and the speed of FP32 over itself.

    python -m scripts.run_calibration CONFIG [--comparisons 12] [--pairs 5] [--output FILE] [key.sub=value ...]

All runs are made in one process, one after the other; those that are recorded already are not made again.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports.records import read_json, write_json
from train.engine.fit import Progress, evaluate, fit
from train.engine.meter import Meter, synchronize
from train.experiment import assemble, command, environment
from train.experiment.benchmark import interleave, resting

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "reports" / "results" / "calibration.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, measure and write the record after every run; returns the exit status."""
    options = command.parser("scripts.run_calibration", "FP32 against FP32, for reports.calibrate.")
    options.add_argument("--comparisons", type=int, default=12, metavar="N", help="of accuracy, and of speed")
    options.add_argument("--pairs", type=int, default=5, metavar="N", help="of runs in a comparison")
    options.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="the record")
    given = options.parse(arguments)

    def calibrate() -> int:
        build, task, config = assemble.script_of(given.config, given.overrides, given.smoke)
        device = environment.resolve_device(given.device)
        assemble.set_up_process(config, device)
        facts = environment.describe(device)
        record = read_json(given.output) or {}
        same = {"config_sha256": config.digest(), "smoke": given.smoke}
        if any(record.get(key) != value for key, value in same.items()):
            record = {"accuracies": [], "speed": []}
        record |= {
            "experiment": config.name,
            "margin": config.margin,
            "pairs": given.pairs,
            "environment": facts,
            **same,
        }
        for seed in range(len(record["accuracies"]), 2 * given.pairs * given.comparisons):
            accuracy, samples = train(build, task, config, seed, device, given.smoke)
            record["accuracies"].append(accuracy)
            record["eval_samples"] = samples
            write_json(given.output, record)
            print(f"seed {seed}: accuracy {accuracy:.4f}", flush=True)
        while len(record["speed"]) < given.comparisons:
            record["speed"].append(speed(build, task, config, len(record["speed"]), device, given.smoke))
            write_json(given.output, record)
            print(f"speed {len(record['speed'])} of {given.comparisons}", flush=True)
        return 0

    return command.finish(calibrate)


def train(build: Any, task: Any, config: Any, seed: int, device: Any, smoke: bool) -> tuple[float, int]:
    """Final accuracy and evaluation samples of one FP32 run."""
    precision = assemble.build_precision("fp32", config, device)
    model = assemble.build_model(build, config, seed, device)
    batches, evaluation = task.load(config, seed, device, smoke)
    assemble.seed_everything(seed)
    trainer = assemble.build_trainer(model, task, config, batches, precision)
    plan, nothing = assemble.plan(config, batches), lambda *_: None
    fit(trainer, batches, plan, Meter(device), Progress(), nothing, nothing, nothing)
    totals = evaluate(trainer.evaluated_model, task.forward, task.score, evaluation, precision)
    return task.summarise(totals)["eval/accuracy"], evaluation.samples


def speed(build: Any, task: Any, config: Any, seed: int, device: Any, smoke: bool) -> dict[str, Any]:
    """Seconds of the blocks of FP32 trainers and of others like them."""
    batches, _ = task.load(config, seed, device, smoke)
    model, batch = assemble.build_model(build, config, seed, device), next(batches.epoch(0))
    builds = {
        name: resting(model, task, config, batches, assemble.build_precision("fp32", config, device), batch)
        for name in ("first", "second")
    }
    found: dict[str, Any] = interleave(builds, lambda: synchronize(device))["seconds"]
    return found


if __name__ == "__main__":
    sys.exit(main())
