"""Precision: everything in which fp32, tf32, bf16 and fp16 differ, and nothing else.

The recipe is the one of *Mixed Precision Training* (Micikevicius et al. 2018, sections 3.1-3.3) as
torch.amp implements it (https://docs.pytorch.org/docs/stable/notes/amp_examples.html): FP32 weights,
forward and loss under autocast, a scaled backward pass, and a step that is skipped when a gradient
overflowed. The scaler and the autocast region are always there, with `enabled=`; the training loop
is the same for every precision.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .cuda_autocast import use_cuda_policy
from .emulated_fp16 import emulate_fp16
from .errors import Diverged, EngineFault, Refused, unknown
from .fp32_modules import keep_in_fp32


@dataclass(frozen=True)
class Arithmetic:
    """What a precision's name stands for. `autocast` None means that no operand is rounded to 16 bits."""

    autocast: torch.dtype | None = None
    tf32: bool = False
    scaled: bool = False


PRECISIONS = {
    "fp32": Arithmetic(),
    "tf32": Arithmetic(tf32=True),
    "bf16": Arithmetic(autocast=torch.bfloat16),
    "fp16": Arithmetic(autocast=torch.float16, scaled=True),
}


# Which operations autocast keeps in FP32: those of PyTorch's list for the device, or of CUDA's on a CPU too.
AUTOCAST_POLICIES = ("device", "cuda")


@dataclass(frozen=True)
class ScalerSettings:
    """Dynamic loss scaling, used by fp16 alone; the first four are torch.amp.GradScaler's own.

    The scale never falls below `min_scale`: below 2**-144 the scaler's reciprocal overflows and the next good gradient
    would set the weights to infinity. A run that skips `max_consecutive_skips` steps in a row has diverged; isolated
    skips never end one.
    """

    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    min_scale: float = 2.0**-14
    max_consecutive_skips: int = 50


@dataclass(frozen=True)
class EffectivePrecision:
    """What a precision really does here, for the record; the last three are torch's modes for FP32 operands.

    `autocast_policy` is the device type whose list of FP32 operations autocast follows.
    """

    name: str
    matrix_dtype: str
    arithmetic: str
    loss_scaling: bool
    autocast_policy: str
    cuda_matmul_fp32: str
    cudnn_conv_fp32: str
    cpu_matmul_fp32: str


@dataclass(frozen=True)
class Update:
    """What one optimizer step did.

    `applied` is None where the host does not know yet (CUDA without a scaler, fused optimizers): the
    step was taken or skipped on the device by `found_inf`, a 0-d float32 tensor that is 0 or positive.
    Once one is skipped, so are all later ones, until the host reads the flag and stops the run.
    `norms` (P,) are the unscaled gradient norms before clipping of `parameters`, `grad_norm` their 2-norm.
    """

    applied: bool | None
    found_inf: Tensor
    grad_norm: Tensor
    norms: Tensor
    parameters: list[Tensor]


def why_unavailable(name: str, device: torch.device) -> str | None:
    """Why `device` cannot run precision `name`; None when it can. Raises `Refused` for an unknown name."""
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    arithmetic = PRECISIONS[name]
    if arithmetic.tf32 and device.type != "cuda":
        return f"tf32 is a mode of NVIDIA tensor cores; the device is {device.type}"
    if arithmetic.tf32 and torch.cuda.get_device_capability(device) < (8, 0):
        return f"tf32 needs compute capability 8.0; {torch.cuda.get_device_name(device)} is older"
    if arithmetic.autocast is torch.bfloat16 and device.type == "cuda":
        with torch.cuda.device(device):
            if not torch.cuda.is_bf16_supported(including_emulation=False):
                return f"{torch.cuda.get_device_name(device)} has no bf16 units"
    return None


def require_available(name: str, device: torch.device) -> None:
    """Raise `Refused`, saying what the device can run, unless it can run precision `name`."""
    reason = why_unavailable(name, device)
    if reason is not None:
        possible = [other for other in PRECISIONS if why_unavailable(other, device) is None]
        raise Refused(f"precision {name!r} cannot run here: {reason}. It can run: {', '.join(possible)}")


