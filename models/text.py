"""Text models by name, built by transformers: BERT, DistilBERT and RoBERTa encoders, GPT-2, T5.

All of them attend through `scaled_dot_product_attention`, which transformers implements for each of the five;
T5 adds its relative position bias to the mask, so that PyTorch has no fused kernel for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from models import unknown_architecture
from models.image_weights import fault, load_pretrained

# Parts that a pretrained encoder may lack, because the new task brings its own.
HEADS = {"bert": ("classifier.",), "distilbert": ("pre_classifier.", "classifier."), "roberta": ("classifier.",)}
WEIGHTS = (".pt", ".pth", ".safetensors")  # files of weights alone, for an architecture of this table
OWN_PADDING = 0  # of this repository's own vocabularies


@dataclass(frozen=True)
class Architecture:
    """`settings` are those that differ from transformers' defaults for `family`, which are the published base model's.

    `published` is its name on the Hub. Without `bias`, linear layers and LayerNorm have none (GPT-2 only).
    An architecture of no fixed number of positions has as many as the sequences are long.
    """

    family: str
    published: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    positions: int | None = None
    bias: bool = True


def _small(family: str, layers: int, width: int, heads: int, **settings: Any) -> Architecture:
    names = {
        "distilbert": ("n_layers", "dim", "n_heads", "hidden_dim"),
        "gpt2": ("n_layer", "n_embd", "n_head", "n_inner"),
        "t5": ("num_layers", "d_model", "num_heads", "d_ff"),
    }.get(family, ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"))
    sizes: dict[str, Any] = dict(zip(names, (layers, width, heads, 4 * width), strict=True))
    if family in HEADS:
        sizes["initializer_range"] = 0.1  # BERT's 0.02 is for a width of 768; here attention would begin too flat
    bias = settings.pop("bias", True)
    return Architecture(family, settings=sizes | settings, bias=bias)


ARCHITECTURES = {
    "bert_base_cased": Architecture("bert", "google-bert/bert-base-cased", {"vocab_size": 28996}, positions=512),
    "bert_base_uncased": Architecture("bert", "google-bert/bert-base-uncased", positions=512),
    # Turc et al. 2019 (https://arxiv.org/abs/1908.08962), BERT-Small.
    "bert_small": Architecture(
        "bert",
        "google/bert_uncased_L-4_H-512_A-8",
        {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048},
        positions=512,
    ),
    "bert_2x64": _small("bert", 2, 64, 2),
    "distilbert_base_uncased": Architecture("distilbert", "distilbert/distilbert-base-uncased", positions=512),
    "distilbert_2x64": _small("distilbert", 2, 64, 2),
    "roberta_base": Architecture(
        "roberta", "FacebookAI/roberta-base", {"vocab_size": 50265, "type_vocab_size": 1}, positions=512
    ),
    "roberta_2x64": _small("roberta", 2, 64, 2, type_vocab_size=1),
    "gpt2": Architecture("gpt2", "openai-community/gpt2", positions=1024),
    # nanoGPT's: no bias, and GELU itself in place of GPT-2's approximation (its model.py).
    "gpt2_4x128": _small("gpt2", 4, 128, 4, bias=False, activation_function="gelu"),
    "gpt2_6x384": _small("gpt2", 6, 384, 6, bias=False, activation_function="gelu"),
    "t5_small": Architecture("t5", "google-t5/t5-small"),
    "t5_2x64": _small("t5", 2, 64, 2, d_kv=32),
}


def sequence_classifier(
    family: str,
    arch: str,
    *,
    num_labels: int | None,
    vocab_size: int | None,
    length: int | None,
    dropout: float | None,
    pretrained: bool | str,
) -> nn.Module:
    """Tokens (B, T) to logits (B, num_labels) under `.logits`; `family` is "bert", "distilbert" or "roberta".

    Raises ValueError for an unknown name, a `length` beyond the positions, and weights that do not fit.
    """
    if num_labels is None:
        raise ValueError("num_classes: a classifier needs the number of classes")
    settings = {"num_labels": num_labels}
    return _build("AutoModelForSequenceClassification", family, arch, vocab_size, length, dropout, pretrained, settings)


def language_model(
    arch: str, *, vocab_size: int | None, length: int | None, dropout: float | None, pretrained: bool | str
) -> nn.Module:
    """GPT-2: tokens (B, T) to logits (B, T, V) under `.logits`, the output weights tied to the embedding.

    Raises ValueError as `sequence_classifier` does.
    """
    settings = {"use_cache": False}
    return _build("AutoModelForCausalLM", "gpt2", arch, vocab_size, length, dropout, pretrained, settings)


def sequence_to_sequence(
    arch: str, *, vocab_size: int | None, length: int | None, dropout: float | None, pretrained: bool | str
) -> nn.Module:
    """T5: tokens (B, T) and decoder tokens (B, S) to logits (B, S, V) under `.logits`, embeddings tied.

    Raises ValueError as `sequence_classifier` does.
    """
    settings = {"use_cache": False}
    return _build("AutoModelForSeq2SeqLM", "t5", arch, vocab_size, length, dropout, pretrained, settings)


def origin(arch: str, pretrained: bool | str) -> str | None:
    """The folder or the Hub's name that `pretrained` asks for; None for random weights, those of a file or a script."""
    if pretrained is True and arch in ARCHITECTURES:
        published = _architecture(arch).published
        if published is None:
            raise ValueError(f"pretrained: {arch} was never published; give a folder")
        return published
    if isinstance(pretrained, str) and Path(pretrained).suffix not in WEIGHTS:
        if not (Path(pretrained) / "config.json").is_file():
            raise ValueError(f"pretrained: {pretrained} holds no config.json of a pretrained model")
        return pretrained
    return None


