"""How text becomes tokens: by character, by a pretrained model's tokenizer, or by one trained on the training split."""

import hashlib
import inspect
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from train.data.tokens import Encoded
from train.engine.errors import Refused

PADDING, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
CHUNK = 10_000


class CharacterTokenizer:
    """One token a character of `alphabet`, numbered in its order."""

    def __init__(self, alphabet: str) -> None:
        self.size = len(alphabet)
        self.numbers = {character: number for number, character in enumerate(alphabet)}

    def stream(self, texts: Sequence[str]) -> Tensor:
        """All texts, one after the other, as tokens (total,) int32; raises `Refused` naming a foreign character."""
        try:
            return torch.tensor([self.numbers[character] for text in texts for character in text], dtype=torch.int32)
        except KeyError as error:
            raise Refused(f"the text has the character {error.args[0]!r}, not one of the {self.size} known") from None


class PretrainedTokenizer:
    """The tokenizer of `source`, a folder or a name on the Hub; raises `Refused` when it has none."""

    def __init__(self, source: str) -> None:
        from transformers import AutoTokenizer

        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(source)
        except Exception as error:  # tokenizers raises nothing more special for a damaged file
            raise Refused(f"pretrained: no tokenizer in {source}: {' '.join(str(error).split())[:200]}") from None
        self.size = len(self.tokenizer)
        if self.size <= len(self.tokenizer.all_special_tokens):  # made of nothing, and without a word of warning
            raise Refused(f"pretrained: no tokenizer in {source}: it has no vocabulary, such as a tokenizer.json")
        # The token that pads a batch. GPT-2 has none; padding is masked.
        self.padding = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else 0

    def stream(self, texts: Sequence[str]) -> Tensor:
        """All texts, one after the other and with no special tokens, as tokens (total,) int32."""
        return _stream(texts, lambda part: self.tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"])

    def sequences(self, texts: Sequence[str], pairs: Sequence[str] | None, length: int) -> Encoded:
        """Each text, or each text with that of `pairs`, with its special tokens and cut to `length`."""
        _check_length(length, self.tokenizer.num_special_tokens_to_add(pairs is not None))
        second = None if pairs is None else list(pairs)
        encoded = self.tokenizer(list(texts), second, truncation=True, max_length=length, return_attention_mask=False)
        # Of single texts they are all zero, which is what the model takes without them.
        return Encoded(encoded["input_ids"], None if pairs is None else encoded.get("token_type_ids"))


class TrainedTokenizer:
    """A tokenizer trained on a data set's own training texts, and cached in a folder.

    `kind` "words" is BERT's lower-case WordPiece with [CLS] and [SEP] (Devlin et al. 2019), "bytes" is GPT-2's
    byte-level byte-pair encoding (Radford et al. 2019).
    """

    def __init__(self, texts: Sequence[str], kind: Literal["words", "bytes"], size: int) -> None:
        import tokenizers

        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        file = cache_folder() / f"{_key(texts, kind, size)}.json"
        if not file.exists():
            print(f"training a tokenizer of {size} tokens on {len(texts)} texts", flush=True)
            write_atomically(file, _train(texts, kind, size).to_str())
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises nothing more special for a damaged file
            raise Refused(f"the tokenizer cached in {file} is damaged ({error}); delete it") from None
        self.size, self.padding = self.tokenizer.get_vocab_size(), 0

    def stream(self, texts: Sequence[str]) -> Tensor:
        encode = self.tokenizer.encode_batch
        return _stream(texts, lambda part: [encoded.ids for encoded in encode(part, add_special_tokens=False)])

    def sequences(self, texts: Sequence[str], pairs: Sequence[str] | None, length: int) -> Encoded:
        _check_length(length, self.tokenizer.num_special_tokens_to_add(pairs is not None))
        self.tokenizer.enable_truncation(length)
        inputs: Any = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        return Encoded([encoding.ids for encoding in self.tokenizer.encode_batch(inputs)])


Tokenizer = PretrainedTokenizer | TrainedTokenizer


def _check_length(length: int, special: int) -> None:
    if length <= special:
        raise Refused(
            f"data.length: {length} leaves no room for text beside the {special} special tokens of a sequence"
        )


def cache_folder() -> Path:
    """Where trained tokenizers are cached: `$XDG_CACHE_HOME/amp-zoo/tokenizers`, by default under `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "amp-zoo" / "tokenizers"


def write_atomically(file: Path, text: str) -> None:
    """Write under a temporary name and rename: an interrupted run leaves nothing that looks finished."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, suffix=".part", delete=False) as part:
        try:
            part.write(text)
            part.flush()
            os.fsync(part.fileno())
            os.replace(part.name, file)
        except BaseException:
            os.unlink(part.name)
            raise


def _key(texts: Sequence[str], kind: str, size: int) -> str:
    """A name of the tokenizer by all that makes it: the library, the code that trains it, and each text."""
    import tokenizers

    code = inspect.getsource(_train) + inspect.getsource(_words)
    digest = hashlib.sha256(f"{tokenizers.__version__} {kind} {size} {code}".encode())
    for text in texts:
        encoded = text.encode()
        digest.update(b"%d\0" % len(encoded) + encoded)
    return f"{kind}-{size}-{digest.hexdigest()[:16]}"


def _train(texts: Sequence[str], kind: str, size: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    trainer: Any
    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator(texts, trainer)
        return tokenizer
    special = [PADDING, UNKNOWN, START, END]
    tokenizer = _words(models.WordPiece(unk_token=UNKNOWN))
    normalize, divide = tokenizer.normalizer.normalize_str, tokenizer.pre_tokenizer.pre_tokenize_str
    within = {character for text in texts for word, _ in divide(normalize(text)) for character in word[1:]}
    # The trainer numbers the characters within words as a hash map gives them, another way in each process, and of
    # pairs equally frequent takes that of the lower numbers. Given first, as if special, they have one order.
    first = [*special, *(f"##{character}" for character in sorted(within))]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer = _words(models.WordPiece(tokenizer.get_vocab(), unk_token=UNKNOWN))
    tokenizer.add_special_tokens(special)
    ends = [(token, tokenizer.token_to_id(token)) for token in (START, END)]
    single, pair = f"{START} $A {END}", f"{START} $A {END} $B {END}"
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ends)
    return tokenizer


def _words(model: Any) -> Any:
    """A tokenizer that divides text as BERT's does, in lower case."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _stream(texts: Sequence[str], encode: Callable[[list[str]], list[list[int]]]) -> Tensor:
    """The tokens (total,) int32 of many texts; in chunks, because Python's integers take eight times the memory."""
    chunks = (encode(list(texts[start : start + CHUNK])) for start in range(0, len(texts), CHUNK))
    parts = [torch.tensor([token for ids in chunk for token in ids], dtype=torch.int32) for chunk in chunks]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int32)
