"""The run's folder: what it holds, when it is found again, and when it is refused."""

import functools
import json
import platform
import shutil
import signal
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from reports.records.config import Experiment, read_config
from reports.records.environment import Source
from reports.records.identity import Identity
from tests.experiment.harness import TINY, AtCall, Outcome, folder_of, run, run_apart, snapshot
from train.engine.errors import Refused
from train.experiment import environment
from train.experiment.config import load
from train.experiment.folder import RunFolder, Wanted, open_folder


def copy_of(outcome: Outcome, out: Path) -> Path:
    """A copy of a finished run in `out`, with its times, to be changed by a test; returns the folder."""
    precision, _, seed = outcome.folder.name.partition("-s")
    return shutil.copytree(outcome.folder, folder_of(out, TINY, precision, int(seed)))


def opened(folder: Path, config: Experiment, precision: str) -> RunFolder:
    """The folder as a run of seed 0 finds it that compares its configuration alone."""
    return open_folder(folder, Wanted(config, precision, 0, Identity(), checkpoint_every=3), "auto")


def test_the_folder_holds_the_files_of_the_contract(finished: Outcome) -> None:
    assert finished.status == 0
    assert {str(path.relative_to(finished.folder)) for path in finished.folder.rglob("*") if path.is_file()} == {
        ".lock",
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "summary.json",
        "checkpoints/last.pt",
        "checkpoints/previous.pt",
        "checkpoints/best.pt",
    }


def test_the_written_configuration_repeats_the_run(fp32: Outcome, tmp_path: Path) -> None:
    again = run(tmp_path, config=fp32.folder / "config.yaml")
    again = Outcome(again.status, again.out, again.err, folder_of(tmp_path, TINY, "fp32"))
    assert again.status == 0
    assert again.numbers == fp32.numbers
    assert again.summary.final_weights_sha256 == fp32.summary.final_weights_sha256
    assert (again.folder / "config.yaml").read_text() == (fp32.folder / "config.yaml").read_text()


def test_the_written_configuration_has_the_same_digest(fp32: Outcome, tmp_path: Path) -> None:
    assert load(fp32.folder / "config.yaml").digest() == fp32.summary.config_sha256


def test_a_run_from_before_a_key_existed_is_found_again(finished: Outcome, tmp_path: Path) -> None:
    folder = copy_of(finished, tmp_path)
    recorded = yaml.safe_load((folder / "config.yaml").read_text())
    del recorded["fp32_modules"], recorded["scaler"]["min_scale"]
    (folder / "config.yaml").write_text(yaml.safe_dump(recorded))
    precision = folder.name.partition("-s")[0]
    assert opened(folder, load(finished.folder / "config.yaml"), precision).finished
    assert load(folder / "config.yaml").digest() == finished.summary.config_sha256


def test_the_configuration_is_resolved(fp32: Outcome) -> None:
    resolved = yaml.safe_load((fp32.folder / "config.yaml").read_text())
    assert resolved["num_classes"] == 10  # the data set's
    assert resolved["optimizer"]["momentum"] == 0.9  # the default
    assert resolved["max_steps"] == 12


def test_the_environment_says_what_ran_where(finished: Outcome) -> None:
    precision = finished.folder.name.partition("-")[0]
    facts = finished.environment
    assert facts.git == environment.git_state()
    for package in ("torch", "torchvision", "timm", "transformers", "datasets", "wandb", "numpy"):
        assert facts.versions[package] == version(package)
    assert facts.versions["python"] == platform.python_version()
    assert facts.seed == 0
    assert facts.precision.requested == precision
    assert facts.precision.effective.name == precision
    dtype = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision]
    assert facts.precision.effective.matrix_dtype == dtype
    assert facts.precision.module_outputs == {dtype: 3}  # two convolutions and a linear layer
    assert facts.device.type == "cpu"
    flags = Path("/proc/cpuinfo").read_text().split()
    assert facts.cpu.instruction_sets == [
        flag
        for flag in ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16")
        if flag in flags
    ]
    assert facts.cpu.threads == torch.get_num_threads()
    [attempt] = facts.attempts
    assert attempt.command is not None
    assert attempt.command.startswith(f"python -m train.resnet {TINY} --precision {precision} --device cpu --out ")
    assert attempt.from_step == 0


