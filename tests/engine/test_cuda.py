"""What only a GPU can show."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.tiny import (
    Listed,
    assert_same,
    classify,
    falling,
    image_batches,
    make_trainer,
    moved_by_a_step,
    poisoned,
    tiny_net,
)
from train.engine import checkpoint
from train.engine.errors import Diverged, Refused
from train.engine.fit import evaluate
from train.engine.meter import Meter
from train.engine.precision import PRECISIONS, Precision, why_unavailable
from train.engine.step import Batch, Trainer

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")
NAN = float("nan")


def require(precision: str) -> None:
    reason = why_unavailable(precision, CUDA)
    if reason is not None:
        pytest.skip(reason)


def cuda_batches(count: int) -> list[Batch]:
    return [{name: tensor.to(CUDA) for name, tensor in batch.items()} for batch in image_batches(count)]


def cuda_trainer(precision: str, seed: int = 0, dropout: float = 0.0, **settings: Any) -> Trainer:
    require(precision)
    return make_trainer(precision, tiny_net(seed, dropout=dropout), device=CUDA, fused=None, **settings)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_switches_of_each_precision(precision: str) -> None:
    require(precision)
    # As a library may have left them.
    torch.backends.cuda.matmul.fp32_precision = "ieee" if precision == "tf32" else "tf32"
    torch.backends.cudnn.conv.fp32_precision = "ieee" if precision == "tf32" else "tf32"
    description = Precision(precision, CUDA).describe()
    expected = "tf32" if precision == "tf32" else "ieee"
    assert description.cuda_matmul_fp32 == description.cudnn_conv_fp32 == expected
    assert torch.backends.cudnn.rnn.fp32_precision == expected
    assert description.arithmetic == "native kernels"


def test_fp32_products_are_exact_where_those_of_tf32_are_rounded() -> None:
    require("tf32")
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(512, 512, generator=draw).to(CUDA) for _ in range(2))
    errors = {}
    for name in ("fp32", "tf32"):
        with Precision(name, CUDA).forward():
            errors[name] = (a @ b - a.double() @ b.double()).abs().max().item()
    assert errors["fp32"] < 1e-3 < errors["tf32"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_modules_compute_in_the_precision_that_was_asked_for(precision: str) -> None:
    trainer = cuda_trainer(precision)
    seen = set()
    for module in (trainer.model.conv1, trainer.model.conv2, trainer.model.fc):
        module.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    trainer.step(cuda_batches(1))
    assert seen == {trainer.precision.matrix_dtype}
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}


def test_an_older_device_refuses_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 0))
    with pytest.raises(Refused, match=r"tf32 needs compute capability 8\.0"):
        Precision("tf32", CUDA)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_bad_batch_is_skipped_on_the_device_and_named_when_it_is_checked(precision: str, optimizer: str) -> None:
    *good, bad = cuda_batches(3)
    trainer = cuda_trainer(precision, optimizer=optimizer)
    for batch in good:
        trainer.step([batch])
    trainer.check()
    before = moved_by_a_step(trainer)
    trainer.step([poisoned(bad, NAN)])
    after = moved_by_a_step(trainer)
    for name, value in before.items():
        if name.startswith(("optimizers.", "model.conv", "model.fc", "model.norm.weight", "model.norm.bias")):
            assert_same({name: after[name]}, {name: value})
    with pytest.raises(Diverged, match=r"^step 3: non-finite gradient in '[a-z0-9.]+'.*the weights were not touched"):
        trainer.check()


def test_a_bad_first_step_leaves_the_momentum_of_a_fused_optimizer_unset() -> None:
    batches = cuda_batches(3)
    trainer = cuda_trainer("fp16", init_scale=2048.0)
    for batch in [poisoned(batches[0], NAN), *batches]:
        trainer.step([batch])
    straight = cuda_trainer("fp16", init_scale=1024.0)
    for batch in batches:
        straight.step([batch])
    torch.testing.assert_close(trainer.model.state_dict(), straight.model.state_dict(), rtol=1e-3, atol=1e-5)


def test_a_step_skipped_on_the_device_moves_neither_statistics_nor_average_nor_count() -> None:
    first, bad = cuda_batches(2)
    trainer = cuda_trainer("bf16", optimizer="adamw", ema_decay=0.9)
    trainer.step([first])
    before = moved_by_a_step(trainer)
    trainer.step([poisoned(bad, NAN)])
    with pytest.raises(Diverged, match="step 2"):
        trainer.check()
    assert_same(moved_by_a_step(trainer), before)


def test_the_first_bad_step_is_the_one_that_is_named() -> None:
    first, second, third = cuda_batches(3)
    trainer = cuda_trainer("bf16", optimizer="adamw")
    for batch in (first, poisoned(second, NAN), poisoned(third, NAN)):
        trainer.step([batch])
    with pytest.raises(Diverged, match=r"^step 2: "):
        trainer.check()


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_step_never_waits_for_the_device(precision: str, optimizer: str) -> None:
    batches = cuda_batches(4)
    trainer = cuda_trainer(precision, optimizer=optimizer, clip_norm=1.0, ema_decay=0.9)
    trainer.step(batches[:2])  # allocates and chooses kernels
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        trainer.step(batches[:2])
        trainer.step(batches[2:])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    trainer.check()
    assert trainer.applied_step == 3


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    settings: dict[str, Any] = {
        "dropout": 0.3, "schedule": falling(8), "clip_norm": 1.0, "ema_decay": 0.8, "init_scale": 2.0**20,
        "growth_interval": 2,
    }  # fmt: skip
    batches = cuda_batches(8)
    whole = cuda_trainer(precision, **settings)
    torch.manual_seed(7)
    for number, batch in enumerate(batches):
        if number == 5:
            random = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state()}
            checkpoint.save(tmp_path / "last.pt", {"trainer": whole.state_dict(), "random": random})
        whole.step([batch])

    resumed = cuda_trainer(precision, seed=1, **settings)
    state = checkpoint.load(tmp_path / "last.pt")
    resumed.load_state_dict(state["trainer"])
    torch.set_rng_state(state["random"]["cpu"])
    torch.cuda.set_rng_state(state["random"]["cuda"])
    for batch in batches[5:]:
        resumed.step([batch])
    assert_same(resumed.state_dict(), whole.state_dict())


def test_a_checkpoint_of_a_gpu_goes_on_on_a_cpu(tmp_path: Path) -> None:
    trainer = cuda_trainer("bf16", optimizer="adamw", ema_decay=0.9)
    trainer.step(cuda_batches(1))
    checkpoint.save(tmp_path / "last.pt", {"trainer": trainer.state_dict()})
    on_cpu = make_trainer("bf16", optimizer="adamw", ema_decay=0.9)
    on_cpu.load_state_dict(copy.deepcopy(checkpoint.load(tmp_path / "last.pt")["trainer"]))
    name = "fc.weight"
    assert torch.equal(on_cpu.model.state_dict()[name], trainer.model.state_dict()[name].cpu())
    on_cpu.step(image_batches(1))
    assert on_cpu.applied_step == 2


def test_peak_memory_is_that_of_the_training_steps() -> None:
    meter = Meter(CUDA, warmup_steps=0)
    torch.empty(256 * 2**20, dtype=torch.uint8, device=CUDA)
    meter.resume()
    buffer = torch.empty(64 * 2**20, dtype=torch.uint8, device=CUDA)
    meter.step(1, 0.0)
    meter.pause()
    metrics = meter.read()
    assert 64 <= metrics["memory/peak_allocated_mib"] < 256
    assert metrics["memory/peak_reserved_mib"] >= metrics["memory/peak_allocated_mib"]
    assert "memory/peak_rss_mib" not in metrics
    assert buffer.numel() == 64 * 2**20


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_same_weights_give_the_same_numbers(precision: str) -> None:
    require(precision)
    model, split = tiny_net().to(CUDA), Listed(cuda_batches(3))
    results = [
        evaluate(model, classify, lambda x, y: {"correct": (x.argmax(1) == y).sum()}, split, Precision(precision, CUDA))
        for _ in range(2)
    ]
    assert_same(*results)