def vocabulary_size(arch: str, pretrained: bool | str) -> int:
    """Rows of the embedding that the architecture has when nothing else is asked for."""
    return int(_configuration(arch, origin(arch, pretrained)).vocab_size)


def positions(configuration: Any) -> int | None:
    """The longest sequence that a model of this transformers configuration can take; None for no limit."""
    if configuration.model_type == "t5":
        return None
    # RoBERTa numbers positions from the one after that of the padding token.
    reserved = configuration.pad_token_id + 1 if configuration.model_type == "roberta" else 0
    return int(configuration.max_position_embeddings - reserved)


def _architecture(arch: str, family: str | None = None) -> Architecture:
    known = [name for name, architecture in ARCHITECTURES.items() if family in (None, architecture.family)]
    if arch not in known:
        raise unknown_architecture(arch, known)
    return ARCHITECTURES[arch]


def _configuration(arch: str, source: str | None) -> Any:
    from transformers import AutoConfig

    architecture = _architecture(arch)
    if source is not None:
        try:
            return AutoConfig.from_pretrained(source, trust_remote_code=False)
        except Exception as error:  # as of a config.json that is JSON, but no object
            raise _unreadable(source, error) from None
    return AutoConfig.for_model(architecture.family, **architecture.settings)


def _unreadable(source: str, error: Exception) -> ValueError:
    ways = "; give pretrained=FOLDER, or fetch it once with a network: python -m train.check CONFIG --download"
    # transformers advises to trust the code.
    own_code = "trust_remote_code" in str(error)
    why = "its model is code of its own, which is never run here" if own_code else fault(error)
    return ValueError(f"pretrained: {source} is not readable: {why}{'' if Path(source).is_dir() else ways}")


