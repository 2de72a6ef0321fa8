"""environment.json: where a run ran, in which precision, and its attempts."""

from typing import Annotated, Any

from pydantic import Field

from reports.records.files import Schema

UNCOMMITTED = "had changes that are in no commit, or its commit is not known"
NATIVE = "native kernels"  # the arithmetic of a precision that the device has itself
# The packages that compute numbers, or the samples that numbers are computed from.
COMPUTING = ("python", "torch", "torchvision", "timm", "transformers", "tokenizers", "pillow", "numpy")


class Source(Schema):
    """The state of the source tree: its commit, and whether tracked files differed from it. None is not known."""

    commit: str | None = None
    dirty: bool | None = None

    @property
    def committed(self) -> bool:
        """Whether the commit is all there is to know; where not, `UNCOMMITTED` says so."""
        return self.commit is not None and self.dirty is False


class Place(Schema):
    """Where an attempt ran, as far as the bits of its results depend on it. None or empty is not recorded.

    `versions` are those of Python and of the packages that compute, `builds` those of the libraries inside PyTorch.
    """

    device: str | None = None
    threads: int | None = None
    cpu: str | None = None
    versions: dict[str, str | None] = {}
    builds: dict[str, str] = {}


class Attempt(Schema):
    """One start of a run. `changed` holds the values before and after of each key that the earlier start had otherwise.

    An attempt that left no checkpoint is not listed once another one has begun: nothing of it is in the run.
    """

    started: str | None = None
    command: str | None = None
    from_step: int = 0
    changed: dict[str, Annotated[tuple[Any, Any], Field(strict=False)]] = {}
    git: Source | None = None
    place: Place | None = None


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
    """`vendor`, `family`, `model` and `stepping` as /proc/cpuinfo has them: a name alone may be of two generations."""

    name: str | None = None
    vendor: str | None = None
    family: str | None = None
    model: str | None = None
    stepping: str | None = None
    cores: int | None = None
    threads: int | None = None
    memory_gib: float | None = None
    instruction_sets: list[str] | None = None

    @property
    def label(self) -> str | None:
        """Name and generation; None where neither is recorded."""
        parts = {"family": self.family, "model": self.model, "stepping": self.stepping}
        words = [self.vendor, *(f"{key} {value}" for key, value in parts.items() if value), self.name]
        return " ".join(word for word in words if word) or None


def is_emulated(arithmetic: str | None) -> bool:
    """Whether the arithmetic of a precision is made from another one's, so that its speed is not its own."""
    return arithmetic not in (None, NATIVE)


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

    @property
    def emulated(self) -> bool:
        return is_emulated(self.arithmetic)


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
    builds: dict[str, str] = {}
    git: Source = Field(default_factory=Source)

    @property
    def place(self) -> Place:
        """What of it the bits of a result depend on."""
        return Place(
            device=self.device.type if self.device.type == "cpu" else self.device.name,
            threads=self.cpu.threads,
            cpu=self.cpu.label,
            versions={name: self.versions[name] for name in COMPUTING if name in self.versions},
            builds=self.builds,
        )


class Environment(Machine):
    """environment.json of a run. The machine is that of its last attempt."""

    run_id: str | None = None
    attempts: list[Attempt] = []
    precision: RunPrecision = Field(default_factory=RunPrecision)
    seed: int | None = None

    @property
    def sources(self) -> list[Source]:
        """The source of the run and of each of its attempts that recorded one."""
        return [self.git, *(attempt.git for attempt in self.attempts if attempt.git)]
