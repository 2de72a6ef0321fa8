"""Preflight of an experiment: one forward and backward pass in every precision that the device has.

    python -m train.check CONFIG [--device ...] [--download] [key.sub=value ...]

Says which module, operation and precision fail, a head that does not fit, parameters in half or without a
gradient, and modules that mixed precision leaves in FP32. `--download` only fetches the data, pretrained weights and
tokenizer (on a machine with a network, for one without) and says what is there; see `train.experiment.download`.
"""

import sys
from collections.abc import Sequence

import torch

from train.cli import options as command
from train.cli import terminal as console
from train.engine.fit import last_batch
from train.engine.precision import PRECISIONS, why_unavailable
from train.experiment import download as provision
from train.experiment import environment, preflight
from train.experiment import setup as assemble
from train.experiment.preflight import Finding


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0 when every precision is ready, 2 when one has a fault.

    With `--download` 0 when all that the experiment reads is there and fits, 2 when something is missing.
    """
    options = command.parser("train.check", "Check that an experiment can be trained, in every precision.")
    options.add_argument("--download", action="store_true", help="only fetch data and weights, and say what is there")
    given = options.parse(arguments)

    def check() -> int:
        build, task, config = assemble.script_of(given.config, given.overrides, given.smoke)
        # What is fetched ahead of time may be fetched on a machine that has no such device.
        device = torch.device("cpu") if given.download else environment.resolve_device(given.device)
        assemble.set_up_process(config, device)
        if given.download:
            provision.fetch(config, task.data_set(config.data.name), given.smoke)
        splits = task.load(config, 0, device, given.smoke)
        train, evaluation = splits.train, splits.evaluation
        print(f"{config.data.name}: {train.samples} samples to train on, {evaluation.samples} to evaluate", flush=True)
        if given.download:
            assemble.build_model(build, config, 0, device)  # which refuses weights that do not fit
            return 0
        batch, last = next(train.epoch(0)), last_batch(evaluation)
        findings: list[Finding] = []
        for name in PRECISIONS:
            if reason := why_unavailable(name, device):
                print(f"{name}: not here: {reason}")
                continue
            model = assemble.build_model(build, config, 0, device)
            precision = assemble.build_precision(name, config, device)
            trainer = assemble.build_trainer(model, task, config, train, precision)
            remedy = not any(finding.faults for finding in findings if finding.precision == "fp32")
            findings.append(preflight.examine(trainer, task.score, batch, last, config.num_classes, remedy))
        _show(config.name, findings)
        return command.STATUS["refused"] if any(finding.faults for finding in findings) else 0

    return command.finish(check)


def _show(name: str, findings: Sequence[Finding]) -> None:
    rows = []
    for finding in findings:
        saved = "n/a" if finding.saved_mib is None else f"{finding.saved_mib:.1f} MiB"
        dtypes = ", ".join(f"{dtype} {count}" for dtype, count in finding.module_outputs.items()) or "n/a"
        rows.append([finding.precision, "fault" if finding.faults else "ready", dtypes, saved])
    console.print_table(name, ["precision", "state", "linear and convolution outputs", "saved for backward"], rows)
    for finding in findings:
        for text in [*finding.faults, *finding.remarks]:
            print(f"{finding.precision}: {text}")


if __name__ == "__main__":
    sys.exit(main())
