"""The folder of one run: made, found again, or refused. Nothing in it is ever overwritten by another run."""

import fcntl
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import yaml
from pydantic import ValidationError

from reports.records.environment import read_environment
from reports.records.files import explain, read_json, read_lines, write_json, write_whole
from train.engine import checkpoint
from train.engine.errors import Refused
from train.experiment.config import BYSTANDERS, HORIZON, Experiment, differences

LAST = "checkpoints/last.pt"
BEST = "checkpoints/best.pt"
PARTS = frozenset({"identity", "trainer", "progress", "meter", "lines"})


@dataclass
class RunFolder:
    """`state` is the checkpoint to go on from, None for a fresh start, and `history` the metrics up to it.

    `changed` is what the configuration changes.
    """

    path: Path
    state: dict[str, Any] | None
    history: list[dict[str, Any]]
    changed: dict[str, tuple[Any, Any]]
    run_id: str
    attempts: list[dict[str, Any]]
    finished: bool
    lock: IO[str]

    def begin(self, config: Experiment, environment: dict[str, Any], attempt: dict[str, Any]) -> None:
        """Write config.yaml and environment.json, before the first step, with one entry for each attempt."""
        started = datetime.now(UTC).isoformat(timespec="seconds")
        # Of each attempt, because a source that had changes in one of them is not made clean by going on without.
        self.attempts.append({"started": started, "git": environment.get("git"), **attempt})
        write_whole(self.path / "config.yaml", config.to_yaml())
        write_json(self.path / "environment.json", {"run_id": self.run_id, "attempts": self.attempts, **environment})
        # A longer run that is killed must not pass for the finished shorter one.
        (self.path / "summary.json").unlink(missing_ok=True)


def open_folder(path: Path, config: Experiment, precision: str, seed: int, resume: str) -> RunFolder:
    """Make or find the run's folder and what it is to go on from, and lock it for this process.

    `resume` is `auto` (from this folder's last checkpoint, if any), `never` (an earlier run there is moved
    to `replaced/` beside it), or a checkpoint file. When the length of the run changed, the schedule of the
    new configuration applies from the resumed step on. Raises `Refused` when the folder cannot be written,
    is in use, or holds another run, and when the checkpoint is damaged or of another experiment.
    """
    lock = _make_and_lock(path)
    identity: dict[str, Any] = {"config": config.model_dump(), "precision": precision, "seed": seed}
    if resume == "never" and (path / "config.yaml").exists():
        _move_aside(path)
        lock = _make_and_lock(path)
    previous = previous_config(path)
    if previous is not None:
        require_same(previous, identity["config"], path, BYSTANDERS | HORIZON)
    source = path / LAST if resume in ("auto", "never") else Path(resume)
    state, history = None, []
    if resume not in ("auto", "never") or source.exists():
        state = checkpoint.load(source)
        if missing := PARTS - state.keys():
            raise Refused(f"checkpoint {source} is not one of a run: it has no {', '.join(sorted(missing))}")
        _same_run(state["identity"], identity, source)
        history = _history(source, state["lines"])
    before = _completed(state["identity"]["config"]) if state else previous or identity["config"]
    changed = differences(before, identity["config"])
    environment, fault = read_environment(path / "environment.json")
    if fault:
        raise Refused(f"{fault}; move it away to go on without the record of earlier attempts")
    summary = read_json(path / "summary.json") or {}
    return RunFolder(
        path=path,
        state=state,
        history=history,
        changed=changed,
        run_id=environment.get("run_id") or uuid.uuid4().hex[:8],
        attempts=environment.get("attempts", []),
        finished=summary.get("status") == "finished" and not changed.keys() & HORIZON,
        lock=lock,
    )


def _history(source: Path, lines: int) -> list[dict[str, Any]]:
    """The metrics of the run that wrote the checkpoint `source`, up to it."""
    file = source.parent.parent / "metrics.jsonl"
    rows, _ = read_lines(file)
    if len(rows) < lines:
        remedy = "start again with --resume never"
        raise Refused(f"{file} has {len(rows)} of the {lines} lines that belong to {source}; {remedy}")
    return rows[:lines]


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
    target = path.parent / "replaced" / f"{path.name}-{stamp}"
    target.parent.mkdir(exist_ok=True)
    path.rename(target)
    print(f"the earlier run is kept in {target}", flush=True)


def previous_config(path: Path) -> dict[str, Any] | None:
    """The resolved configuration of the run in `path`, None where there is none; raises `Refused` for a damaged one."""
    try:
        found = recorded_config(path)
    except Refused as error:
        raise Refused(f"{error}; start again with --resume never") from None
    return None if found is None else found.model_dump()


def recorded_config(path: Path) -> Experiment | None:
    """The experiment in the config.yaml of the run folder `path`, keys that came after it at their defaults.

    None where there is no such file; raises `Refused` for a damaged one.
    """
    file = path / "config.yaml"
    if not file.exists():
        return None
    try:
        return Experiment.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise Refused(f"{file}: not a configuration: {explain(error)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise Refused(f"{file}: not readable as a configuration: {why}") from None


def require_same(old: Mapping[str, Any], new: Mapping[str, Any], where: Path, allowed: Iterable[str]) -> None:
    """Raise `Refused`, naming each difference, unless two configurations differ in the `allowed` keys alone."""
    wrong = {key: values for key, values in differences(old, new).items() if key not in set(allowed)}
    if wrong:
        listed = ", ".join(f"{key} is {before!r} there and {after!r} here" for key, (before, after) in wrong.items())
        raise Refused(
            f"{where} belongs to another run: {listed}. Choose another --out; "
            "a run by itself starts anew with --resume never"
        )


def _same_run(old: Mapping[str, Any], new: Mapping[str, Any], where: Path) -> None:
    """Raise `Refused` unless both are the same run, but for its length and what has no effect on the numbers."""
    before, after = (
        {"precision": run["precision"], "seed": run["seed"], **_completed(run["config"])} for run in (old, new)
    )
    require_same(before, after, where, BYSTANDERS | HORIZON)


def _completed(config: Any) -> dict[str, Any]:
    """A recorded configuration with the keys that came after it, at their defaults."""
    return Experiment.model_validate(config).model_dump()
