from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.engine.tiny import (
    CPU,
    CPU_PRECISIONS,
    Listed,
    assert_same,
    classify,
    constant,
    falling,
    image_batches,
    make_trainer,
    poisoned,
    tiny_linear,
    tiny_net,
)
from train.engine import checkpoint
from train.engine.errors import Diverged, Interrupted
from train.engine.fit import Plan, Progress, evaluate, fit, is_better, micro_batches_by_step, steps_per_epoch
from train.engine.meter import Meter
from train.engine.precision import Precision
from train.engine.step import Batch, Trainer

NAN, INF = float("nan"), float("inf")
FP32 = Precision("fp32", CPU)


def plan(steps: int, **changes: int) -> Plan:
    return Plan(**{"steps": steps, "log_every": 100} | changes)


class Attempt:
    """One attempt of a run, with all that the loop reported."""

    def __init__(self, trainer: Trainer, batches: Listed, plan: Plan, progress: Progress | None = None) -> None:
        self.trainer, self.batches, self.plan = trainer, batches, plan
        self.progress = progress or Progress()
        self.logs: list[dict[str, Any]] = []
        self.evaluated: list[int] = []
        self.checkpoints: list[int] = []

    def run(
        self,
        stop_requested: Callable[[], bool] = lambda: False,
        on_evaluate: Callable[[], None] = lambda: None,
        on_checkpoint: Callable[[], None] = lambda: None,
    ) -> "Attempt":
        def evaluated() -> None:
            on_evaluate()
            self.evaluated.append(self.trainer.step_count)

        def saved() -> None:
            self.checkpoints.append(self.trainer.step_count)
            on_checkpoint()

        meter = Meter(CPU, warmup_steps=1)
        fit(
            self.trainer, self.batches, self.plan, meter, self.progress,
            on_log=self.logs.append, on_evaluate=evaluated, on_checkpoint=saved, stop_requested=stop_requested,
        )  # fmt: skip
        return self

    def steps_logged(self) -> list[int]:
        return [log["train/step"] for log in self.logs]


def simple_attempt(plan: Plan, count: int = 5, **settings: Any) -> Attempt:
    return Attempt(make_trainer(**settings), Listed(image_batches(count, size=4)), plan)


# Order and cadence


@pytest.mark.parametrize(("batches", "accumulate", "expected"), [(6, 1, 6), (6, 2, 3), (7, 2, 4), (1, 4, 1)])
def test_the_last_step_of_an_epoch_may_have_fewer_micro_batches(batches: int, accumulate: int, expected: int) -> None:
    split = Listed(image_batches(batches, size=1))
    assert steps_per_epoch(split, accumulate) == expected
    stream = micro_batches_by_step(split, accumulate, 0)
    sizes = [len(next(stream)) for _ in range(expected)]
    assert sum(sizes) == batches
    assert set(sizes[:-1]) <= {accumulate}


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_micro_batches_from_any_step_on_are_those_of_the_whole_stream(accumulate: int) -> None:
    split = Listed(image_batches(5, size=1), shuffle=True)
    stream = micro_batches_by_step(split, accumulate, 0)
    whole = [next(stream) for _ in range(12)]
    assert [id(batch) for step in whole for batch in step][:5] != [id(b) for b in split.listed]
    for step in range(12):
        later = micro_batches_by_step(split, accumulate, step)
        for expected in whole[step:]:
            assert [id(batch) for batch in next(later)] == [id(batch) for batch in expected]


def test_logs_come_every_log_every_steps_and_at_the_end() -> None:
    attempt = simple_attempt(plan(8, log_every=3)).run()
    assert attempt.steps_logged() == [3, 6, 8]
    assert [log["train/epoch"] for log in attempt.logs] == [pytest.approx(step / 5) for step in (3, 6, 8)]
    names = {"train/loss", "train/lr", "train/grad_norm", "train/step", "train/applied_step", "train/epoch"}
    names |= {"throughput/samples_per_sec", "time/step_ms", "time/data_wait_pct"}
    assert all(names <= log.keys() for log in attempt.logs)


def test_evaluations_and_checkpoints_come_at_the_due_steps_and_at_the_end() -> None:
    attempt = simple_attempt(plan(10, eval_every=4, checkpoint_every=3)).run()
    assert attempt.evaluated == [4, 8, 10]
    assert attempt.checkpoints == [3, 4, 6, 8, 9, 10]


def test_the_model_is_in_training_mode_in_every_step_whatever_the_evaluation_did() -> None:
    attempt = simple_attempt(plan(6, eval_every=2))
    modes = []
    attempt.trainer.model.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    attempt.trainer.model.eval()

    def evaluate_and_leave_it_so() -> None:
        attempt.trainer.model.eval()

    attempt.run(on_evaluate=evaluate_and_leave_it_so)
    assert modes == 6 * [True]


