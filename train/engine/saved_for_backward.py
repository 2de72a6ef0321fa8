"""One forward pass before training: what the autograd graph keeps, and in which dtype the model really runs."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .errors import EngineFault
from .fp32_modules import inside_fp32_modules
from .meter import MIB
from .precision import Precision
from .step import Batch, Forward, Loss, training_mode, unwrapped

MATRIX_MODULES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class TrialPass:
    """`saved_mib`: memory saved for backward. `matrix_dtypes`: outputs of linear and convolution modules by dtype."""

    saved_mib: float
    matrix_dtypes: dict[str, int]


def trial_pass(model: nn.Module, forward: Forward, loss: Loss, batch: Batch, precision: Precision) -> TrialPass:
    """Run forward, loss and backward once in training mode, on a model to throw away: it is changed.

    The random states are afterwards as before.

    The bytes are those of the distinct storages that autograd saves, without the parameters, buffers and
    inputs, which exist anyway. They are exact, unlike a process's peak, and depend on the device by its list of
    FP32 operations alone.
    Raises `EngineFault` when the loss is not a float32 scalar with a gradient, or when a linear or
    convolution module outside the `fp32_modules` does not compute in the precision.
    """
    resident = {_storage(tensor) for tensor in [*model.parameters(), *model.buffers(), *batch.values()]}
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in resident:
            saved[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    training_mode(model)()
    cuda = [precision.device] if precision.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), _output_dtypes(model) as dtypes:
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor), precision.forward():
            logits, labels = forward(model, batch)
            value = loss(logits.float(), labels)
        if value.dtype != torch.float32 or value.ndim != 0:
            raise EngineFault(f"the loss must be a float32 scalar; it is {value.dtype} of shape {tuple(value.shape)}")
        precision.backward(value)
    model.zero_grad(set_to_none=True)
    expected = str(precision.matrix_dtype).removeprefix("torch.")
    if wrong := {dtype: count for dtype, count in dtypes.items() if dtype != expected}:
        raise EngineFault(f"precision {precision.name} must compute in {expected}, but modules returned {wrong}")
    return TrialPass(sum(saved.values()) / MIB, dict(dtypes))


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@contextmanager
def _output_dtypes(model: nn.Module) -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):  # a module of one's own that is also a linear one may give something else
            counts[str(output.dtype).removeprefix("torch.")] += 1

    in_fp32 = inside_fp32_modules(unwrapped(model))
    modules = [m for m in unwrapped(model).modules() if isinstance(m, MATRIX_MODULES) and m not in in_fp32]
    handles = [module.register_forward_hook(note) for module in modules]
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()
