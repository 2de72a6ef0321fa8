"""README.md says what the code and the records say."""

import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports import build
from reports.analysis.comparison import comparisons_in
from reports.records.engine_benchmark import engine_table
from reports.records.files import write_json

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPE = README.partition("## The AMP recipe")[2].partition("### fp16 on a CPU")[0]
SOURCES = "".join((ROOT / "train" / "engine" / name).read_text() for name in ("precision.py", "step.py"))


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", RECIPE, flags=re.DOTALL))
def test_the_recipe_quotes_the_engine(block):
    assert block in SOURCES


def test_the_recipe_is_in_the_order_of_the_step():
    assert len(re.findall(r"```python", RECIPE)) >= 7


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()


def test_committed_tables_and_pages_are_what_the_records_give(tmp_path):
    build.build(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == README
    for made in (tmp_path / "reports" / "results").rglob("*"):
        committed = build.RESULTS / made.relative_to(tmp_path / "reports" / "results")
        if made.is_file():
            assert made.read_bytes() == committed.read_bytes(), committed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"experiment": None}, "is not one of scripts.bench_engine: experiment: input should be a valid string"),
        ({"ratios": {"a": "b"}}, "ratios.a: input should be a valid list"),
        ({"ratios": {"a": [math.nan, 1.0, 1.0]}}, "ratios.a.0: input should be a finite number"),
        ({"tiny": True}, "is of a trial of the command"),
        ({"environment": {"git": {"commit": "0123", "dirty": True}}}, "had changes that are in no commit"),
        ({"environment": {}}, "its commit is not known"),
    ],
)
def test_an_engine_benchmark_that_is_none_is_said_to_be(change, reason, tmp_path):
    record = build.read_json(build.RESULTS / "engine_benchmark.json")
    write_json(tmp_path / "engine_benchmark.json", {**record, **change})
    text = engine_table(tmp_path / "engine_benchmark.json")
    assert text.startswith("No record: ")
    assert "engine_benchmark.json" in text
    assert reason in text


def test_the_engine_benchmark_is_a_table_and_a_missing_one_is_said_to_be(tmp_path):
    assert engine_table(build.RESULTS / "engine_benchmark.json").startswith("ResNet-20, ")
    assert engine_table(tmp_path / "engine_benchmark.json").startswith("No record: engine_benchmark.json is not read")


def test_committed_records_are_of_clean_trees_and_full_runs():
    comparisons, left_out = comparisons_in(build.RESULTS)
    assert comparisons
    assert left_out == {}
    for folder, comparison in comparisons.items():
        assert not comparison["smoke"]
        for run in comparison["runs"]:
            environment = build.read_json(folder / run["run"] / "environment.json")
            assert environment is not None
            assert environment["git"]["dirty"] is False, run["run"]


def test_the_way_to_a_new_architecture_is_as_written(tmp_path):
    section = README.partition("## Add a model")[2].partition("\n## ")[0]
    commands = re.search(r"```bash\n(.*?)```", section, flags=re.DOTALL)
    assert commands is not None
    for folder in ("models", "train", "reports", "scripts", "configs", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("README.md", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / file, tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHON": sys.executable, "WANDB_MODE": "disabled"}
    for name in ("PYTHONPATH", "PYTHONSAFEPATH"):  # of scripts/setup.sh, which a person at a prompt has not run
        environment.pop(name, None)
    script = f"set -e\n{commands[1]}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout), done.stdout
    assert (tmp_path / "runs" / "smoke" / "mynet_digits" / "report.html").exists()


def test_the_example_of_adding_a_model_runs(tmp_path, monkeypatch, capsys):
    example = re.search(r"```python\n(\"\"\"My network.*?)```", README, flags=re.DOTALL)
    assert example is not None
    namespace: dict[str, object] = {"__name__": "mynet"}
    exec(compile(example[1], "mynet.py", "exec"), namespace)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    options = [str(ROOT / "configs/resnet20_digits.yaml"), "--precision", "bf16", "--smoke", "--out", str(tmp_path)]
    status = namespace["main"](namespace["build"], namespace["task"], options)  # type: ignore[operator]
    assert status == 0
    assert "step 4/4" in capsys.readouterr().out
