"""One pass of a model in one precision before any work, and everything that is wrong with it."""

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from train.engine.copies import copied
from train.engine.errors import EngineFault, Interrupted, Refused
from train.engine.fit import Score, modes_restored
from train.engine.fp32_modules import uncalled_fp32_modules
from train.engine.precision import Precision
from train.engine.saved_for_backward import TrialPass, trial_pass
from train.engine.step import Batch, Forward, Trainer, unwrapped

_OF_EVERY_MODULE = vars(nn.Module()).keys()
TRAIN = Path(__file__).resolve().parent.parent


@dataclass
class Finding:
    """`faults` stop a training run or spoil it; `remarks` are worth knowing. `saved_mib` is None when it failed."""

    precision: str
    saved_mib: float | None = None
    module_outputs: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def trial_run(trainer: Trainer, score: Score, batch: Batch, last: Batch, classes: int | None) -> TrialPass:
    """Forward and loss of a training step on `batch`, then an evaluation of `last`, on a copy: nothing is changed.

    `last` is the last evaluation batch, which may be shorter than others: a model may have fixed their size.

    Raises `EngineFault` for what `trial_pass` refuses, for logits that do not fit labels and `classes`, and for
    whatever the model raises, naming the module, the operation and the line.
    """
    model = copied(unwrapped(trainer.model))
    where, before = _Where(model), _attributes(model)
    try:
        with where.watching():
            forward = fitting(trainer.forward, classes)
            measured = trial_pass(model, forward, trainer.loss, batch, trainer.precision)
            _evaluate_once(model, trainer, score, last, classes)
    except (EngineFault, Refused, Interrupted):
        raise
    except Exception as error:  # whatever a model raises
        raise EngineFault(where.describe(error)) from error
    if faults := _uncalled_faults(where):
        raise EngineFault(faults[0])
    if moved := [name for name, value in _attributes(model).items() if name in before and before[name] != value]:
        print(
            f"warning: forward changes {_shortened(moved)}, which no checkpoint holds and no skipped step puts back; "
            "as a buffer both would",
            flush=True,
        )
    return measured


def _attributes(model: nn.Module) -> dict[str, object]:
    """Numbers, flags and tensors that modules keep beside parameters and buffers; a tensor by identity and version."""
    values: dict[str, object] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in _OF_EVERY_MODULE:
                continue
            if isinstance(value, bool | int | float):
                values[f"{path}.{name}".lstrip(".")] = value
            elif isinstance(value, Tensor) and value.is_leaf and not value.requires_grad:
                values[f"{path}.{name}".lstrip(".")] = (id(value), value._version)
    return values


def _evaluate_once(model: nn.Module, trainer: Trainer, score: Score, batch: Batch, classes: int | None) -> None:
    """The forward pass and the score of an evaluation, with modes and random states as before afterwards."""
    precision = trainer.precision
    cuda = [precision.device] if precision.device.type == "cuda" else []
    with modes_restored(model), torch.no_grad(), torch.random.fork_rng(devices=cuda), precision.forward():
        model.eval()
        logits, labels = fitting(trainer.forward, classes, evaluation=True)(model, batch)
        score(logits.float(), labels)


