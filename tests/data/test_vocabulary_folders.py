"""Pretrained tokenizers that are not there."""

import json
from pathlib import Path

import pytest

from train.data.vocabulary import Pretrained
from train.engine.errors import Refused


def test_a_folder_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 30522}))
    with pytest.raises(Refused, match=f"pretrained: no tokenizer in {tmp_path}"):
        Pretrained(str(tmp_path))
