"""An experiment: one YAML file, checked whole before any work. It names no precision and no seed."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from train.engine.errors import Refused, unknown

SCRIPTS = Path(__file__).resolve().parent.parent
# Values that say how to watch or judge a run, or how fast its data arrive, not what it computes.
BYSTANDERS = frozenset({"log_every", "checkpoint_every", "margin", "published", "reduced", "workers"})
# The length of a run may be changed when it is resumed; the schedule then follows the new length.
HORIZON = frozenset({"epochs", "max_steps"})


def _boolean(value: Any) -> Any:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return words.get(str(value).lower(), value)


def _plain_name(name: str) -> str:
    # It becomes a folder, a name at W&B, an id in HTML, and text in Markdown and LaTeX.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        allowed = "letters a to z and A to Z, digits, '.', '_' and '-', beginning with a letter or digit"
        raise ValueError(
            f"name: {name!r} is no name of an experiment (without this key, the file's); allowed: {allowed}"
        )
    if name in ("smoke", "replaced"):
        raise ValueError(f"name: {name!r} is taken; it names the folder of the results")
    return name


Bool = Annotated[bool, BeforeValidator(_boolean)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Section(BaseModel):
    """Types are strict: the text "3" is no integer, and a key that is not declared is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Data(Section):
    """`length` is the most tokens that a sequence of text may have; longer ones are cut. Images have none.

    Pixels from 0 to 1 are normalised by `mean` and `std`, unless given those of the training split. `held_out`
    samples of the training split are not trained on but evaluated beside the evaluation split, so that a result
    can be chosen without looking at the latter.
    """

    name: str
    length: Count | None = None
    augment: Literal["none", "crop", "crop_flip", "random_resized_crop"] = "none"
    train_samples: Count | None = None
    eval_samples: Count | None = None
    eval_batch_size: Count | None = None
    held_out: Count | None = None
    mean: float | None = None
    std: float | None = Field(default=None, gt=0)


