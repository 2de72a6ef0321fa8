"""What a run says of where it ran: environment.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.records.files import Part, read_object

UNCOMMITTED = "had changes that are in no commit, or its commit is not known"


class Source(Part):
    """The state of the source tree: its commit, and whether tracked files differed from it."""

    commit: str | None = None
    dirty: bool | None = None

    @property
    def committed(self) -> bool:
        """Whether the commit is all there is to know; where not, `UNCOMMITTED` says it of the source."""
        return self.commit is not None and self.dirty is False


class Attempt(Part):
    changed: dict[str, Any] | None = None
    git: Source | None = None
    command: str | None = None


class Device(Part):
    type: str | None = None
    name: str | None = None

    @property
    def shown(self) -> str | None:
        """Its name for readers."""
        # Runs are paired by the name as it was recorded, so its plural is mended where it is shown.
        return self.name and self.name.replace(", 1 threads", ", 1 thread")


class Processor(Part):
    instruction_sets: list[str] | None = None


class Arithmetic(Part):
    requested: str | None = None
    effective: dict[str, Any] | None = None
    module_outputs: dict[str, Any] | None = None


class Environment(Part):
    """What readers of environment.json rely on. Any part may be absent or null: records of other versions lack some."""

    run_id: str | None = None
    attempts: list[Attempt] | None = None
    versions: dict[str, Any] | None = None
    device: Device | None = None
    cpu: Processor | None = None
    git: Source | None = None
    seed: int | None = None
    precision: Arithmetic | None = None


def read_environment(path: Path) -> tuple[dict[str, Any], str | None]:
    """The object in environment.json at `path` without null parts, and None; or nothing, and what is wrong with it.

    A file that is missing has nothing, and nothing is wrong with it.
    """
    if not path.exists():
        return {}, None
    try:
        found = read_object(Environment, path, "the environment of a run")
    except ValueError as error:
        return {}, f"{path} {error}"
    return {key: part for key, part in found.items() if part is not None}, None


def sources(environment: Mapping[str, Any]) -> list[Source]:
    """The source of a run and of each of its attempts that recorded one."""
    attempts = [attempt["git"] for attempt in environment.get("attempts", []) if attempt.get("git")]
    return [Source.model_validate(found) for found in (environment.get("git", {}), *attempts)]


def device_name(environment: Mapping[str, Any]) -> str | None:
    """The hardware as it is shown."""
    return Device.model_validate(environment.get("device", {})).shown


def device_kind(environment: Mapping[str, Any]) -> str | None:
    """`cpu` or `cuda`."""
    return Device.model_validate(environment.get("device", {})).type
