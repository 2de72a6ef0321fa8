"""Text models: against transformers' own, with masks in half precision, and from pretrained folders."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from models import text
from train.data.tokenizer import PretrainedTokenizer
from train.engine.errors import Refused
from train.engine.precision import Precision

CPU = torch.device("cpu")
SMALL = {"bert": "bert_2x64", "distilbert": "distilbert_2x64", "roberta": "roberta_2x64"}
ENCODERS = tuple(SMALL)


def encoder(family: str, arch: str | None = None, **changes: Any) -> nn.Module:
    sizes = {"num_labels": 3, "vocab_size": 20, "length": 16, "dropout": 0.0, "pretrained": False} | changes
    torch.manual_seed(0)
    return text.sequence_classifier(family, arch or SMALL[family], **sizes)


def decoder(**changes: Any) -> nn.Module:
    sizes: dict[str, Any] = {"vocab_size": 65, "length": 64, "dropout": 0.0, "pretrained": False}
    torch.manual_seed(0)
    return text.language_model("gpt2_4x128", **(sizes | changes))


def t5() -> nn.Module:
    torch.manual_seed(0)
    return text.sequence_to_sequence("t5_2x64", vocab_size=44, length=16, dropout=0.0, pretrained=False)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# From a configuration


@pytest.mark.parametrize(
    ("family", "arch", "own"),
    [
        # With two labels, their default.
        ("bert", "bert_base_uncased", transformers.BertConfig()),
        ("distilbert", "distilbert_base_uncased", transformers.DistilBertConfig()),
        (
            "roberta",
            "roberta_base",
            transformers.RobertaConfig(vocab_size=50265, max_position_embeddings=513, type_vocab_size=1),
        ),
    ],
)
def test_a_base_model_has_the_parameters_of_transformers(family: str, arch: str, own: Any) -> None:
    with torch.device("meta"):
        built = text.sequence_classifier(
            family, arch, num_labels=2, vocab_size=None, length=128, dropout=None, pretrained=False
        )
        expected = transformers.AutoModelForSequenceClassification.from_config(own)
    assert parameters(built) == parameters(expected)


def test_the_decoders_have_the_published_numbers_of_parameters() -> None:
    shared: dict[str, Any] = {"vocab_size": None, "length": 512, "dropout": None, "pretrained": False}
    with torch.device("meta"):
        assert parameters(text.language_model("gpt2", **shared)) == 124_439_808
        assert parameters(text.sequence_to_sequence("t5_small", **shared)) == 60_506_624


def test_nano_gpt_has_its_parameters_and_no_bias_that_trains() -> None:
    model = decoder()
    # 4 blocks of 12 * 128**2 weights and two norms, 65 + 64 embeddings, the last norm.
    assert parameters(model) == 4 * (12 * 128**2 + 2 * 128) + (65 + 64) * 128 + 128
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]
    model(input_ids=torch.arange(8)[None]).logits.sum().backward()
    assert all(not buffer.any() for name, buffer in model.named_buffers() if name.endswith("bias"))


@pytest.mark.parametrize("name", [*ENCODERS, "gpt2", "t5"])
def test_attention_is_torchs_own(name: str) -> None:
    model: Any = {"gpt2": decoder, "t5": t5}.get(name, lambda: encoder(name))()
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("build", [decoder, t5])
def test_tied_weights_are_one_parameter_and_stay_one_after_a_step(build: Any) -> None:
    model: Any = build()
    inputs = {"input_ids": torch.ones(1, 4, dtype=torch.long)}
    if build is t5:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(**inputs).logits.square().mean().backward()
    optimizer.step()
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_dropout_is_that_of_the_experiment_everywhere(rate: float) -> None:
    models = [encoder(family, dropout=rate) for family in ENCODERS] + [decoder(dropout=rate)]
    rates = {module.p for model in models for module in model.modules() if isinstance(module, nn.Dropout)}
    assert rates == {rate}


@pytest.mark.parametrize("family", ENCODERS)
def test_a_sequence_longer_than_the_positions_is_refused(family: str) -> None:
    arch = {"bert": "bert_base_cased", "distilbert": "distilbert_base_uncased", "roberta": "roberta_base"}[family]
    with pytest.raises(ValueError, match=r"data\.length: 513 is longer than the 512 positions"):
        encoder(family, arch, length=513)


@pytest.mark.parametrize("family", ENCODERS)
def test_the_longest_sequence_fits(family: str) -> None:
    assert encoder(family)(input_ids=torch.full((1, 16), 5)).logits.shape == (1, 3)


def test_an_architecture_of_another_family_is_unknown() -> None:
    with pytest.raises(ValueError, match=r"unknown architecture 'gpt2': .*allowed: bert_base_cased"):
        encoder("bert", "gpt2")


# Masks


def loss_and_gradients(
    model: nn.Module, precision: Precision, labels: Tensor, **inputs: Tensor
) -> tuple[float, list[Tensor]]:
    model.zero_grad()
    with precision.forward():
        logits = model(**inputs).logits.float()
        loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
    precision.backward(loss)
    return loss.item(), [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("name", [*ENCODERS, "t5"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_sample_of_padding_alone_is_finite_and_changes_no_other(name: str, precision: str) -> None:
    model = (t5() if name == "t5" else encoder(name)).train()
    used = Precision(precision, CPU)
    tokens, mask = torch.randint(1, 20, (3, 8)), torch.ones(3, 8, dtype=torch.long)
    tokens[1], mask[1], mask[2, 5:] = 0, 0, 0
    labels = torch.tensor([1, -100, 2])
    inputs = {"input_ids": tokens, "attention_mask": mask}
    if name == "t5":
        inputs["decoder_input_ids"] = torch.tensor([[0, 4], [0, 0], [0, 6]])
        labels = torch.tensor([[4, 1], [-100, -100], [6, 1]])
    loss, gradients = loss_and_gradients(model, used, labels, **inputs)
    assert all(gradient.isfinite().all() for gradient in gradients)
    others = torch.tensor([0, 2])
    alone, _ = loss_and_gradients(model, used, labels[others], **{key: value[others] for key, value in inputs.items()})
    assert loss == pytest.approx(alone, rel=1e-5 if precision == "fp32" else 2e-2)


@pytest.mark.parametrize("name", [*ENCODERS, "t5"])
def test_padding_does_not_change_the_logits(name: str) -> None:
    model = (t5() if name == "t5" else encoder(name)).eval()
    tokens, extra = torch.randint(2, 20, (2, 6)), {}
    if name == "t5":
        extra["decoder_input_ids"] = torch.tensor([[0, 4], [0, 6]])
    short = model(input_ids=tokens, attention_mask=torch.ones(2, 6), **extra).logits
    mask = F.pad(torch.ones(2, 6), (0, 7))
    long = model(input_ids=F.pad(tokens, (0, 7)), attention_mask=mask, **extra).logits
    torch.testing.assert_close(long, short, rtol=1e-4, atol=1e-5)


# From a pretrained folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    encoder("bert").save_pretrained(path)
    return path


def rewritten(folder: Path, target: Path, change: Any) -> Path:
    """A copy of `folder` whose weights went through `change(name, tensor)`, an item or None."""
    from safetensors.torch import load_file, save_file

    target.mkdir()
    (target / "config.json").write_text((folder / "config.json").read_text())
    items = [change(name, tensor) for name, tensor in load_file(folder / "model.safetensors").items()]
    save_file(dict(item for item in items if item), target / "model.safetensors", metadata={"format": "pt"})
    return target


def test_a_pretrained_folder_gives_its_weights_and_counts(folder: Path) -> None:
    model: Any = encoder("bert", pretrained=str(folder), vocab_size=None)
    for name, tensor in encoder("bert").state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    total = len(list(model.parameters()))
    expected = {"source": str(folder), "loaded": total, "missing": 0, "unexpected": 0, "missing_names": []}
    assert model.pretrained == expected


def test_a_new_head_is_said_and_drawn_from_the_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first: Any
    second: Any
    first, second = (encoder("bert", pretrained=str(folder), vocab_size=None, num_labels=7) for _ in range(2))
    assert first.pretrained["missing_names"] == ["classifier.bias", "classifier.weight"]
    assert "2 missing" in capsys.readouterr().out
    assert torch.equal(first.classifier.weight, second.classifier.weight)


def test_weights_in_half_are_trained_in_float32(folder: Path, tmp_path: Path) -> None:
    half = rewritten(folder, tmp_path / "half", lambda name, tensor: (name, tensor.half()))
    model = encoder("bert", pretrained=str(half), vocab_size=None)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_weights_under_another_prefix_are_refused(folder: Path, tmp_path: Path) -> None:
    renamed = rewritten(folder, tmp_path / "renamed", lambda name, tensor: (f"old.{name}", tensor))
    with pytest.raises(ValueError, match=rf"pretrained: {renamed} lacks \d+ of \d+ parameters, such as 'bert\."):
        encoder("bert", pretrained=str(renamed), vocab_size=None)


def test_a_lost_layer_is_refused(folder: Path, tmp_path: Path) -> None:
    lost = rewritten(folder, tmp_path / "lost", lambda name, tensor: None if "layer.1." in name else (name, tensor))
    with pytest.raises(ValueError, match=r"lacks 16 of .*'bert\.encoder\.layer\.1"):
        encoder("bert", pretrained=str(lost), vocab_size=None)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("distilbert", {}, "holds a bert model, not distilbert"),
        ("bert", {"vocab_size": 21}, "vocab_size: 21 tokens do not fit .*, which has 20"),
        ("bert", {"length": 17}, r"data\.length: 17 is longer than the 16 positions"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(
    folder: Path, family: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        encoder(family, **({"pretrained": str(folder), "vocab_size": None} | changes))


def test_a_folder_without_weights_or_configuration_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"pretrained: {tmp_path} holds no config.json"):
        encoder("bert", pretrained=str(tmp_path), vocab_size=None)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ValueError, match=f"pretrained: {tmp_path} is not readable"):
        encoder("bert", pretrained=str(tmp_path), vocab_size=None)


def test_the_checkpoint_of_a_run_gives_its_weights_to_a_text_model(tmp_path: Path) -> None:
    first = encoder("bert")
    torch.save({"trainer": {"model": first.state_dict(), "ema": None}}, tmp_path / "best.pt")
    same: Any = encoder("bert", pretrained=str(tmp_path / "best.pt"))
    assert all(torch.equal(tensor, first.state_dict()[name]) for name, tensor in same.state_dict().items())
    other: Any = encoder("bert", pretrained=str(tmp_path / "best.pt"), num_labels=7)
    assert other.pretrained["missing_names"] == ["classifier.bias", "classifier.weight"]


def test_code_in_a_pretrained_folder_is_never_run_and_never_offered(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*arguments: object) -> str:
        raise AssertionError("asked whether to run the folder's code")

    monkeypatch.setattr("builtins.input", asked)
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom transformers import PretrainedConfig as Own\n"
    (tmp_path / "own.py").write_text(code)
    own = "own.Own"
    maps = {"AutoConfig": own, "AutoModelForSequenceClassification": own, "AutoTokenizer": [own, None]}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": maps}))
    tokenizer = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [own, None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    with pytest.raises(Refused, match="is code of its own, which is never run here"):
        PretrainedTokenizer(str(tmp_path))
    with pytest.raises(ValueError, match="is code of its own, which is never run here") as refused:
        encoder("bert", pretrained=str(tmp_path), vocab_size=None)
    assert "trust_remote_code" not in str(refused.value)
    known = json.loads((folder / "config.json").read_text()) | {"auto_map": maps}
    (tmp_path / "config.json").write_text(json.dumps(known))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    encoder("bert", pretrained=str(tmp_path), vocab_size=None)  # with the model of transformers
    assert not (tmp_path / "ran").exists()


def test_an_architecture_that_was_never_published_is_refused() -> None:
    with pytest.raises(ValueError, match="pretrained: bert_2x64 was never published"):
        encoder("bert", pretrained=True)