def test_the_state_of_the_source_tree_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    monkeypatch.setattr(environment, "ROOT", tmp_path)
    assert environment.git_state() == Source()
    git("init", "--quiet")
    (tmp_path / "file").write_text("as committed")
    git("add", "file")
    git("commit", "--quiet", "--message", "first")
    (tmp_path / "not tracked").write_text("such as a result")
    assert environment.git_state() == Source(commit=git("rev-parse", "HEAD"), dirty=False)
    (tmp_path / "file").write_text("changed")
    assert environment.git_state() == Source(commit=git("rev-parse", "HEAD"), dirty=True)


def test_configuration_and_environment_exist_before_the_first_step(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, TINY, "fp32")
    seen: list[tuple[Experiment, dict[str, object]]] = []

    def look() -> None:
        seen.append((read_config(folder / "config.yaml"), json.loads((folder / "environment.json").read_text())))

    assert run(tmp_path, "max_steps=1", forward=AtCall(1, look)).status == 0
    [(config, facts)] = seen
    assert config.max_steps == 1
    assert {"versions", "git", "seed", "precision", "attempts"} <= facts.keys()


def test_a_killed_process_leaves_its_configuration_and_complete_lines(tmp_path: Path, log: Path) -> None:
    killed = AtCall(5, functools.partial(signal.raise_signal, signal.SIGKILL))
    assert run_apart(tmp_path, log, forward=killed) == -signal.SIGKILL
    folder = folder_of(tmp_path, TINY, "fp32")
    left = Outcome(-9, "", "", folder)
    assert (folder / "metrics.jsonl").read_text().endswith("\n")
    assert list(left.losses) == [1, 2, 3, 4]
    assert load(folder / "config.yaml").max_steps == 12
    assert len(left.environment.attempts) == 1
    assert not (folder / "summary.json").exists()


def test_a_finished_run_ends_at_once_and_touches_nothing(finished: Outcome, tmp_path: Path) -> None:
    folder = copy_of(finished, tmp_path)
    before = snapshot(folder)
    precision = folder.name.partition("-")[0]

    def never() -> None:
        raise AssertionError("it trained")

    again = run(tmp_path, precision=precision, forward=AtCall(1, never))
    assert again.status == 0
    assert "finished already" in again.out
    assert snapshot(folder) == before


def test_a_key_that_only_watches_or_judges_may_change_without_retraining(fp32: Outcome, tmp_path: Path) -> None:
    folder = copy_of(fp32, tmp_path)
    before = snapshot(folder)
    assert run(tmp_path, "log_every=3", "margin=0.1").status == 0
    assert snapshot(folder) == before


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_folder_of_another_configuration_is_refused(with_checkpoint: bool, fp32: Outcome, tmp_path: Path) -> None:
    folder = copy_of(fp32, tmp_path)
    if not with_checkpoint:
        shutil.rmtree(folder / "checkpoints")
        (folder / "checkpoints").mkdir()
    before = snapshot(folder)
    other = run(tmp_path, "optimizer.lr=0.1", "batch_size=16")
    assert other.status == 2
    assert f"{folder} belongs to another run" in other.err
    assert "optimizer.lr is 0.05 there and 0.1 here" in other.err
    assert "batch_size is 8 there and 16 here" in other.err
    assert "--resume never" in other.err
    assert other.err.count("\n") == 1
    assert snapshot(folder) == before


def test_resume_never_keeps_the_old_run(fp32: Outcome, tmp_path: Path) -> None:
    before = snapshot(copy_of(fp32, tmp_path))
    anew = run(tmp_path, "optimizer.lr=0.1", options=("--resume", "never"))
    assert anew.status == 0
    [replaced] = (tmp_path / "tiny" / "replaced").iterdir()
    assert snapshot(replaced) == before
    assert str(replaced) in anew.out
    assert anew.summary.final_weights_sha256 != fp32.summary.final_weights_sha256
    assert anew.environment.run_id != fp32.environment.run_id
    assert len(anew.environment.attempts) == 1


def test_resume_never_repeats_a_finished_run_from_the_start(fp32: Outcome, tmp_path: Path) -> None:
    copy_of(fp32, tmp_path)
    anew = run(tmp_path, options=("--resume", "never"))
    assert anew.numbers == fp32.numbers
    assert anew.environment.attempts[0].from_step == 0


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


DAMAGES = [_truncate, _flip, lambda path: path.write_bytes(b""), lambda path: path.unlink()]


