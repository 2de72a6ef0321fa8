"""Preflight of an experiment: one forward and backward pass in every precision that the device has.

    python -m train.check CONFIG [--device ...] [--download] [key.sub=value ...]

Says which module, operation and precision fail, a head that does not fit, parameters in half or without a
gradient, and modules that mixed precision leaves in FP32. `--download` only fetches the data, pretrained weights and
tokenizer (on a machine with a network, for one without) and says what is there; see `train.experiment.download`.
"""

import sys
from collections.abc import Sequence

import torch

from reports.records.config import Experiment
from train.cli import options, terminal
from train.cli.scripts import script_of
from train.engine.fit import last_batch
from train.engine.precision import PRECISIONS, why_unavailable
from train.experiment import download, environment, preflight
from train.experiment.preflight import Finding
from train.experiment.setup import Script, build_model, set_up_process, setup


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0 when every precision is ready, 2 when one has a fault.

    With `--download` 0 when all that the experiment reads is there and fits, 2 when something is missing.
    """
    parser = options.parser("train.check", "Check that an experiment can be trained, in every precision.")
    parser.add_argument("--download", action="store_true", help="only fetch data and weights, and say what is there")
    given = parser.parse(arguments)

    def check() -> int:
        script = script_of(given.config, given.overrides)
        config = script.read(given.config, given.overrides, given.smoke)
        if given.download:
            return _download(script, config, given.smoke)
        return _examine(script, config, environment.resolve_device(given.device), given.smoke)

    return options.finish(check)


def _download(script: Script, config: Experiment, smoke: bool) -> int:
    # On the CPU: what is fetched ahead of time may be fetched on a machine that has no such device.
    device = torch.device("cpu")
    set_up_process(config, device)
    download.fetch(config, script.task.entry(config.data.name), smoke)
    data = script.task.data(config, 0, device, smoke)
    _print_samples(config, data.train.samples, data.evaluation.samples)
    build_model(script.build, config, 0, device)  # which refuses weights that do not fit
    return 0


def _examine(script: Script, config: Experiment, device: torch.device, smoke: bool) -> int:
    findings: list[Finding] = []
    data = None
    for name in PRECISIONS:
        if reason := why_unavailable(name, device):
            print(f"{name}: not here: {reason}")
            continue
        wired = setup(script, config, name, 0, device, smoke, data)
        if data is None:
            _print_samples(config, wired.data.train.samples, wired.data.evaluation.samples)
        data = wired.data
        remedy = not any(finding.faults for finding in findings if finding.precision == "fp32")
        batch, last = next(data.train.epoch(0)), last_batch(data.evaluation)
        trainer = wired.trainer_on_copy()
        findings.append(preflight.examine(trainer, script.task.score, batch, last, config.num_classes, remedy))
    _print_findings(config.name, findings)
    return options.STATUS["refused"] if any(finding.faults for finding in findings) else 0


def _print_samples(config: Experiment, train: int, evaluation: int) -> None:
    print(f"{config.data.name}: {train} samples to train on, {evaluation} to evaluate", flush=True)


def _print_findings(name: str, findings: Sequence[Finding]) -> None:
    rows = []
    for finding in findings:
        saved = "n/a" if finding.saved_mib is None else f"{finding.saved_mib:.1f} MiB"
        dtypes = ", ".join(f"{dtype} {count}" for dtype, count in finding.module_outputs.items()) or "n/a"
        rows.append([finding.precision, "fault" if finding.faults else "ready", dtypes, saved])
    terminal.print_table(name, ["precision", "state", "linear and convolution outputs", "saved for backward"], rows)
    for finding in findings:
        for text in [*finding.faults, *finding.remarks]:
            print(f"{finding.precision}: {text}")


if __name__ == "__main__":
    sys.exit(main())
