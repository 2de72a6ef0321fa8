"""What an experiment costs: python -m scripts.estimate [--output reports/estimates.json]

Counts the floating-point operations of one forward pass (torch.utils.flop_counter) of every experiment, and how many
samples its training takes. `reports` turns both into hours from the measured speed of the quick start, at three times
a forward pass a sample.
"""

import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from reports import command
from reports.records.config import Experiment
from reports.records.estimates import Estimate, Estimates
from reports.records.files import write_record
from train.cli.scripts import script_of
from train.data.catalog import ImageSet
from train.experiment.setup import Script

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Write the counts of every experiment whose data have a known size."""
    parser = command.parser("scripts.estimate", __doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "reports" / "estimates.json", metavar="FILE")
    output = parser.parse_args().output
    estimates: dict[str, Estimate] = {}
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        script = script_of(path)
        config = script.read(path, ["pretrained=false"])
        known = script.task.entry(config.data.name).training_samples
        if config.max_steps is None and known is None:
            continue
        model = script.build(config).eval()
        estimate = Estimate(
            forward_flops=forward_flops(script, config, model),
            samples=samples(config, known),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
        )
        estimates[config.name] = estimate
        print(config.name, estimate, flush=True)
    write_record(output, Estimates(estimates))
    return 0


def forward_flops(script: Script, config: Experiment, model: nn.Module) -> int:
    """Of one sample: an image, or a sequence of `data.length` tokens."""
    entry = script.task.entry(config.data.name)
    if isinstance(entry, ImageSet):
        batch = {"images": torch.zeros(1, entry.channels, entry.size, entry.size)}
    else:
        batch = {"input_ids": torch.zeros(1, config.data.length or 1, dtype=torch.int64)}
        if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
            batch["decoder_input_ids"] = torch.zeros(1, 1, dtype=torch.int64)  # the targets here are words
    # Fused attention is not counted on a CPU; with gradients and by plain products it is.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        script.task.forward(model, {**batch, "labels": torch.zeros(1, dtype=torch.int64)})
    return int(counter.get_total_flops())


def samples(config: Experiment, known: int | None) -> int:
    """How many samples, with repetition, the training takes, of a split of `known` ones."""
    if config.max_steps is not None:
        return config.max_steps * config.batch_size * config.accumulate
    assert known is not None
    known -= config.data.held_out or 0
    return math.ceil(min(config.data.train_samples or known, known) * (config.epochs or 0))


if __name__ == "__main__":
    sys.exit(main())