@pytest.mark.parametrize("damage", DAMAGES[:3])
def test_a_damaged_checkpoint_that_was_named_is_refused_with_one_that_works(
    damage: Callable[[Path], object], fp32: Outcome, tmp_path: Path
) -> None:
    folder = copy_of(fp32, tmp_path)
    (folder / "summary.json").unlink()  # an unfinished run
    file = Path(shutil.copy(folder / "checkpoints" / "last.pt", tmp_path / "other.pt"))
    damage(file)
    before = snapshot(folder)
    done = run(tmp_path, options=("--resume", str(file)))
    assert done.status == 2
    assert f"checkpoint {file} is damaged" in done.err
    last = folder / "checkpoints" / "last.pt"
    assert done.err.endswith(f"; resume from {last} with --resume {last}, or start again with --resume never\n")
    assert done.err.count("\n") == 1
    assert snapshot(folder) == before


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("generations", [("last",), ("last", "previous")])
def test_an_older_checkpoint_takes_the_place_of_a_damaged_or_missing_one(
    generations: tuple[str, ...], damage: Callable[[Path], object], fp32: Outcome, tmp_path: Path
) -> None:
    folder = copy_of(fp32, tmp_path)
    (folder / "summary.json").unlink()
    for name in generations:
        damage(folder / "checkpoints" / f"{name}.pt")
    done = run(tmp_path)
    taken = folder / "checkpoints" / ("previous.pt" if generations == ("last",) else "best.pt")
    assert f"warning: checkpoint {folder / 'checkpoints' / 'last.pt'} is " in done.out
    assert f"; {taken} takes its place\n" in done.out
    assert done.status == 0
    assert done.numbers == fp32.numbers
    assert done.summary.final_weights_sha256 == fp32.summary.final_weights_sha256
    assert done.summary.best == fp32.summary.best


def test_an_older_checkpoint_takes_the_place_of_a_last_one_that_is_a_folder(fp32: Outcome, tmp_path: Path) -> None:
    folder = copy_of(fp32, tmp_path)
    (folder / "summary.json").unlink()
    last = folder / "checkpoints" / "last.pt"
    last.unlink()
    last.mkdir()
    (last / "mine").write_text("kept")
    done = run(tmp_path)
    assert done.status == 0, done.err
    assert f"warning: checkpoint {last} is damaged (it is a folder); {last.with_name('previous.pt')} takes" in done.out
    assert f"{last} is kept in " in done.out
    assert [file.read_text() for file in tmp_path.rglob("mine")] == ["kept"]
    assert last.is_file()
    assert done.summary.final_weights_sha256 == fp32.summary.final_weights_sha256


@pytest.mark.parametrize("name", ["best.pt", "previous.pt"])
def test_a_folder_in_the_place_of_a_checkpoint_is_refused_by_name(name: str, fp32: Outcome, tmp_path: Path) -> None:
    folder = copy_of(fp32, tmp_path)
    (folder / "summary.json").unlink()
    file = folder / "checkpoints" / name
    file.unlink()
    file.mkdir()
    before = snapshot(folder)
    done = run(tmp_path)
    assert (done.status, snapshot(folder)) == (2, before)
    assert f"checkpoint {file} is a folder; delete or rename it, or start again with --resume never\n" in done.err


@pytest.mark.parametrize("summary", [True, False])
def test_a_run_whose_checkpoints_are_gone_is_not_silently_started_again(
    summary: bool, fp32: Outcome, tmp_path: Path
) -> None:
    folder = copy_of(fp32, tmp_path)
    if summary:
        stopped = fp32.summary.model_copy(update={"status": "interrupted"})
        (folder / "summary.json").write_text(stopped.model_dump_json())
        (folder / "metrics.jsonl").unlink()
    else:
        (folder / "summary.json").unlink()
    for file in (folder / "checkpoints").iterdir():
        file.unlink()
    before = snapshot(folder)
    done = run(tmp_path)
    assert done.status == 2
    missing = folder / "checkpoints" / "last.pt"
    assert done.err == (
        f"error: {folder} has trained, but its checkpoint checkpoints/{missing.name} is missing; "
        "start again with --resume never\n"
    )
    assert snapshot(folder) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_finished_run_needs_no_checkpoint(damage: Callable[[Path], object], fp32: Outcome, tmp_path: Path) -> None:
    folder = copy_of(fp32, tmp_path)
    for name in ("last", "previous", "best"):
        damage(folder / "checkpoints" / f"{name}.pt")
    before = snapshot(folder)
    done = run(tmp_path)
    assert (done.status, done.out) == (0, f"{folder}: finished already\n")
    assert snapshot(folder) == before


