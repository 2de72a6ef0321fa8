"""One wiring of an experiment: a run, the preflight and the benchmark have the same weights, data and plan."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from reports.records.benchmark import Start
from tests.experiment.harness import TINY, Outcome, build
from train import check
from train.experiment import benchmark as benchmark_module
from train.experiment.setup import Script, Setup, digest_of, setup
from train.experiment.tasks import image_classification

SCRIPT = Script(build, image_classification)


def wired(precision: str = "fp32", *overrides: str, seed: int = 0) -> Setup:
    return setup(SCRIPT, SCRIPT.read(TINY, overrides), precision, seed, torch.device("cpu"))


@pytest.fixture
def setups(monkeypatch: pytest.MonkeyPatch) -> list[Setup]:
    """What the preflight and the benchmark wire; the model's script is the tiny one."""
    made: list[Setup] = []

    def keeping(*arguments: Any) -> Setup:
        made.append(setup(*arguments))
        return made[-1]

    monkeypatch.setattr(check, "setup", keeping)
    monkeypatch.setattr(check, "script_of", lambda path, overrides: SCRIPT)
    monkeypatch.setattr(benchmark_module, "setup", keeping)
    return made


def measured(precisions: list[str]) -> Start:
    config = SCRIPT.read(TINY, ())
    monitor: Callable[[int, str], range] = lambda rounds, title: range(2)  # noqa: E731
    return benchmark_module.measure(SCRIPT, config, precisions, torch.device("cpu"), counted=monitor)


def test_a_run_has_the_weights_the_data_and_the_plan_of_its_setup(finished: Outcome) -> None:
    precision = finished.folder.name.partition("-")[0]
    one = wired(precision)
    assert one.precision.name == precision
    assert one.initial_weights == digest_of(one.model) == finished.summary.initial_weights_sha256
    assert one.data.train.digest() == finished.summary.data_order_sha256
    assert one.plan.steps == finished.summary.steps.planned == 12
    assert (one.plan.log_every, one.plan.eval_every, one.plan.checkpoint_every) == (1, 6, 3)
    assert one.data.evaluation.samples == finished.summary.eval_samples == 32


def test_preflight_and_benchmark_wire_what_a_run_does(
    setups: list[Setup], fp32: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_module, "BLOCK_SECONDS", 0.0)
    assert check.main([str(TINY), "--device", "cpu"]) == 0
    assert [one.precision.name for one in setups] == ["fp32", "bf16", "fp16"]
    record = measured(["fp32", "bf16"])
    assert [one.precision.name for one in setups[3:]] == ["fp32", "bf16"]
    assert list(record.seconds) == ["fp32", "bf16"]
    under = benchmark_module.conditions(setups[0].script, setups[0].config, setups[0].device, smoke=False)
    assert (under.config_sha256, under.device) == (fp32.summary.config_sha256, fp32.summary.device)
    for one in setups:
        assert one.initial_weights == fp32.summary.initial_weights_sha256
        assert one.data.train.digest() == fp32.summary.data_order_sha256
        assert one.plan == wired().plan
    assert {len({id(one.data) for one in part}) for part in (setups[:3], setups[3:])} == {1}  # loaded once each


def test_the_data_of_another_precision_are_the_same_batches_and_need_not_be_loaded_again() -> None:
    first = wired()
    shared = setup(SCRIPT, first.config, "bf16", 0, first.device, data=first.data)
    assert shared.data is first.data
    assert shared.initial_weights == first.initial_weights
    for one, other in zip(first.data.train.epoch(0), wired("bf16").data.train.epoch(0), strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_setup_depends_on_the_seed_and_not_on_what_the_process_drew_before() -> None:
    first = wired()
    torch.rand(100)
    again, other = wired(), wired(seed=1)
    assert again.initial_weights == first.initial_weights != other.initial_weights
    assert again.data.train.digest() == first.data.train.digest() != other.data.train.digest()


def test_a_trainer_on_a_copy_moves_its_own_weights_alone() -> None:
    one = wired()
    trainer = one.trainer_on_copy()
    trainer.model.train()
    trainer.step([next(one.data.train.epoch(0))])
    assert digest_of(one.model) == one.initial_weights != digest_of(trainer.model)
    assert trainer.precision is one.precision


@pytest.mark.parametrize(
    ("overrides", "steps", "eval_every"),
    [
        ((), 12, 6),
        (("eval_every=null",), 12, 8),
        (("max_steps=null", "epochs=2"), 16, 6),
        (("max_steps=null", "epochs=2", "accumulate=3", "eval_every=null"), 6, 3),
    ],
)
def test_the_plan_counts_optimizer_steps(overrides: tuple[str, ...], steps: int, eval_every: int) -> None:
    plan = wired("fp32", *overrides).plan
    assert (plan.steps, plan.eval_every) == (steps, eval_every)


def test_evaluating_in_another_precision_gives_its_figures_of_the_same_weights(bf16: Outcome) -> None:
    one = wired("bf16")
    one.model.load_state_dict(bf16.weights())
    values = one.evaluate(one.data.evaluation)
    assert values["eval/loss"] == bf16.figure("eval/loss")
    assert values["eval/accuracy"] == bf16.figure("eval/accuracy")
    in_fp32 = one.evaluate(one.data.evaluation, wired().precision)
    assert in_fp32["eval/loss"] == bf16.figure("eval/loss_fp32") != values["eval/loss"]
