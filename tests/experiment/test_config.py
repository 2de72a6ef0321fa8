"""Configuration: what is refused and how the message helps, overrides, and what a digest stands for."""

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from reports.records.config import AdamW, Change, Experiment, OtherOptimizer, Sgd, differences
from tests.experiment.harness import DIGITS, ROOT, TINY
from train.engine.errors import Refused
from train.experiment.config import COMMAND_OPTIONS, FOREIGN, load

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def refusal(*overrides: str, path: Path = TINY) -> str:
    with pytest.raises(Refused) as caught:
        load(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def written(folder: Path, text: str | bytes, name: str = "case.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def sections(model: type[BaseModel] = Experiment, prefix: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Dotted prefix and model of each section, with each form of a section that has several."""
    yield prefix, model
    for name, field in model.model_fields.items():
        for part in parts_of(field.annotation):
            yield from sections(part, f"{prefix}{name}.")


def parts_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation, those of a union one by one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from parts_of(argument)


def test_every_kind_of_section_is_known_to_these_tests() -> None:
    assert [(prefix, model.__name__) for prefix, model in sections()] == [
        ("", "Experiment"),
        ("data.", "Data"),
        ("optimizer.", "Sgd"),
        ("optimizer.", "AdamW"),
        ("optimizer.", "OtherOptimizer"),
        ("schedule.", "Schedule"),
        ("scaler.", "Scaler"),
    ]


@pytest.mark.parametrize(
    ("override", "key", "nearest"),
    [
        ("batch_sise=8", "batch_sise", "batch_size"),
        ("data.agument=crop", "data.agument", "augment"),
        ("optimizer.momentun=0.9", "optimizer.momentun", "momentum"),
        ("schedule.warmpu=1", "schedule.warmpu", "warmup"),
        ("scaler.init_scales=1", "scaler.init_scales", "init_scale"),
        ("optimiser.lr=0.1", "optimiser", "optimizer"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(override: str, key: str, nearest: str) -> None:
    assert f"{key}: unknown key {key.rpartition('.')[2]!r}: did you mean {nearest!r}?" in refusal(override)


@pytest.mark.parametrize(
    ("override", "key", "nearest"),
    [
        ("optimizer.name=sdg", "optimizer.name", "sgd"),
        ("optimizer.name=adanw", "optimizer.name", "adamw"),
        ("schedule.name=cosin", "schedule.name", "cosine"),
        ("data.augment=crop_flips", "data.augment", "crop_flip"),
    ],
)
def test_an_unknown_choice_is_refused_with_the_nearest_one(override: str, key: str, nearest: str) -> None:
    message = refusal(override)
    assert key in message
    assert f"did you mean {nearest!r}?" in message
    assert "allowed: " in message


def test_an_unknown_model_is_refused_with_the_nearest_script() -> None:
    message = refusal("model=resnt")
    assert "unknown model 'resnt': did you mean 'resnet'?" in message


def test_an_option_of_the_other_optimizer_is_refused() -> None:
    assert "unknown key 'betas'" in refusal("optimizer.betas=[0.9, 0.99]")
    assert "unknown key 'nesterov'" in refusal("optimizer={name: adamw, lr: 0.1, nesterov: true}")


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ('batch_size="8"', "batch_size"),
        ("batch_size=8.0", "batch_size"),
        ("batch_size=true", "batch_size"),
        ("optimizer.lr=high", "optimizer.lr"),
        ("optimizer.lr=null", "optimizer.lr"),
        ("optimizer=sgd", "optimizer"),
        ("data=digits", "data"),
        ("data.name=3", "data.name"),
        ("schedule.milestones=3", "schedule.milestones"),
        ("model=3", "model"),
        ("published=He et al.", "published"),
        ("pretrained=3", "pretrained"),
        ("vocab_size=many", "vocab_size"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(override: str, key: str) -> None:
    assert f"tiny.yaml: {key}: " in refusal(override)


@pytest.mark.parametrize(
    "override",
    [
        "batch_size=0",
        "accumulate=0",
        "max_steps=-1",
        "optimizer.lr=0",
        "optimizer.lr=-0.1",
        "optimizer.lr=.nan",
        "optimizer.lr=.inf",
        "optimizer.momentum=1",
        "schedule.warmup=-1",
        "schedule.final=1.5",
        "scaler.growth_factor=1",
        "scaler.backoff_factor=1",
        "scaler.init_scale=.inf",
        "clip_norm=0",
        "ema_decay=1",
        "label_smoothing=1",
        "margin=0",
        "margin=0.5",
        "workers=-1",
        "num_classes=0",
        "vocab_size=7",
        "dropout=1",
        "data.length=0",
    ],
)
def test_a_value_out_of_range_is_refused_with_key_and_value(override: str) -> None:
    key, _, value = override.partition("=")
    message = refusal(override)
    assert f"{key}: " in message
    assert value.strip(".") in message


def numeric_keys() -> Iterator[str]:
    """The dotted keys that take a number, or a list of them."""
    for prefix, model in sections():
        for name, field in model.model_fields.items():
            if any(kind in str(field.annotation) for kind in ("int", "float")):
                yield prefix + name


@pytest.mark.parametrize("key", dict.fromkeys(numeric_keys()))
def test_no_number_gets_further_than_the_schema_that_a_model_cannot_compute_with(key: str) -> None:
    form = ["optimizer={name: adamw, lr: 0.1}"] if key in ("optimizer.betas", "optimizer.eps") else []
    for number in (".inf", "-.inf", ".nan", "1e300", "-1e300", "1e-300", str(10**40), "1" * 4000, "!!float 1e999"):
        for text in (number, f"[{number}, {number}]"):
            assert key in refusal(*form, f"{key}={text}")


def test_a_value_that_is_large_when_written_out_is_shortened() -> None:
    doubled = "".join(f", &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))
    assert len(refusal(f"batch_size=[&a0 [1]{doubled}]")) < 1000
    assert len(refusal(f"arch={{x: {'y' * 5000}}}")) < 1000
    assert len(refusal(f"name={'a' * 300}")) < 500


@pytest.mark.parametrize("overrides", [("epochs=2", "max_steps=3"), ("max_steps=null",)])
def test_epochs_and_max_steps_exclude_each_other(overrides: tuple[str, ...]) -> None:
    assert "give either epochs or max_steps, and not both" in refusal(*overrides)


@pytest.mark.parametrize("key", ["model", "arch", "batch_size", "data", "optimizer", "schedule"])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    values = yaml.safe_load(TINY.read_text())
    del values[key]
    message = refusal(path=written(tmp_path, yaml.safe_dump(values)))
    assert f"{key}: this key is required" in message


@pytest.mark.parametrize("optimizer", ["{lr: 0.1}", "{}"])
def test_a_missing_optimizer_name_is_named_with_those_there_are(optimizer: str) -> None:
    message = refusal(f"optimizer={optimizer}")
    assert "tiny.yaml: optimizer.name: this key is required; allowed: " in message
    assert {"adamw", "rmsprop", "sgd"} <= set(message.partition("allowed: ")[2].partition(";")[0].split(", "))


def test_a_repeated_key_is_refused(tmp_path: Path) -> None:
    message = refusal(path=written(tmp_path, TINY.read_text() + "batch_size: 16\n"))
    assert "repeated key batch_size" in message
    nested = TINY.read_text().replace("  lr: 0.05", "  lr: 0.05\n  lr: 0.5")
    assert "repeated key lr" in refusal(path=written(tmp_path, nested))


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    assert load(written(tmp_path, b"\xef\xbb\xbf" + TINY.read_bytes(), "tiny.yaml")) == load(TINY)


def test_a_merge_key_is_refused_with_what_to_write_instead(tmp_path: Path) -> None:
    text = TINY.read_text().replace("optimizer:\n", "optimizer: &base\n") + "schedule:\n  <<: *base\n"
    message = refusal(path=written(tmp_path, text.replace("schedule:\n  name: linear\n", "")))
    assert "case.yaml: not readable as YAML: merge keys (<<) are not read" in message
    assert "write the merged ones out" in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model: [resnet", "not readable as YAML"),
        ("model: resnet\n\tarch: x", "not readable as YAML"),
        (b"model: r\xe9snet", "not readable as YAML"),
        (b"\xff\xfem\x00", "not readable as YAML"),
        ("model: !!python/object/apply:os.getcwd []", "not readable as YAML"),
        ("arch: 2020-99-99", "not readable as YAML"),
        ("model: !!bool maybe", "not readable as YAML"),
        ("[" * 1000, "not readable as YAML"),
        (b"\x00\x01\x02", "not readable as YAML"),
        ("", "expected keys and values"),
        ("- model", "expected keys and values"),
        ("just text", "expected keys and values"),
    ],
)
def test_an_unreadable_file_is_refused_by_name(text: str | bytes, reason: str, tmp_path: Path) -> None:
    message = refusal(path=written(tmp_path, text))
    assert str(tmp_path / "case.yaml") in message
    assert reason in message


def test_a_missing_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    message = refusal(path=DIGITS.with_name("resnet20_digit.yaml"))
    assert "did you mean" in message
    assert f"{DIGITS}" in message
    missing = str(tmp_path / "none.yaml")
    assert refusal(path=Path(missing)) == f"unknown configuration file {missing!r}: no such file"


def test_an_experiment_of_the_repository_is_found_by_its_bare_name_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(Path(DIGITS.stem)) == load(DIGITS)
    assert f"did you mean {str(DIGITS)!r}" in refusal(path=Path("resnet20_digit"))
    assert f"did you mean the file {str(DIGITS)!r}?" in refusal("resnet20_digit")


def test_a_path_that_is_no_file_is_refused_in_one_short_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(path=tmp_path) == f"{tmp_path} is a folder, not a configuration file"
    assert "File name too long" in refusal(path=Path("x" * 5000))
    assert len(refusal(path=Path("x" * 5000))) < 300

    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", denied)  # the user root is denied nothing
    assert refusal() == f"configuration file {str(TINY)!r}: Permission denied"


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, **options: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", denied)
    assert refusal(path=tmp_path / TINY) == f"{TINY}: not readable as YAML: Permission denied"


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("lr=0.1", "did you mean 'optimizer.lr'?"),
        ("betas=[0.9, 0.99]", "did you mean 'optimizer.betas'?"),
        ("augment=crop", "did you mean 'data.augment'?"),
        ("momentun=0.9", "did you mean 'optimizer.momentum'?"),
        ("data.batch_size=8", "did you mean 'batch_size'?"),
        ("seed=1", "it is an option of the command: --seed"),
        ("precision=bf16", "it is an option of the command: --precision"),
    ],
)
def test_a_key_in_the_wrong_place_is_refused_with_the_right_place(override: str, hint: str) -> None:
    assert refusal(override).endswith(hint)


def test_a_key_that_is_like_none_is_refused_without_a_guess_and_without_a_long_list() -> None:
    message = refusal("teacher_temperature=0.1")
    assert "did you mean" not in message
    assert "... (29 in all)" in message
    assert len(message) < 300


def test_a_key_that_is_given_twice_is_refused() -> None:
    assert "'batch_size' is given more than once" in refusal("batch_size=4", "log_every=2", "batch_size=16")


def test_a_relative_file_is_found_in_the_repository_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(DIGITS.relative_to(ROOT)) == load(DIGITS)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("batch_size", "expected key=value"),
        ("batch_size.x=1", "'batch_size' is not a section"),
        ("optimizer.lr.x=1", "'lr' is not a section"),
        ("batch_size=[1", "not a YAML value"),
        ("arch=2020-99-99", "not a YAML value"),
        ("=3", "expected key=value"),
        *((f"label_smoothing={text}", "not a YAML value") for text in ("!!bool maybe", "!!float x", "!!int x")),
        ("label_smoothing=!!timestamp x", "not a YAML value"),
        ("label_smoothing=" + "[" * 1000, "not a YAML value"),
    ],
)
def test_a_malformed_override_is_refused(override: str, reason: str) -> None:
    assert reason in refusal(override)


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "0.0001", "1.0e-4", ".1e-3"])
def test_1e_4_is_a_number_in_a_file_and_in_an_override(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, TINY.read_text().replace("lr: 0.05", f"lr: {text}"))
    assert load(path).optimizer.lr == 1e-4
    assert load(TINY, [f"optimizer.lr={text}"]).optimizer.lr == 1e-4


