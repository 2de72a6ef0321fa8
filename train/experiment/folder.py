"""The folder of one run: made, found again, or refused. Nothing in it is ever overwritten by another run."""

import fcntl
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from reports.records import layout
from reports.records.config import LENGTH, NOT_COMPUTED, Change, Experiment, differences, read_config
from reports.records.environment import Attempt, Environment
from reports.records.files import read_record, write_record, write_text
from reports.records.metrics import Figure, read_lines
from reports.records.summary import FINISHED, read_summary
from train.engine import checkpoint
from train.engine.errors import Refused

LAST = "checkpoints/last.pt"
BEST = "checkpoints/best.pt"
PARTS = frozenset({"identity", "trainer", "progress", "meter", "lines"})


@dataclass
class Checkpoint:
    """A checkpoint to resume from: its `state`, and the metrics up to it."""

    state: dict[str, Any]
    history: list[dict[str, Figure]]


@dataclass
class RunFolder:
    """`checkpoint` is None for a fresh start; `changes` are those of the configuration since the last attempt."""

    path: Path
    run_id: str
    lock: IO[str]
    checkpoint: Checkpoint | None = None
    changes: list[Change] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    finished: bool = False

    def begin(self, config: Experiment, environment: Environment, attempt: Attempt) -> None:
        """Write config.yaml and environment.json, before the first step."""
        attempt.started = datetime.now(UTC).isoformat(timespec="seconds")
        # Of each attempt, because a source that had changes in one of them is not made clean by the next.
        attempt.git = environment.git
        attempt.changed = {change.key: (change.before, change.after) for change in self.changes}
        self.attempts.append(attempt)
        environment.run_id, environment.attempts = self.run_id, self.attempts
        write_text(self.path / layout.CONFIG, config.to_yaml())
        write_record(self.path / layout.ENVIRONMENT, environment)
        # A longer run that is killed must not pass for the finished shorter one.
        (self.path / layout.SUMMARY).unlink(missing_ok=True)


def open_folder(path: Path, config: Experiment, precision: str, seed: int, resume: str) -> RunFolder:
    """Make or find the run's folder and its checkpoint, and lock it for this process.

    `resume` is `auto` (from this folder's last checkpoint, if any), `never` (an earlier run there is moved
    to `replaced/` beside it), or a checkpoint file. When the length of the run changed, the schedule of the
    new configuration applies from the resumed step on. Raises `Refused` when the folder cannot be written,
    is in use, or holds another run, and when the checkpoint is damaged or of another experiment.
    """
    lock = _make_and_lock(path)
    if resume == "never" and (path / layout.CONFIG).exists():
        _move_aside(path)
        lock = _make_and_lock(path)
    previous = previous_config(path)
    if previous is not None:
        require_same(previous, config, path, NOT_COMPUTED | LENGTH)
    source = path / LAST if resume in ("auto", "never") else Path(resume)
    resumed = None
    if resume not in ("auto", "never") or source.exists():
        resumed, previous = _checkpoint(source, config, precision, seed)
    try:
        file = path / layout.ENVIRONMENT
        environment = read_record(Environment, file) if file.exists() else Environment()
    except ValueError as error:
        raise Refused(f"{error}; move it away to continue without the record of earlier attempts") from None
    changes = differences(previous, config) if previous else []
    finished = read_summary(path / layout.SUMMARY).status == FINISHED
    return RunFolder(
        path=path,
        run_id=environment.run_id or uuid.uuid4().hex[:8],
        lock=lock,
        checkpoint=resumed,
        changes=changes if resumed else [],
        attempts=environment.attempts,
        finished=finished and not any(change.key in LENGTH for change in changes),
    )


def _checkpoint(source: Path, config: Experiment, precision: str, seed: int) -> tuple[Checkpoint, Experiment]:
    """The checkpoint in `source`, which must be of this run, and the configuration that it was written under."""
    state = checkpoint.load(source)
    if missing := PARTS - state.keys():
        raise Refused(f"checkpoint {source} is not one of a run: it has no {', '.join(sorted(missing))}")
    identity = state["identity"]
    before = Experiment.model_validate(identity["config"])  # keys that came later are at their defaults
    for key, there, here in (("precision", identity["precision"], precision), ("seed", identity["seed"], seed)):
        if there != here:
            raise _other_run(source, [Change(key, there, here)])
    require_same(before, config, source, NOT_COMPUTED | LENGTH)
    file = source.parent.parent / layout.METRICS
    rows, _ = read_lines(file)
    if len(rows) < state["lines"]:
        remedy = "start again with --resume never"
        raise Refused(f"{file} has {len(rows)} of the {state['lines']} lines that belong to {source}; {remedy}")
    return Checkpoint(state, rows[: state["lines"]]), before


def _make_and_lock(path: Path) -> IO[str]:
    try:
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(path, error) from None
    return lock_folder(path)


def lock_folder(path: Path) -> IO[str]:
    """Hold the run folder for this process until the file is closed; raises `Refused` when another one holds it."""
    try:
        lock = (path / ".lock").open("w")
    except OSError as error:
        raise _not_writable(path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Refused(f"output folder {path} is in use by another process") from None
    return lock


def _not_writable(path: Path, error: OSError) -> Refused:
    return Refused(f"output folder {path} cannot be written: {error.strerror}")


def _move_aside(path: Path) -> None:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    target = path.parent / layout.REPLACED / f"{path.name}-{stamp}"
    target.parent.mkdir(exist_ok=True)
    path.rename(target)
    print(f"the earlier run is kept in {target}", flush=True)


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
