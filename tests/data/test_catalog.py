"""The catalogue: embedded sets load by their named loader, and every other set has a stand-in."""

from collections.abc import Callable

import pytest

from tests.data.small_sets import specification
from train.data import catalog, images, text
from train.data.catalog import Embedded, ImageSet, TextSet
from train.data.specification import DataSpec, Splits

KINDS: list[tuple[dict[str, ImageSet] | dict[str, TextSet], Callable[[DataSpec], Splits], int | None]] = [
    (catalog.IMAGE_SETS, images.load, None),
    (catalog.CLASSIFICATION_SETS, text.load_classification, 64),
    (catalog.LANGUAGE_SETS, text.load_language, 64),
    (catalog.SEQUENCE_TO_SEQUENCE_SETS, text.load_sequence_to_sequence, 16),
]
ALL = [(name, entry, load, length) for sets, load, length in KINDS for name, entry in sets.items()]


@pytest.mark.parametrize(("name", "entry", "load", "length"), ALL)
def test_embedded_sets_and_stand_ins_load_without_files(
    name: str,
    entry: ImageSet | TextSet,
    load: Callable[[DataSpec], Splits],
    length: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("train.data.hub.load", lambda *_: pytest.fail("nothing is to be read"))
    classes, is_embedded = entry.classes or 10, isinstance(entry.source, Embedded)
    splits = load(specification(name, classes=classes, length=length, stand_in=not is_embedded))
    if is_embedded and entry.training_samples is not None:
        assert splits.train.samples == entry.training_samples
    assert splits.evaluation.samples > 0
