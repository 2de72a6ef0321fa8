"""One training step as a transaction: it happens whole, or nothing but the loss scale moves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from .buffers import Snapshot
from .errors import Diverged
from .precision import Precision, Update

Batch = Mapping[str, Tensor]
Forward = Callable[[nn.Module, Batch], tuple[Tensor, Tensor]]
Loss = Callable[[Tensor, Tensor], Tensor]
Schedule = Callable[[int], float]


def bare(model: nn.Module) -> nn.Module:
    """The module under `torch.compile`, so that saved names are the same with and without it."""
    return getattr(model, "_orig_mod", model)


def moving_average(decay: float, held_back: Tensor) -> Callable[[Any, Any, Any], None]:
    """For `AveragedModel`: average += (1 - decay) * (weights - average), not at all while `held_back` (0-d) is 1."""

    def average(averaged: list[Tensor], current: list[Tensor], count: object) -> None:
        difference = torch._foreach_sub(current, averaged)
        torch._foreach_mul_(difference, (1 - decay) * (1 - held_back))
        torch._foreach_add_(averaged, difference)

    return average


class Trainer:
    """Model, optimizers and precision as one unit that takes steps, is saved and is restored.

    `forward(model, batch)` gives (logits, labels), `loss(float32 logits, labels)` their mean loss, and
    `weight(batch)` how many labels that mean is over: a number, or a 0-d tensor where counting it on
    the host would wait for the device. The rate of every optimizer group is the `lr` it is given with
    times `schedule(applied_step)`. `ema_decay` keeps an FP32 exponential moving average of the weights,
    moved by applied steps only. The modules at the paths `fp32_modules` compute in FP32.

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
        precision.prepare(bare(model), fp32_modules)
        self.model = model
        self.forward, self.loss, self.weight = forward, loss, weight
        self.optimizers, self.schedule, self.precision = list(optimizers), schedule, precision
        self.peak_rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]
        self.clip_norm = clip_norm
        self.ema: AveragedModel | None = None
        if ema_decay is not None:
            self.ema = AveragedModel(bare(model), multi_avg_fn=moving_average(ema_decay, precision.held_back))
        self.step_count = 0
        self.applied_step = 0
        self.snapshot = Snapshot(model.buffers())
        device = precision.device
        self.loss_sum = torch.zeros((), device=device, dtype=torch.float64)
        self.nonfinite_losses = torch.zeros((), device=device, dtype=torch.int64)
        self.window_steps = 0
        self.grad_norm = torch.zeros((), device=device)
        # Where the first non-finite gradient was, kept on the device until `check` reads it.
        self.parameters = list(bare(model).parameters())
        self.names = [name for name, _ in bare(model).named_parameters()]
        self.indices = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        self.stepped, self.positions = [-1], torch.zeros(1, device=device, dtype=torch.int64)
        self.bad_step = torch.full((), -1, device=device, dtype=torch.int64)
        self.bad_index, self.bad_count = torch.zeros_like(self.bad_step), torch.zeros_like(self.bad_step)

    @property
    def evaluated_model(self) -> nn.Module:
        """The weights to evaluate: the moving average where there is one."""
        return self.ema.module if self.ema is not None else self.model

    def step(self, window: Sequence[Batch]) -> None:
        """Take one optimizer step over the micro-batches of `window`.

        The gradient is that of the mean loss over the whole window, whatever its micro-batches' sizes.
        Raises `Diverged` on a non-finite gradient without loss scaling, or when scaling gives up.
        """
        factor = self.schedule(self.applied_step)
        for optimizer, peaks in zip(self.optimizers, self.peak_rates, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * factor
        self.snapshot.take(self.precision.held_back)
        weights = [self.weight(batch) for batch in window]
        total = sum(weights)
        window_loss = torch.zeros((), device=self.precision.device)
        for batch, weight in zip(window, weights, strict=True):
            with self.precision.forward():
                logits, labels = self.forward(self.model, batch)
                loss = self.loss(logits.float(), labels) * (weight / total)
            self.precision.backward(loss)
            window_loss += loss.detach()
        self.step_count += 1
        update = self.precision.update(self.optimizers, self.clip_norm, self.parameters)
        self._account(window_loss, update)
        if update.applied is False:
            self.snapshot.restore()  # BatchNorm's statistics; nothing else has moved yet
            self.check()
            self.precision.check_skips()
        else:
            self.applied_step += 1
            if self.ema is not None:
                self.ema.update_parameters(bare(self.model))
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def check(self) -> None:
        """Raise `Diverged` if a step without loss scaling had a non-finite gradient. Reads the device.

        Steps whose outcome is known on the host call it themselves. The others go on until somebody does,
        holding back every later update; what their forward passes moved is put back here.
        """
        step = int(self.bad_step.item())
        if step < 0:
            return
        self.applied_step = step - 1
        self.snapshot.restore()
        if self.ema is not None:
            for averaged, buffer in zip(self.ema.module.buffers(), bare(self.model).buffers(), strict=True):
                averaged.copy_(buffer)
        name = self.names[int(self.bad_index.item())]
        others = int(self.bad_count.item()) - 1
        # Backward runs from the loss to the input, so the last of them is nearest to where it began.
        before = f" and in {others} parameters before it" if others else ""
        raise Diverged(f"step {step}: non-finite gradient in {name!r}{before}; the weights were not touched")

    def read_window(self) -> dict[str, float]:
        """Mean loss and the rest of the steps since the last call, as contract metrics. Reads the device."""
        metrics = {
            "train/loss": self.loss_sum.item() / max(self.window_steps, 1),
            "train/grad_norm": self.grad_norm.item(),
            "train/lr": self.optimizers[0].param_groups[0]["lr"],
            "train/step": self.step_count,
            "train/applied_step": self.applied_step,
        }
        nonfinite = int(self.nonfinite_losses.item())
        if nonfinite:
            metrics["train/nonfinite_loss_steps"] = nonfinite
        scale = self.precision.scale()
        if scale is not None:
            metrics["amp/scale"] = scale
            metrics["amp/skipped_steps"] = self.step_count - self.applied_step
        self.loss_sum.zero_()
        self.nonfinite_losses.zero_()
        self.window_steps = 0
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on, but for the random states and the data."""
        return {
            "model": bare(self.model).state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "ema": self.ema.state_dict() if self.ema is not None else None,
            "precision": self.precision.state_dict(),
            "step": self.step_count,
            "applied_step": self.applied_step,
            "loss_sum": self.loss_sum,
            "nonfinite_losses": self.nonfinite_losses,
            "window_steps": self.window_steps,
            "grad_norm": self.grad_norm,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        bare(self.model).load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if self.ema is not None:
            self.ema.load_state_dict(state["ema"])
        self.precision.load_state_dict(state["precision"])
        self.step_count, self.applied_step = state["step"], state["applied_step"]
        self.window_steps = state["window_steps"]
        for name in ("loss_sum", "nonfinite_losses", "grad_norm"):
            getattr(self, name).copy_(state[name])

    def _account(self, window_loss: Tensor, update: Update) -> None:
        self.loss_sum += window_loss
        self.nonfinite_losses += ~window_loss.isfinite()
        self.window_steps += 1
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