BOOLEANS = ("optimizer.nesterov", "optimizer.decay_norm_and_bias", "optimizer.fused", "channels_last", "deterministic")


@pytest.mark.parametrize("key", BOOLEANS)
def test_a_boolean_can_be_turned_off_and_on_in_any_spelling(key: str) -> None:
    for word, value in dict.fromkeys(("False", "false", "FALSE", "0", "no", "off", '"False"'), False).items() | (
        dict.fromkeys(("True", "true", "1", "yes", "on", '"on"'), True).items()
    ):
        loaded: Any = load(TINY, [f"{key}={word}"])
        for part in key.split("."):
            loaded = getattr(loaded, part)
        assert loaded is value, f"{key}={word}"
    for word in ("maybe", "2", "-1", "0.5", "[]"):
        assert f"{key}" in refusal(f"{key}={word}")


def test_overrides_apply_in_order_and_create_a_section() -> None:
    config = load(TINY, ["scaler={init_scale: 1024}", "batch_size=16", "scaler.growth_interval=7"])
    assert config.batch_size == 16
    assert config.scaler.growth_interval == 7
    assert config.scaler.init_scale == 1024


def test_the_name_is_that_of_the_file() -> None:
    assert load(TINY).name == "tiny"


@pytest.mark.parametrize("name", ["smoke", "replaced"])
def test_a_name_that_is_taken_for_a_folder_of_results_is_refused(name: str) -> None:
    assert f"name: {name!r} is taken; it names the folder of the results" in refusal(f"name={name}")


