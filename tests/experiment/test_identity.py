"""The identity of a run: when a finished or interrupted one is taken up again, and when it is refused."""

import functools
import importlib.util
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from reports.analysis.run import read_run
from reports.records.environment import Attempt, Machine, Place
from reports.records.files import write_record
from reports.records.identity import Identity, differences, not_recorded
from tests.experiment.harness import TINY, AtCall, Outcome, folder_of, run, snapshot
from train.data.specification import DataSpec, Splits
from train.experiment import environment
from train.experiment.config import load
from train.experiment.identity import source_digest, source_files
from train.experiment.metrics import ACCURACY
from train.experiment.setup import Build, Script
from train.experiment.tasks import image_classification

SCRIPT = '''"""A network of one's own."""

from torch import nn


class Net(nn.Module):
    """Images to logits."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Flatten(), nn.Linear(4 * 15 * 15, 10))

    def forward(self, images):
        # The sum would do as well.
        return self.layers(images)


def build(config):
    return Net()
'''
TERM = functools.partial(signal.raise_signal, signal.SIGTERM)
DESCRIBE = environment.describe


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "script" / "mynet.py"
    for name in ("mynet", "other"):
        sys.modules.pop(name, None)


def loaded(script: Path, text: str = SCRIPT) -> Build:
    """`build` of a script with this text, as a process of its own would import it."""
    script.parent.mkdir(exist_ok=True)
    script.write_text(text)
    specification = importlib.util.spec_from_file_location(script.stem, script)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[script.stem] = module
    exec(compile(text, script, "exec"), module.__dict__)  # a file of the same second would be read from its cache
    build: Build = module.build
    return build


