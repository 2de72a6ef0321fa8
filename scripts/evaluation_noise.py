"""How far a figure is off that comes from a few evaluation samples: python -m scripts.evaluation_noise RUN...

Some sources evaluate on samples drawn at random and not on the whole split (nanoGPT: `eval_iters` batches). For every
run folder with its last checkpoint this evaluates the final weights on the whole split, sample by sample, and writes
evaluation.json beside the record: the standard deviation of a sample's loss. `reports.analysis.reproduction` makes of
it the error of a mean over as many samples as the source drew.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from reports import command
from reports.records import layout
from reports.records.evaluation import Evaluation
from reports.records.files import write_record
from reports.records.summary import FINISHED, read_summary
from train.cli import options
from train.cli.scripts import script_of
from train.data.tokens import IGNORED
from train.engine import checkpoint
from train.engine.errors import Refused
from train.engine.fit import evaluate
from train.experiment.run_state import LAST
from train.experiment.setup import digest_of, setup


def main() -> int:
    """Write the records; returns the exit status."""
    parser = command.parser("scripts.evaluation_noise", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a finished run")
    runs = parser.parse_args().runs

    def measure() -> int:
        for run in runs:
            record = evaluation_noise(run)
            write_record(run / layout.EVALUATION, record)
            print(f"{run}: loss {record.loss:.4f}, standard deviation of a sample {record.sample_sd:.4f}", flush=True)
        return 0

    return options.finish(measure)


def evaluation_noise(run: Path) -> Evaluation:
    """The loss of the final weights, its standard deviation over samples, and how many there are.

    Samples with fewer labels than the longest, such as the last block of a text, are left out of the deviation.
    Raises `Refused` for a folder that is not that of a finished run or whose checkpoint has other weights.
    """
    summary = read_summary(run / layout.SUMMARY)
    if summary.status != FINISHED or summary.seed is None:
        raise Refused(f"{run} is not the folder of a finished run")
    script = script_of(run / layout.CONFIG)
    config, precision = script.read(run / layout.CONFIG, []), summary.precision.requested or ""
    wired = setup(script, config, precision, summary.seed, torch.device("cpu"))
    wired.trainer.load_state_dict(checkpoint.load(run / LAST)["trainer"])
    model = wired.trainer.evaluated_model
    digest = digest_of(model)
    if digest != summary.final_weights_sha256:
        raise Refused(f"{run / LAST} does not hold the final weights of the run, whose SHA-256 is in summary.json")
    losses: list[Tensor] = []
    counts: list[Tensor] = []

    def keep(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        each = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="none")
        losses.append(each.view(len(labels), -1).double().sum(dim=1))
        counts.append((labels != IGNORED).view(len(labels), -1).sum(dim=1))
        return {}

    evaluate(model, wired.task.forward, keep, wired.data.evaluation, wired.precision)
    total, count = torch.cat(losses), torch.cat(counts)
    whole = count == count.max()
    return Evaluation(
        weights_sha256=digest,
        loss=(total.sum() / count.sum()).item(),
        samples=int(whole.sum()),
        labels_per_sample=int(count.max()),
        sample_sd=(total[whole] / count[whole]).std().item(),
    )


if __name__ == "__main__":
    sys.exit(main())
