"""What a model or its data do wrong is said before any work: exit 2, one message that names the place, no traceback."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reports.records.config import Experiment
from reports.records.summary import Pretrained
from tests.experiment.harness import ROOT, Outcome, TinyNet, build, run
from train.cli.scripts import script_of
from train.engine.copies import copied
from train.engine.saved_for_backward import trial_pass
from train.experiment.preflight import trial_run
from train.experiment.setup import Script, digest_of, setup


class Returning(TinyNet):
    """Gives `change(logits)`, in evaluation alone if `evaluation`."""

    def __init__(self, change: Callable[[Tensor], Any], evaluation: bool = False) -> None:
        super().__init__(10)
        self.change, self.evaluation = change, evaluation

    def forward(self, images: Tensor) -> Any:
        logits = super().forward(images)
        return logits if self.evaluation and self.training else self.change(logits)


class Fixed(TinyNet):
    """Can take batches of eight alone."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).view(8, 10)


class Stuck(nn.Module):
    """A product of shapes that do not fit, in a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(3, 10))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(images)
        return logits


def none(config: Experiment) -> Any:
    return None


def no_argument() -> Any:
    return TinyNet(10)


def frozen(config: Experiment) -> nn.Module:
    return TinyNet(10).requires_grad_(False)


CASES: dict[str, tuple[Callable[..., Any], str]] = {
    "a tuple": (
        lambda _: Returning(lambda logits: (logits, logits)),
        "the model returned tuple, not a tensor of logits",
    ),
    "a mapping": (lambda _: Returning(lambda logits: {"logits": logits}), "the model returned dict"),
    "a loss": (lambda _: Returning(torch.Tensor.sum), "gives logits () for labels (8,): they need one row of classes"),
    "a map": (lambda _: Returning(lambda x: x[..., None, None]), "the head gives 1 logits (shape (8, 10, 1, 1))"),
    "a small head": (lambda _: TinyNet(4), "the head gives 4 logits (shape (8, 4)), but num_classes is 10"),
    "a large head": (lambda _: TinyNet(12), "the head gives 12 logits (shape (8, 12)), but num_classes is 10"),
    "another in evaluation": (lambda _: Returning(lambda x: (x,), evaluation=True), "the model returned tuple"),
    "more in evaluation": (
        lambda _: Returning(lambda x: torch.stack([x, x], 1), evaluation=True),
        "in evaluation the model gives logits (4, 2, 10) for labels (4,)",
    ),
    "shapes": (lambda _: Stuck(), "linear in module 'inner.1' raises RuntimeError: mat1 and mat2 shapes"),
    "a line": (lambda _: Stuck(), "(test_trial_run.py:"),
    "a fixed batch": (
        lambda _: Fixed(10),
        "view in the model or its loss raises RuntimeError: shape '[8, 10]' is invalid",
    ),
    "meta": (lambda _: TinyNet(10).to("meta"), "parameter 'conv1.weight' is on the meta device"),
    "nothing": (none, "build of train.resnet gives NoneType, not a torch.nn.Module"),
    "no parameter": (frozen, "the model has no parameter to train"),
    "another signature": (no_argument, "build of train.resnet raises TypeError: no_argument() takes 0 positional"),
    "lazy": (lambda _: nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), "parameter '1.weight' has no shape yet"),
    "half": (lambda _: TinyNet(10).bfloat16(), "parameter 'conv1.weight' is bfloat16: keep the model in float32"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_model_is_refused_before_anything_is_written(case: str, tmp_path: Path) -> None:
    build, message = CASES[case]
    outcome = run(tmp_path, "data.eval_samples=12", build=build)
    assert outcome.status == 2, outcome.err
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.out + outcome.err
    assert not outcome.folder.exists()


def test_weights_that_nothing_loads_are_refused(tmp_path: Path) -> None:
    outcome = run(tmp_path, "pretrained=true")
    assert outcome.status == 2
    assert "pretrained: train.resnet loads no weights; leave it false" in outcome.err


def test_a_script_that_loads_weights_itself_is_accepted_and_recorded(tmp_path: Path, fp32: Outcome) -> None:
    def loading(config: Experiment) -> nn.Module:
        model = build(config)
        if config.pretrained:
            model.load_state_dict(torch.load(str(config.pretrained))["trainer"]["model"])
        return model

    best = str(fp32.folder / "checkpoints" / "best.pt")
    outcome = run(tmp_path, f"pretrained={best}", "max_steps=2", build=loading)
    assert outcome.status == 0, outcome.err
    assert outcome.summary.pretrained == Pretrained(source=best)
    assert outcome.summary.initial_weights_sha256 != fp32.summary.initial_weights_sha256


def test_an_fp32_module_that_is_never_called_is_refused(tmp_path: Path) -> None:
    class Listed(TinyNet):
        def __init__(self) -> None:
            super().__init__(10)
            self.heads = nn.ModuleList([self.fc])

    for name, status in (("heads", 2), ("fc", 0)):
        outcome = run(tmp_path / name, f"fp32_modules=[{name}]", precision="bf16", build=lambda _: Listed())
        assert outcome.status == status, outcome.err
    refused = run(tmp_path / "again", "fp32_modules=[heads]", precision="bf16", build=lambda _: Listed())
    assert "fp32_modules: heads: never called by itself; name what calls it" in refused.err


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("config", ["resnet20_digits", "vit_small_image_digits", "bert_digits"])
def test_watching_adds_nothing_to_what_is_saved_for_backward(config: str, precision: str, cpu: torch.device) -> None:
    path = ROOT / "configs" / f"{config}.yaml"
    overrides = ["batch_size=4", "data.train_samples=8", "data.eval_samples=8"]
    script = script_of(path, overrides)
    wired = setup(script, script.read(path, overrides), precision, 0, cpu)
    trainer, batch = wired.trainer, next(wired.data.train.epoch(0))
    state = torch.get_rng_state()
    plain = trial_pass(copied(trainer.model), trainer.forward, trainer.loss, batch, trainer.precision)
    assert trial_run(trainer, wired.task.score, batch, batch, wired.config.num_classes) == plain
    assert digest_of(wired.model) == wired.initial_weights
    assert torch.equal(torch.get_rng_state(), state)


class Learning(TinyNet):
    """Fills a table in its first pass, registers a buffer, makes one larger, assigns one and counts its calls."""

    centre: Tensor
    seen: Tensor

    def __init__(self, classes: int = 10) -> None:
        super().__init__(classes)
        self.register_buffer("table", torch.zeros(10))
        self.register_buffer("centre", torch.zeros(2))
        self.register_buffer("seen", torch.zeros(1))
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 1:
            self.table = torch.arange(10.0)
            self.register_buffer("scale", torch.ones(1))
        self.centre = self.centre + images.detach().mean()
        self.seen = torch.cat([self.seen, torch.rand(1)])
        return super().forward(images) + self.table


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_trial_leaves_no_buffer_no_counter_no_mode_and_no_random_state(precision: str, cpu: torch.device) -> None:
    path = ROOT / "configs" / "resnet20_digits.yaml"
    overrides = ["batch_size=4", "data.train_samples=8", "data.eval_samples=8"]
    script = Script(lambda config: Learning(), script_of(path, overrides).task)
    wired = setup(script, script.read(path, overrides), precision, 0, cpu)
    model, batch, state = wired.model, next(wired.data.train.epoch(0)), torch.get_rng_state()
    buffers = {name: (id(buffer), buffer.clone()) for name, buffer in model.named_buffers()}
    next(model.children()).eval()
    modes = [module.training for module in model.modules()]
    trial_run(wired.trainer, wired.task.score, batch, batch, 10)
    after = {name: (id(buffer), buffer) for name, buffer in model.named_buffers()}
    assert after.keys() == buffers.keys()
    assert all(after[name][0] == identity for name, (identity, _) in buffers.items())
    assert all(torch.equal(after[name][1], value) for name, (_, value) in buffers.items())
    assert isinstance(model, Learning)
    assert model.calls == 0
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


class Locked(TinyNet):
    def __init__(self, classes: int = 10) -> None:
        super().__init__(classes)
        self.lock = threading.Lock()


def test_a_model_that_cannot_be_copied_is_refused_before_any_work(tmp_path: Path) -> None:
    refused = run(tmp_path, precision="bf16", build=lambda _: Locked())
    assert refused.status == 2
    assert "the model cannot be copied" in refused.err
    assert "lock" in refused.err


class Complex(TinyNet):
    def __init__(self, classes: int = 10) -> None:
        super().__init__(classes)
        self.phase = nn.Parameter(torch.ones(1, dtype=torch.complex64))

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * self.phase.abs()


def test_complex_weights_are_refused_by_name(tmp_path: Path) -> None:
    refused = run(tmp_path, precision="fp32", build=lambda _: Complex())
    assert refused.status == 2
    assert "parameter 'phase' is complex" in refused.err


class Backwards(torch.autograd.Function):
    """Cannot be differentiated."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return torch.mm(gradient, gradient)


