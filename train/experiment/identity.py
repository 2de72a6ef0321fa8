"""The identity of a run that is about to be made: what it is built from and where, to compare with earlier ones."""

import ast
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from reports.records.config import Experiment
from reports.records.environment import Machine
from reports.records.identity import Identity
from train.experiment.environment import ROOT, describe
from train.experiment.setup import Script, Setup, build_model, digest_of

LIBRARIES = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PROGRAM = ROOT / "train"  # the training scripts lie in it, the program itself in the folders below it, and in reports


def identity_of(wired: Setup, machine: Machine) -> Identity:
    """The identity of the run that `wired` would be on `machine`."""
    return Identity(
        config_sha256=wired.config.digest(),
        initial_weights_sha256=wired.initial_weights,
        data_order_sha256=wired.data.train.digest(),
        source_sha256=source_digest(wired.script, wired.model),
        data_sha256=wired.data.content_sha256,
        place=machine.place,
    )


class Identities:
    """The identities that the runs of an experiment would have now, by seed.

    The data are loaded once and each seed's model is built once, on the CPU and when first asked for. The data order,
    which follows from the data and the seed, is left out.
    """

    def __init__(self, script: Script, config: Experiment, device: torch.device) -> None:
        self.script, self.config, self.device = script, config, device
        self.known: dict[int, Identity] = {}

    def of_seed(self, seed: int) -> Identity:
        """Raises `Refused` for a model that cannot be built, and for data."""
        if seed not in self.known:
            cpu = torch.device("cpu")
            model = build_model(self.script.build, self.config, seed, cpu)
            shared = next(iter(self.known.values()), None) or Identity(
                config_sha256=self.config.digest(),
                source_sha256=source_digest(self.script, model),
                data_sha256=self.script.task.data(self.config, seed, cpu, smoke=False).content_sha256,
                place=describe(self.device).place,
            )
            self.known[seed] = shared.model_copy(update={"initial_weights_sha256": digest_of(model)})
        return self.known[seed]


def source_files(script: Script, model: nn.Module) -> list[Path]:
    """The files of the script, of what its task calls, of the model's classes, and all own ones that these import.

    Libraries are known by their versions, and so is the program itself by its commit.
    """
    classes = {base for module in model.modules() for base in type(module).__mro__}
    parts = [vars(script.task), *map(vars, script.task.measures)]
    functions = [value for part in parts for value in part.values() if callable(value)]
    names = [getattr(part, "__module__", None) or "" for part in (script.build, *functions, *classes)]
    files: set[Path] = set()
    while names:
        module = sys.modules.get(names.pop())
        path = Path(getattr(module, "__file__", None) or "").resolve()
        if module and path not in files and _is_own(path):
            files.add(path)
            names += _imports(path, module.__package__ or "")
    return sorted(files)


def source_digest(script: Script, model: nn.Module) -> str:
    """SHA-256 of the code in `source_files`, without comments and docstrings, and of the settings of all modules.

    The settings (a stride, a dropout) are what each module prints of itself; a class of a library has no other source.
    """
    settings = [f"{name} {type(module).__qualname__} {module.extra_repr()}" for name, module in model.named_modules()]
    code = sorted(_code(path) for path in source_files(script, model))
    # A function or another object that a module prints has an address, which no other process shares.
    return _digest([*code, *(re.sub(r" at 0x[0-9a-f]+", "", line) for line in settings)])


def _is_own(path: Path) -> bool:
    if path.suffix != ".py" or any(path.is_relative_to(library) for library in LIBRARIES):
        return False
    return path.parent == PROGRAM or not any(map(path.is_relative_to, (PROGRAM, ROOT / "reports")))


def _imports(path: Path, package: str) -> list[str]:
    """The names of the modules that a file of `package` imports, at the top or in a function."""
    names = []
    for node in ast.walk(_parsed(path) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parent = package.rsplit(".", node.level - 1)[0] if node.level else ""
            origin = ".".join(part for part in (parent, node.module) if part)
            names += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
    return names


def _parsed(path: Path) -> ast.Module | None:
    """None for a file that is no Python any more: it was edited since it was imported."""
    try:
        return ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:
        return None


def _code(path: Path) -> str:
    """The code of a file in one way of writing it, without comments and docstrings."""
    tree = _parsed(path)
    if tree is None:
        return path.read_text(encoding="utf-8", errors="replace")
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.unparse(tree)


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()