@pytest.mark.parametrize(
    "name", ["a/b", "/a", "a\\b", "", ".", "..", ".a", "-a", "_a", "a b", "a|b", "a&b", "a<b", "a*", "é", "a\n", "a\0"]
)
def test_a_name_that_cannot_be_written_everywhere_is_refused_with_what_can(name: str) -> None:
    message = refusal(f"name={json.dumps(name)}")
    assert f"tiny.yaml: name: {name!r} is no name of an experiment" in message
    assert message.endswith(
        "allowed: letters a to z and A to Z, digits, '.', '_' and '-', beginning with a letter or digit"
    )


@pytest.mark.parametrize("name", ["a", "resnet20_digits-v1.0", "3"])
def test_letters_digits_dots_underscores_and_hyphens_are_a_name(name: str) -> None:
    assert load(TINY, [f"name={json.dumps(name)}"]).name == name


def test_a_file_whose_name_is_none_for_an_experiment_is_refused(tmp_path: Path) -> None:
    message = refusal(path=written(tmp_path, TINY.read_text(), "my case.yaml"))
    assert "my case.yaml: name: 'my case' is no name of an experiment (without this key, the file's)" in message


@pytest.mark.parametrize("path", [TINY, *CONFIGS], ids=lambda path: path.stem)
def test_the_resolved_yaml_loads_as_the_same_experiment(path: Path, tmp_path: Path) -> None:
    config = load(path)
    again = load(written(tmp_path, config.to_yaml(), "config.yaml"))
    assert again == config
    assert again.digest() == config.digest()