def test_attempted_steps_count_and_not_the_applied_ones() -> None:
    batches = image_batches(5, size=4)
    batches[1] = poisoned(batches[1], INF)
    attempt = Attempt(make_trainer("fp16", init_scale=1024.0), Listed(batches), plan(5, log_every=5)).run()
    log = attempt.logs[-1]
    assert (log["train/step"], log["train/applied_step"], log["amp/skipped_steps"]) == (5, 4, 1)


def test_loss_in_the_log_is_the_mean_over_its_steps() -> None:
    every_step = simple_attempt(plan(6, log_every=1)).run()
    losses = [log["train/loss"] for log in every_step.logs]
    assert len(set(losses)) == 6
    pairs = simple_attempt(plan(6, log_every=2)).run()
    assert [log["train/loss"] for log in pairs.logs] == pytest.approx([sum(losses[i : i + 2]) / 2 for i in (0, 2, 4)])


def test_the_loss_is_read_at_log_boundaries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = simple_attempt(plan(100, log_every=50))
    reads: list[Tensor] = []
    for name in ("item", "tolist", "__float__", "__int__", "__bool__"):
        original = getattr(Tensor, name)

        def counted(self: Tensor, original: Callable[[Tensor], Any] = original) -> Any:
            reads.append(self)
            return original(self)

        monkeypatch.setattr(Tensor, name, counted)
    attempt.run()
    monkeypatch.undo()
    assert sum(tensor is attempt.trainer.loss_sum for tensor in reads) == 2
    assert len(reads) <= 100 + 2 * 10  # on a CPU the step reads whether a gradient is not finite, and no more
    losses = [log["train/loss"] for log in simple_attempt(plan(100, log_every=1)).run().logs]
    assert [log["train/loss"] for log in attempt.logs] == pytest.approx([sum(losses[:50]) / 50, sum(losses[50:]) / 50])


def test_a_diverged_step_stops_the_loop_without_a_checkpoint() -> None:
    batches = image_batches(5, size=4)
    batches[3] = poisoned(batches[3], NAN)
    attempt = Attempt(make_trainer("bf16"), Listed(batches), plan(5, checkpoint_every=2, eval_every=2))
    with pytest.raises(Diverged, match="step 4"):
        attempt.run()
    assert attempt.checkpoints == attempt.evaluated == [2]


# Interrupted and resumed

STEPS = 12
RESUMABLE = {"accumulate": 2, "log_every": 5, "eval_every": 4, "checkpoint_every": 4}


def resumable_attempt(precision: str, state: dict[str, Any] | None = None, seed: int = 0) -> Attempt:
    """Dropout, BatchNorm, accumulation over 10 batches an epoch, an average, clipping, and in fp16 skips and growth."""
    trainer = make_trainer(
        precision, tiny_net(seed, dropout=0.3), optimizer="adamw" if precision == "bf16" else "sgd",
        schedule=falling(STEPS), clip_norm=1.0, ema_decay=0.8, init_scale=2.0**20, growth_interval=2,
    )  # fmt: skip
    progress = Progress()
    if state is not None:
        trainer.load_state_dict(state["trainer"])
        progress = Progress(**state["progress"])
        torch.set_rng_state(state["random"])
    batches = Listed(image_batches(9, size=4) + image_batches(1, size=3), shuffle=True)
    return Attempt(trainer, batches, plan(STEPS, **RESUMABLE), progress)


def save_of(attempt: Attempt, path: Path) -> Callable[[], None]:
    return lambda: checkpoint.save(
        path,
        {
            "trainer": attempt.trainer.state_dict(),
            "progress": vars(attempt.progress),
            "random": torch.get_rng_state(),
        },
    )


def measure(attempt: Attempt) -> Callable[[], None]:
    """An evaluation of the average that leaves its model in evaluation mode."""

    def on_evaluate() -> None:
        score = evaluate(
            attempt.trainer.evaluated_model, classify, lambda x, y: {"sum": x.sum()}, attempt.batches,
            attempt.trainer.precision,
        )  # fmt: skip
        attempt.logs.append({"train/step": attempt.trainer.step_count, "eval/sum": score["sum"].item()})

    return on_evaluate


def reported(*attempts: Attempt) -> list[tuple[int, float]]:
    return [
        (log["train/step"], log.get("train/loss", log.get("eval/sum"))) for attempt in attempts for log in attempt.logs
    ]


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, Attempt]:
    attempts = {}
    for precision in CPU_PRECISIONS:
        attempt = resumable_attempt(precision)
        torch.manual_seed(7)
        attempts[precision] = attempt.run(on_evaluate=measure(attempt))
    return attempts