def fitting(forward: Forward, classes: int | None, evaluation: bool = False) -> Forward:
    """`forward`, raising `EngineFault` unless it gives logits (*labels.shape, classes).

    In training there may be further dimensions between, for losses over several heads.
    """

    def checked(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, labels = forward(model, batch)
        if not isinstance(logits, Tensor):
            raise EngineFault(f"the model returned {type(logits).__name__}, not a tensor of logits")
        shapes = f"logits {tuple(logits.shape)} for labels {tuple(labels.shape)}"
        if logits.shape[: labels.ndim] != labels.shape or logits.ndim <= labels.ndim:
            raise EngineFault(f"the model gives {shapes}: they need one row of classes a label")
        if evaluation and logits.ndim != labels.ndim + 1:
            raise EngineFault(f"in evaluation the model gives {shapes}: they need one row of classes a label")
        if classes is not None and logits.shape[-1] != classes:
            given = f"the head gives {logits.shape[-1]} logits (shape {tuple(logits.shape)})"
            raise EngineFault(f"{given}, but num_classes is {classes}")
        return logits, labels

    return checked


def examine(
    trainer: Trainer, score: Score, batch: Batch, last: Batch, classes: int | None, remedy: bool = True
) -> Finding:
    """Check a whole step of `trainer` on `batch`, update included, and an evaluation of `last`.

    The step moves its model, which is one to throw away.

    Names the module, the operation and the line where something raises; a head that does not fit
    `classes`; parameters without a gradient, or with one that is not finite where no scaler would skip it;
    modules whose output overflows; and modules whose output mixed precision leaves in FP32. With `remedy` it
    says how a module can be kept in FP32, which does not help a model that fails in FP32 too.
    """
    finding = Finding(trainer.precision.name)
    where = _Where(trainer.model)
    try:
        with where.watching():
            forward = fitting(trainer.forward, classes)
            measured = trial_pass(trainer.model, forward, trainer.loss, batch, trainer.precision)
            finding.saved_mib, finding.module_outputs = measured.saved_mib, measured.matrix_dtypes
            trainer.train_mode()
            with trainer.precision.forward():
                logits, labels = trainer.forward(trainer.model, batch)
                loss = trainer.loss(logits.float(), labels)
            trainer.precision.backward(loss)
            gradient_faults = _gradient_faults(trainer)
            trainer.precision.update(trainer.optimizers, trainer.clip_norm, trainer.parameters)
            _evaluate_once(trainer.model, trainer, score, last, classes)
    except (EngineFault, Refused) as error:
        finding.faults.append(str(error))
    except Exception as error:  # whatever a model raises is what the user wants to hear about
        finding.faults.append(where.describe(error))
        if (module := where.module) and remedy and trainer.precision.matrix_dtype is not torch.float32:
            finding.remarks.append(f"fp32_modules=[{module}] would compute that module in FP32")
    else:
        finding.faults += _uncalled_faults(where)
        finding.faults += gradient_faults
        overflows = _overflows(where.overflowed, trainer.precision)
        if not overflows and not (logits.isfinite().all() and loss.isfinite()):
            overflows = ["the logits or the loss are not finite, in an operation of no module with weights"]
        finding.faults += overflows
        finding.remarks += _left_in_fp32(where.outputs, trainer.precision)
    trainer.model.zero_grad(set_to_none=True)
    return finding


def _uncalled_faults(where: "_Where") -> list[str]:
    uncalled = uncalled_fp32_modules(where.model, where.called)
    return [f"fp32_modules: {_shortened(uncalled)}: never called by itself; name what calls it"] if uncalled else []


def _gradient_faults(trainer: Trainer) -> list[str]:
    named = dict(trainer.model.named_parameters())
    without = [name for name, parameter in named.items() if parameter.requires_grad and parameter.grad is None]
    faults = [f"no gradient reaches {_shortened(without)}"] if without else []
    bad = [name for name, p in named.items() if p.grad is not None and not p.grad.isfinite().all()]
    if bad and not trainer.precision.arithmetic.scaled:
        faults.append(f"the gradient is not finite in {_shortened(bad)}")
    return faults


def _overflows(names: list[str], precision: Precision) -> list[str]:
    """The first modules of the forward pass whose output is beyond the range of its dtype, such as T5's in fp16."""
    if not names:
        return []
    remedy = f"; fp32_modules=[{names[0]}] would compute the first in FP32"
    return [f"the output of {_shortened(names)} is not finite{remedy * (precision.matrix_dtype is not torch.float32)}"]


def _left_in_fp32(outputs: dict[str, str], precision: Precision) -> list[str]:
    if precision.matrix_dtype is torch.float32:
        return []
    left = [name for name, dtype in outputs.items() if dtype == "float32"]
    return [f"mixed precision leaves {_shortened(left)} in float32"] if left else []


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _line_of(error: Exception) -> str:
    """The innermost line that is not Python's, a library's or the engine's, as " (file:line)"; empty without one."""
    skipped = [TRAIN / "engine", TRAIN / "experiment", Path(sysconfig.get_path("stdlib"))]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if not {"site-packages", "dist-packages"} & set(file.parts) and not any(map(file.is_relative_to, skipped)):
            return f" ({file.name}:{frame.lineno})" if file.exists() else ""
    return ""


class _Where:
    """The module and the operation that failed, and the output dtype of every module with parameters of its own."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.stack: list[str] = []
        self.failed: str | None = None
        self.outputs: dict[str, str] = {}
        self.overflowed: list[str] = []
        self.called: set[str] = set()

    @property
    def module(self) -> str:
        """The path of the module that failed, empty when it was not in one."""
        return self.stack[-1] if self.stack else ""

    def describe(self, error: Exception) -> str:
        """What went wrong, where in the model, and in which line of a file that is not the loop's own."""
        place = f"module {self.module!r}" if self.module else "the model or its loss"
        message = " ".join(str(error).split())
        return f"{self.failed or 'code'} in {place} raises {type(error).__name__}: {message}{_line_of(error)}"

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles = []
        for name, module in self.model.named_modules():
            handles.append(module.register_forward_pre_hook(self._enter(name)))
            handles.append(module.register_forward_hook(self._leave(name, module)))
        try:
            with _Operations(self):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, name: str) -> Any:
        def hook(module: nn.Module, inputs: object) -> None:
            self.stack.append(name)
            self.called.add(name)

        return hook

    def _leave(self, name: str, module: nn.Module) -> Any:
        own = next(module.parameters(recurse=False), None) is not None

        def hook(module: nn.Module, inputs: object, output: object) -> None:
            self.stack.pop()
            if own and isinstance(output, Tensor):
                self.outputs[name] = str(output.dtype).removeprefix("torch.")
                # Detached: with a gradient path the test itself would save tensors for a backward pass.
                if name not in self.overflowed and not output.detach().isfinite().all():
                    self.overflowed.append(name)

        return hook


class _Operations(TorchFunctionMode):
    def __init__(self, where: _Where) -> None:
        super().__init__()
        self.where = where

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            # The innermost operation: what it is called from fails after it.
            self.where.failed = self.where.failed or resolve_name(func) or str(func)
            raise
