from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from tests.data.small_sets import in_memory, specification
from train.data.checks import check_labels
from train.data.embedded import digit_images
from train.data.images import load
from train.data.images_in_memory import CROP_PADDING, ImagesInMemory, Pixels, pixel_statistics
from train.data.order import generator
from train.engine.errors import Refused
from train.engine.fit import Batches
from train.engine.step import Batch


def batches_of_noise(
    samples: int = 20,
    batch_size: int = 8,
    seed: int | None = 0,
    augment: str = "none",
    channels_last: bool = False,
) -> ImagesInMemory:
    size, channels = 6, 3
    draw = torch.Generator().manual_seed(5)
    images = torch.randint(0, 256, (samples, size, size, channels), generator=draw, dtype=torch.uint8)
    mean, std = torch.linspace(0.4, 0.6, channels), torch.linspace(0.2, 0.3, channels)
    split = Pixels(images, torch.arange(samples))
    spec = specification(batch_size=batch_size, seed=seed or 0, augment=augment, channels_last=channels_last)
    return ImagesInMemory(split, spec, mean, std, training=seed is not None)


def all_batches(batches: Batches, epoch: int = 0, start: int = 0) -> list[Batch]:
    return list(batches.epoch(epoch, start))


def assert_equal(first: list[Batch], second: list[Batch]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one["images"], other["images"])
        assert torch.equal(one["labels"], other["labels"])


# Batches


def test_batches_are_normalised_float32_images_and_int64_labels() -> None:
    batches = batches_of_noise(seed=None)
    batch = all_batches(batches)[0]
    assert (batch["images"].dtype, batch["labels"].dtype) == (torch.float32, torch.int64)
    assert batch["images"].shape == (8, 3, 6, 6)
    stored = batches.images[:8].double().permute(0, 3, 1, 2) / 255
    expected = (stored - batches.mean.double().view(3, 1, 1)) / batches.std.double().view(3, 1, 1)
    torch.testing.assert_close(batch["images"].double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_batches_have_the_memory_format_that_was_asked_for(layout: torch.memory_format, augment: str) -> None:
    batch = all_batches(batches_of_noise(augment=augment, channels_last=layout is torch.channels_last))[0]
    assert batch["images"].is_contiguous(memory_format=layout)
    assert_equal([batch], all_batches(batches_of_noise(augment=augment))[:1])


def per_sample_crop_and_flip(batches: ImagesInMemory, epoch: int, number: int, flip: bool) -> Iterator[Tensor]:
    """The pixels (H, W, C) of one batch, sample by sample, with NumPy's padding and slices."""
    size = batches.height
    index = list(batches.order.rows(epoch))[number][1]
    draw = generator(0, "augment", epoch, number)
    offsets = torch.randint(0, 2 * CROP_PADDING + 1, (2, len(index)), generator=draw)
    flips = torch.randint(0, 2, (len(index),), generator=draw) if flip else torch.zeros(len(index))
    inner = slice(CROP_PADDING, CROP_PADDING + size)
    for position, sample in enumerate(index.tolist()):
        pixels = batches.images[sample].numpy()[inner, inner]
        padded = np.pad(pixels, ((CROP_PADDING, CROP_PADDING), (CROP_PADDING, CROP_PADDING), (0, 0)))
        top, left = offsets[:, position].tolist()
        crop = padded[top : top + size, left : left + size]
        yield torch.from_numpy(crop[:, ::-1].copy() if flips[position] else crop.copy())


@pytest.mark.parametrize("augment", ["crop", "crop_flip"])
@pytest.mark.parametrize(("epoch", "number"), [(0, 0), (0, 2), (3, 1)])
def test_crop_and_flip_equal_a_plain_implementation(augment: str, epoch: int, number: int) -> None:
    batches = batches_of_noise(augment=augment)
    actual = all_batches(batches, epoch)[number]["images"]
    expected = torch.stack(list(per_sample_crop_and_flip(batches, epoch, number, flip=augment == "crop_flip")))
    normalised = (expected.float() / 255 - batches.mean) / batches.std
    torch.testing.assert_close(actual, normalised.permute(0, 3, 1, 2), rtol=0, atol=1e-6)


def test_crops_reach_every_offset_and_half_of_the_images_are_flipped() -> None:
    batches = batches_of_noise(samples=4000, batch_size=4000, augment="crop_flip")
    rows, columns = batches._draws(4000, 0, 0)
    assert Counter(rows[:, 0].tolist()).keys() == set(range(2 * CROP_PADDING + 1))
    flipped = (columns[:, 0] > columns[:, -1]).float().mean()
    assert 0.45 < flipped < 0.55
    lefts = columns.min(dim=1).values
    assert Counter(lefts.tolist()).keys() == set(range(2 * CROP_PADDING + 1))


def test_draws_differ_between_samples_batches_epochs_and_seeds_and_repeat() -> None:
    def draws(seed: int, epoch: int, number: int) -> tuple[int, ...]:
        rows, columns = batches_of_noise(seed=seed, augment="crop_flip")._draws(8, epoch, number)
        return (*rows[:, 0].tolist(), *columns[:, 0].tolist())

    places = [(seed, epoch, number) for seed in (0, 1) for epoch in (0, 1) for number in (0, 1)]
    assert len({draws(*place) for place in places}) == len(places)
    assert [draws(*place) for place in places] == [draws(*place) for place in places]
    assert len(set(draws(0, 0, 0)[:8])) > 1


@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_batches_do_not_depend_on_the_global_generator_or_on_the_model(augment: str) -> None:
    expected = all_batches(batches_of_noise(augment=augment), epoch=1)
    torch.manual_seed(99)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(108, 2))
    seen = []
    for batch in batches_of_noise(augment=augment).epoch(1):
        model(batch["images"])
        seen.append(batch)
    assert_equal(seen, expected)
    state = torch.get_rng_state()
    all_batches(batches_of_noise(augment=augment), epoch=2)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_a_resumed_epoch_goes_on_with_the_same_batches(start: int) -> None:
    whole = all_batches(batches_of_noise(augment="crop_flip"), epoch=2)
    assert_equal(all_batches(batches_of_noise(augment="crop_flip"), 2, start), whole[start:])


