"""The command line: what is refused before any work, with one line that helps."""

import functools
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from tests.experiment.harness import DIGITS, ROOT, TINY, build, command, run, script, start, wait
from train.cli import options, terminal
from train.engine.errors import Refused
from train.experiment import setup as experiment_setup


def refused(out: Path, *arguments: str, config: Path = TINY, precision: str = "fp32", **parts: object) -> str:
    """The one-line message of a command that must be refused without leaving anything in `out`."""
    given = [str(config), "--precision", precision, "--out", str(out), *arguments]
    status, stdout, stderr = command(given, **parts)  # type: ignore[arg-type]
    assert status == 2, stdout + stderr
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert "Traceback" not in stdout + stderr
    assert not out.exists() or not list(out.iterdir()), f"left behind: {list(out.iterdir())}"
    return stderr


@pytest.mark.parametrize(
    ("name", "nearest"), [("fp8", "fp"), ("FP16", "fp16"), ("half", None), ("bf61", "bf16"), ("auto", None)]
)
def test_an_unknown_precision_is_refused(name: str, nearest: str | None, tmp_path: Path) -> None:
    message = refused(tmp_path / "out", precision=name)
    assert f"unknown precision {name!r}" in message
    assert "allowed: bf16, fp16, fp32, tf32" in message
    assert nearest is None or f"did you mean '{nearest}" in message


def test_tf32_on_a_cpu_is_refused_with_what_can_run(tmp_path: Path) -> None:
    message = refused(tmp_path / "out", "--device", "cpu", precision="tf32")
    assert "precision 'tf32' cannot run here" in message
    assert "It can run: fp32, bf16, fp16" in message


def test_cuda_is_refused_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = refused(tmp_path / "out", "--device", "cuda")
    assert "device 'cuda'" in message
    assert "allowed here: auto, cpu" in message


@pytest.mark.parametrize("overrides", [[], ["batch_size=8"]])
@pytest.mark.parametrize(("option", "nearest"), [("--seeds=1", "--seed"), ("--smok", "--smoke"), ("--outt", "--out")])
def test_an_unknown_option_is_refused_with_the_nearest(
    option: str, nearest: str, overrides: list[str], tmp_path: Path
) -> None:
    message = refused(tmp_path / "out", *overrides, option)
    assert f"unknown option {option}" in message
    assert f"did you mean {nearest}?" in message


def test_a_missing_precision_is_named(tmp_path: Path) -> None:
    status, _, stderr = command([str(TINY), "--out", str(tmp_path)])
    assert status == 2
    assert stderr.startswith("error: ")
    assert "--precision" in stderr
    assert stderr.count("\n") == 1


def test_a_missing_configuration_is_named() -> None:
    status, _, stderr = command(["--precision", "fp32"])
    assert status == 2
    assert "CONFIG" in stderr


@pytest.mark.parametrize("seed", ["-1", "1.5", "one", "2147483648", ""])
def test_a_bad_seed_is_refused(seed: str, tmp_path: Path) -> None:
    assert "--seed" in refused(tmp_path / "out", "--seed", seed)


def test_an_unknown_device_is_refused(tmp_path: Path) -> None:
    message = refused(tmp_path / "out", "--device", "gpu")
    assert "--device" in message
    assert "cuda" in message


def test_a_misspelt_section_in_an_override_is_refused(tmp_path: Path) -> None:
    message = refused(tmp_path / "out", "optimiser.lr=0.1")
    assert "'optimiser'" in message
    assert "did you mean 'optimizer'?" in message


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("batch_size=65", ("batch_size", "65", "64")),
        ("data.name=digit", ("data set 'digit'", "did you mean 'digits'?")),
        ("data.name=mnist", ("data set 'mnist'", "did you mean 'fashion_mnist'?")),
        ("data.augment=random_resized_crop", ("data.augment", "allowed: none, crop, crop_flip")),
        ("batch_size", ("'batch_size'", "key=value")),
    ],
)
def test_what_does_not_fit_the_data_is_refused(override: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    message = refused(tmp_path / "out", override)
    assert all(part in message for part in parts), message


def test_a_label_outside_the_head_is_refused_by_value_and_place(tmp_path: Path) -> None:
    message = refused(tmp_path / "out", "num_classes=3")
    assert "num_classes=3" in message
    assert "digits training split has label " in message
    assert "at sample " in message


def test_a_larger_head_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, "num_classes=12", "max_steps=1")
    assert done.status == 0
    assert "warning: num_classes=12, but digits training split has labels 0 to 9 only" in done.out


def test_an_unknown_architecture_is_refused_with_the_nearest(tmp_path: Path) -> None:
    from train import resnet

    message = refused(tmp_path / "out", "arch=resnet200", config=DIGITS, build=resnet.build)
    assert "unknown architecture 'resnet200': did you mean 'resnet20'?" in message
    assert "resnet110" in message


