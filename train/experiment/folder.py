"""The folder of one run: made, found again, or refused. Nothing in it is ever overwritten by another run."""

import fcntl
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from reports.records import layout
from reports.records.config import LENGTH, NOT_COMPUTED, Change, Experiment, differences, read_config
from reports.records.environment import Attempt, Environment
from reports.records.files import read_record, write_record, write_text
from reports.records.identity import BUILT, PLACE, Identity, in_words, recorded_identity
from reports.records.identity import differences as identity_differences
from reports.records.metrics import STEP, read_history
from reports.records.summary import FINISHED, INTERRUPTED, Summary, read_summary
from train.engine.errors import Refused
from train.experiment.run_state import BEST, LAST, PREVIOUS, START_AGAIN, RunState, newest, read_state

POLICIES = ("auto", "never", "any")  # of --resume; anything else is a checkpoint file


@dataclass(frozen=True)
class Wanted:
    """The run that is asked for. Its first checkpoint follows step `checkpoint_every`."""

    config: Experiment
    precision: str
    seed: int
    identity: Identity
    checkpoint_every: int


@dataclass(frozen=True)
class Resumed:
    """The checkpoint file to resume from and its content; `changes` are those since it was written."""

    source: Path
    state: RunState
    changes: list[Change]


@dataclass
class RunFolder:
    """`resumed` is None for a fresh start. `attempts` are those that led to it, the running one included."""

    path: Path
    run_id: str
    lock: IO[str]
    finished: bool = False
    resumed: Resumed | None = None
    attempts: list[Attempt] = field(default_factory=list)

    def begin(self, config: Experiment, environment: Environment, attempt: Attempt) -> None:
        """Write config.yaml and environment.json, before the first step."""
        # A longer run that is killed from here on must not pass for the finished shorter one.
        (self.path / layout.SUMMARY).unlink(missing_ok=True)
        attempt.started = datetime.now(UTC).isoformat(timespec="seconds")
        changes = self.resumed.changes if self.resumed else []
        attempt.changed = {change.key: (change.before, change.after) for change in changes}
        self.attempts.append(attempt)
        environment.run_id, environment.attempts = self.run_id, self.attempts
        write_text(self.path / layout.CONFIG, config.to_yaml())
        write_record(self.path / layout.ENVIRONMENT, environment)


def open_folder(path: Path, wanted: Wanted, resume: str) -> RunFolder:
    """Make or find the run's folder and its checkpoint, and lock it for this process.

    `resume` is `auto` (from this folder's newest checkpoint, if any), `any` (from there on another machine too),
    `never` (an earlier run there is moved to `replaced/` beside it), or a checkpoint file. When the length of the run
    changed, the schedule of the new configuration applies from the resumed step on.

    Raises `Refused` when the folder cannot be written or is in use, when it or the checkpoint is of another run or of
    one that would not be built so again, and when there is no whole checkpoint of a run that has written one.
    """
    lock = lock_folder(path)
    if resume == "never" and _holds_a_run(path):
        _move_aside(path, path)
        lock = lock_folder(path)
    environment = recorded_environment(path)
    folder = RunFolder(path, (environment and environment.run_id) or uuid.uuid4().hex[:8], lock)
    before = _configuration(path)
    if before is not None:
        require_same(before, wanted.config, path, NOT_COMPUTED | LENGTH)
        summary = read_summary(path / layout.SUMMARY)
        longer = {change.key for change in differences(before, wanted.config)} & LENGTH
        if summary.status == FINISHED and not longer:
            require_reusable(path, summary, environment, wanted.identity, anywhere=resume == "any")
            folder.finished = True
            return folder
    _require_files(path)
    found = newest(path) if resume in POLICIES else (Path(resume), read_state(Path(resume), path))
    if found is None:
        _require_nothing_lost(path, wanted.checkpoint_every)
    (path / LAST).parent.mkdir(exist_ok=True)
    if found is not None:
        folder.resumed = _resumed(*found, wanted, anywhere=resume not in ("auto", "never"))
        folder.run_id = found[1].run_id if resume in POLICIES else folder.run_id
        folder.attempts = list(found[1].attempts)
    if (path / LAST).is_dir():  # where the next checkpoint goes
        _move_aside(path / LAST, path)
    return folder


def require_reusable(
    path: Path, summary: Summary, environment: Environment | None, identity: Identity, anywhere: bool = False
) -> None:
    """Raise `Refused` where the run in `path`, with this `summary`, would not be made so again, here or `anywhere`."""
    fields = BUILT if anywhere else (*BUILT, *PLACE)
    if changes := identity_differences(recorded_identity(summary, environment), identity, fields):
        raise Refused(
            f"{path} is {summary.status}, but would not be the same run now: {in_words(changes)}. "
            f"Either {_same_threads(changes)}delete that folder, or choose another --out; "
            "a run by itself starts again with --resume never"
        )


