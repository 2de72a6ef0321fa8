"""One forward and one backward pass of a model in one precision, and everything that is wrong with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from train.engine.errors import EngineFault, Refused
from train.engine.precision import Precision
from train.engine.probe import probe
from train.engine.step import Batch, Trainer


@dataclass
class Finding:
    """`faults` stop a training run or spoil it; `remarks` are worth knowing. `saved_mib` is None when it failed."""

    precision: str
    saved_mib: float | None = None
    module_outputs: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def examine(trainer: Trainer, batch: Batch, classes: int | None) -> Finding:
    """Check one step's worth of `trainer` on `batch`, without taking the step.

    Names the module, the operation and the precision where something raises; a head that does not fit
    `classes`; parameters without a gradient, or with one that is not finite where no scaler would skip it;
    modules whose output overflows; and modules whose output mixed precision leaves in FP32.
    """
    finding = Finding(trainer.precision.name)
    where = _Where(trainer.model)
    try:
        with where.watching():
            found = probe(trainer.model, trainer.forward, trainer.loss, batch, trainer.precision)
            finding.saved_mib, finding.module_outputs = found.saved_mib, found.matrix_dtypes
            trainer.model.train()
            with trainer.precision.forward():
                logits, labels = trainer.forward(trainer.model, batch)
                loss = trainer.loss(logits.float(), labels)
            trainer.precision.backward(loss)
    except (EngineFault, Refused) as error:
        finding.faults.append(str(error))
    except Exception as error:  # whatever a model raises is what the user wants to hear about
        message = " ".join(str(error).split())
        finding.faults.append(f"{where.describe()} raises {type(error).__name__}: {message}")
        if (module := where.module) and trainer.precision.matrix_dtype is not torch.float32:
            finding.remarks.append(f"fp32_modules=[{module}] would compute that module in FP32")
    else:
        finding.faults += _head_faults(logits, classes)
        finding.faults += _gradient_faults(trainer)
        finding.faults += _overflows(where.overflowed, trainer.precision)
        finding.remarks += _left_in_fp32(where.outputs, trainer.precision)
    trainer.model.zero_grad(set_to_none=True)
    return finding


def _head_faults(logits: Tensor, classes: int | None) -> list[str]:
    if classes is None or logits.shape[-1] == classes:
        return []
    return [f"the head gives {logits.shape[-1]} logits (shape {tuple(logits.shape)}), but num_classes is {classes}"]


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
    kept = [name for name, dtype in outputs.items() if dtype == "float32"]
    return [f"mixed precision leaves {_shortened(kept)} in float32"] if kept else []


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


class _Where:
    """The module and the operation that failed, and the output dtype of every module with parameters of its own."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.stack: list[str] = []
        self.failed: str | None = None
        self.outputs: dict[str, str] = {}
        self.overflowed: list[str] = []

    @property
    def module(self) -> str:
        """The path of the module that failed, empty when it was not in one."""
        return self.stack[-1] if self.stack else ""

    def describe(self) -> str:
        return f"{self.failed or 'code'} in {f'module {self.module!r}' if self.module else 'the model or its loss'}"

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

        return hook

    def _leave(self, name: str, module: nn.Module) -> Any:
        own = next(module.parameters(recurse=False), None) is not None

        def hook(module: nn.Module, inputs: object, output: object) -> None:
            self.stack.pop()
            if own and isinstance(output, Tensor):
                self.outputs[name] = str(output.dtype).removeprefix("torch.")
                if name not in self.overflowed and not output.isfinite().all():
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
