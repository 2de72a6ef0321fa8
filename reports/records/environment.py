"""environment.json: where a run ran, in which precision, and its attempts."""

from typing import Annotated, Any

from pydantic import Field

from reports.records.files import Schema

UNCOMMITTED = "had changes that are in no commit, or its commit is not known"


class Source(Schema):
    """The state of the source tree: its commit, and whether tracked files differed from it. None is not known."""

    commit: str | None = None
    dirty: bool | None = None

    @property
    def committed(self) -> bool:
        """Whether the commit is all there is to know; where not, `UNCOMMITTED` says so."""
        return self.commit is not None and self.dirty is False


class Attempt(Schema):
    """One start of a run. `changed` holds the values before and after of each changed key."""

    started: str | None = None
    command: str | None = None
    from_step: int = 0
    changed: dict[str, Annotated[tuple[Any, Any], Field(strict=False)]] = {}
    git: Source | None = None


class Device(Schema):
    """Of a CPU, type and name alone."""

    type: str | None = None
    name: str | None = None
    memory_gib: float | None = None
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    power_limit_watts: float | None = None

    @property
    def label(self) -> str:
        """Its name for readers; runs are paired by the recorded one."""
        return (self.name or "unknown hardware").replace(", 1 threads", ", 1 thread")


class Processor(Schema):
    cores: int | None = None
    threads: int | None = None
    memory_gib: float | None = None
    instruction_sets: list[str] | None = None


class EffectivePrecision(Schema):
    """What a precision's switches were while it ran, as torch said."""

    name: str | None = None
    matrix_dtype: str | None = None
    arithmetic: str | None = None
    loss_scaling: bool | None = None
    autocast_policy: str | None = None
    cuda_matmul_fp32: str | None = None
    cudnn_conv_fp32: str | None = None
    cpu_matmul_fp32: str | None = None


class RunPrecision(Schema):
    """The precision asked for, the one that ran, and how many matrix modules returned which dtype."""

    requested: str | None = None
    effective: EffectivePrecision = Field(default_factory=EffectivePrecision)
    module_outputs: dict[str, int] = {}


class Machine(Schema):
    """What a measurement ran on."""

    versions: dict[str, str | None] = {}
    platform: str | None = None
    device: Device = Field(default_factory=Device)
    cpu: Processor = Field(default_factory=Processor)
    git: Source = Field(default_factory=Source)


class Environment(Machine):
    """environment.json of a run."""

    run_id: str | None = None
    attempts: list[Attempt] = []
    precision: RunPrecision = Field(default_factory=RunPrecision)
    seed: int | None = None

    @property
    def sources(self) -> list[Source]:
        """The source of the run and of each of its attempts that recorded one."""
        return [self.git, *(attempt.git for attempt in self.attempts if attempt.git)]