def _resumed(source: Path, state: RunState, wanted: Wanted, anywhere: bool) -> Resumed:
    """A checkpoint that must be of the run that is wanted, built of the same; on the same machine, or `anywhere`."""
    before = state.experiment(source)
    for key, here in (("precision", wanted.precision), ("seed", wanted.seed)):
        if (there := getattr(state.identity, key)) != here:
            raise _other_run(source, [Change(key, there, here)])
    require_same(before, wanted.config, source, NOT_COMPUTED | LENGTH)
    if built := identity_differences(state.built, wanted.identity, BUILT):
        raise Refused(f"{source} cannot be resumed: {in_words(built)}. Start again with --resume never")
    moved = identity_differences(state.built, wanted.identity, PLACE)
    if moved and not anywhere:
        raise Refused(
            f"{source} was written elsewhere: {in_words(moved)}. Either {_same_threads(moved)}"
            "continue here with --resume any, which keeps it out of comparisons, or start again with --resume never"
        )
    return Resumed(source, state, [*differences(before, wanted.config), *moved])


def _same_threads(changes: Iterable[Change]) -> str:
    """How to have the threads of before; empty where they are the same."""
    return next((f"set OMP_NUM_THREADS={change.before}, " for change in changes if change.key == "threads"), "")


def _require_nothing_lost(path: Path, checkpoint_every: int) -> None:
    """Raise `Refused` where a run without a checkpoint had one: a fresh start would overwrite what is left of it."""
    steps = (row.get(STEP, 0) for row in read_history(path / layout.METRICS).rows)
    ended = read_summary(path / layout.SUMMARY).status in (FINISHED, INTERRUPTED)
    if ended or any(step > checkpoint_every for step in steps):
        raise Refused(f"{path} has trained, but its checkpoint {LAST} is missing; {START_AGAIN}")


def recorded_environment(path: Path) -> Environment | None:
    """The environment.json of the run in `path`; None where there is none, or none that can be read."""
    try:
        return read_record(Environment, path / layout.ENVIRONMENT)
    except ValueError:  # the checkpoint has what of it the run needs
        return None


def _configuration(path: Path) -> Experiment | None:
    """The configuration of the run in `path`; that of its checkpoint where config.yaml is damaged."""
    try:
        return previous_config(path)
    except Refused:
        found = newest(path)
        if found is None:
            raise
        return found[1].experiment(found[0])


def _holds_a_run(path: Path) -> bool:
    return any(file.name != ".lock" and (file.is_file() or file.suffix == ".pt") for file in path.rglob("*"))


def lock_folder(path: Path) -> IO[str]:
    """Make the folder of a run or comparison where it is missing, and hold it until the file that is given is closed.

    Raises `Refused` when it cannot be written, and when another process holds it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("w")
    except OSError as error:
        raise Refused(f"output folder {path} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Refused(f"output folder {path} is in use by another process") from None
    return lock


def _move_aside(path: Path, run: Path) -> None:
    """Move the folder of the `run`, or a folder in it."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    target = run.parent / layout.REPLACED / f"{run.name}-{stamp}" / path.relative_to(run)
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    print(f"{'the earlier run' if path == run else path} is kept in {target}", flush=True)


def _require_files(path: Path) -> None:
    """Raise `Refused` where a folder stands in the place of a checkpoint that will be written over."""
    for name in (PREVIOUS, BEST):
        if (path / name).is_dir():
            raise Refused(f"checkpoint {path / name} is a folder; delete or rename it, or {START_AGAIN}")


def previous_config(path: Path) -> Experiment | None:
    """The configuration of the run in `path`, None where there is none; raises `Refused` for a damaged one."""
    file = path / layout.CONFIG
    try:
        return read_config(file) if file.exists() else None
    except ValueError as error:
        raise Refused(f"{error}; start again with --resume never") from None


def require_same(before: Experiment, after: Experiment, where: Path, allowed: Collection[str]) -> None:
    """Raise `Refused`, naming each difference, unless two experiments differ in the `allowed` keys alone."""
    changes = [change for change in differences(before, after) if change.key not in allowed]
    if changes:
        raise _other_run(where, changes)


def _other_run(where: Path, changes: list[Change]) -> Refused:
    listed = ", ".join(f"{change.key} is {change.before!r} there and {change.after!r} here" for change in changes)
    return Refused(
        f"{where} belongs to another run: {listed}. Choose another --out; "
        "a run by itself starts again with --resume never"
    )