@pytest.mark.parametrize(
    "override", ["log_every=7", "checkpoint_every=7", "margin=0.1", "workers=2", "published=[He et al. 2015]"]
)
def test_the_digest_ignores_what_only_watches_or_judges(override: str) -> None:
    assert load(TINY, [override]) != load(TINY)
    assert load(TINY, [override]).digest() == load(TINY).digest()


@pytest.mark.parametrize(
    "override",
    [
        "optimizer.lr=0.051",
        "batch_size=16",
        "max_steps=13",
        "data.augment=none",
        "data.train_samples=63",
        "schedule.warmup=1",
        "scaler.growth_interval=7",
        "ema_decay=0.9",
        "channels_last=true",
        "arch=other",
        "pretrained=true",
        "dropout=0.1",
        "data.length=64",
    ],
)
def test_the_digest_changes_with_what_the_numbers_depend_on(override: str) -> None:
    assert load(TINY, [override]).digest() != load(TINY).digest()


def test_differences_name_dotted_keys_and_both_values() -> None:
    before = load(TINY, ["optimizer={name: rmsprop, lr: 0.1, alpha: 0.9}"])
    after = load(TINY, ["optimizer={name: rmsprop, lr: 0.2, momentum: 0.5}", "batch_size=16"])
    assert differences(before, after) == [
        Change("batch_size", 8, 16),
        Change("optimizer.lr", 0.1, 0.2),
        Change("optimizer.alpha", 0.9, None),
        Change("optimizer.momentum", None, 0.5),
    ]
    assert differences(before, before) == []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_committed_experiment_shows_every_key_and_no_precision_or_seed(path: Path) -> None:
    config = load(path)
    shown = yaml.safe_load(path.read_text())
    every_key = config.model_dump()
    del every_key["name"]
    assert set(dotted_keys(shown)) == set(dotted_keys(every_key))
    assert not {"precision", "seed"} & {key.rpartition(".")[2] for key in dotted_keys(shown)}
    assert not any(word in path.stem.split("_") for word in ("fp32", "tf32", "bf16", "fp16", "amp"))


