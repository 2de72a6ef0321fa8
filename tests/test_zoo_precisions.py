"""Every experiment on embedded data in every precision that a CPU has."""

import copy
import math

import pytest
import torch

from tests.zoo import CPU, QUICK, losses, pair_of, parts, trainer_of
from train.engine.fit import last_batch
from train.engine.precision import PRECISIONS, why_unavailable
from train.experiment import preflight

AVAILABLE = [name for name in PRECISIONS if why_unavailable(name, CPU) is None]


@pytest.mark.parametrize("precision", AVAILABLE)
@pytest.mark.parametrize("name", QUICK)
def test_two_steps_move_float32_weights_by_finite_gradients(name: str, precision: str) -> None:
    trainer = trainer_of(name, precision, scaler=parts(name)[1].scaler.model_copy(update={"init_scale": 256.0}))
    before = copy.deepcopy(trainer.model.state_dict())
    assert all(map(math.isfinite, losses(trainer, pair_of(parts(name)[3]), 2)))
    assert trainer.applied_step == 2
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert any(not torch.equal(value, before[key]) for key, value in trainer.model.state_dict().items())


@pytest.mark.parametrize("precision", AVAILABLE)
@pytest.mark.parametrize("name", QUICK)
def test_preflight_finds_no_fault(name: str, precision: str) -> None:
    script, config, data, batch = parts(name)
    trainer, last = trainer_of(name, precision), last_batch(data.evaluation)
    finding = preflight.examine(trainer, script.task.score, pair_of(batch), pair_of(last), config.num_classes)
    assert finding.faults == []
    assert finding.saved_mib is not None
