"""One training step as a transaction: it happens whole, or nothing but the loss scale moves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .average import WeightAverage
from .buffers import BufferCopy, comparable, is_expanded
from .errors import Diverged, Refused
from .precision import Precision, Update

Batch = Mapping[str, Tensor]
Forward = Callable[[nn.Module, Batch], tuple[Tensor, Tensor]]
Loss = Callable[[Tensor, Tensor], Tensor]
Schedule = Callable[[int], float]
KERNELS = {"fused", "foreach", "capturable", "differentiable"}  # options of an optimizer that change no number of it


def unwrapped(model: nn.Module) -> nn.Module:
    """The module under `torch.compile`, so that saved names are the same with and without it."""
    return getattr(model, "_orig_mod", model)


def training_mode(model: nn.Module) -> Callable[[], None]:
    """A function that puts `model` into training mode, but for the modules that are in evaluation mode now.

    They stay so where `model` itself is in training mode: a BatchNorm that its builder froze. A model that is in
    evaluation mode as a whole, as `from_pretrained` leaves one, trains as a whole.
    """
    frozen = [module for module in model.modules() if not module.training] if model.training else []

    def enter() -> None:
        model.train()
        for module in frozen:
            module.training = False

    return enter


class Trainer:
    """Model, optimizers and precision as one unit that takes steps, is saved and is restored.

    `forward(model, batch)` gives (logits, labels), `loss(float32 logits, labels)` their mean loss, and
    `weight(batch)` how many labels that mean is over: a number, or a 0-d tensor where counting it on
    the host would wait for the device. The rate of every optimizer group is the `lr` it is given with
    times `schedule(applied_step)`. `ema_decay` keeps an FP32 exponential moving average of the weights,
    moved by applied steps only. The modules at the paths `fp32_modules` compute in FP32. `train_mode()` puts the model
    into the modes that it was built in, see `training_mode`.

    `step_count` counts attempted steps, `applied_step` those that moved the weights; the learning rate
    and the average know the second alone.
    """

    def __init__(
        self,
        model: nn.Module,
        forward: Forward,
        loss: Loss,
        weight: Callable[[Batch], float | Tensor],
        optimizers: Sequence[Optimizer],
        schedule: Schedule,
        precision: Precision,
        clip_norm: float | None = None,
        ema_decay: float | None = None,
        fp32_modules: Sequence[str] = (),
    ) -> None:
        precision.prepare(unwrapped(model), fp32_modules)
        self.model = model
        self.forward, self.loss, self.weight = forward, loss, weight
        self.optimizers, self.schedule, self.precision = list(optimizers), schedule, precision
        self.peak_rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]
        self.clip_norm = clip_norm
        self.train_mode = training_mode(model)
        self.ema = WeightAverage(unwrapped(model), ema_decay) if ema_decay is not None else None
        self.step_count = self.applied_step = self.unread_steps = 0
        self.buffers = BufferCopy(unwrapped(model))
        device = precision.device
        self.loss_sum = torch.zeros((), device=device, dtype=torch.float64)
        self.nonfinite_losses = torch.zeros((), device=device, dtype=torch.int64)
        self.grad_norm = torch.zeros((), device=device)
        # Where the first non-finite gradient was, kept on the device until `check` reads it.
        self.parameters = list(unwrapped(model).parameters())
        self.names = [name for name, _ in unwrapped(model).named_parameters()]
        self.indices = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        if not all(id(parameter) in self.indices for group in groups for parameter in group["params"]):
            raise Refused(
                "an optimizer has a parameter that is not the model's, which no checkpoint or check would see"
            )
        self.stepped, self.positions = [-1], torch.zeros(1, device=device, dtype=torch.int64)
        self.bad_step = torch.full((), -1, device=device, dtype=torch.int64)
        self.bad_index, self.bad_count = torch.zeros_like(self.bad_step), torch.zeros_like(self.bad_step)

    @property
    def evaluated_model(self) -> nn.Module:
        """The weights to evaluate: the moving average where there is one."""
        return self.ema.evaluated(unwrapped(self.model)) if self.ema is not None else self.model

    def step(self, micro_batches: Sequence[Batch]) -> None:
        """Take one optimizer step over `micro_batches`.

        The gradient is that of the mean loss over all of them, whatever their sizes.
        Raises `Diverged` on a non-finite gradient or buffer without loss scaling, or when scaling gives up.
        """
        factor = self.schedule(self.applied_step)
        for optimizer, peaks in zip(self.optimizers, self.peak_rates, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * factor
        self.buffers.take(self.precision.found_inf)
        weights = [self.weight(batch) for batch in micro_batches]
        total = sum(weights)
        step_loss = torch.zeros((), device=self.precision.device)
        for batch, weight in zip(micro_batches, weights, strict=True):
            with self.precision.forward():
                logits, labels = self.forward(self.model, batch)
                loss = self.loss(logits.float(), labels) * (weight / total)
            self.precision.backward(loss)
            # Without a label that counts the mean is 0 / 0, and its gradient 0.
            if isinstance(weight, Tensor):
                step_loss += loss.detach().where(weight > 0, 0.0)
            elif weight > 0:
                step_loss += loss.detach()
        self.step_count += 1
        update = self.precision.update(self.optimizers, self.clip_norm, self.parameters, self.buffers.nonfinite())
        self._account(step_loss, update)
        if update.applied is False:
            self.check()
            self.buffers.restore()  # nothing else has moved yet
            self.precision.check_skips()
        else:
            self.applied_step += 1
            if self.ema is not None:
                self.ema.update(unwrapped(self.model), self.precision.found_inf, first=self.applied_step == 1)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def check(self) -> None:
        """Raise `Diverged` if a step without loss scaling had a non-finite gradient or buffer. Reads the device.

        A step whose outcome is known on the host calls it itself. After one that is decided on the device, every
        later update is skipped until this is called; it restores what their forward passes moved.
        """
        step = int(self.bad_step.item())
        if step < 0:
            return
        self.applied_step = step - 1
        nonfinite = _nonfinite_buffers(self.model)
        self.buffers.restore()
        buffers = [name for name in nonfinite if name not in _nonfinite_buffers(self.model)]
        if broken := [name for name, p in zip(self.names, self.parameters, strict=True) if not p.isfinite().all()]:
            raise Diverged(f"step {step}: the weights were not finite before it: {broken[0]!r}")
        if count := int(self.bad_count.item()):
            # Backward runs from the loss to the input, so the last of them is nearest to where it began.
            before = f" and in {count - 1} parameters before it" if count > 1 else ""
            fault = f"non-finite gradient in {self.names[int(self.bad_index.item())]!r}{before}"
        elif buffers:
            others = f" and {len(buffers) - 1} others" if len(buffers) > 1 else ""
            fault = f"the forward pass made buffer {buffers[0]!r}{others} non-finite"
        else:
            fault = "the norm of the gradient is too large for float32"
        raise Diverged(f"step {step}: {fault}; the weights were not touched")

    def read_metrics(self) -> dict[str, float]:
        """Metrics of the steps since the last call: mean loss, gradient norm, rate, counts. Reads the device."""
        metrics = {
            "train/grad_norm": self.grad_norm.item(),
            "train/lr": self.optimizers[0].param_groups[0]["lr"],
            "train/step": self.step_count,
            "train/applied_step": self.applied_step,
        }
        if self.unread_steps:
            metrics["train/loss"] = self.loss_sum.item() / self.unread_steps
        nonfinite = int(self.nonfinite_losses.item())
        if nonfinite:
            metrics["train/nonfinite_loss_steps"] = nonfinite
        scale = self.precision.scale()
        if scale is not None:
            metrics["amp/scale"] = scale
            metrics["amp/skipped_steps"] = self.step_count - self.applied_step
        self.loss_sum.zero_()
        self.nonfinite_losses.zero_()
        self.unread_steps = 0
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on, but for the random states and the data."""
        return {
            "model": unwrapped(self.model).state_dict(),
            "other_buffers": _other_buffers(unwrapped(self.model)),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "ema": self.ema.state_dict() if self.ema is not None else None,
            "precision": self.precision.state_dict(),
            "step": self.step_count,
            "applied_step": self.applied_step,
            "loss_sum": self.loss_sum,
            "nonfinite_losses": self.nonfinite_losses,
            "unread_steps": self.unread_steps,
            "grad_norm": self.grad_norm,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for buffers in (state["model"], state["other_buffers"]):
            _register_missing_buffers(unwrapped(self.model), buffers)
        unwrapped(self.model).load_state_dict(state["model"])
        for name, buffer in _other_buffers(unwrapped(self.model)).items():
            buffer.copy_(state["other_buffers"][name])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            # Which kernels update it is this optimizer's: a state saved on another device has that one's.
            kernels = [{key: group[key] for key in KERNELS & group.keys()} for group in optimizer.param_groups]
            optimizer.load_state_dict(saved)
            for group, own in zip(optimizer.param_groups, kernels, strict=True):
                group.update(own)
        if self.ema is not None:
            self.ema.load_state_dict(state["ema"])
        self.precision.load_state_dict(state["precision"])
        self.step_count, self.applied_step = state["step"], state["applied_step"]
        self.unread_steps = state["unread_steps"]
        for name in ("loss_sum", "nonfinite_losses", "grad_norm"):
            getattr(self, name).copy_(state[name])

    def _account(self, step_loss: Tensor, update: Update) -> None:
        self.loss_sum += step_loss
        self.nonfinite_losses += ~step_loss.isfinite()
        self.unread_steps += 1
        self.grad_norm.copy_(update.grad_norm)
        if self.precision.arithmetic.scaled:
            return
        stepped = [self.indices[id(parameter)] for parameter in update.parameters]
        if stepped != self.stepped:
            self.stepped, self.positions = stepped, torch.tensor(stepped, device=self.positions.device)
        nonfinite = ~update.norms.isfinite()
        first = (self.bad_step < 0) & (update.found_inf > 0)
        self.bad_step = torch.where(first, self.step_count, self.bad_step)
        self.bad_index = torch.where(first, (nonfinite * self.positions).max(), self.bad_index)
        self.bad_count = torch.where(first, nonfinite.sum(), self.bad_count)


def _nonfinite_buffers(model: nn.Module) -> list[str]:
    dense = ((name, buffer) for name, buffer in unwrapped(model).named_buffers() if buffer.layout is torch.strided)
    return [name for name, buffer in dense if not comparable(buffer).isfinite().all()]


def _other_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that the model keeps out of its own state: its next step depends on them all the same."""
    own = model.state_dict(keep_vars=True).keys()
    return {name: buffer for name, buffer in model.named_buffers(remove_duplicate=False) if name not in own}


def _register_missing_buffers(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give `model` the buffers in `state` that a forward pass registered or made larger, and writable ones."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, value in state.items():
        path, _, own = name.rpartition(".")
        if name not in parameters and path in modules:
            buffer = modules[path]._buffers.get(own)
            if buffer is None or buffer.shape != value.shape or is_expanded(buffer):
                device = next(iter(parameters.values())).device
                persistent = own not in modules[path]._non_persistent_buffers_set
                modules[path].register_buffer(own, torch.empty_like(value, device=device), persistent)