def test_a_missing_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    done = run(tmp_path, options=("--resume", str(tmp_path / "none.pt")))
    assert done.status == 2
    assert f"checkpoint {tmp_path / 'none.pt'} does not exist" in done.err


@pytest.mark.parametrize(
    ("overrides", "precision", "seed", "difference"),
    [
        (("optimizer.lr=0.1",), "fp32", 0, "optimizer.lr is 0.05 there and 0.1 here"),
        ((), "bf16", 0, "precision is 'fp32' there and 'bf16' here"),
        ((), "fp32", 1, "seed is 0 there and 1 here"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    overrides: tuple[str, ...], precision: str, seed: int, difference: str, fp32: Outcome, tmp_path: Path
) -> None:
    file = fp32.folder / "checkpoints" / "last.pt"
    done = run(tmp_path, *overrides, precision=precision, options=("--resume", str(file), "--seed", str(seed)))
    assert done.status == 2
    assert f"{file} belongs to another run: {difference}." in done.err
    assert not (done.folder / "config.yaml").exists()
    assert not (done.folder / "summary.json").exists()


def test_resume_from_a_file_goes_on_from_its_step(fp32: Outcome, tmp_path: Path) -> None:
    half = run(tmp_path / "half", "max_steps=6")
    rest = run(tmp_path / "rest", options=("--resume", str(half.folder / "checkpoints" / "last.pt")))
    assert rest.status == 0
    assert "resumes from step 6 of 12" in rest.out
    assert [attempt.from_step for attempt in rest.environment.attempts] == [0, 6], "the earlier attempt is part of it"
    assert list(rest.losses) == list(range(1, 13)), "the history comes along"


def _without(*path: str) -> Callable[[dict[str, Any]], None]:
    def remove(state: dict[str, Any]) -> None:
        for key in path[:-1]:
            state = state[key]
        del state[path[-1]]

    return remove


def _with(value: object, *path: str) -> Callable[[dict[str, Any]], None]:
    def put(state: dict[str, Any]) -> None:
        for key in path[:-1]:
            state = state[key]
        state[path[-1]] = value

    return put


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (_without("trainer"), "is not one of a run: trainer: field required"),
        (_without("history"), "is not one of a run: history: field required"),
        (_without("identity", "config"), "is not one of a run: identity.config: field required"),
        (_with(5, "identity", "config"), "is not one of a run: identity.config: input should be a valid object, not 5"),
        (_without("identity", "config", "model"), "is not one of a run: model: field required"),
        (_with(1, "extra"), "is not one of a run: extra: extra inputs are not permitted, not 1"),
        (_with("x", "progress", "best"), 'is not one of a run: progress.best: input should be a valid number, not "x"'),
        (_with(1, "progress", "extra"), "is not one of a run: progress.extra: extra inputs are not permitted, not 1"),
        (_with([], "attempts"), "is not one of a run: attempts: list should have at least 1 item"),
        (_with("x", "meter", "steps"), "is not one of a run: meter.steps"),
        (_without("meter", "steps"), "does not fit this run: KeyError: 'steps'"),
        (_without("trainer", "model"), "does not fit this run: KeyError: 'model'"),
        (_with(None, "trainer", "model"), "does not fit this run: AttributeError: "),
        (_without("trainer", "model", "fc.bias"), "does not fit this run: RuntimeError: "),
        (_with(torch.zeros(3), "trainer", "model", "fc.bias"), "does not fit this run: RuntimeError: "),
        (_with(torch.zeros(3), "trainer", "model", "other.weight"), "does not fit this run: RuntimeError: "),
        (_with("x", "trainer", "step"), "does not fit this run: ValueError: "),
        (_with([], "trainer", "optimizers"), "does not fit this run: ValueError: "),
        (_with({}, "random"), "does not fit this run: KeyError: 'python'"),
    ],
)
def test_a_checkpoint_with_other_parts_is_refused_in_one_line(
    edit: Callable[[dict[str, Any]], None], fault: str, fp32: Outcome, tmp_path: Path
) -> None:
    folder = copy_of(fp32, tmp_path)
    (folder / "summary.json").unlink()
    file = folder / "checkpoints" / "last.pt"
    state = torch.load(file)
    edit(state)
    torch.save(state, file)
    before = snapshot(folder)
    done = run(tmp_path)
    assert done.status == 2
    assert done.err.startswith(f"error: checkpoint {file} {fault}")
    assert done.err.count("\n") == 1
    assert snapshot(folder) == before


