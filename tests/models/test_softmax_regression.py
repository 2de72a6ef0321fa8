"""A training with a known end: softmax regression is convex, and scikit-learn finds its optimum in FP64."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from train.engine.fit import Progress, evaluate, fit
from train.engine.meter import Meter
from train.experiment import setup as assemble

CONFIG = Path("configs/softmax_regression_digits_8x8.yaml")
ERROR = {"fp32": 0.005, "bf16": 0.02, "fp16": 0.005}


@pytest.mark.parametrize("precision", ERROR)
def test_every_precision_ends_in_the_optimum_of_scikit_learn(precision: str) -> None:
    build, task, config = assemble.script_of(CONFIG, [])
    device = torch.device("cpu")
    splits = task.load(config, 0, device)
    batches, evaluation = splits.train, splits.evaluation
    model = assemble.build_model(build, config, 0, device)
    engine = assemble.build_precision(precision, config, device)
    trainer = assemble.build_trainer(model, task, config, batches, engine)
    nothing = lambda *_: None  # noqa: E731
    fit(trainer, batches, assemble.plan(config, batches), Meter(device), Progress(), nothing, nothing, nothing)
    totals = evaluate(model, task.forward, task.score, evaluation, engine)

    images, labels = load_digits(return_X_y=True)
    images, count = np.round(images / 16 * 255) / 255, len(labels) * 9 // 10  # as bytes, which data sets are kept in
    found = LogisticRegression(max_iter=10_000, tol=1e-8).fit(images[:count], labels[:count])
    weights, bias = (parameter.detach().numpy() for parameter in model.parameters())
    # Of weights up to 2.6. A constant that all biases share changes no probability, and is left where it began.
    np.testing.assert_allclose(weights, found.coef_, atol=ERROR[precision])
    np.testing.assert_allclose(bias - bias.mean(), found.intercept_ - found.intercept_.mean(), atol=ERROR[precision])
    assert task.summarise(totals)["eval/accuracy"] == found.score(images[count:], labels[count:]) == 168 / 180
