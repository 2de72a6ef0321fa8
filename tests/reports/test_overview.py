"""The table over one's own experiments: which folders it takes, what it leaves out, and what each format has."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from reports import overview
from reports.records.files import write_record
from reports.records.layout import COLUMNS
from tests.reports.made_runs import compared, write_three


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder as `train.compare` leaves it: two experiments, and a smoke run of one."""
    for name in ("one", "two", "smoke/one"):
        folder = tmp_path / "runs" / name
        write_three(folder, smoke=name.startswith("smoke"))
        write_record(folder / "comparison.json", compared(folder))
    return tmp_path / "runs"


def test_a_folder_of_experiments_is_all_of_them(runs: Path) -> None:
    expected = {"one", "two"}
    for given in ([runs], sorted(runs.iterdir()), [runs / "one", runs / "two"], [runs, runs / "one"]):
        comparisons, left_out = overview.read(given)
        assert (set(comparisons), left_out) == (expected, [])


def test_a_smoke_run_is_only_there_when_given_by_itself_and_is_called_one(runs: Path) -> None:
    comparisons, left_out = overview.read([runs, runs / "smoke" / "one"])
    assert (list(comparisons), left_out) == (["one", "two", f"{runs}/smoke/one (smoke run)"], [])
    for form in overview.FORMATS:
        assert overview.overview(comparisons, form).count("(smoke run)") == (3 if form == "csv" else 1)
    with pytest.raises(ValueError, match=r"no comparison in .*/smoke: give smoke runs one by one"):
        overview.read([runs / "smoke"])


def test_two_experiments_of_one_name_are_told_apart_in_every_format(runs: Path, tmp_path: Path) -> None:
    other = tmp_path / "others" / "one"
    write_three(other)
    write_record(other / "comparison.json", compared(other))
    comparisons, _ = overview.read([runs / "one", other])
    assert list(comparisons) == ["one", str(other)]
    rows = csv.DictReader(io.StringIO(overview.overview(comparisons, "csv")))
    assert {row["experiment"] for row in rows} == {"one", str(other)}


@pytest.mark.parametrize("damage", [{"rows": []}, {"seeds": "3"}])
def test_a_record_that_cannot_be_read_says_what_to_do(runs: Path, damage: dict[str, object]) -> None:
    file = runs / "one" / "comparison.json"
    file.write_text(json.dumps({} if damage == {"rows": []} else json.loads(file.read_text()) | damage))
    comparisons, (reason,) = overview.read([runs])
    assert list(comparisons) == ["two"]
    assert reason.startswith(f"{file}: ")
    assert reason.endswith("the same `python -m train.compare` command again: it reuses finished runs and writes this "
                           "file anew")  # fmt: skip


def test_a_folder_that_does_not_exist_is_refused_with_the_nearest(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["overview", str(runs / "tow")])
    assert overview.main() == 2
    assert capsys.readouterr().err == f"error: {runs}/tow is not a folder: did you mean {runs}/two?\n"


@pytest.mark.parametrize("form", overview.FORMATS)
def test_every_format_has_verdict_interval_margin_device_and_unit(
    runs: Path, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["overview", str(runs), "--format", form])
    assert overview.main() == 0
    text = capsys.readouterr().out.replace("\\", "")
    for part in ("one", "two", "INCONCLUSIVE", "Some CPU, 2 threads"):
        assert part in text
    if form == "csv":
        row = next(row for row in csv.DictReader(io.StringIO(text)) if row["precision"] == "fp16")
        assert set(COLUMNS) <= row.keys()
        assert [float(row[name]) for name in ("difference_low", "difference_high", "margin")] == pytest.approx(
            [-0.01 - 0.01 * 4.302653 / 3**0.5, -0.01 + 0.01 * 4.302653 / 3**0.5, 0.005]
        )
    else:
        for part in ("-1.00 points [-3.48, 1.48]", "0.50 points", "0.80x [0.80, 0.80] (emulated)"):
            assert part in text