def moved(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """From now on this is a machine of one thread, but for these changes of its place."""

    class Moved(Machine):
        @property
        def place(self) -> Place:
            return super().place.model_copy(update={"threads": 1, **changes})

    def describe(*arguments: object) -> Machine:
        return Moved(**dict(DESCRIBE(*arguments)))  # type: ignore[arg-type]

    monkeypatch.setattr(environment, "describe", describe)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    moved(monkeypatch)


EDITS = {
    "a wider layer": ("nn.Conv2d(1, 4, 3, stride=2)", "nn.Conv2d(1, 4, 3, stride=2, bias=False)"),
    "another forward": ("return self.layers(images)", "return 2 * self.layers(images)"),
    "another stride with the same weights": ("stride=2", "stride=2, dilation=1, padding=0, padding_mode='circular'"),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_an_edited_script_is_refused(finished: bool, edit: str, script: Path, tmp_path: Path) -> None:
    first = run(tmp_path, build=loaded(script), forward=AtCall(99 if finished else 5, TERM))
    assert first.status == (0 if finished else 75)
    before = snapshot(first.folder)
    again = run(tmp_path, build=loaded(script, SCRIPT.replace(*EDITS[edit])))
    assert again.status == 2
    assert str(first.folder) in again.err
    assert "another source of the model" in again.err
    assert ("another initial weights" in again.err) == (edit == "a wider layer")
    assert "--resume never" in again.err
    assert again.err.count("\n") == 1
    assert snapshot(first.folder) == before


def test_a_comment_or_a_docstring_changes_nothing(script: Path, tmp_path: Path) -> None:
    build = loaded(script)
    assert run(tmp_path, build=build).status == 0
    text = SCRIPT.replace("# The sum would do as well.", "#").replace(
        '"""Images to logits."""', '"""Of\n\n    a net."""'
    )
    again = run(tmp_path, build=loaded(script, text.replace("super().__init__()", "super().__init__(  )")))
    assert (again.status, again.out) == (0, f"{folder_of(tmp_path, TINY, 'fp32')}: finished already\n")


def test_the_source_is_that_of_the_script_its_task_and_the_models_classes(script: Path) -> None:
    build = loaded(script)
    own = Script(build, image_classification)
    assert source_files(own, nn.Sequential(nn.Linear(2, 2))) == [script.resolve()]
    other = loaded(script.with_name("other.py"))
    both = [script.resolve(), script.with_name("other.py").resolve()]
    assert source_files(own, other(load(TINY))) == both
    assert source_files(Script(build, replace(image_classification, loss=other)), nn.Linear(2, 2)) == both
    measure = replace(ACCURACY, compute=cast(Any, other))
    assert source_files(Script(build, replace(image_classification, measures=(measure,))), nn.Linear(2, 2)) == both


def test_a_function_that_the_script_imports_belongs_to_the_source(script: Path, tmp_path: Path) -> None:
    helper = script.with_name("other.py")

    def with_helper(activation: str) -> Build:
        loaded(helper, f"import torch\n\n\ndef activate(x):\n    return {activation}\n\n\nbuild = None\n")
        text = SCRIPT.replace("from torch import nn", "from torch import nn\n\nfrom other import activate")
        return loaded(script, text.replace("self.layers(images)", "activate(self.layers(images))"))

    assert run(tmp_path, build=with_helper("torch.tanh(x)")).status == 0
    again = run(tmp_path, build=with_helper("torch.sin(x)"))
    assert (again.status, "another source of the model" in again.err) == (2, True)


def test_a_setting_of_a_librarys_layer_belongs_to_the_source(script: Path) -> None:
    build = loaded(script)
    own = Script(build, image_classification)
    digests = [source_digest(own, nn.Sequential(nn.Dropout(rate))) for rate in (0.1, 0.1, 0.2)]
    assert digests[0] == digests[1] != digests[2]


def with_data(content: str | None) -> Callable[[DataSpec], Splits]:
    def load(spec: DataSpec) -> Splits:
        return replace(image_classification.load(spec), content_sha256=content)

    return load


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_on_other_data_is_refused(finished: bool, tmp_path: Path) -> None:
    first, other, unknown = (
        replace(image_classification, load=with_data(content)) for content in ("first", "other", None)
    )
    done = run(tmp_path, task=first, forward=AtCall(99 if finished else 5, TERM))
    before = snapshot(done.folder)
    again = run(tmp_path, task=other)
    assert again.status == 2
    assert "another content of the data" in again.err
    assert snapshot(done.folder) == before
    assert run(tmp_path, task=unknown).status == 0, "what is not recorded is not compared"


PLACES = {
    "threads": (2, "threads 1 there and 2 here"),
    "cpu": ("another CPU", "and 'another CPU' here"),
    "device": ("NVIDIA H200", "device 'cpu' there and 'NVIDIA H200' here"),
    "versions": ({"torch": "3.0"}, "versions.torch '"),
    "builds": ({"onednn": "9"}, "builds.onednn '"),
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_another_machine_is_refused(
    finished: bool, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path, "max_steps=3", "eval_every=3", forward=AtCall(99 if finished else 2, TERM))
    before = snapshot(first.folder)
    value, words = PLACES[name]
    moved(monkeypatch, **{name: value})
    again = run(tmp_path, "max_steps=3", "eval_every=3")
    assert again.status == 2
    assert words in again.err
    assert ("set OMP_NUM_THREADS=1, " in again.err) == (name == "threads")
    assert ("--resume any" in again.err) != finished
    assert snapshot(first.folder) == before
    if finished:
        any_machine = run(tmp_path, "max_steps=3", "eval_every=3", options=("--resume", "any"))
        assert any_machine.out == f"{first.folder}: finished already\n"


def test_a_run_that_continues_on_another_machine_says_so_and_is_in_no_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, forward=AtCall(5, TERM))
    moved(monkeypatch, threads=2)
    done = run(tmp_path, options=("--resume", "any"))
    assert done.status == 0
    assert "  threads: 1 -> 2\n" in done.out
    assert [attempt.changed for attempt in done.environment.attempts] == [{}, {"threads": (1, 2)}]
    assert [attempt.place and attempt.place.threads for attempt in done.environment.attempts] == [1, 2]
    counted = read_run(done.folder.parent, "fp32", 0)
    assert counted.reason == "trained in parts on different machines (threads); retrain it with --resume never"


def test_any_machine_is_not_any_model(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, build=loaded(script), forward=AtCall(5, TERM))
    moved(monkeypatch, threads=2)
    edited = loaded(script, SCRIPT.replace(*EDITS["another forward"]))
    again = run(tmp_path, build=edited, options=("--resume", "any"))
    assert again.status == 2
    assert "cannot be resumed: another source of the model. Start again with --resume never" in again.err


def test_an_attempt_without_a_checkpoint_leaves_nothing_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("at once")

    assert run(tmp_path, forward=AtCall(2, fail)).status == 1  # the first checkpoint follows step 3
    moved(monkeypatch, threads=2)
    done = run(tmp_path)
    assert done.status == 0
    assert [(attempt.from_step, attempt.changed) for attempt in done.environment.attempts] == [(0, {})]
    assert read_run(done.folder.parent, "fp32", 0).finished


def test_a_record_from_before_a_field_existed_is_reused(fp32: Outcome, tmp_path: Path) -> None:
    folder = shutil.copytree(fp32.folder, folder_of(tmp_path, TINY, "fp32"))
    summary = fp32.summary.model_copy(update={"source_sha256": None, "data_sha256": None})
    write_record(folder / "summary.json", summary)
    facts = fp32.environment
    facts.attempts = [Attempt(from_step=0)]
    facts.cpu.threads = 1
    write_record(folder / "environment.json", facts)
    assert run(tmp_path).out == f"{folder}: finished already\n"


def test_what_is_not_recorded_is_named_and_not_compared() -> None:
    full = Identity(source_sha256="a", data_sha256="b", place=Place(threads=1, versions={"torch": "1", "timm": "1"}))
    partial = Identity(source_sha256="a", place=Place(threads=1, versions={"torch": "1"}))
    assert differences(full, partial) == []
    assert not_recorded([full, partial])[3:4] == ["content of the data"]
    [change] = differences(full, full.model_copy(update={"place": Place(versions={"torch": "1", "timm": "2"})}))
    assert (change.key, change.before, change.after) == ("versions.timm", "1", "2")


def test_the_generation_of_the_cpu_is_recorded(monkeypatch: pytest.MonkeyPatch, cpu: torch.device) -> None:
    lines = [
        "vendor_id\t: AuthenticAMD",
        "cpu family\t: 25",
        "model\t\t: 17",
        "model name\t: AMD EPYC",
        "stepping\t: 1",
    ]
    monkeypatch.setattr(environment, "_cpuinfo", lambda: lines)
    machine = environment.describe(cpu)
    assert machine.cpu.label == "AuthenticAMD family 25 model 17 stepping 1 AMD EPYC"
    assert machine.device.name == f"AMD EPYC, {torch.get_num_threads()} threads"
    assert {"blas", "onednn", "cpu_capability"} <= machine.builds.keys()
    assert machine.builds["onednn"] in torch.__config__.show()


def test_a_script_that_git_does_not_track_is_a_change(script: Path) -> None:
    build = loaded(script)
    tracked = Path(environment.__file__)
    state = environment.git_state([tracked])
    assert state.dirty == environment.git_state().dirty
    assert environment.git_state([tracked, *source_files(Script(build, image_classification), nn.Linear(1, 1))]).dirty
    untracked = environment.ROOT / "train" / "not_tracked_by_git.py"
    untracked.touch()
    try:
        assert environment.git_state([untracked]).dirty
    finally:
        untracked.unlink()


@pytest.mark.parametrize("failing", ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetEnforcedPowerLimit"])
def test_a_figure_that_nvml_lacks_ends_no_run(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def fail(*arguments: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in ("nvmlInit", "nvmlDeviceGetHandleByUUID"):
        monkeypatch.setattr(pynvml, name, lambda *arguments: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.1")
    monkeypatch.setattr(pynvml, failing, fail)
    driver = "580.1" if failing == "nvmlDeviceGetEnforcedPowerLimit" else None
    assert environment._driver_and_power_limit("GPU-1") == (driver, None)
