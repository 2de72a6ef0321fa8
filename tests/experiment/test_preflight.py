"""What preflight says of a model that fails, in the precision in which it does."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.experiment.harness import DIGITS
from train.cli.scripts import script_of
from train.experiment import preflight
from train.experiment.setup import setup


class SavesFp32(torch.autograd.Function):
    """Multiplies half with half, and in backward half with the FP32 weight that it saved."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(weight)
        return torch.mm(x, weight.to(x.dtype))

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        (weight,) = context.saved_tensors
        return torch.mm(gradient, weight.T), None


class Broken(nn.Module):
    """A network whose second layer fails in the way that `fault` says."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 3)
        if fault == "overflow":
            nn.init.ones_(self.second.weight)
        self.unused = nn.Linear(1, 1) if fault == "unused" else None
        self.fault = fault

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.first(images)
        if self.fault == "overflow":  # beyond fp16's 65504, within the range of the others
            hidden = self.second.weight.new_full((len(images), 4), 3e4) * (1 + 0 * hidden)
        if self.fault == "dtype":  # fails under autocast alone: the accumulator is float32
            hidden = torch.zeros(len(images), 4).scatter_add(1, torch.zeros(len(images), 4, dtype=torch.int64), hidden)
        if self.fault == "function":
            return self.second(SavesFp32.apply(hidden, torch.eye(4)))
        if self.fault == "evaluation" and not self.training:
            return (hidden,)  # type: ignore[return-value]
        if self.fault == "product":  # 90,000: of no module's making
            hidden = 0 * self.second(hidden) + 300
            return hidden * 300
        logits: torch.Tensor = self.second(hidden)
        return logits


@pytest.mark.parametrize(
    ("fault", "precision", "expected"),
    [
        ("dtype", "bf16", "scatter_add in the model or its loss raises RuntimeError"),
        ("overflow", "fp16", "the output of second is not finite; fp32_modules=[second] would"),
        ("unused", "fp32", "no gradient reaches unused.weight, unused.bias"),
        ("head", "fp32", "the head gives 3 logits"),
        ("evaluation", "fp32", "the model returned tuple, not a tensor of logits"),
        ("function", "bf16", "raises RuntimeError: expected m1 and m2 to have the same dtype"),
        ("function", "fp16", "raises RuntimeError: operands must have the same dtype"),
        ("product", "fp16", "the logits or the loss are not finite"),
    ],
)
def test_preflight_names_what_fails(fault: str, precision: str, expected: str) -> None:
    script = replace(script_of(DIGITS), build=lambda _: Broken(fault))
    trainer = setup(script, script.read(DIGITS, (), smoke=True), precision, 0, torch.device("cpu"), smoke=True).trainer
    batch = {"images": torch.ones(2, 4), "labels": torch.tensor([0, 1])}
    finding = preflight.examine(trainer, script.task.score, batch, batch, 10 if fault == "head" else 3)
    assert any(expected in text for text in finding.faults), finding.faults


def test_preflight_takes_the_update_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no such state")

    monkeypatch.setattr(torch.optim.SGD, "step", fail)
    script = replace(script_of(DIGITS), build=lambda _: Broken("none"))
    trainer = setup(script, script.read(DIGITS, (), smoke=True), "fp32", 0, torch.device("cpu"), smoke=True).trainer
    batch = {"images": torch.ones(2, 4), "labels": torch.tensor([0, 1])}
    finding = preflight.examine(trainer, script.task.score, batch, batch, 3)
    assert "raises ZeroDivisionError: no such state" in finding.faults[0]