def test_every_sample_comes_once_an_epoch() -> None:
    for seed in (0, None):
        labels = torch.cat([batch["labels"] for batch in all_batches(batches_of_noise(seed=seed))])
        assert sorted(labels.tolist()) == list(range(20))


def test_the_digest_knows_order_and_augmentation() -> None:
    digests = [
        batches_of_noise(seed=seed, augment=augment).digest()
        for seed in (0, 1)
        for augment in ("none", "crop", "crop_flip")
    ]
    assert len(set(digests)) == 6
    assert batches_of_noise(seed=1, augment="crop_flip").digest() == digests[-1]


def test_an_epoch_with_a_sample_too_many_trains_a_network_with_batch_norm() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(108), nn.Linear(108, 2)).train()
    batches = batches_of_noise(samples=17)
    assert [len(model(batch["images"])) for batch in batches.epoch(0)] == [8, 8]
    assert sum(len(batch["labels"]) for batch in batches_of_noise(samples=17, seed=None).epoch(0)) == 17


# Loading by name


def test_digits_have_the_promised_sizes_and_channels() -> None:
    splits = load(specification())
    assert (splits.train.samples, splits.evaluation.samples) == (1437, 360)
    batch = next(splits.train.epoch(0))
    assert batch["images"].shape == (32, 1, 32, 32)
    assert next(splits.evaluation.epoch(0))["labels"].shape == (32,)


@pytest.mark.parametrize(("loader", "evaluated"), [("digits", 360), ("digits_large_evaluation", 719)])
def test_digits_are_split_without_overlap_and_by_class(loader: str, evaluated: int) -> None:
    train, evaluation = digit_images(size=8, channels=1, loader=loader)
    assert (len(train.labels), len(evaluation.labels)) == (1797 - evaluated, evaluated)
    digits = load_digits()
    expected = Counter(
        (np.round(image * 255 / 16).astype(np.uint8).tobytes(), int(label))
        for image, label in zip(digits.images, digits.target, strict=True)
    )
    split_images = Counter(
        (image.numpy().tobytes(), int(label))
        for split in (train, evaluation)
        for image, label in zip(split.images, split.labels, strict=True)
    )
    assert split_images == expected
    for label in range(10):
        share = evaluated * int((torch.tensor(digits.target) == label).sum()) / 1797
        assert abs(int((evaluation.labels == label).sum()) - share) <= 1


@pytest.mark.parametrize("seed", [0, 5])
def test_digits_are_split_in_the_same_way_for_every_seed(seed: int) -> None:
    evaluation, expected = load(specification(seed=seed)).evaluation, load(specification()).evaluation
    assert_equal(all_batches(evaluation), all_batches(expected))


def test_training_pixels_have_mean_zero_and_standard_deviation_one() -> None:
    train, evaluation = in_memory(load(specification()))
    pixels = torch.cat([batch["images"] for batch in train.epoch(0)]).double()
    assert pixels.mean().item() == pytest.approx(0.0, abs=1e-3)
    assert pixels.std().item() == pytest.approx(1.0, abs=1e-3)
    assert torch.equal(evaluation.mean, train.mean)
    assert torch.equal(evaluation.std, train.std)


def test_a_smoke_run_stands_in_for_the_shape_of_its_set() -> None:
    train = load(specification("cifar10", stand_in=True)).train
    assert next(train.epoch(0))["images"].shape == (32, 3, 32, 32)