def test_the_best_weights_come_along_to_another_folder(fp32: Outcome, tmp_path: Path) -> None:
    last = fp32.folder / "checkpoints" / "last.pt"
    rest = run(tmp_path / "with", options=("--resume", str(last)))
    assert rest.summary.best == fp32.summary.best
    best = rest.folder / "checkpoints" / "best.pt"
    assert best.read_bytes() == last.with_name("best.pt").read_bytes()
    alone = shutil.copy(last, tmp_path / "alone.pt")
    rest = run(tmp_path / "without", options=("--resume", str(alone)))
    assert rest.status == 0
    assert rest.summary.best == {"eval/accuracy": None}, "a best value has its weights, or is none"
    assert not (rest.folder / "checkpoints" / "best.pt").exists()


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_a_folder_in_use_is_refused_to_another_process(resume: str, fp32: Outcome, tmp_path: Path, log: Path) -> None:
    folder = copy_of(fp32, tmp_path)
    before = snapshot(folder)
    held = opened(folder, load(folder / "config.yaml"), "fp32")
    assert run_apart(tmp_path, log, options=("--resume", resume)) == 2
    assert f"output folder {folder} is in use by another process" in log.read_text()
    assert snapshot(folder) == before
    held.lock.close()
    assert run_apart(tmp_path, log) == 0


def _doubled(lines: list[str]) -> list[str]:
    return [*lines[:4], lines[3], *lines[4:]]


def _swapped(lines: list[str]) -> list[str]:
    return [*lines[:2], lines[3], lines[2], *lines[4:]]


def _foreign(lines: list[str]) -> list[str]:
    return [*lines[:3], '{"train/step": 3, "train/loss": 99.0}\n', *lines[3:]]


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[:5],
        lambda lines: [*lines[:3], lines[3][:9] + "\n", *lines[4:]],
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: [],
        _doubled,
        _swapped,
        _foreign,
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_run_resumes_whatever_became_of_its_metrics(
    damage: Callable[[list[str]], list[str]], named: bool, fp32: Outcome, tmp_path: Path
) -> None:
    stopped = run(tmp_path, forward=AtCall(8, functools.partial(signal.raise_signal, signal.SIGTERM)))
    file = stopped.folder / "metrics.jsonl"
    file.write_text("".join(damage(file.read_text().splitlines(keepends=True))))
    last = stopped.folder / "checkpoints" / "last.pt"
    done = run(tmp_path, options=("--resume", str(last)) if named else ())
    assert done.status == 0
    assert f"warning: {file} is restored from the checkpoint\n" in done.out
    assert done.numbers == fp32.numbers
    assert done.summary.final_weights_sha256 == fp32.summary.final_weights_sha256
    assert done.summary.best == fp32.summary.best


@pytest.mark.parametrize("content", ['{"attempts": 5}', '{"run_id": 7}', '{"attempts": [', "{}", "", None])
@pytest.mark.parametrize("name", ["environment.json", "config.yaml"])
def test_a_run_resumes_whatever_became_of_what_it_began_with(
    name: str, content: str | None, fp32: Outcome, tmp_path: Path
) -> None:
    folder = copy_of(fp32, tmp_path)
    (folder / "summary.json").unlink()
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    done = run(tmp_path)
    assert done.status == 0
    assert [attempt.from_step for attempt in done.environment.attempts] == [0, 12]
    assert done.environment.run_id == fp32.environment.run_id
    assert done.environment.cpu == fp32.environment.cpu
    assert load(folder / "config.yaml") == load(fp32.folder / "config.yaml")


def test_an_unreadable_configuration_in_the_folder_is_refused_by_name(fp32: Outcome, tmp_path: Path) -> None:
    folder = copy_of(fp32, tmp_path)
    shutil.rmtree(folder / "checkpoints")
    (folder / "config.yaml").write_text("model: [resnet")
    done = run(tmp_path)
    assert done.status == 2
    assert f"{folder / 'config.yaml'}: not readable as YAML: " in done.err
    assert done.err.count("\n") == 1


def test_an_empty_configuration_in_the_folder_is_refused_by_name(fp32: Outcome, tmp_path: Path) -> None:
    folder = copy_of(fp32, tmp_path)
    shutil.rmtree(folder / "checkpoints")
    (folder / "config.yaml").write_text("")
    with pytest.raises(Refused, match=r"config\.yaml: .*--resume never"):
        opened(folder, load(TINY), "fp32")
