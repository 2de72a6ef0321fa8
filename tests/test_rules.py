"""Rules that hold for every file of the repository, the ones to come included."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from train.experiment.config import model_scripts
from train.new import NO_NAMES

ROOT = Path(__file__).resolve().parent.parent
OURS = ("models", "train", "reports", "scripts", "tests")
FILES = {path.relative_to(ROOT): path for top in OURS for path in sorted((ROOT / top).rglob("*.py"))}
PRODUCT = {name: path for name, path in FILES.items() if name.parts[0] != "tests"}


def module_of(file: Path) -> str:
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def imports_of(file: Path) -> Iterator[str]:
    """Full names of all modules (and names) that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(FILES[file].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module_of(file).split(".") if file.name == "__init__.py" else module_of(file).split(".")[:-1]
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def top(name: str) -> str:
    return name.split(".")[0]


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def under(*parts: str) -> list[Path]:
    return [file for file in PRODUCT if file.parts[: len(parts)] == parts]


def wrong_imports(files: list[Path], *packages: str) -> list[str]:
    """'file imports name' for each import of one of `packages`."""
    assert files, "no such files"
    imports = [(file, name) for file in files for name in imports_of(file)]
    return [f"{file} imports {name}" for file, name in imports if any(is_in(name, package) for package in packages)]


def defines_build(file: Path) -> bool:
    tree = ast.parse(FILES[file].read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == "build" for node in tree.body)


SCRIPTS = [file for file in PRODUCT if file.parts[:-1] == ("train",) and defines_build(file)]


def test_the_import_reader_sees_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import a.b\nfrom c import d\nfrom . import e\nfrom ..f import g\ndef h():\n    import i\n"
    (tmp_path / "x.py").write_text(code)
    monkeypatch.setitem(FILES, Path("p/q/x.py"), tmp_path / "x.py")
    assert list(imports_of(Path("p/q/x.py"))) == ["a.b", "c.d", "p.q.e", "p.f.g", "i"]


# What each room may import of ours: DESIGN's arrows. Rooms that are not named are commands, on top of all.
ARROWS = {
    "models": set(),
    "train.engine": set(),
    "train.data": {"train.engine"},
    "reports.records": set(),
    "reports.analysis": {"reports.records"},
    "reports.pages": {"reports.records", "reports.analysis"},
    "train.tracking": {"train.engine", "reports.records"},
    "train.experiment": {"train.engine", "train.data", "models", "reports.records"},
    "train.cli": {"train.engine", "train.experiment", "train.tracking", "reports.records"},
}
# And of other packages; a room that is not named takes what requirements.txt has.
LIBRARIES = {
    "train.engine": {"torch"},
    "reports.records": {"pydantic", "yaml"},
    "reports.analysis": {"numpy", "scipy"},
    "reports.pages": {"jinja2", "matplotlib", "numpy", "pydantic"},
}


def room_of(name: str) -> str:
    """The room of a module: one of `ARROWS`, or else its top package."""
    return next((room for room in ARROWS if is_in(name, room)), name.split(".")[0])


def rooms() -> dict[str, set[str]]:
    """Every room with the rooms that it imports, function-level imports included."""
    imported: dict[str, set[str]] = {}
    for file in PRODUCT:
        room = room_of(module_of(file))
        ours = {room_of(name) for name in imports_of(file) if name.split(".")[0] in OURS}
        imported.setdefault(room, set()).update(ours - {room})
    return imported


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_what_lies_below_it(room: str) -> None:
    assert rooms()[room] - ARROWS[room] == set()


def test_reports_import_nothing_of_training() -> None:
    assert wrong_imports(under("reports"), "train", "models", "torch", "wandb") == []


@pytest.mark.parametrize("room", LIBRARIES)
def test_a_room_uses_only_its_libraries(room: str) -> None:
    allowed = {*LIBRARIES[room], *OURS, *sys.stdlib_module_names}
    files = [file for file in PRODUCT if room_of(module_of(file)) == room]
    assert [f"{file} imports {name}" for file in files for name in imports_of(file) if top(name) not in allowed] == []


def test_no_two_modules_import_each_other_on_whatever_way() -> None:
    modules = {module_of(file): file for file in PRODUCT if file.name != "__init__.py"}
    graph = {
        module: {other for name in imports_of(file) for other in (name, name.rpartition(".")[0]) if other in modules}
        for module, file in modules.items()
    }
    graph = {module: others - {module} for module, others in graph.items()}
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_no_two_rooms_import_each_other() -> None:
    assert list(TopologicalSorter(rooms()).static_order())


def test_wandb_is_imported_by_tracking_alone() -> None:
    elsewhere = [file for file in PRODUCT if room_of(module_of(file)) != "train.tracking"]
    assert wrong_imports(elsewhere, "wandb") == []


def test_a_run_loads_no_statistics_and_no_charts() -> None:
    code = "import sys, train.experiment.run; print({'scipy', 'matplotlib', 'jinja2', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_few_values_pass_as_untyped_mappings() -> None:
    forms = re.compile(r"\b(?:dict|Mapping)\[str, (?:Any|object)\]")
    counts = {file: len(forms.findall(FILES[file].read_text(encoding="utf-8"))) for file in PRODUCT}
    assert sum(counts.values()) <= 60, {str(file): count for file, count in counts.items() if count}


def test_nobody_imports_a_training_script() -> None:
    names = [module_of(script) for script in SCRIPTS]
    assert wrong_imports(list(PRODUCT), *names) == []


def test_the_training_scripts_are_the_modules_that_define_build() -> None:
    assert model_scripts() == sorted(script.stem for script in SCRIPTS)
    assert "resnet" in model_scripts()


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_a_training_script_is_short_and_only_says_what_the_model_is(script: Path) -> None:
    text = FILES[script].read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 40
    docstring = ast.get_docstring(tree, clean=False) or ""
    assert f"python -m train.{script.stem} configs/" in docstring
    assert not any(isinstance(node, ast.For | ast.While) for node in ast.walk(tree))
    code = text.replace(docstring, "")
    assert not [word for word in ("precision", "device", "cuda", "wandb", "fp16", "bf16") if word in code]


def test_no_file_is_named_like_a_library() -> None:
    taken = set(packages_distributions()) | set(sys.stdlib_module_names) | NO_NAMES
    own = {"__init__", "__main__", "conftest", "statistics"}  # reports.analysis.statistics
    assert [str(file) for file in FILES if file.stem in taken - own] == []


# Pinned though nothing imports it. Checks are commands, or stubs that mypy reads; timm is recorded with every run.
NOT_IMPORTED = {"timm", "pytest-xdist", "ruff", "mypy", "types-pyyaml", "types-psutil"}


def test_every_third_party_import_is_pinned_and_every_pin_is_imported() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9_-]+==[0-9.]+", pin)] == []
    names = {top(name) for file in FILES for name in imports_of(file)} - {*OURS, *sys.stdlib_module_names}
    distributions = packages_distributions()
    imported = {distribution.lower() for name in names for distribution in distributions[name]}
    assert {pin.partition("==")[0].lower() for pin in pins} == imported | NOT_IMPORTED


