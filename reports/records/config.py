"""An experiment: every key of its YAML, and of the config.yaml that each run records. No precision, no seed."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from reports.records import layout, yaml_file
from reports.records.files import explain

# Keys that say how a run is watched, judged or fed, not what it computes: equal digests may differ in them.
NOT_COMPUTED = frozenset({"log_every", "checkpoint_every", "margin", "published", "reduced", "workers"})
# A resumed run may have another length; the schedule then follows the new one.
LENGTH = frozenset({"epochs", "max_steps"})


def _plain_name(name: str) -> str:
    # It becomes a folder, a name at W&B, an id in HTML, and text in Markdown and LaTeX.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        rule = "letters a to z and A to Z, digits, '.', '_' and '-', beginning with a letter or digit"
        rule += "" if len(name) <= 100 else ", at most 100 of them"
        raise ValueError(
            f"name: {name[:100]!r} is no name of an experiment (without this key, the file's); allowed: {rule}"
        )
    if name in (layout.SMOKE, layout.REPLACED):
        raise ValueError(f"name: {name!r} is taken; it names the folder of the results")
    return name


def _boolean(value: Any) -> Any:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return words.get(str(value).lower(), value)


Bool = Annotated[bool, BeforeValidator(_boolean)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Section(BaseModel):
    """Types are strict: the text "3" is no integer, and an undeclared key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _fits_float32(cls, value: Any) -> Any:
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and number and not 2.0**-126 <= abs(number) < 2.0**128:
                raise ValueError(f"{number:g} is outside the range of float32, in which models compute")
        return value


class Data(Section):
    """The `data:` section."""

    name: str = Field(description="A data set of the catalogue")
    length: Count | None = Field(None, description="Text: the most tokens of a sequence; longer ones are cut")
    augment: Literal["none", "crop", "crop_flip", "random_resized_crop"] = Field("none", description="Of images")
    train_samples: Count | None = Field(None, description="Train on the first so many samples")
    eval_samples: Count | None = Field(None, description="Evaluate the first so many samples")
    eval_batch_size: Count | None = Field(None, description="Batch size of the evaluation; null: `batch_size`")
    held_out: Count | None = Field(None, description="Training samples set aside, to choose a result by")
    mean: float | None = Field(None, description="Of pixels from 0 to 1; null: the training split's, by channel")
    std: float | None = Field(None, gt=0, description="Their deviation; null: the training split's, by channel")


class Optimizer(Section):
    """The `optimizer:` section; further keys are arguments of the optimizer's class."""

    name: str = Field(description="`sgd`, `adamw`, or a class of torch.optim in lower case")
    lr: float = Field(gt=0, description="Peak learning rate")
    weight_decay: float = Field(0.0, ge=0, description="Of every parameter that decays")
    decay_norm_and_bias: Bool = Field(True, description="Parameters of one dimension decay too; of adamw: false")
    fused: Bool | None = Field(None, description="One kernel for all parameters; null: on CUDA; adam, adamw: on CPUs")

    @property
    def arguments(self) -> dict[str, Any]:
        """What goes to the optimizer's class beside the keys that all have."""
        return {key: value for key, value in self.model_dump().items() if key not in Optimizer.model_fields}


class Sgd(Optimizer):
    name: Literal["sgd"]
    momentum: float = Field(0.9, ge=0, lt=1, description="sgd")
    nesterov: Bool = Field(False, description="sgd")

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> "Sgd":
        if self.nesterov and self.momentum == 0:
            raise ValueError("optimizer.nesterov: needs a momentum above 0")
        return self


class AdamW(Optimizer):
    name: Literal["adamw"]
    weight_decay: float = Field(default=0.01, ge=0)
    decay_norm_and_bias: Bool = False
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(default=[0.9, 0.999], min_length=2, max_length=2)
    eps: float = Field(1e-8, gt=0, description="adamw")


class OtherOptimizer(Optimizer):
    """Any other class of torch.optim. Its arguments are checked when it is built."""

    model_config = ConfigDict(extra="allow")


def _optimizer_form(value: Any) -> str:
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return name if name in ("sgd", "adamw") else "other"


class Schedule(Section):
    """The `schedule:` section: the learning rate as a function of the applied step."""

    name: Literal["constant", "cosine", "linear", "step"] = Field(description="How the rate falls after the warm-up")
    warmup: float = Field(0.0, ge=0, description="Linear warm-up, in epochs where there are `epochs`, else in steps")
    final: float = Field(0.0, ge=0, le=1, description="cosine, linear: the share of the peak rate at the end")
    milestones: list[float] = Field([], description="step: when the rate falls, in the unit of `warmup`")
    gamma: float = Field(0.1, gt=0, le=1, description="step: the factor at each milestone")


class Scaler(Section):
    """The `scaler:` section: loss scaling in fp16."""

    init_scale: float = Field(2.0**16, gt=0, le=2.0**127, description="The first loss scale")
    growth_factor: float = Field(2.0, gt=1, description="Growth after `growth_interval` steps without overflow")
    backoff_factor: float = Field(0.5, gt=0, lt=1, description="By which it falls at an overflow")
    growth_interval: Count = Field(2000, description="Steps without overflow before it grows")
    min_scale: float = Field(2.0**-14, ge=2.0**-126, description="The scale falls no lower")
    max_consecutive_skips: Count = Field(50, description="A run that skips so many steps in a row has diverged")


