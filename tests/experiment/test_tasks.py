"""Tasks: loss, counts and metrics against plain implementations in float64."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.experiment.harness import TINY
from train.data.specification import DataSpec
from train.data.tokens import IGNORED, BlockBatches, Encoded, EncodedSplit, SequenceBatches
from train.engine.errors import EngineFault
from train.engine.precision import Precision
from train.engine.step import Trainer
from train.experiment import tasks
from train.experiment.config import load
from train.experiment.optimizers import build_schedule

CPU = torch.device("cpu")
LOSS = tasks.cross_entropy(load(TINY))


def example(batch: int = 4, length: int = 6, classes: int = 9, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits (B, T, V) and labels (B, T) of which row n counts the first n + 1."""
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, length, classes, generator=draw) * 3
    labels = torch.randint(0, classes, (batch, length), generator=draw)
    labels[torch.arange(length) > torch.arange(batch)[:, None]] = IGNORED
    return logits, labels


def exact_losses(logits: Tensor, labels: Tensor) -> list[float]:
    """-log softmax of each label that counts, in float64, one at a time."""
    return [
        (row.double().exp().sum().log() - row.double()[label]).item()
        for row, label in zip(logits.flatten(0, -2), labels.flatten().tolist(), strict=True)
        if label != IGNORED
    ]


def test_the_loss_is_the_mean_over_the_labels_that_count() -> None:
    logits, labels = example()
    losses = exact_losses(logits, labels)
    assert len(losses) == 10
    assert LOSS(logits, labels).item() == pytest.approx(sum(losses) / 10, rel=1e-6)
    assert torch.equal(LOSS(logits[:, 0], labels[:, 0]), F.cross_entropy(logits[:, 0], labels[:, 0]))


def test_language_metrics_are_exact_means_over_tokens_whatever_the_batches() -> None:
    logits, labels = example()
    totals: dict[str, Tensor] = {}
    for part in (slice(0, 1), slice(1, 4)):
        for name, value in tasks.language_modelling.score(logits[part], labels[part]).items():
            totals[name] = totals.get(name, torch.tensor(0)) + value
    metrics = tasks.language_modelling.summarise(totals)
    mean = math.fsum(exact_losses(logits, labels)) / 10
    assert metrics == {"eval/loss": pytest.approx(mean), "eval/perplexity": pytest.approx(math.exp(mean))}


def test_a_sequence_is_right_when_all_of_its_labels_are() -> None:
    labels = example()[1]
    right = F.one_hot(labels.clamp(min=0), 9).float()
    wrong = right.clone()
    wrong[3, 0] = right[3, 0].roll(1)  # one wrong label in one of four sequences
    wrong[0, 5] = torch.arange(9)  # and one that does not count
    task = tasks.sequence_to_sequence
    assert task.summarise(task.score(right, labels))["eval/accuracy"] == 1.0
    assert task.summarise(task.score(wrong, labels))["eval/accuracy"] == 0.75


@pytest.mark.parametrize("task", [tasks.sequence_classification, tasks.image_classification])
def test_counts_of_classes_are_whole_numbers(task: tasks.Task) -> None:
    logits = torch.eye(10)[torch.arange(1000) % 10] * 300
    totals = task.score(logits, torch.arange(1000) % 10)
    assert [total.dtype for total in totals.values() if not total.is_floating_point()] == [torch.int64] * 3
    assert [total.dtype for total in totals.values() if total.is_floating_point()] == [torch.float64]  # the loss
    assert task.summarise(totals) == {"eval/loss": pytest.approx(0.0), "eval/accuracy": 1.0}
    high = task.score(logits, (torch.arange(1000) + 1) % 10)
    assert task.summarise(high) == {"eval/loss": pytest.approx(300.0), "eval/accuracy": 0.0}


def test_a_perplexity_beyond_float64_is_infinite() -> None:
    logits = torch.tensor([[[1000.0, 0.0], [1000.0, 0.0]]])
    totals = tasks.language_modelling.score(logits, torch.tensor([[1, 1]]))
    assert tasks.language_modelling.summarise(totals) == {"eval/loss": 1000.0, "eval/perplexity": math.inf}


def test_tokens_are_counted_without_padding() -> None:
    """Against the lengths of the texts themselves, for labels, targets to generate, and text in blocks."""
    lengths, targets = [3, 1, 6, 2], [2, 4, 1, 1]
    texts = Encoded([[5] * length for length in lengths])
    answers = [[7] * length for length in targets]
    spec = DataSpec(name="any", batch_size=2, seed=0, device=CPU)
    for split, task, expected in (
        (EncodedSplit(texts, torch.arange(4)), tasks.sequence_classification, sum(lengths)),
        (EncodedSplit(texts, answers), tasks.sequence_to_sequence, sum(lengths) + sum(targets)),
        (EncodedSplit(Encoded([[5] * 3] * 4), torch.arange(4)), tasks.sequence_classification, 12),
    ):
        batches = SequenceBatches(split, spec, padding=0, training=True)
        assert sum(int(task.tokens(batch)) for batch in batches.epoch(0)) == expected
    blocks = BlockBatches(torch.arange(58), 8, spec, training=True)
    assert sum(int(tasks.language_modelling.tokens(batch)) for batch in blocks.epoch(0)) == 8 * blocks.samples
    assert tasks.image_classification.tokens({"images": torch.zeros(2, 3, 4, 4), "labels": torch.zeros(2)}) == 0


class Reader(nn.Module):
    """Tokens (B, T) to logits (B, T, 9) as an object with `logits`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(9, 8)
        self.head = nn.Linear(8, 9)

    def forward(self, input_ids: Tensor) -> Any:
        return SimpleNamespace(logits=self.head(self.embedding(input_ids)))


def stepped(steps: list[list[dict[str, Tensor]]]) -> list[Tensor]:
    model, task = Reader(), tasks.language_modelling
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = build_schedule("constant", len(steps))
    trainer = Trainer(model, task.forward, LOSS, task.weight, [optimizer], schedule, Precision("fp32", CPU))
    for micro_batches in steps:
        trainer.step(micro_batches)
    return [parameter.detach() for parameter in model.parameters()]


def test_accumulated_batches_with_unequal_counts_equal_the_large_one() -> None:
    _, labels = example()
    whole = {"input_ids": labels.clamp(min=0).flip(1), "labels": labels}
    parts = [{name: tensor[rows] for name, tensor in whole.items()} for rows in (slice(0, 1), slice(1, 4))]
    assert [tasks.count_labels(part).item() for part in parts] == [1, 9]
    for one, other in zip(stepped([[whole]]), stepped([parts]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_a_model_may_return_a_tensor_or_an_object_with_logits_and_nothing_else() -> None:
    batch = {"input_ids": torch.tensor([[1, 2]]), "labels": torch.tensor([[2, 3]])}
    logits, labels = tasks.read_text(Reader(), batch)
    assert logits.shape == (1, 2, 9)
    assert labels is batch["labels"]
    bare: Any = lambda input_ids: logits  # noqa: E731
    assert tasks.read_text(bare, batch)[0] is logits
    several: Any = lambda input_ids: (logits, logits)  # noqa: E731
    with pytest.raises(EngineFault, match=r"the model returned tuple; `forward` needs a tensor or one with \.logits"):
        tasks.read_text(several, batch)