@pytest.mark.parametrize("stops", [(3,), (8,), (11,), (3, 8, 11)])
@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    precision: str, stops: tuple[int, ...], uninterrupted: dict[str, Attempt], tmp_path: Path
) -> None:
    path = tmp_path / "last.pt"
    attempts = [resumable_attempt(precision)]
    torch.manual_seed(7)
    for stop in stops:
        attempt = attempts[-1]
        with pytest.raises(Interrupted, match=f"stopped at step {stop} of 12"):
            attempt.run(
                lambda trainer=attempt.trainer, stop=stop: trainer.step_count >= stop,
                measure(attempt),
                save_of(attempt, path),
            )
        assert attempt.checkpoints[-1] == stop
        torch.manual_seed(1000 + stop)  # another process, with other weights and other draws
        attempts.append(resumable_attempt(precision, checkpoint.load(path), seed=stop))
    last = attempts[-1]
    last.run(on_evaluate=measure(last), on_checkpoint=save_of(last, path))

    whole = uninterrupted[precision]
    assert_same(last.trainer.state_dict(), whole.trainer.state_dict())
    assert reported(*attempts) == reported(whole)
    assert [step for attempt in attempts for step in attempt.evaluated] == whole.evaluated == [4, 8, 12]
    if precision == "fp16":
        assert 0 < whole.trainer.applied_step < STEPS
        assert whole.trainer.precision.scale() != 2.0**20