def test_a_missing_configuration_file_is_refused_with_the_nearest(tmp_path: Path) -> None:
    message = refused(tmp_path / "out", config=TINY.with_name("tinny.yaml"))
    assert f"did you mean {str(TINY)!r}?" in message


def test_a_model_in_half_is_refused_by_parameter(tmp_path: Path) -> None:
    message = refused(tmp_path / "out", precision="fp16", build=lambda config: build(config).half())
    assert "parameter 'conv1.weight' is float16" in message


def test_a_loss_without_gradient_is_refused(tmp_path: Path) -> None:
    message = refused(tmp_path / "out", forward=lambda model, batch: (model(batch["images"]).detach(), batch["labels"]))
    assert "the loss has no gradient path to any parameter" in message


def test_an_output_folder_under_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    status, _, stderr = command([str(TINY), "--precision", "fp32", "--out", str(tmp_path / "file" / "out")])
    assert status == 2
    assert stderr.startswith(f"error: output folder {tmp_path / 'file' / 'out'}")
    assert "cannot be written" in stderr
    assert stderr.count("\n") == 1
    assert (tmp_path / "file").read_text() == "kept"


def test_options_stand_before_and_after_overrides(tmp_path: Path) -> None:
    arguments = ["max_steps=1", "--seed", "3", str(TINY)]
    status, _, stderr = command(
        ["--precision", "fp32", str(TINY), *arguments[:-1], "batch_size=4", "--out", str(tmp_path)]
    )
    assert status == 0, stderr
    resolved = (tmp_path / "tiny" / "fp32-s3" / "config.yaml").read_text()
    assert "max_steps: 1\n" in resolved
    assert "batch_size: 4\n" in resolved


def test_the_file_may_follow_the_overrides(tmp_path: Path) -> None:
    status, _, stderr = command(
        ["max_steps=1", "--precision", "fp32", "batch_size=4", str(TINY), "--out", str(tmp_path), "log_every=2"]
    )
    assert status == 0, stderr
    resolved = (tmp_path / "tiny" / "fp32-s0" / "config.yaml").read_text()
    for line in ("max_steps: 1", "batch_size: 4", "log_every: 2"):
        assert f"\n{line}\n" in resolved


def test_the_script_of_another_model_is_refused(tmp_path: Path, log: Path) -> None:
    bert = str(ROOT / "configs" / "bert_digits.yaml")
    process = start(functools.partial(script, bert, "--precision", "fp32", "--out", str(tmp_path / "out")), log)
    assert wait(process) == 2
    assert log.read_text() == f"error: {bert} is for model 'bert', but this is the script of 'resnet'\n"
    assert not (tmp_path / "out").exists()


def test_help_shows_options_and_defaults() -> None:
    status, stdout, stderr = command(["--help"])
    assert status == 0
    assert stderr == ""
    shown = " ".join(stdout.split())
    assert "fp32, tf32 (CUDA), bf16 or fp16" in shown
    for default in ("auto", "runs", "0", "False"):
        assert f"(default: {default})" in shown
    assert "(default: None)" not in shown
    for option in ("--precision", "--seed", "--device", "--out", "--resume", "--smoke", "--no-smoke", "KEY.SUB=VALUE"):
        assert option in shown


def test_an_error_is_wrapped_at_words_on_a_terminal_and_one_line_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / ("x" * 100)
    text = f"the file {path} holds {'many ' * 30}words"

    def fail() -> int:
        raise Refused(text)

    assert options.finish(fail) == 2
    assert capsys.readouterr().err == f"error: {text}\n"
    monkeypatch.setattr(terminal, "terminal", Console(width=80))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert options.finish(fail) == 2
    lines = capsys.readouterr().err.splitlines()
    assert " ".join(" ".join(lines).split()) == f"error: {text}"
    assert sum(str(path) in line for line in lines) == 1
    assert all(len(line) <= 80 or str(path) in line for line in lines)


@pytest.mark.parametrize(("switches", "folder"), [(("--smoke",), "smoke/tiny"), (("--smoke", "--no-smoke"), "tiny")])
def test_smoke_can_be_turned_on_and_off(switches: tuple[str, ...], folder: str, tmp_path: Path) -> None:
    done = run(tmp_path, options=switches)
    assert done.status == 0, done.err
    assert [str(path.parent.parent.relative_to(tmp_path)) for path in tmp_path.rglob("summary.json")] == [folder]
    assert f'"smoke": {str(folder != "tiny").lower()}' in next(tmp_path.rglob("summary.json")).read_text()


def test_a_refusal_happens_before_the_model_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_model(config: object) -> None:
        raise AssertionError("built")

    monkeypatch.setattr(experiment_setup, "build_model", no_model)
    refused(tmp_path / "out", precision="fp8")
    refused(tmp_path / "out", "batch_sise=8")