def test_a_backward_pass_that_fails_is_refused_before_any_work(tmp_path: Path) -> None:
    refused = run(tmp_path, build=lambda config: Returning(Backwards.apply))
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "raises RuntimeError" in refused.err
    assert not refused.folder.exists()


class Remembering(TinyNet):
    """Keeps a flag, a counter and a tensor that are no buffers, and an attention map that is none of its state."""

    def __init__(self) -> None:
        super().__init__(10)
        self.ready, self.calls, self.centre = False, 0, torch.zeros(1)
        self.seen: Tensor | None = None

    def forward(self, images: Tensor) -> Tensor:
        self.ready, self.calls, self.seen = True, self.calls + 1, images
        self.centre = self.centre + images.detach().mean()
        return super().forward(images)


def test_what_a_forward_pass_changes_beside_buffers_is_named(tmp_path: Path, fp32: Outcome) -> None:
    done = run(tmp_path, build=lambda config: Remembering())
    [line] = [line for line in done.out.splitlines() if line.startswith("warning: forward changes")]
    assert line.startswith("warning: forward changes ready, calls, centre, which no checkpoint holds")
    assert "warning" not in fp32.out


class Pair(nn.Linear):
    """A linear layer that gives two tensors."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), x


class Encoder(TinyNet):
    """Attention over the pixels with a padding mask, which torch computes by other kernels in evaluation."""

    def __init__(self) -> None:
        super().__init__(10)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.pair, self.encoder = Pair(8, 8), nn.TransformerEncoder(layer, 1)

    def forward(self, images: Tensor) -> Tensor:
        x, _ = self.pair(self.conv1(images).flatten(2).transpose(1, 2))
        mask = torch.zeros(x.shape[:2], dtype=torch.bool)
        mask[:, -3:] = True
        pooled = self.encoder(x, src_key_padding_mask=mask).mean(dim=1)
        logits: Tensor = self.fc(torch.cat([pooled, pooled], dim=1))
        return logits


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_transformer_encoder_with_padding_trains_and_evaluates(precision: str, tmp_path: Path) -> None:
    done = run(tmp_path, "max_steps=2", "epochs=null", precision=precision, build=lambda config: Encoder())
    assert done.status == 0, done.err