@pytest.mark.parametrize("interrupted_at", [4, 12])
def test_an_interrupted_evaluation_runs_once_after_the_resume(interrupted_at: int, tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    first = resumable_attempt("fp32")

    def interrupt() -> None:
        if first.trainer.step_count == interrupted_at:
            raise Interrupted("stopped while evaluating")

    torch.manual_seed(7)
    with pytest.raises(Interrupted, match="while evaluating"):
        first.run(on_evaluate=interrupt, on_checkpoint=save_of(first, path))
    assert first.checkpoints[-1] == interrupted_at
    assert interrupted_at not in first.evaluated
    second = resumable_attempt("fp32", checkpoint.load(path), seed=1)
    second.run(on_checkpoint=save_of(second, path))
    assert first.evaluated + second.evaluated == [4, 8, 12]

    third = resumable_attempt("fp32", checkpoint.load(path), seed=2)
    third.run()
    assert third.evaluated == []
    assert third.logs == []
    assert_same(third.trainer.state_dict(), second.trainer.state_dict())


def test_a_stop_after_the_last_step_is_not_an_interruption() -> None:
    attempt = simple_attempt(plan(3))
    attempt.run(stop_requested=lambda: attempt.trainer.step_count >= 3)
    assert attempt.evaluated == attempt.checkpoints == [3]


# The best value


@pytest.mark.parametrize(
    ("values", "higher", "best"),
    [
        ([NAN, 0.5, 0.4], True, 0.5),
        ([0.5, NAN, 0.6], True, 0.6),
        ([NAN, 0.5, 0.4], False, 0.4),
        ([0.5, NAN, 0.6], False, 0.5),
        ([INF, 0.5], True, 0.5),
        ([-INF, 0.5], False, 0.5),
        ([NAN, INF, -INF], True, None),
        ([0.0, -1.0], True, 0.0),
        ([0.0, -1.0], False, -1.0),
        ([], True, None),
    ],
)
def test_a_value_that_is_not_finite_is_never_the_best(values: list[float], higher: bool, best: float | None) -> None:
    best_so_far = None
    for value in values:
        if is_better(value, best_so_far, higher):
            best_so_far = value
    assert best_so_far == best


def test_an_equal_value_is_no_new_best() -> None:
    assert not is_better(0.5, 0.5, higher=True)
    assert not is_better(0.5, 0.5, higher=False)


# Evaluation


def score(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    assert logits.dtype == torch.float32
    return {
        "loss": F.cross_entropy(logits, labels, reduction="none").double().sum(),
        "correct": (logits.argmax(dim=1) == labels).sum(),
    }


class RightOnAll(nn.Module):
    """Says the label that is written into the input."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.read = nn.Linear(4, 4, bias=False)
        self.read.weight.data = torch.eye(4) * margin

    def forward(self, x: Tensor) -> Tensor:
        return self.read(x)


def one_hot_batches(samples: int, size: int) -> Listed:
    labels = torch.arange(samples) % 4
    images = F.one_hot(labels, 4).float()
    return Listed([{"images": images[i : i + size], "labels": labels[i : i + size]} for i in range(0, samples, size)])


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_counts_and_sums_do_not_depend_on_the_precision(precision: str) -> None:
    split = one_hot_batches(samples=1037, size=32)
    right = evaluate(RightOnAll(8.0), classify, score, split, Precision(precision, CPU))
    assert right["correct"].dtype == torch.int64
    assert right["correct"].item() / split.samples == 1.0
    # A model that is surely wrong: every sample has a loss of 300.
    wrong = evaluate(RightOnAll(-300.0), classify, score, split, Precision(precision, CPU))
    assert wrong["correct"].item() == 0
    assert wrong["loss"].item() / split.samples == pytest.approx(300 + torch.tensor(3.0).log().item(), rel=1e-6)


@pytest.mark.parametrize(("samples", "size"), [(10, 4), (12, 4), (3, 8), (1, 1), (9, 4)])
def test_every_sample_is_evaluated_once(samples: int, size: int) -> None:
    model = tiny_linear(4)
    split = one_hot_batches(samples, size)
    whole = one_hot_batches(samples, samples).listed[0]
    totals = evaluate(model, classify, score, split, Precision("fp32", CPU))
    expected = score(model(whole["images"]), whole["labels"])
    assert totals["correct"] == expected["correct"]
    assert totals["loss"].item() == pytest.approx(expected["loss"].item(), rel=1e-6)


def test_a_split_that_loses_samples_is_noticed() -> None:
    split = one_hot_batches(10, 4)
    split.samples = 11
    with pytest.raises(RuntimeError, match="evaluated 10 samples of 11"):
        evaluate(tiny_linear(4), classify, score, split, Precision("fp32", CPU))


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_the_same_weights_give_the_same_numbers(precision: str) -> None:
    model = tiny_net(dropout=0.5)
    split = Listed(image_batches(3))
    first, second = (evaluate(model, classify, score, split, Precision(precision, CPU)) for _ in range(2))
    assert_same(second, first)


def test_evaluation_runs_in_the_precision_that_it_is_given() -> None:
    model = tiny_net()
    seen = []
    model.fc.register_forward_hook(lambda module, inputs, output: seen.append((output.dtype, output.requires_grad)))
    for precision in CPU_PRECISIONS:
        evaluate(model, classify, score, Listed(image_batches(1)), Precision(precision, CPU))
    assert seen == [(torch.float32, False), (torch.bfloat16, False), (torch.float16, False)]


def test_evaluation_moves_nothing() -> None:
    model = tiny_net(dropout=0.5).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    evaluate(model, classify, score, Listed(image_batches(2)), Precision("bf16", CPU))
    assert_same(model.state_dict(), before)
    assert torch.equal(torch.get_rng_state(), random_state)


def test_a_stop_between_two_batches_interrupts_the_evaluation() -> None:
    seen: list[Batch] = []

    def forward(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        seen.append(batch)
        return classify(model, batch)

    with pytest.raises(Interrupted, match="evaluating"):
        evaluate(tiny_net(), forward, score, Listed(image_batches(5)), Precision("fp32", CPU), lambda: len(seen) == 2)
    assert len(seen) == 2


def test_a_frozen_batchnorm_stays_frozen_through_training_and_evaluation() -> None:
    net = tiny_net()
    net.norm.eval()
    trainer = Trainer(
        net, classify, F.cross_entropy, lambda batch: 1.0, [torch.optim.SGD(net.parameters(), 0.1)], constant, FP32
    )
    seen: list[bool] = []
    mean = net.state_dict()["norm.running_mean"].clone()
    net.norm.register_forward_pre_hook(lambda module, inputs: seen.append(module.training))
    net.register_forward_pre_hook(lambda module, inputs: seen.append(module.training))
    split = Listed(image_batches(2))

    def score() -> None:
        evaluate(net, classify, lambda *_: {}, split, FP32)

    fit(trainer, split, Plan(4, eval_every=2), on_evaluate=score)
    assert torch.equal(net.state_dict()["norm.running_mean"], mean)
    training, evaluation = [True, False], [False, False]
    assert seen == 2 * (2 * training + 2 * evaluation)


def test_a_model_in_evaluation_mode_as_a_whole_is_trained_as_a_whole() -> None:
    """As `from_pretrained` of transformers leaves one."""
    net = tiny_net().eval()
    trainer = Trainer(
        net, classify, F.cross_entropy, lambda batch: 1.0, [torch.optim.SGD(net.parameters(), 0.1)], constant, FP32
    )
    fit(trainer, Listed(image_batches(1)), Plan(1))
    assert all(module.training for module in net.modules())


def test_modes_are_as_before_after_an_evaluation_that_fails() -> None:
    net = tiny_net()
    net.norm.eval()

    def fail(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(net, classify, fail, Listed(image_batches(1)), FP32)
    assert net.training
    assert not net.norm.training
