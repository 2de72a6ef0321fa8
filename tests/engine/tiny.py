"""A small network, its data and its trainer: a step takes a millisecond."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.engine.precision import Precision, ScalerSettings
from train.engine.step import Batch, Forward, Loss, Schedule, Trainer

CPU = torch.device("cpu")
CPU_PRECISIONS = ("fp32", "bf16", "fp16")
CLASSES = 4
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    "adamw": {"lr": 0.01},
}


class TinyNet(nn.Module):
    """Images (N, 3, 8, 8) to logits (N, 4), through two convolutions, BatchNorm and dropout."""

    def __init__(self, norm: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv1(images)))
        x = F.relu(self.conv2(x)).mean(dim=(2, 3))
        return self.fc(self.dropout(x))


def tiny_net(seed: int = 0, **settings: Any) -> TinyNet:
    torch.manual_seed(seed)
    return TinyNet(**settings)


def tiny_linear(inputs: int = 8, outputs: int = CLASSES, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(inputs, outputs)


def image_batches(count: int, size: int = 8, seed: int = 0) -> list[Batch]:
    draw = torch.Generator().manual_seed(seed)
    return [
        {
            "images": torch.randn(size, 3, 8, 8, generator=draw),
            "labels": torch.randint(0, CLASSES, (size,), generator=draw),
        }
        for _ in range(count)
    ]


def poisoned(batch: Batch, value: float) -> Batch:
    """The batch with one pixel set to `value`."""
    images = batch["images"].clone()
    images[0, 0, 0, 0] = value
    return {**batch, "images": images}


class Listed:
    """A split of given batches, in a new order each epoch."""

    def __init__(self, batches: list[Batch], shuffle: bool = False) -> None:
        self.listed, self.shuffle = batches, shuffle
        self.batches = len(batches)
        self.samples = sum(len(batch["labels"]) for batch in batches)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        order = torch.randperm(self.batches, generator=torch.Generator().manual_seed(epoch))
        for index in order[start:] if self.shuffle else range(start, self.batches):
            yield self.listed[int(index)]

    def digest(self) -> str:
        return "listed"


def classify(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    return model(batch["images"]), batch["labels"]


def constant(step: int) -> float:
    return 1.0


def make_optimizer(
    model: nn.Module, name: str = "sgd", fused: bool | None = False, device: torch.device = CPU, **settings: Any
) -> torch.optim.Optimizer:
    """Weight decay on matrices alone; `fused` None means fused on CUDA."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.01},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name]
    fused = device.type == "cuda" if fused is None else fused
    return optimizer([group for group in groups if group["params"]], fused=fused, **(OPTIMIZERS[name] | settings))


def make_trainer(
    precision: str = "fp32",
    model: nn.Module | None = None,
    optimizers: list[torch.optim.Optimizer] | None = None,
    *,
    optimizer: str = "sgd",
    fused: bool | None = False,
    device: torch.device = CPU,
    forward: Forward = classify,
    loss: Loss = F.cross_entropy,
    weight: Callable[[Batch], float | Tensor] = lambda batch: len(batch["labels"]),
    schedule: Schedule = constant,
    clip_norm: float | None = None,
    ema_decay: float | None = None,
    **scaler: Any,
) -> Trainer:
    model = (tiny_net() if model is None else model).to(device)
    return Trainer(
        model.train(),
        forward,
        loss,
        weight,
        optimizers or [make_optimizer(model, optimizer, fused, device)],
        schedule,
        Precision(precision, device, ScalerSettings(**scaler)),
        clip_norm=clip_norm,
        ema_decay=ema_decay,
    )


def falling(total: int) -> Schedule:
    return lambda step: 1 - step / total


def moved_by_a_step(trainer: Trainer) -> dict[str, Any]:
    """A copy of all that a skipped step must leave alone: everything but the scaler and the counts of attempts."""
    state = flat(trainer.state_dict())
    own = ("precision.", "step", "loss_sum", "nonfinite_losses", "unread_steps", "grad_norm")
    return {name: value for name, value in state.items() if not name.startswith(own)}


def flat(state: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries and lists as one dictionary of dotted names, with copies of the values."""
    if isinstance(state, Mapping):
        items = [(str(key), value) for key, value in state.items()]
    elif isinstance(state, list | tuple):
        items = [(str(index), value) for index, value in enumerate(state)]
    else:
        return {prefix.removesuffix("."): copy.deepcopy(state)}
    return {name: leaf for key, value in items for name, leaf in flat(value, f"{prefix}{key}.").items()}


def assert_same(actual: Any, expected: Any) -> None:
    """Bit for bit: the same names, dtypes, shapes and values, NaN equal to NaN."""
    actual, expected = flat(actual), flat(expected)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, Tensor):
            torch.testing.assert_close(
                actual[name], value, rtol=0, atol=0, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
            )
        else:
            assert actual[name] == value, name
