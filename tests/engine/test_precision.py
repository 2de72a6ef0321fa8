import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.engine.tiny import CPU, CPU_PRECISIONS, image_batches, make_trainer, tiny_linear, tiny_net
from train.engine.errors import Diverged, EngineFault, Refused
from train.engine.precision import PRECISIONS, Precision, ScalerSettings
from train.engine.step import Trainer

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def ones_batch(value: float = 1.0, size: int = 4) -> dict[str, Tensor]:
    return {"images": torch.full((size, 8), float(value)), "labels": torch.zeros(size, dtype=torch.int64)}


def linear_trainer(precision: str = "fp16", **settings: Any) -> Trainer:
    return make_trainer(precision, tiny_linear(), **settings)


# What a device can run


def test_tf32_on_a_cpu_is_refused_with_what_the_cpu_can_run() -> None:
    with pytest.raises(Refused, match=r"'tf32' cannot run here.*device is cpu.*It can run: fp32, bf16, fp16$"):
        Precision("tf32", CPU)


@pytest.mark.parametrize("name", ["fp8", "FP16", "half", "", "bf61"])
def test_an_unknown_precision_is_refused_with_all_valid_names(name: str) -> None:
    with pytest.raises(Refused) as refusal:
        Precision(name, CPU)
    assert repr(name) in str(refusal.value)
    assert all(valid in str(refusal.value) for valid in PRECISIONS)


@pytest.mark.parametrize(("name", "nearest"), [("FP16", "fp16"), ("bf61", "bf16"), ("tf-32", "tf32")])
def test_an_unknown_precision_is_answered_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(Refused, match=f"did you mean '{nearest}'"):
        Precision(name, CPU)


@pytest.mark.parametrize("name", CPU_PRECISIONS)
def test_description_holds_the_effective_settings(name: str) -> None:
    description = Precision(name, CPU).describe()
    assert description.name == name
    assert description.matrix_dtype == str(DTYPES[name]).removeprefix("torch.")
    assert description.loss_scaling == (name == "fp16")
    assert description.cuda_matmul_fp32 == "ieee"
    assert description.cudnn_conv_fp32 == "ieee"
    assert description.cpu_matmul_fp32 == "ieee"


def test_fp32_is_full_precision_after_a_library_lowered_it() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=draw) for _ in range(2))
    try:
        torch.set_float32_matmul_precision("medium")
        Precision("fp32", CPU)
        assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
        assert (a @ b - a.double() @ b.double()).abs().max() < 1e-3
    finally:
        torch.set_float32_matmul_precision("highest")
        Precision("fp32", CPU)


# What really computes in which dtype


@pytest.mark.parametrize("name", CPU_PRECISIONS)
def test_dtypes_inside_a_step(name: str) -> None:
    seen: dict[str, set[torch.dtype]] = {"matrix": set(), "logits": set(), "loss": set(), "gradients": set()}
    model = tiny_net()

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        seen["logits"].add(logits.dtype)
        value = F.cross_entropy(logits, labels)
        seen["loss"].add(value.dtype)
        return value

    for module in (model.conv1, model.conv2, model.fc):
        module.register_forward_hook(lambda module, inputs, output: seen["matrix"].add(output.dtype))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: seen["gradients"].add(p.grad.dtype))
    trainer = make_trainer(name, model, optimizer="adamw", loss=loss)
    trainer.step(image_batches(1))

    assert trainer.applied_step == 1
    assert seen.pop("matrix") == {DTYPES[name]}
    assert seen == {"logits": {torch.float32}, "loss": {torch.float32}, "gradients": {torch.float32}}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    state = [value for entry in trainer.optimizers[0].state.values() for value in entry.values()]
    assert len(state) == 3 * len(list(model.parameters()))  # step, both moments
    assert {value.dtype for value in state} == {torch.float32}


