"""What a run's checkpoint holds, and which of its files to resume from.

The checkpoint is the truth: it carries the lines of metrics.jsonl up to its step and the attempts that led to it, so
that a run resumes whatever became of the other files. Two generations are kept, and the best weights.
"""

import shutil
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError

from reports.records.config import Experiment
from reports.records.environment import Attempt
from reports.records.files import Schema, explain, naming
from reports.records.identity import Identity
from train.engine import checkpoint
from train.engine.errors import Refused
from train.engine.fit import Progress

LAST, PREVIOUS, BEST = GENERATIONS = ("checkpoints/last.pt", "checkpoints/previous.pt", "checkpoints/best.pt")
START_AGAIN = "start again with --resume never"


class Part(Schema):
    """A part of a checkpoint, which has all of its keys and no other."""

    model_config = ConfigDict(strict=True, extra="forbid")


class RunKey(Part):
    """Which run it is. `config` is an `Experiment`; keys that came later are at their defaults."""

    config: dict[str, Any]
    precision: str
    seed: int


class Position(Part):
    """`Progress` of the loop."""

    evaluated_step: int
    best: float | None


class RunState(Part):
    """A checkpoint. `trainer`, `meter` and `random` are the states of those objects; `history` is metrics.jsonl."""

    format: int
    identity: RunKey
    built: Identity
    run_id: str
    attempts: list[Attempt] = Field(min_length=1)
    history: str
    trainer: dict[str, Any]
    progress: Position
    meter: dict[str, int | float | dict[str, float]]
    random: dict[str, Any] | None = None

    def experiment(self, source: Path) -> Experiment:
        """The configuration that it was written under; raises `Refused`, naming the file `source`, for none."""
        try:
            return Experiment.model_validate(self.identity.config)
        except ValidationError as error:
            raise Refused(f"checkpoint {source} is not one of a run: {explain(error)}") from None


def read_state(file: Path, folder: Path | None = None) -> RunState:
    """The checkpoint in `file`; raises `Refused` for one that is missing, damaged or not of a run.

    For a damaged one it names a whole one in the run folder `folder`, if there is one.
    """
    try:
        state = checkpoint.load(file)
    except checkpoint.Damaged as error:
        if folder is None:
            raise
        whole = next((folder / name for name in GENERATIONS if checkpoint.is_whole(folder / name)), None)
        other = f"resume from {whole} with --resume {whole}, or " if whole else ""
        raise Refused(f"{error}; {other}{START_AGAIN}") from None
    try:
        return RunState.model_validate(state)
    except ValidationError as error:
        raise Refused(f"checkpoint {file} is not one of a run: {explain(error)}") from None


def newest(path: Path) -> tuple[Path, RunState] | None:
    """The newest checkpoint in the run folder `path` that is whole, and its file; None where there is none at all.

    Says so where it is not the last one. Raises `Refused` where all are damaged.
    """
    faults = []
    for file in (path / name for name in GENERATIONS):
        try:
            state = read_state(file) if file.exists() else None
        except checkpoint.Damaged as error:
            faults.append(str(error))
            continue
        if state is not None:
            if file != path / LAST:
                fault = faults[0] if faults else f"checkpoint {path / LAST} is missing"
                print(f"warning: {fault}; {file} takes its place", flush=True)
            return file, state
    if faults:
        raise Refused(f"{faults[0]}; {START_AGAIN}")
    return None


def best_of(state: RunState, source: Path, path: Path) -> Progress:
    """The progress to resume with: its best value counts only while its weights are in the run folder `path`.

    They are copied from beside the checkpoint `source` where that lies elsewhere. Those of a later step, which the
    resumed run takes once more, are other weights.
    """
    own, beside = path / BEST, source.parent / Path(BEST).name
    progress = Progress(**dict(state.progress))
    if progress.best is None:
        return progress
    try:
        best = read_state(beside).progress.best
    except Refused:
        best = None
    if best != progress.best:
        progress.best = None
    elif beside.resolve() != own.resolve():
        partial = own.with_name(own.name + ".partial")
        with naming(own):
            shutil.copyfile(beside, partial)
            partial.replace(own)
    return progress