class Experiment(Section):
    """All keys of an experiment."""

    name: Annotated[str, AfterValidator(_plain_name)] = Field(description="Without it, the file's")
    model: str = Field(description="The training script, `train/MODEL.py`")
    arch: str = Field(description="The architecture, one of the script's")
    pretrained: bool | str = Field(
        False, description="True: the published weights; or a folder or file of weights, a run's `best.pt` too"
    )
    num_classes: Count | None = Field(None, description="null: the data set's")
    vocab_size: int | None = Field(
        None, ge=8, le=2**31 - 1, description="Rows of the embedding; null: the data's or model's"
    )
    dropout: float | None = Field(None, ge=0, lt=1, description="null: the architecture's")
    fp32_modules: list[str] = Field([], description="Paths of modules that compute in FP32 in every precision")
    autocast_policy: Literal["device", "cuda"] = Field(
        "device", description="Autocast's list of FP32 operations: the device's own; cuda: CUDA's on a CPU too"
    )
    data: Data
    epochs: Count | None = Field(None, description="Passes over the training data; give this or `max_steps`")
    max_steps: Count | None = Field(None, description="Optimizer steps; give this or `epochs`")
    batch_size: Count = Field(description="Samples of a micro-batch")
    accumulate: Count = Field(1, description="Micro-batches of an optimizer step")
    optimizer: Annotated[
        Annotated[Sgd, Tag("sgd")] | Annotated[AdamW, Tag("adamw")] | Annotated[OtherOptimizer, Tag("other")],
        Discriminator(_optimizer_form),
    ]
    schedule: Schedule
    clip_norm: float | None = Field(None, gt=0, description="Clip the gradient to this 2-norm")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Of the cross entropy")
    ema_decay: float | None = Field(None, gt=0, lt=1, description="Keep and evaluate a moving average of the weights")
    scaler: Scaler = Scaler()
    channels_last: Bool = Field(False, description="Memory format of images and convolutions")
    deterministic: Bool = Field(True, description="CUDA: deterministic cuDNN kernels")
    workers: int = Field(0, ge=0, le=1024, description="Processes that decode images which are read from disk")
    log_every: Count = Field(10, description="Steps between two lines of metrics.jsonl")
    eval_every: Count | None = Field(None, description="Steps between two evaluations; null: an epoch")
    checkpoint_every: Count | None = Field(None, description="Steps between two checkpoints; null: at every evaluation")
    margin: float = Field(
        0.005, gt=0, le=0.1, description="How far from FP32 is equivalent: a share of the metric's range"
    )
    published: list[str] = Field([], description="Rows of reports/published.csv that the experiment aims at")
    reduced: str | None = Field(None, description="What of the source's recipe or data it leaves out")

    @model_validator(mode="after")
    def _one_length(self) -> "Experiment":
        if (self.epochs is None) == (self.max_steps is None):
            raise ValueError("give either epochs or max_steps, and not both")
        return self

    def digest(self) -> str:
        """SHA-256 of all that the numbers depend on: equal for runs whose results may stand in one table.

        A default does not count, so that a later key leaves the digests of earlier records as they are.
        """
        values = self.model_dump(exclude_defaults=True)
        values = {key: value for key, value in values.items() if key not in NOT_COMPUTED}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    @property
    def group(self) -> str:
        """The experiment at Weights & Biases: its name, and which of its configurations."""
        return f"{self.name}-{self.digest()[:8]}"

    @property
    def trained_on(self) -> str:
        """Model and data in words. Weights from a folder have its name: their sizes replace the architecture's."""
        model = Path(self.pretrained).name if isinstance(self.pretrained, str) else self.arch
        return f"{'pretrained ' if self.pretrained else ''}{model} on {self.data.name}"

    def to_yaml(self) -> str:
        """The configuration as YAML; loading it gives this experiment again."""
        return str(yaml.safe_dump(self.model_dump(), sort_keys=False))

    def smoke(self) -> "Experiment":
        """The smallest run with a warm-up, an evaluation and a checkpoint; from fresh weights, without a download."""
        length = self.data.length and min(self.data.length, 64)
        samples = {"train_samples": 64, "eval_samples": 16, "eval_batch_size": 8, "held_out": self.data.held_out and 8}
        data = self.data.model_copy(update={**samples, "length": length})
        schedule = self.schedule.model_copy(update={"warmup": 0, "milestones": []})
        steps = {"epochs": None, "max_steps": 4, "batch_size": min(self.batch_size, 8), "accumulate": 1}
        cadence = {"workers": 0, "log_every": 1, "eval_every": None, "checkpoint_every": 2}
        sections = {"data": data, "schedule": schedule, "pretrained": False}
        return self.model_copy(update={**steps, **cadence, **sections})


@dataclass(frozen=True)
class Change:
    """One key in which two configurations differ, by its dotted name."""

    key: str
    before: Any
    after: Any


def differences(before: Experiment, after: Experiment) -> list[Change]:
    """The keys in which two experiments differ."""
    old, new = _flat(before.model_dump()), _flat(after.model_dump())
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)]
    return [Change(key, old.get(key), new.get(key)) for key in keys]


def departures(recorded: Experiment, other: Experiment) -> list[str]:
    """Where the recipe of `recorded` differs from that of `other`, in words."""
    changes = [change for change in differences(other, recorded) if change.key not in NOT_COMPUTED | {"name"}]
    if other.num_classes is None:  # then it is the data set's in the record
        changes = [change for change in changes if change.key != "num_classes"]
    return [f"{change.key} is {change.after} in place of {change.before}" for change in changes]


def read_config(path: Path) -> Experiment:
    """The experiment in a YAML file, later keys at their defaults; raises ValueError naming file and key."""
    values = yaml_file.read_mapping(path)
    values.setdefault("name", path.stem)
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise ValueError(f"{path}: {explain(error)}") from None


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of all sections by their dotted names."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