@pytest.mark.parametrize("name", CPU_PRECISIONS)
def test_autocast_ends_with_the_forward_region(name: str) -> None:
    precision = Precision(name, CPU)
    x = torch.ones(4, 4)
    with precision.forward():
        assert (x @ x).dtype == DTYPES[name] == precision.matrix_dtype
    assert (x @ x).dtype == torch.float32


# Models that cannot be trained


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CPU_PRECISIONS)
def test_half_model_is_refused_by_its_first_half_parameter(name: str, dtype: torch.dtype) -> None:
    model = tiny_net()
    model.conv2.to(dtype)
    with pytest.raises(Refused, match=rf"'conv2\.weight' is {str(dtype).removeprefix('torch.')}.*float32"):
        make_trainer(name, model)


def test_sparse_gradients_are_refused_by_name() -> None:
    model = nn.Sequential()
    model.add_module("words", nn.Embedding(10, 4, sparse=True))
    with pytest.raises(Refused, match=r"'words'.*sparse=False"):
        make_trainer("fp16", model)


def test_no_loss_on_probabilities_anywhere() -> None:
    on_probabilities = re.compile(r"\b(BCELoss|binary_cross_entropy)\b")
    assert on_probabilities.search("F.binary_cross_entropy(p, y)")
    assert not on_probabilities.search("F.binary_cross_entropy_with_logits(x, y) + nn.BCEWithLogitsLoss()(x, y)")
    files = [path for folder in ("models", "train") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 10
    assert [path.name for path in files if on_probabilities.search(path.read_text(encoding="utf-8"))] == []


def test_binary_loss_on_logits_is_float32_and_agrees_between_precisions() -> None:
    losses = {}
    for name in CPU_PRECISIONS:
        trainer = make_trainer(
            name, tiny_linear(8, 1), loss=lambda logits, y: F.binary_cross_entropy_with_logits(logits[:, 0], y.float())
        )
        batch = {"images": torch.linspace(-2, 2, 32).view(4, 8), "labels": torch.tensor([0, 1, 0, 1])}
        trainer.step([batch])
        losses[name] = trainer.read_metrics()["train/loss"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], abs=1e-2)
    assert losses["fp16"] == pytest.approx(losses["fp32"], abs=1e-2)


# The scaler


def test_scale_grows_after_an_interval_of_good_steps_and_backs_off_on_a_bad_one() -> None:
    trainer = linear_trainer(init_scale=1024.0, growth_interval=3)
    scales = []
    for value in [1, 1, 1, 1, 1, float("inf"), 1, 1, 1]:
        trainer.step([ones_batch(value)])
        scales.append(trainer.precision.scale())
    assert scales == [1024, 1024, 2048, 2048, 2048, 1024, 1024, 1024, 2048]


def test_growth_and_backoff_factors_are_those_of_the_settings() -> None:
    trainer = linear_trainer(init_scale=1000.0, growth_interval=1, growth_factor=4.0, backoff_factor=0.1)
    trainer.step([ones_batch()])
    assert trainer.precision.scale() == 4000
    trainer.step([ones_batch(float("inf"))])
    assert trainer.precision.scale() == pytest.approx(400)


def test_state_keeps_scale_growth_counter_and_consecutive_skips() -> None:
    bad = ones_batch(float("inf"))
    first = linear_trainer(init_scale=1024.0, growth_interval=3, max_consecutive_skips=3)
    for batch in [bad, ones_batch(), ones_batch()]:
        first.step([batch])
    resumed = linear_trainer(init_scale=2.0, growth_interval=3, max_consecutive_skips=3)
    resumed.precision.load_state_dict(first.precision.state_dict())
    assert resumed.precision.scale() == 512
    resumed.step([ones_batch()])
    assert resumed.precision.scale() == 1024  # the third good step in a row
    resumed.step([bad])
    resumed.step([bad])
    last = linear_trainer(init_scale=2.0, growth_interval=3, max_consecutive_skips=3)
    last.precision.load_state_dict(resumed.precision.state_dict())
    with pytest.raises(Diverged, match="3 steps in a row"):
        last.step([bad])


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_no_scale_without_fp16(name: str) -> None:
    trainer = linear_trainer(name)
    trainer.step([ones_batch()])
    assert trainer.precision.scale() is None
    assert not {"amp/scale", "amp/skipped_steps"} & trainer.read_metrics().keys()
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    with pytest.raises(Diverged, match=r"step 2: non-finite gradient in '(weight|bias)'"):
        trainer.step([ones_batch(float("nan"))])
    assert all(torch.equal(before[key], value) for key, value in trainer.model.state_dict().items())


