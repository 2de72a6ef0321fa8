"""The README files say what the code and the records say, and their examples run."""

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image

from reports import build
from reports.analysis.comparison import comparisons_in
from reports.analysis.reproduction import RESULTS, ROOT
from reports.pages import charts, intervals, table
from reports.records.config import Experiment
from reports.records.environment import Environment
from reports.records.estimates import QUICK
from reports.records.files import read_record
from reports.records.layout import ENVIRONMENT, SUMMARY
from reports.records.summary import read_summary
from train.cli import options
from train.data import catalog, images
from train.data.catalog import Embedded, ImageSet, TextSet
from train.data.specification import DataSpec
from train.experiment import tasks
from train.experiment.config import load, model_scripts
from train.experiment.optimizers import build_optimizer

READMES = ("README.md", "train/README.md", "scripts/README.md")
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in READMES}
README, TRAINING, SCRIPTS = TEXTS.values()
CPU = torch.device("cpu")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def block(text: str, language: str, beginning: str) -> str:
    """The code block that begins so."""
    return next(code for code in blocks(text, language) if code.startswith(beginning))


def section(text: str, title: str) -> str:
    return text.partition(f"## {title}")[2].partition("\n## ")[0]


def table_rows(text: str) -> Iterator[list[str]]:
    """The cells of every line of a Markdown table."""
    for line in text.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def anchors(file: Path) -> set[str]:
    """What GitHub makes of the headings of a Markdown file."""
    titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize("name", READMES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXTS[name]):
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_what_is_generated_is_what_the_records_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "draw", lambda folder, comparison: [])  # for the HTML pages, which are not committed
    build.build(tmp_path)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    committed = {name for name in listed.splitlines() if not name.endswith(".html")}
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"README.md", "train/README.md", "reports/README.md"} <= made
    for name in sorted(made & committed):
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes(), name


def test_committed_records_are_of_clean_trees_and_full_runs() -> None:
    comparisons, left_out = comparisons_in(RESULTS)
    assert comparisons
    assert left_out == {}
    for folder, comparison in comparisons.items():
        assert not comparison.smoke
        for run in comparison.runs:
            environment = read_record(Environment, folder / run.name / ENVIRONMENT)
            assert environment is not None
            assert environment.git.committed, run.name


def test_the_time_and_the_machine_of_the_quick_start_are_the_recorded_ones() -> None:
    said = re.search(r"the (\d+) training runs of this\s+table took (\d+) minutes in total on (\d+) cores", README)
    assert said is not None
    runs = sorted((RESULTS / QUICK).glob("*/" + SUMMARY))
    seconds = [read_summary(file).attempt_seconds or 0.0 for file in runs]
    environment = read_record(Environment, runs[0].with_name(ENVIRONMENT))
    assert environment is not None
    assert [int(number) for number in said.groups()] == [len(runs), round(sum(seconds) / 60), environment.cpu.cores]


def test_the_disk_that_the_packages_take_is_said_once() -> None:
    setup = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    assert re.findall(r"about \d+ GB", README) == re.findall(r"about \d+ GB", setup) == ["about 6 GB"]


def test_the_margin_is_the_default_one() -> None:
    assert "half a point of accuracy or 1% of a loss" in README
    assert Experiment.model_fields["margin"].default == 0.005


@pytest.mark.parametrize("text", [README, TRAINING, intervals.MEMORY, table.AUTOCAST_ON_CPU])
def test_what_autocast_on_a_cpu_saves_is_not_said_to_hold_on_cuda(text: str) -> None:
    assert "every machine" not in text
    assert "autocast list" in text or "`autocast_policy: cuda`" in text


# The recipe


def test_the_recipe_quotes_the_engine() -> None:
    folder = ROOT / "train" / "engine"
    source = "".join((folder / name).read_text(encoding="utf-8") for name in ("precision.py", "step.py"))
    lines = "\n".join(line.strip() for line in source.splitlines())
    recipe = block(section(README, "The AMP recipe"), "python", "# 1.")
    quotations = re.split(r"^(?:#.*|\s*\.\.\.)\n", recipe, flags=re.MULTILINE)[1:]
    assert len(quotations) >= 7
    for quotation in quotations:
        assert "\n".join(line.strip() for line in quotation.splitlines()) in lines, quotation