def _build(
    head: str,
    family: str,
    arch: str,
    vocab_size: int | None,
    length: int | None,
    dropout: float | None,
    pretrained: bool | str,
    settings: dict[str, Any],
) -> nn.Module:
    import transformers

    architecture = _architecture(arch, family)
    source = origin(arch, pretrained)
    configuration = _configuration(arch, source)
    if configuration.model_type != family:
        raise ValueError(f"pretrained: {source} holds a {configuration.model_type} model, not {family}")
    if source is None:
        _shape(configuration, architecture, vocab_size, length)
    elif vocab_size not in (None, configuration.vocab_size):
        raise ValueError(
            f"vocab_size: {vocab_size} tokens do not fit {source}, which has {configuration.vocab_size} of them"
        )
    limit = positions(configuration)
    if limit is not None and (length or 0) > limit:
        raise ValueError(f"data.length: {length} is longer than the {limit} positions of {source or arch}")
    for key, value in (settings | _dropout(family, dropout)).items():
        setattr(configuration, key, value)
    auto = getattr(transformers, head)
    if source is not None:
        return _loaded(auto, source, configuration, family)
    model: nn.Module = auto.from_config(configuration, attn_implementation="sdpa", trust_remote_code=False)
    if not architecture.bias:
        _remove_bias(model)
    if pretrained:
        load_pretrained(model, arch, pretrained)
    return model


def _shape(configuration: Any, architecture: Architecture, vocab_size: int | None, length: int | None) -> None:
    """Sizes that depend on the data, in a configuration without weights."""
    configuration.vocab_size = vocab_size or configuration.vocab_size
    # GPT-2's and BERT's own numbers for these tokens may lie beyond a smaller vocabulary. GPT-2 needs none for filling
    # up, and with one transformers would look for it in every batch, on the host.
    configuration.pad_token_id = None if architecture.family == "gpt2" else OWN_PADDING
    configuration.bos_token_id = configuration.eos_token_id = None
    if architecture.family == "t5":
        configuration.decoder_start_token_id = OWN_PADDING
        return
    reserved = OWN_PADDING + 1 if architecture.family == "roberta" else 0
    count = architecture.positions or length
    if count is None:
        raise ValueError("data.length: this architecture has as many positions as the sequences are long; give it")
    name = {"gpt2": "n_positions"}.get(architecture.family, "max_position_embeddings")
    setattr(configuration, name, count + reserved)


def _dropout(family: str, rate: float | None) -> dict[str, float]:
    """Every dropout rate of the family set to `rate`; none where it is the architecture's own."""
    names = {
        "distilbert": ("dropout", "attention_dropout", "seq_classif_dropout"),
        "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
        "t5": ("dropout_rate",),
    }.get(family, ("hidden_dropout_prob", "attention_probs_dropout_prob"))
    return {} if rate is None else dict.fromkeys(names, rate)


def _loaded(auto: Any, source: str, configuration: Any, family: str) -> nn.Module:
    """The model with the weights of `source`; only its head may be new. Prints and keeps what was loaded."""
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        model, loading = auto.from_pretrained(
            source,
            config=configuration,
            attn_implementation="sdpa",
            trust_remote_code=False,
            dtype=torch.float32,  # without it, that of the file: half weights lose small updates
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # transformers, torch and safetensors each have their own for a damaged file
        raise _unreadable(source, error) from None
    finally:
        logging.set_verbosity(verbosity)
    missing = {*loading["missing_keys"], *(entry[0] for entry in loading["mismatched_keys"])}
    foreign = sorted(name for name in missing if not name.startswith(HEADS.get(family, ())))
    total = len(list(model.parameters()))
    if foreign:
        raise ValueError(
            f"pretrained: {source} lacks {len(foreign)} of {total} parameters, such as {foreign[0]!r}; only a "
            f"new head may be missing"
        )
    counts = {"loaded": total - len(missing), "missing": len(missing), "unexpected": len(loading["unexpected_keys"])}
    print(f"pretrained {source}: " + ", ".join(f"{value} {key}" for key, value in counts.items()), flush=True)
    model.pretrained = {"source": source, **counts, "missing_names": sorted(missing)}
    weights: nn.Module = model
    return weights


def _remove_bias(model: nn.Module) -> None:
    """GPT-2 without biases, which transformers has no setting for: a sum with zeros that no optimizer sees."""
    import torch
    from transformers.pytorch_utils import Conv1D

    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_parameter("bias", None)
        elif isinstance(module, Conv1D):
            width = module.bias.shape[0]
            del module.bias
            module.register_buffer("bias", torch.zeros(width), persistent=False)
