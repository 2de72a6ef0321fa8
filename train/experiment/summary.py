"""The summary of a run: what its parts know when it ends."""

from reports.records.environment import RunPrecision
from reports.records.identity import Identity
from reports.records.summary import Pretrained, Steps, Summary
from train.engine.fit import Progress
from train.experiment import environment
from train.experiment.record import RunRecord
from train.experiment.setup import Setup


def summarise(
    wired: Setup, identity: Identity, record: RunRecord, progress: Progress, precision: RunPrecision
) -> Summary:
    """The figures so far; how the run ended is for the caller to add."""
    metric, trainer = wired.task.metric, wired.trainer
    steps, applied = trainer.step_count, trainer.applied_step
    pretrained = getattr(wired.model, "pretrained", None)  # what the loaders of `models` leave on it
    final = record.last()
    return Summary(
        experiment=wired.config.name,
        smoke=wired.smoke,
        precision=precision,
        seed=wired.seed,
        device=environment.device_name(wired.device),
        metric=metric.key,
        higher_is_better=metric.higher_is_better,
        metrics=[one for one in wired.task.metrics if one.key in final or one == metric],
        final=dict(final),
        best={metric.key: progress.best},
        steps=Steps(planned=wired.plan.steps, attempted=steps, applied=applied),
        skipped_steps=steps - applied if wired.precision.arithmetic.scaled else 0,
        nonfinite_loss_steps=record.nonfinite_loss_steps,
        parameters=sum(parameter.numel() for parameter in wired.model.parameters()),
        pretrained=Pretrained(**pretrained) if pretrained else None,
        train_samples=wired.data.train.samples,
        eval_samples=wired.data.evaluation.samples,
        **identity.model_dump(exclude={"place"}),
    )
