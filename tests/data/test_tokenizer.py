"""Tokenizers: trained and cached, pretrained, and by character."""

import json
import os
import random
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from train.data import tokenizer
from train.data.catalog import SHAKESPEARE
from train.data.tokenizer import CharacterTokenizer, PretrainedTokenizer, TrainedTokenizer, write_atomically
from train.engine.errors import Refused

TEXTS = ["a fine film", "a dull film that is far too long", "fine", "dull", "a film", "too long"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_trained_tokenizer_is_cached_and_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    first = TrainedTokenizer(TEXTS, "words", 60)
    assert "training a tokenizer" in capsys.readouterr().out
    again = TrainedTokenizer(TEXTS, "words", 60)
    assert capsys.readouterr().out == ""
    assert again.sequences(TEXTS, None, 9) == first.sequences(TEXTS, None, 9)
    files = sorted(tokenizer.cache_folder().iterdir())
    assert len(files) == 1
    TrainedTokenizer(TEXTS[1:], "words", 60)
    TrainedTokenizer(TEXTS, "bytes", 260)
    TrainedTokenizer(TEXTS, "words", 50)
    assert len(list(tokenizer.cache_folder().iterdir())) == 4


def train_nothing(texts: Sequence[str], kind: str, size: int) -> Any:
    return Tokenizer(models.BPE())


def test_texts_divided_otherwise_or_another_recipe_are_not_taken_from_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    TrainedTokenizer(["film\0film"], "words", 60)
    TrainedTokenizer(["film", "film"], "words", 60)
    assert len(list(tokenizer.cache_folder().iterdir())) == 2
    monkeypatch.setattr(tokenizer, "_train", train_nothing)
    assert TrainedTokenizer(["film", "film"], "words", 60).size == 0


@pytest.mark.parametrize(("kind", "size"), [("words", 200), ("bytes", 300)])
def test_training_twice_gives_the_same_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, size: int
) -> None:
    """On texts in which many pairs are equally frequent."""
    draw = random.Random(0)
    texts = ["".join(draw.choices(string.ascii_lowercase, k=7)) for _ in range(300)]
    trained = []
    for number in range(4):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(number)))
        trained.append(TrainedTokenizer(texts, kind, size).tokenizer.get_vocab())
    assert all(vocabulary == trained[0] for vocabulary in trained)


def test_characters_within_words_are_no_special_tokens() -> None:
    trained = TrainedTokenizer([*TEXTS, "##m"], "words", 80)
    (sequence,) = trained.sequences(["film ##m"], None, 12).input_ids
    tokens = [trained.tokenizer.id_to_token(token) for token in sequence]
    assert tokens == ["[CLS]", "film", "#", "#", "m", "[SEP]"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "made" / "tokenizer.json", "{}")
    assert list((tmp_path / "made").iterdir()) == []


def test_bytes_come_back_from_a_byte_level_tokenizer() -> None:
    trained = TrainedTokenizer(TEXTS, "bytes", 280)
    words = ["a d\u00fcll film\n", " fine "]
    assert trained.tokenizer.decode(trained.stream(words).tolist()) == "".join(words)


def test_a_damaged_tokenizer_in_the_cache_is_named(tmp_path: Path) -> None:
    TrainedTokenizer(TEXTS, "words", 60)
    (file,) = tokenizer.cache_folder().glob("*.json")
    file.write_text(file.read_text()[:100])
    with pytest.raises(Refused, match=rf"{file} is damaged .*delete it"):
        TrainedTokenizer(TEXTS, "words", 60)


def test_a_foreign_character_is_named() -> None:
    with pytest.raises(Refused, match="the text has the character 'é', not one of the 65 known"):
        CharacterTokenizer(SHAKESPEARE).stream(["Caf\u00e9"])


def test_a_folder_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 30522}))
    with pytest.raises(Refused, match=f"pretrained: no tokenizer in {tmp_path}"):
        PretrainedTokenizer(str(tmp_path))