def test_limits_and_evaluation_batch_size() -> None:
    train, evaluation = in_memory(load(specification(train_samples=65, eval_samples=11, eval_batch_size=4)))
    assert (train.samples, train.batches, evaluation.samples, evaluation.batches) == (65, 2, 11, 3)
    assert [len(batch["labels"]) for batch in evaluation.epoch(0)] == [4, 4, 3]


def test_channels_last_reaches_the_batches() -> None:
    for channels_last, layout in ((True, torch.channels_last), (False, torch.contiguous_format)):
        splits = load(specification("cifar10", channels_last=channels_last, stand_in=True))
        for batches in (splits.train, splits.evaluation):
            assert next(batches.epoch(0))["images"].is_contiguous(memory_format=layout)


# Refusals


def test_an_unknown_data_set_is_answered_with_the_nearest_and_all_names() -> None:
    with pytest.raises(
        Refused, match=r"unknown data set 'cifar-10': did you mean 'cifar10'\? allowed: cifar10, digits"
    ):
        load(specification("cifar-10"))


def test_a_label_outside_the_head_is_named_with_its_place() -> None:
    labels = torch.tensor([0, 1, 2, 3, 1])
    with pytest.raises(Refused, match="digits test split has label 3 at sample 3, but num_classes=3"):
        check_labels(labels, specification(classes=3), "test")
    with pytest.raises(Refused, match="label -1 at sample 1, but num_classes=10"):
        check_labels(torch.tensor([0, -1]), specification(), "test")
    with pytest.raises(Refused, match=r"^num_classes: digits training split has label \d at sample \d+"):
        load(specification(classes=3))


def test_a_larger_head_warns(capsys: pytest.CaptureFixture[str]) -> None:
    check_labels(torch.tensor([0, 3]), specification(classes=4), "test")
    assert capsys.readouterr().out == ""
    check_labels(torch.tensor([0, 3]), specification(classes=8), "test")
    assert "warning: num_classes=8, but digits test split has labels 0 to 3 only" in capsys.readouterr().out


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(Refused, match=r"^batch_size: 64 is larger than the 50 training samples"):
        load(specification(train_samples=50, batch_size=64))


@pytest.mark.parametrize(
    ("name", "augment", "allowed"),
    [("digits", "random_resized_crop", "none, crop, crop_flip"), ("imagenet", "crop", "random_resized_crop, none")],
)
def test_an_augmentation_that_does_not_fit_is_refused_with_those_that_do(name: str, augment: str, allowed: str) -> None:
    with pytest.raises(Refused, match=rf"^data\.augment: '{augment}' does not fit {name}; allowed: {allowed}$"):
        load(specification(name, augment=augment))


def test_pixel_statistics_are_those_of_the_pixels() -> None:
    images = torch.randint(0, 256, (50, 6, 5, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    pixels = images.double() / 255
    mean, deviation = pixel_statistics(images)
    torch.testing.assert_close(mean, pixels.mean(dim=(0, 1, 2)).float())
    torch.testing.assert_close(deviation, pixels.std(dim=(0, 1, 2), correction=0).float())


def test_held_out_samples_are_the_same_for_every_seed_and_never_trained_on() -> None:
    whole, first, second = load(specification()), *(load(specification(held_out=100, seed=seed)) for seed in (0, 1))
    assert whole.held_out is None
    assert isinstance(first.held_out, ImagesInMemory)
    assert isinstance(second.held_out, ImagesInMemory)
    assert torch.equal(first.held_out.images, second.held_out.images)
    (train, _), (everything, _) = in_memory(first), in_memory(whole)
    assert (train.samples, first.held_out.samples, everything.samples) == (1337, 100, 1437)
    held_out, rest = ({image.numpy().tobytes() for image in split.images} for split in (first.held_out, train))
    images = [image.numpy().tobytes() for image in everything.images]
    assert held_out | rest == set(images)
    assert len(held_out & rest) <= len(images) - len(set(images))  # but for images that the set has twice


def test_pixels_are_normalised_by_the_given_statistics() -> None:
    train, evaluation = in_memory(load(specification(mean=0.1307, std=0.3081)))
    batch = next(evaluation.epoch(0))
    pixels = evaluation.images[: len(batch["images"])].permute(0, 3, 1, 2).double() / 255
    torch.testing.assert_close(batch["images"].double(), (pixels - 0.1307) / 0.3081, rtol=1e-5, atol=1e-5)
    assert train.mean.tolist() == [pytest.approx(0.1307)]


@pytest.mark.parametrize("count", [1437, 5000])
def test_holding_out_everything_is_refused(count: int) -> None:
    with pytest.raises(Refused, match=f"data.held_out: {count} leaves none of the 1437 training samples"):
        load(specification(held_out=count))