def dotted_keys(section: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in section.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from dotted_keys(value, f"{prefix}{key}.")


def test_there_are_committed_experiments() -> None:
    assert CONFIGS


LETTERS = st.sampled_from(string.ascii_lowercase + "_")


@st.composite
def typos(draw: st.DrawFn) -> tuple[str, str, str, type[BaseModel]]:
    """(section prefix, wrong key, right key, section's model): one letter lost, added, changed or swapped."""
    # A further key of another optimizer is an argument of its class, which is checked when it is built.
    known = [(prefix, model) for prefix, model in sections() if model is not OtherOptimizer]
    prefix, model = draw(st.sampled_from(known))
    # A key of two letters is as near to several others after one edit.
    right = draw(st.sampled_from([key for key in model.model_fields if len(key) > 2]))
    place = draw(st.integers(0, len(right) - 1))
    before, letter, after = right[:place], right[place], right[place + 1 :]
    wrong = draw(
        st.one_of(
            st.just(before + after),
            LETTERS.map(lambda new: before + new + after),
            LETTERS.map(lambda new: before + new + letter + after),
            st.just(before + after[:1] + letter + after[1:]),
        )
    )
    return prefix, wrong, right, model


@settings(max_examples=150, deadline=None)
@given(typos())
def test_any_key_with_one_wrong_letter_is_refused_naming_the_right_one(
    typo: tuple[str, str, str, type[BaseModel]],
) -> None:
    prefix, wrong, right, model = typo
    if wrong in model.model_fields:
        return
    form = {Sgd: ["optimizer={name: sgd, lr: 0.1}"], AdamW: ["optimizer={name: adamw, lr: 0.1}"]}.get(model, [])
    message = refusal(*form, f"{prefix}{wrong}=1")
    assert f"unknown key {wrong!r}: did you mean {right!r}?" in message


def test_a_length_of_the_command_line_beside_that_of_the_file_says_what_to_add(tmp_path: Path) -> None:
    values = yaml.safe_load(TINY.read_text())
    for key, other in (("epochs", "max_steps"), ("max_steps", "epochs")):
        path = written(tmp_path, yaml.safe_dump({**values, "epochs": None, "max_steps": None, other: 5}))
        assert refusal(f"{key}=1", path=path) == f"{key}=1 and {other}=5 of {path}: add {other}=null"
        assert getattr(load(path, [f"{key}=1", f"{other}=null"]), key) == 1


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("gradient_clip=1", "did you mean 'clip_norm'?"),
        ("gradient_clip_val=1", "did you mean 'clip_norm'?"),
        ("bs=4", "did you mean 'batch_size'?"),
        ("per_device_train_batch_size=4", "did you mean 'batch_size'?"),
        ("wd=1", "did you mean 'optimizer.weight_decay'?"),
        ("learning_rate=1", "did you mean 'optimizer.lr'?"),
        ("optimizer.learning_rate=1", "did you mean 'optimizer.lr'?"),
        ("num_epochs=1", "did you mean 'epochs'?"),
        ("amp=true", "it is an option of the command: --precision"),
        ("fp16=true", "it is an option of the command: --precision"),
        ("=5", "expected key=value"),
    ],
)
def test_a_name_of_another_trainer_leads_to_the_key_of_this_one(override: str, hint: str) -> None:
    assert hint in refusal(override)


def test_the_names_of_other_trainers_are_no_keys_here_and_lead_to_keys_or_options() -> None:
    keys = {f"{prefix}{name}" for prefix, model in sections() for name in model.model_fields}
    assert {*FOREIGN.values()} <= keys | COMMAND_OPTIONS
    assert not {*FOREIGN} & {*Experiment.model_fields}
