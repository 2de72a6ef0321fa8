"""How far a figure is off that comes from a few evaluation samples: python -m scripts.evaluation_noise RUN...

Some sources evaluate on samples drawn at random and not on the whole split (nanoGPT: `eval_iters` batches). For every
run folder with its last checkpoint this evaluates the final weights on the whole split, sample by sample, and writes
evaluation.json beside the record: the standard deviation of a sample's loss. `reports.analysis.reproduction`
makes of it the error of a mean over as many samples as the source drew.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reports.records.files import read_json, write_json
from train.cli import options as command
from train.data.tokens import IGNORED
from train.engine import checkpoint
from train.engine.errors import Refused
from train.engine.fit import evaluate
from train.experiment import setup as assemble
from train.experiment.folder import LAST


def main() -> int:
    """Write the records; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a finished run")
    runs = options.parse_args().runs

    def measure() -> int:
        for run in runs:
            found = evaluation_noise(run)
            write_json(run / "evaluation.json", found)
            print(
                f"{run}: loss {found['loss']:.4f}, standard deviation of a sample {found['sample_sd']:.4f}", flush=True
            )
        return 0

    return command.finish(measure)


def evaluation_noise(run: Path) -> dict[str, Any]:
    """The loss of the final weights, its standard deviation over samples, and how many there are.

    Samples with fewer labels than the longest, such as the last block of a text, are left out of the deviation.
    Raises `Refused` for a folder that is not that of a finished run or whose checkpoint has other weights.
    """
    summary = read_json(run / "summary.json") or {}
    if summary.get("status") != "finished":
        raise Refused(f"{run} is not the folder of a finished run")
    build, task, config = assemble.script_of(run / "config.yaml", [])
    device = torch.device("cpu")
    model = assemble.build_model(build, config, summary["seed"], device)
    model.load_state_dict(checkpoint.load(run / LAST)["trainer"]["model"])
    digest = assemble.digest_of(model)
    if digest != summary["final_weights_sha256"]:
        raise Refused(f"{run / LAST} does not hold the final weights of the run, whose SHA-256 is in summary.json")
    evaluation = task.load(config, summary["seed"], device).evaluation
    losses: list[Tensor] = []
    counts: list[Tensor] = []

    def keep(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        each = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="none")
        losses.append(each.view(len(labels), -1).double().sum(dim=1))
        counts.append((labels != IGNORED).view(len(labels), -1).sum(dim=1))
        return {}

    precision = assemble.build_precision(summary["precision"]["requested"], config, device)
    evaluate(model, task.forward, keep, evaluation, precision)
    total, count = torch.cat(losses), torch.cat(counts)
    whole = count == count.max()
    return {
        "weights_sha256": digest,
        "loss": (total.sum() / count.sum()).item(),
        "samples": int(whole.sum()),
        "labels_per_sample": int(count.max()),
        "sample_sd": (total[whole] / count[whole]).std().item(),
    }


if __name__ == "__main__":
    sys.exit(main())