class Sgd(Section):
    name: Literal["sgd"]
    lr: float = Field(gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: Bool = False
    weight_decay: float = Field(default=0.0, ge=0)
    decay_norm_and_bias: Bool = True
    fused: Bool | None = None

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> "Sgd":
        if self.nesterov and self.momentum == 0:
            raise ValueError("optimizer.nesterov: needs a momentum above 0")
        return self


class AdamW(Section):
    name: Literal["adamw"]
    lr: float = Field(gt=0)
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(default=[0.9, 0.999], min_length=2, max_length=2)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    decay_norm_and_bias: Bool = False
    fused: Bool | None = None


class Schedule(Section):
    """`warmup` and `milestones` are in epochs where the experiment has `epochs`, in steps where it has `max_steps`."""

    name: Literal["constant", "cosine", "linear", "step"]
    warmup: float = Field(default=0.0, ge=0)
    final: Fraction = 0.0
    milestones: list[float] = []
    gamma: float = Field(default=0.1, gt=0, le=1)


class Scaler(Section):
    """Loss scaling in fp16; see `train.engine.precision.ScalerSettings`."""

    init_scale: float = Field(default=2.0**16, gt=0, le=2.0**127)
    growth_factor: float = Field(default=2.0, gt=1)
    backoff_factor: float = Field(default=0.5, gt=0, lt=1)
    growth_interval: Count = 2000
    min_scale: float = Field(default=2.0**-14, ge=2.0**-126)
    max_consecutive_skips: Count = 50


class Experiment(Section):
    """All keys of an experiment's YAML. `name` is the file's stem, `num_classes` the data set's, unless given.

    `pretrained` is a folder of weights, or true for those published under the architecture's name.
    `vocab_size` is that of the data set or of the architecture, `dropout` the architecture's, unless given.
    `margin` is how far a mixed precision may be from FP32 and still be equivalent: an accuracy as a fraction of
    one (0.005 is half a point), a loss as a fraction of FP32's.
    `published` are the rows of reports/published.csv that the experiment aims at, `reduced` what of the source's
    recipe or data it leaves out.
    `fp32_modules` are paths of modules that compute in FP32 in every precision, for layers that fail in half.
    """

    name: Annotated[str, AfterValidator(_plain_name)]
    model: str
    arch: str
    pretrained: bool | str = False
    num_classes: Count | None = None
    vocab_size: int | None = Field(default=None, ge=8, le=2**31 - 1)
    dropout: float | None = Field(default=None, ge=0, lt=1)
    fp32_modules: list[str] = []
    data: Data
    epochs: Count | None = None
    max_steps: Count | None = None
    batch_size: Count
    accumulate: Count = 1
    optimizer: Sgd | AdamW = Field(discriminator="name")
    schedule: Schedule
    clip_norm: float | None = Field(default=None, gt=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    scaler: Scaler = Scaler()
    channels_last: Bool = False
    deterministic: Bool = True
    workers: int = Field(default=0, ge=0)
    log_every: Count = 10
    eval_every: Count | None = None
    checkpoint_every: Count | None = None
    # Of a loss a share, of an accuracy its own unit, so that 0.005 is half a point and 0.5 a slip for it.
    margin: float = Field(default=0.005, gt=0, le=0.1)
    published: list[str] = []
    reduced: str | None = None

    @model_validator(mode="after")
    def _one_length(self) -> "Experiment":
        if (self.epochs is None) == (self.max_steps is None):
            raise ValueError("give either epochs or max_steps, and not both")
        return self

    def digest(self) -> str:
        """SHA-256 of all that the numbers depend on: equal for runs whose results may stand in one table.

        A value that is the default does not count, so that a key added later, whose default is what went
        without saying before, leaves the digests of earlier records as they are.
        """
        values = self.model_dump(exclude_defaults=True)
        values = {key: value for key, value in values.items() if key not in BYSTANDERS}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def to_yaml(self) -> str:
        """The resolved configuration; loading it gives this experiment again."""
        return str(yaml.safe_dump(self.model_dump(), sort_keys=False))


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment's YAML and apply `key.sub=value` overrides.

    A relative path is looked up in the current folder and then in the repository.
    Raises `Refused` with the file, the key, what is allowed and the nearest valid name.
    """
    if not path.exists() and (SCRIPTS.parent / path).exists():
        path = SCRIPTS.parent / path
    values = _read(path)
    values.setdefault("name", path.stem)
    for override in overrides:
        _apply(values, override)
    scripts = model_scripts()
    if isinstance(values.get("model"), str) and values["model"] not in scripts:
        raise Refused(f"{path}: {unknown('model', values['model'], scripts)}")
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise Refused(f"{path}: " + "; ".join(map(_explain, error.errors()))) from None


def model_scripts() -> list[str]:
    """Names of the per-model training scripts: the modules of `train` that define `build`."""
    commands = {"__init__", "compare", "check", "new", "sync"}
    return sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem not in commands)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted keys in which two resolved configurations differ, with both values."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found |= differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found[prefix + key] = (before, after)
    return found


class _StrictLoader(yaml.SafeLoader):
    """YAML whose repeated keys are errors and in which 1e-4 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            why = "merge keys (<<) are not read: an experiment shows every key, so write the merged ones out"
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark)
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        repeated = sorted({str(key) for key in keys if keys.count(key) > 1})
        if repeated:
            raise yaml.constructor.ConstructorError(None, None, f"repeated key {', '.join(repeated)}", node.start_mark)
        return super().construct_mapping(node, deep)


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:float"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"),
    list("-+0123456789."),
)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        known = [str(other) for other in sorted(path.parent.glob("*.yaml"))]
        raise unknown("configuration file", path, known) if known else Refused(f"{path}: no such file")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except (yaml.YAMLError, ValueError, AttributeError, RecursionError) as error:  # not UTF-8, or no such date
        raise Refused(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise Refused(f"{path}: expected keys and values, found {type(values).__name__}")
    return values


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals:
        raise Refused(f"override {override!r}: expected key=value, such as epochs=2 or optimizer.lr=0.1")
    *sections, last = key.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise Refused(f"override {override!r}: {section!r} is not a section")
        values = inner
    try:
        values[last] = yaml.load(text, _StrictLoader)
    except (yaml.YAMLError, ValueError, AttributeError, RecursionError):
        raise Refused(f"override {override!r}: {text!r} is not a YAML value") from None


def _explain(error: Mapping[str, Any]) -> str:
    # Where a section or a value has several forms, pydantic puts the form's name into the location.
    location = [str(part) for part in error["loc"]]
    section = _section(location[:-1])
    key = ".".join(part for part in location if part not in ("sgd", "adamw", "bool", "str"))
    if error["type"] == "extra_forbidden":
        return f"{key}: {unknown('key', location[-1], section)}"
    if error["type"] == "missing":
        return f"{key}: this key is required"
    if error["type"] == "literal_error":
        return f"{key}: {unknown('value', error['input'], _quoted(error['ctx']['expected']))}"
    if error["type"] == "union_tag_not_found" and isinstance(error["input"], Mapping):
        names = [name for form in (Sgd, AdamW) for name in get_args(form.model_fields["name"].annotation)]
        return f"{key}.name: this key is required; allowed: {', '.join(sorted(names))}"
    if error["type"] == "union_tag_invalid":
        return f"{key}.name: {unknown('value', error['ctx']['tag'], _quoted(error['ctx']['expected_tags']))}"
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    return f"{key}: {error['msg'][0].lower()}{error['msg'][1:]}, not {error['input']!r}"


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _section(location: Iterable[str]) -> Iterable[str]:
    """The keys allowed in the section at `location`."""
    forms: dict[str, type[BaseModel]] = {"sgd": Sgd, "adamw": AdamW}
    model: type[BaseModel] = Experiment
    for part in location:
        annotation = model.model_fields[part].annotation if part in model.model_fields else forms.get(part)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return model.model_fields
