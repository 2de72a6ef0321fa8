"""The catalogue: embedded sets load by their named loader, and every other set has a stand-in."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.data.small_sets import specification
from train.data import catalog, images, text
from train.data.catalog import Embedded, Hub, ImageSet, TextSet
from train.data.specification import DataSpec, Splits
from train.engine.errors import Refused

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


@pytest.mark.parametrize(("name", "entry", "load", "length"), [row for row in ALL if isinstance(row[1].source, Hub)])
def test_a_set_that_is_nowhere_is_refused_and_never_stood_in_for(
    name: str, entry: ImageSet | TextSet, load: Callable[[DataSpec], Splits], length: int | None, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATA_ROOT", str(tmp_path))
        patch.setattr("datasets.load_dataset", no_such_set)
        patch.setattr("train.data.hub.rely_on_cache_without_network", lambda: None)
        with pytest.raises(Refused, match=f"data set '{name}': not in {tmp_path}/{name}, and .*no such set"):
            load(specification(name, classes=entry.classes or 10, length=length, vocab_size=40_000 if length else None))


def no_such_set(*_: object, **__: object) -> None:
    raise FileNotFoundError("no such set")


def test_a_set_cannot_be_entered_without_its_source() -> None:
    with pytest.raises(TypeError, match="source"):
        ImageSet(classes=2, channels=3, size=32)  # type: ignore[call-arg]


@pytest.mark.parametrize(("sets", "load", "length"), KINDS)
def test_embedded_data_of_another_task_are_refused(
    sets: dict[str, ImageSet] | dict[str, TextSet],
    load: Callable[[DataSpec], Splits],
    length: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {entry.source for entry in sets.values()}
    for source in (Embedded("digits"), Embedded("digits_in_order"), Embedded("pydoc"), Embedded("number_words")):
        if source in known:
            continue
        monkeypatch.setitem(sets, "mine", replace(next(iter(sets.values())), source=source))
        with pytest.raises(Refused, match=f"data set 'mine': its task cannot read the embedded '{source.loader}'"):
            load(specification("mine", length=length, vocab_size=1000 if length else None))