def test_scale_stays_finite_when_it_grows_every_step() -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return (logits - 1e-30).square().mean()

    model = tiny_linear()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    trainer = make_trainer("fp16", model, loss=loss, growth_interval=1)
    scales = []
    for _ in range(300):
        trainer.step([ones_batch()])
        scales.append(trainer.read_metrics()["amp/scale"])
    assert max(scales) > 2.0**90
    assert all(torch.tensor(scales).isfinite())
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_too_many_skips_in_a_row_stop_the_run() -> None:
    trainer = linear_trainer(init_scale=2.0**16, max_consecutive_skips=4)
    bad = ones_batch(float("nan"))
    for batch in [bad, bad, bad, ones_batch(), bad, bad, bad]:
        trainer.step([batch])
    with pytest.raises(Diverged, match=r"4 steps in a row were skipped as not finite; loss scale 512"):
        trainer.step([bad])
    assert trainer.applied_step == 1


def test_the_scale_falls_no_lower_than_its_floor_and_isolated_skips_end_no_run() -> None:
    trainer = linear_trainer(init_scale=4.0, min_scale=1.0, max_consecutive_skips=2)
    for _ in range(40):  # one bad batch in two, and never enough good ones for the scale to grow
        trainer.step([ones_batch(float("nan"))])
        trainer.step([ones_batch(1.0)])
    assert trainer.precision.scale() == 1.0
    assert trainer.applied_step == 40
    trainer.step([ones_batch(float("nan"))])
    with pytest.raises(Diverged, match="2 steps in a row were skipped as not finite"):
        trainer.step([ones_batch(float("nan"))])


def test_a_run_of_bad_batches_never_reaches_the_weights_with_the_default_settings() -> None:
    trainer = linear_trainer()
    before = trainer.model.weight.clone()

    def feed() -> None:
        for _ in range(200):
            trainer.step([ones_batch(float("inf"))])

    with pytest.raises(Diverged):
        feed()
    assert torch.equal(trainer.model.state_dict()["weight"], before)
    assert trainer.step_count <= ScalerSettings().max_consecutive_skips


# Losses that lead nowhere


@pytest.mark.parametrize("name", CPU_PRECISIONS)
def test_detached_loss_is_a_clean_error(name: str) -> None:
    trainer = linear_trainer(name, loss=lambda logits, labels: F.cross_entropy(logits.detach(), labels))
    with pytest.raises(EngineFault, match="no gradient path"):
        trainer.step([ones_batch()])


@pytest.mark.parametrize("name", CPU_PRECISIONS)
def test_loss_that_reaches_no_parameter_of_an_optimizer_is_a_clean_error(name: str) -> None:
    stray = nn.Parameter(torch.ones(()))
    trainer = linear_trainer(name, loss=lambda logits, labels: stray * 1.0)
    with pytest.raises(EngineFault, match="no parameter received a gradient"):
        trainer.step([ones_batch()])


def test_forward_without_gradients_in_the_same_region_leaves_the_gradients() -> None:
    for name in CPU_PRECISIONS:
        precision, model = Precision(name, CPU), tiny_net()
        batch = image_batches(1)[0]
        with precision.forward():
            with torch.no_grad():
                model(batch["images"])
            loss = F.cross_entropy(model(batch["images"]).float(), batch["labels"])
        precision.backward(loss)
        assert all(parameter.grad is not None for parameter in model.parameters()), name