def test_precision_words_stand_in_the_engine_alone() -> None:
    home = {Path("train/engine") / name for name in ("precision.py", "emulated_fp16.py", "cuda_autocast.py")}
    words = ("autocast", "GradScaler", "allow_tf32", "fp32_precision", "set_float32_matmul_precision")
    uses = [
        f"{file}:{number} {word}"
        for file in [*under("train"), *under("models")]
        if file not in home
        for number, line in enumerate(FILES[file].read_text(encoding="utf-8").splitlines(), 1)
        for word in words
        if word in line.replace("autocast_policy", "")
    ]
    assert uses == []


def test_no_loss_on_probabilities() -> None:
    uses = [
        f"{file} {word}"
        for file in [*under("train"), *under("models")]
        for word in ("BCELoss(", "binary_cross_entropy(")
        if word in FILES[file].read_text(encoding="utf-8")
    ]
    assert uses == []


def test_a_smoke_run_warns_of_nothing_deprecated_and_loads_no_library_it_does_not_use(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error::FutureWarning", "-X", "importtime", "-m", "train.resnet"]
    arguments = ["configs/resnet20_digits.yaml", "--precision", "fp16", "--smoke", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "WANDB_MODE": "disabled", "HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    times: list[str] = []
    printed: list[str] = []
    for line in done.stderr.splitlines():
        (times if line.startswith("import time:") else printed).append(line)
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in times}
    assert {"torch", "sklearn", "train"} <= imported
    assert not imported & {"transformers", "timm", "torchvision", "datasets", "accelerate", "matplotlib"}
    assert printed == []
    assert list(tmp_path.glob("out/smoke/resnet20_digits/fp16-s0/summary.json"))