@dataclass
class Precision:
    """One precision on one device: the forward region, the backward pass, the step, and their state.

    Raises `Refused` when the device cannot run it; another precision is never put in its place.
    """

    name: str
    device: torch.device
    settings: ScalerSettings = field(default_factory=ScalerSettings)
    autocast_policy: str = "device"

    def __post_init__(self) -> None:
        require_available(self.name, self.device)
        if self.autocast_policy not in AUTOCAST_POLICIES:
            raise unknown("autocast_policy", self.autocast_policy, AUTOCAST_POLICIES)
        self.arithmetic = PRECISIONS[self.name]
        self.emulated = self.arithmetic.autocast is torch.float16 and self.device.type == "cpu"
        self.consecutive_skips = 0
        self.found_inf = torch.zeros((), device=self.device)
        self.scaler = torch.amp.GradScaler(
            self.device.type,
            init_scale=self.settings.init_scale,
            growth_factor=self.settings.growth_factor,
            backoff_factor=self.settings.backoff_factor,
            growth_interval=self.settings.growth_interval,
            enabled=self.arithmetic.scaled,
        )
        self.activate()

    def activate(self) -> None:
        """Set the process-wide switches and kernels. FP32 operands mean IEEE FP32, everywhere but in tf32.

        Left alone, cuDNN convolutions use TF32, and a library that called
        `torch.set_float32_matmul_precision("medium")` turns FP32 products into bf16 ones, on CPUs too.
        """
        cuda_mode = "tf32" if self.arithmetic.tf32 else "ieee"
        for operation in ("matmul", "conv", "rnn"):
            cuda_backend: Any = torch.backends.cuda if operation == "matmul" else torch.backends.cudnn
            getattr(cuda_backend, operation).fp32_precision = cuda_mode
            getattr(torch.backends.mkldnn, operation).fp32_precision = "ieee"
        # Its kernels for evaluation know no autocast: torch turns them off under CUDA's and forgets that of a CPU.
        torch.backends.mha.set_fastpath_enabled(False)
        self._select_kernels()

    @property
    def matrix_dtype(self) -> torch.dtype:
        """The dtype in which convolutions and matrix products must return their results."""
        return self.arithmetic.autocast or torch.float32

    def describe(self) -> EffectivePrecision:
        """The effective settings, read back from torch."""
        backends: Any = torch.backends
        return EffectivePrecision(
            name=self.name,
            matrix_dtype=str(self.matrix_dtype).removeprefix("torch."),
            arithmetic="fp16 operands, FP32 arithmetic, rounded to fp16" if self.emulated else "native kernels",
            loss_scaling=self.scaler.is_enabled(),
            autocast_policy=self.device.type if self.autocast_policy == "device" else self.autocast_policy,
            cuda_matmul_fp32=backends.cuda.matmul.fp32_precision,
            cudnn_conv_fp32=backends.cudnn.conv.fp32_precision,
            cpu_matmul_fp32=backends.mkldnn.matmul.fp32_precision,
        )

    def prepare(self, model: nn.Module, fp32_modules: Sequence[str] = ()) -> None:
        """Make `model` ready for this precision, once; the modules at the paths `fp32_modules` stay in FP32.

        Raises `Refused` for a model that mixed precision cannot train: half or complex weights, sparse gradients.
        Weights are FP32 in every precision; in fp16 ones the update of a small gradient would round to zero.
        """
        for name, parameter in model.named_parameters():
            if parameter.is_complex():
                raise Refused(f"parameter {name!r} is complex: loss scaling needs real ones, see torch.view_as_real")
            if parameter.is_floating_point() and parameter.dtype.itemsize < 4:
                dtype = str(parameter.dtype).removeprefix("torch.")
                raise Refused(f"parameter {name!r} is {dtype}: keep the model in float32, autocast rounds the operands")
        for name, module in model.named_modules():
            if getattr(module, "sparse", False):
                raise Refused(f"module {name!r} yields sparse gradients, which the step cannot clip: set sparse=False")
        keep_in_fp32(model, fp32_modules, self._without_autocast if self.arithmetic.autocast else None)

    @contextmanager
    def forward(self) -> Iterator[None]:
        """The region for forward and loss, in training and in evaluation; backward stays outside."""
        dtype = self.arithmetic.autocast
        self._select_kernels()
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            yield

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradients of `loss` (0-d float32), multiplied by the scale when there is one."""
        if not loss.requires_grad:
            raise EngineFault("the loss has no gradient path to any parameter: it is detached or constant")
        self._select_kernels()
        self.scaler.scale(loss).backward()

    def update(
        self,
        optimizers: Sequence[Optimizer],
        clip_norm: float | None = None,
        order: Sequence[Tensor] = (),
        nonfinite: Tensor | None = None,
    ) -> Update:
        """Unscale, clip, step or skip, update the scale: once per step, for all optimizers together.

        Optimizers whose parameters have no gradient are passed over. One non-finite gradient skips all of them, and
        so does a norm that overflows, which would clip the update to nothing, or what the caller saw: `nonfinite`, a
        0-d bool tensor. `order` holds the parameters in the model's order, in which a plain loop adds up their norms:
        in that of the optimizers' groups the sum rounds differently.
        """
        active = [optimizer for optimizer in optimizers if _with_gradient(optimizer)]
        if not active:
            raise EngineFault("no parameter received a gradient from the loss")
        for optimizer in active:
            self.scaler.unscale_(optimizer)
        parameters = [parameter for optimizer in active for parameter in _with_gradient(optimizer)]
        if order:
            updated = {id(parameter) for parameter in parameters}
            parameters = [parameter for parameter in order if id(parameter) in updated]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients))  # as torch.nn.utils.get_total_norm does
        grad_norm = torch.linalg.vector_norm(norms)
        found_inf = (~grad_norm.isfinite()).float()  # that of any non-finite gradient
        if nonfinite is not None:
            found_inf = torch.maximum(found_inf, nonfinite.to(found_inf))
        if clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, clip_norm, grad_norm)
        if self._decided_on_device(active):
            found_inf = self.found_inf.copy_(torch.maximum(self.found_inf, found_inf))
            self._step_on_device(active, found_inf)
            applied = None
        else:
            applied = self._step_or_skip(active, found_inf)
        self.scaler.update()
        return Update(applied, found_inf, grad_norm, norms, parameters)

    def check_skips(self) -> None:
        """Raise `Diverged` when skipping has become the rule, and keep the scale from falling further.

        To be called after a step that was skipped.
        """
        if not self.scaler.is_enabled():
            return
        scale = self.scaler.get_scale()
        if self.consecutive_skips >= self.settings.max_consecutive_skips:
            raise Diverged(f"{self.consecutive_skips} steps in a row were skipped as not finite; loss scale {scale:g}")
        if scale < self.settings.min_scale:
            self.scaler.update(self.settings.min_scale)

    def scale(self) -> float | None:
        """The current loss scale; None when there is no scaler. Reads the device."""
        return self.scaler.get_scale() if self.scaler.is_enabled() else None

    def state_dict(self) -> dict[str, Any]:
        return {"scaler": self.scaler.state_dict(), "consecutive_skips": self.consecutive_skips}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scaler.load_state_dict(state["scaler"])
        self.consecutive_skips = state["consecutive_skips"]

    @contextmanager  # torch.compile cannot trace the hooks of `keep_in_fp32` with a bare torch.autocast
    def _without_autocast(self) -> Iterator[None]:
        with torch.autocast(self.device.type, enabled=False):
            yield

    def _select_kernels(self) -> None:
        """The kernels of this precision, which another one in this process may have replaced."""
        emulate_fp16(self.emulated)
        use_cuda_policy(self.autocast_policy == "cuda" and self.device.type == "cpu")

    def _decided_on_device(self, optimizers: Sequence[Optimizer]) -> bool:
        """Whether fused kernels read the flag on the device, so that fp32, tf32 and bf16 never wait for the host."""
        fused = all(getattr(optimizer, "_step_supports_amp_scaling", False) for optimizer in optimizers)
        return self.device.type == "cuda" and fused and not self.scaler.is_enabled()

    def _step_on_device(self, optimizers: Sequence[Optimizer], found_inf: Tensor) -> None:
        for optimizer in optimizers:
            optimizer.found_inf = found_inf  # type: ignore[attr-defined]
            optimizer.step()
            del optimizer.found_inf  # type: ignore[attr-defined]

    def _step_or_skip(self, optimizers: Sequence[Optimizer], found_inf: Tensor) -> bool:
        # Read here, before `scaler.update()`, and for every kind of optimizer: a fused one is called and skips
        # inside, and its first skipped step would leave SGD's momentum buffers uninitialised.
        if found_inf.item() > 0:
            self.consecutive_skips += 1
            return False
        for optimizer in optimizers:
            self.scaler.step(optimizer)
        self.consecutive_skips = 0
        return True


def _with_gradient(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