def test_the_recipe_is_in_the_order_of_the_step() -> None:
    numbers = [int(number) for number in re.findall(r"^# (\d)\.", README, flags=re.MULTILINE)]
    assert numbers == list(range(1, 8))


def test_the_example_of_the_engine_alone_trains(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    exec(compile(block(README, "python", "import torch\n"), "script.py", "exec"), {"__name__": "__main__"})
    logged = capsys.readouterr().out.splitlines()
    losses = [float(re.findall(r"'train/loss': ([0-9.]+)", line)[0]) for line in logged]
    assert "'train/applied_step': 64" in logged[-1]
    assert losses[-1] < losses[0]


# A model and data of one's own


@pytest.mark.parametrize("beginning", ['"""My network on', '"""My network, which'])
def test_an_example_of_a_training_script_trains(
    beginning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = block(TRAINING, "python", beginning)
    assert len(code.splitlines()) <= 40  # as tests/test_rules.py asks of every training script
    (tmp_path / "mynet.py").write_text(code)
    script = runpy.run_path(str(tmp_path / "mynet.py"), run_name="mynet")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    arguments = [str(ROOT / "configs/resnet20_digits.yaml"), "--precision", "bf16", "--smoke", "--out", str(tmp_path)]
    assert script["main"](script["build"], script["task"], arguments) == 0
    assert "step 4/4" in capsys.readouterr().out
    summary = json.loads((tmp_path / "smoke/resnet20_digits/bf16-s0" / SUMMARY).read_text())
    assert "eval/accuracy" in json.dumps(summary)
    assert ("eval/sure_accuracy" in json.dumps(summary)) == ("sure" in script)


@pytest.mark.parametrize("text", re.findall(r"`optimizer: (\{.*?\})`", README + TRAINING))
def test_the_optimizers_of_the_examples_can_be_built(text: str) -> None:
    values = load(ROOT / "configs" / "resnet20_digits.yaml").model_dump() | {"optimizer": yaml.safe_load(text)}
    optimizer = Experiment.model_validate(values).optimizer
    common = (optimizer.lr, optimizer.weight_decay, optimizer.decay_norm_and_bias, optimizer.fused)
    built = build_optimizer(torch.nn.Linear(2, 2), optimizer.name, *common, optimizer.arguments, CPU)
    assert type(built).__name__.lower() == optimizer.name


def test_the_example_of_a_data_set_is_read_from_class_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split in ("train", "val"):
        for label in ("cats", "dogs"):
            folder = tmp_path / "cats_and_dogs" / split / label
            folder.mkdir(parents=True)
            for number in range(2):
                Image.new("RGB", (40, 30), (number, 0, 0)).save(folder / f"{number}.png")
    for sets in ("IMAGE_SETS", "CLASSIFICATION_SETS"):
        monkeypatch.setattr(catalog, sets, dict(getattr(catalog, sets)))
    exec(block(TRAINING, "python", "IMAGE_SETS["), vars(catalog))
    monkeypatch.setattr(images, "image_set", catalog.IMAGE_SETS.__getitem__)
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    splits = images.load(DataSpec(name="cats_and_dogs", batch_size=2, seed=0, device=CPU, classes=2))
    batch = next(splits.train.epoch(0))
    assert batch["images"].shape == (2, 3, 224, 224)
    assert splits.evaluation.samples == 4
    assert catalog.CLASSIFICATION_SETS["reviews"].columns.label == "stars"


def test_every_experiment_stands_in_the_table_with_its_script() -> None:
    listed = {}
    for script, quick, full in list(table_rows(section(TRAINING, "Experiments")))[2:]:
        name = re.findall(r"\[(\w+)\]", script)[0]
        listed[name] = [re.findall(r"configs/(\w+)\.yaml", cell) for cell in (quick, full)]
    expected: dict[str, list[list[str]]] = {name: [[], []] for name in model_scripts()}
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        config = load(path)
        task = importlib.import_module(f"train.{config.model}").task
        embedded = isinstance(task.entry(config.data.name).source, Embedded) and not config.published
        expected[config.model][0 if embedded else 1].append(path.stem)
    assert {name: [sorted(names) for names in cells] for name, cells in listed.items()} == expected


def test_every_data_set_stands_in_the_table_with_its_task() -> None:
    listed = {row[0].strip("`"): set(re.findall(r"`(.+?)`", row[1])) for row in table_rows(TRAINING) if "_" in row[0]}
    sets: dict[str, Mapping[str, ImageSet | TextSet]] = {
        "image_classification": catalog.IMAGE_SETS,
        "sequence_classification": catalog.CLASSIFICATION_SETS,
        "language_modelling": catalog.LANGUAGE_SETS,
        "sequence_to_sequence": catalog.SEQUENCE_TO_SEQUENCE_SETS,
    }
    for name, expected in sets.items():
        assert hasattr(tasks, name)
        assert listed[name] == set(expected)
    embedded = {
        name for entries in sets.values() for name, entry in entries.items() if isinstance(entry.source, Embedded)
    }
    for text in (README, TRAINING):
        names = re.search(r"((?:`\w+`(?:, | and )?)+) need no data download", text)
        assert names is not None
        assert set(re.findall(r"`(\w+)`", names[1])) == embedded


# Commands


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize(
    ("command", "text"),
    [tuple(row) for row in table_rows(section(README, "Reference")) if row[0].startswith("`python")],
)
def test_every_command_has_the_options_that_are_said_of_it(
    command: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = command.strip("`").split()[2].replace("MODEL", "resnet")
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(module, run_name="__main__")
    assert stop.value.code == 0
    offered = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert set(re.findall(r"--[a-z-]+", command + text)) <= offered


@pytest.mark.parametrize("name", READMES)
def test_every_command_exists(name: str) -> None:
    for module in set(re.findall(r"python -m ([a-z_.]+[a-z])\b", TEXTS[name])) - {"train", "train.mynet"}:
        assert importlib.util.find_spec(module), module
    for script in set(re.findall(r"bash (scripts/\w+\.sh)", TEXTS[name])) - {"scripts/run_mynet_amp.sh"}:
        assert (ROOT / script).exists(), script
    for config in re.findall(r"(configs/[a-z]\w*\.yaml)", TEXTS[name]):
        assert (ROOT / config).exists() or "mynet" in config, config


def test_every_script_is_described() -> None:
    cells = [row[0] for row in table_rows(SCRIPTS)]
    described = {found[0] for cell in cells if (found := re.findall(r"[\w<>]+\.sh|scripts\.\w+", cell))}
    files = [path for path in (ROOT / "scripts").iterdir() if path.suffix in (".sh", ".py")]
    own = [path for path in files if not re.fullmatch(r"run_.*_amp\.sh|__init__\.py", path.name)]
    names = {f"scripts.{path.stem}" if path.suffix == ".py" else path.name for path in own}
    assert described == names | {"run_<model>_amp.sh"}


def test_every_exit_status_is_said() -> None:
    sentence = README.partition("**Exit status**:")[2].partition("\n\n")[0]
    assert {int(number) for number in re.findall(r"(?:^|; )\s*(\d+) ", sentence)} == set(options.STATUS.values())


@pytest.mark.slow
def test_the_way_to_a_new_architecture_is_as_written(tmp_path: Path) -> None:
    for folder in ("models", "train", "reports", "scripts", "configs", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("README.md", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / file, tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHON": sys.executable, "WANDB_MODE": "disabled"}
    for name in ("PYTHONPATH", "PYTHONSAFEPATH"):  # of scripts/setup.sh, which a person at a prompt has not run
        environment.pop(name, None)
    script = "set -e\n" + block(README, "bash", "python -m train.new mynet")
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout), done.stdout
    assert (tmp_path / "runs" / "smoke" / "mynet_digits" / "report.html").exists()
