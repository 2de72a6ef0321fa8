"""A training with a known end: softmax regression is convex, and scikit-learn finds its optimum in FP64."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from train.cli.scripts import script_of
from train.engine.fit import fit
from train.experiment.setup import setup

CONFIG = Path("configs/softmax_regression_digits_8x8.yaml")
ERROR = {"fp32": 0.001, "bf16": 0.02, "fp16": 0.002}
# The optimum depends on neither. With the momentum of the experiment the biases need its 5,000 steps.
FASTER = ("optimizer.momentum=0.98", "max_steps=1000")


@pytest.mark.parametrize("precision", ERROR)
def test_every_precision_ends_in_the_optimum_of_scikit_learn(precision: str, cpu: torch.device) -> None:
    script = script_of(CONFIG)
    wired = setup(script, script.read(CONFIG, FASTER), precision, 0, cpu)
    fit(wired.trainer, wired.data.train, wired.plan)

    images, labels = load_digits(return_X_y=True)
    images, count = np.round(images / 16 * 255) / 255, len(labels) * 9 // 10  # as bytes, which data sets are kept in
    optimum = LogisticRegression(max_iter=10_000, tol=1e-8).fit(images[:count], labels[:count])
    weights, bias = (parameter.detach().numpy() for parameter in wired.model.parameters())
    # Of weights up to 2.6. A constant that all biases share changes no probability, and is left where it began.
    np.testing.assert_allclose(weights, optimum.coef_, atol=ERROR[precision])
    np.testing.assert_allclose(
        bias - bias.mean(), optimum.intercept_ - optimum.intercept_.mean(), atol=ERROR[precision]
    )
    accuracy = wired.evaluate(wired.data.evaluation)["eval/accuracy"]
    assert accuracy == optimum.score(images[count:], labels[count:]) == 168 / 180
