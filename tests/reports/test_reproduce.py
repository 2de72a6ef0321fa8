"""The list of published rows, and the configuration behind one."""

import sys

import pytest

from reports import reproduce
from reports.analysis import published
from reports.analysis.reproduction import NOT_RUN, REPRODUCED, Reproduction
from reports.records.published import PublishedRow
from tests.reports.made_runs import experiment

ROW = PublishedRow(
    id="a",
    model="TinyNet",
    dataset="dots",
    metric="test top-1",
    unit="%",
    value="92.0",
    our_data="dots",
    our_metric="accuracy",
)


def test_each_experiment_of_a_row_has_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = experiment().model_copy(update={"published": ["a"]})
    monkeypatch.setattr(published, "configurations", lambda: {"large": config, "small": config})
    monkeypatch.setattr(published, "rows", lambda: {"a": ROW})
    results = [
        Reproduction(ROW, "large", "bf16", REPRODUCED, (92.1, 92.3), 0.14),
        Reproduction(ROW, "small", None, NOT_RUN, rule="no record"),
    ]
    monkeypatch.setattr(reproduce, "reproductions", lambda: results)
    monkeypatch.setattr(reproduce, "hours", lambda: {"large": 2.0})
    monkeypatch.setattr(sys, "argv", ["reproduce"])
    assert reproduce.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        "a  large  TinyNet  test top-1 92.0 %  bf16 92.2: REPRODUCED  data dots, about 2 h a run in FP32 on a CPU",
        "a  small  TinyNet  test top-1 92.0 %  NOT RUN  data dots, cost not known in FP32 on a CPU",
    ]
    assert reproduce.configuration_of("a") == "configs/large.yaml"


def test_an_id_that_nothing_aims_at_gets_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for given, message in (
        ("nanogpt-shk-cp", "error: unknown published row 'nanogpt-shk-cp': did you mean 'nanogpt-shk-cpu'? allowed: "),
        ("apex478-rn152-c10-acc__fp32", "error: no experiment aims at 'apex478-rn152-c10-acc__fp32', allowed: "),
    ):
        monkeypatch.setattr(sys, "argv", ["reproduce", given])
        assert reproduce.main() == 2
        written = capsys.readouterr()
        assert written.err.startswith(message)
        assert written.out == ""
