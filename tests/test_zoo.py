"""The contract of every training script and experiment, found by themselves; a failing test names model and rule."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.experiment.harness import ROOT
from tests.zoo import CPU, EXPERIMENTS, QUICK, losses, parts, trainer_of
from train.engine import checkpoint
from train.experiment.config import model_scripts
from train.experiment.seeding import random_state, restore_random_state
from train.experiment.setup import build_model


def same_state(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("script", model_scripts())
def test_every_script_has_a_quick_experiment_and_a_run_script(script: str) -> None:
    assert [name for name in QUICK if EXPERIMENTS[name].model == script]
    assert (ROOT / "scripts" / f"run_{script}_amp.sh").exists()


@pytest.mark.parametrize("name", QUICK)
def test_a_saved_model_loads_strictly_and_computes_the_same(name: str, tmp_path: Path) -> None:
    script, config, _, batch = parts(name)
    first, second = (build_model(script.build, config, seed, CPU).eval() for seed in (0, 1))
    checkpoint.save(tmp_path / "model.pt", {"model": first.state_dict()})
    second.load_state_dict(checkpoint.load(tmp_path / "model.pt")["model"], strict=True)
    with torch.no_grad():
        assert torch.equal(script.task.forward(first, batch)[0], script.task.forward(second, batch)[0])


@pytest.mark.parametrize("name", [name for name in QUICK if "images" in parts(name)[3]])
def test_channels_last_and_contiguous_agree(name: str) -> None:
    script, config, _, batch = parts(name)
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        model = build_model(script.build, config.model_copy(update={"channels_last": False}), 0, CPU)
        model = model.to(memory_format=layout).eval()
        images = batch["images"].contiguous(memory_format=layout)
        logits, labels = script.task.forward(model, {**batch, "images": images})
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        results.append((loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    (loss, gradients), (other_loss, other_gradients) = results
    torch.testing.assert_close(loss, other_loss, rtol=1e-4, atol=1e-4)
    for gradient, other in zip(gradients, other_gradients, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-2, atol=1e-3 * max(1.0, float(gradient.abs().max())))


@pytest.mark.parametrize("name", QUICK)
def test_one_batch_can_be_learnt_by_heart(name: str) -> None:
    trainer = trainer_of(name)
    trainer.optimizers = [torch.optim.AdamW(trainer.model.parameters(), lr=2e-3)]
    trainer.peak_rates = [[2e-3]]
    trainer.schedule = lambda step: 1.0
    first = losses(trainer, parts(name)[3], 1)[0]
    # Most need a few dozen steps; sigmoids begin flat and need hundreds.
    assert any(min(losses(trainer, parts(name)[3], 10)) < 0.5 * first for _ in range(40))


@pytest.mark.parametrize("name", QUICK)
def test_a_resumed_run_takes_the_same_steps(name: str) -> None:
    batch = parts(name)[3]
    whole, half, resumed = (trainer_of(name) for _ in range(3))
    torch.manual_seed(5)
    losses(whole, batch, 4)
    torch.manual_seed(5)
    losses(half, batch, 2)
    state, generators = copy.deepcopy(half.state_dict()), random_state()
    torch.manual_seed(6)
    resumed.load_state_dict(state)
    restore_random_state(generators)
    losses(resumed, batch, 2)
    assert same_state(whole.model, resumed.model)
