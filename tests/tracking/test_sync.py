"""`train.sync`: a record reaches Weights & Biases whole, once, and as what it is, whatever is there already."""

import functools
import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.analysis.comparison import compare
from reports.pages import experiment_page as page
from reports.records.files import read_lines, to_line, write_json
from tests.experiment.harness import ROOT, TINY, AtCall, Outcome, folder_of, offline_records, run_apart, start, wait
from tests.tracking.test_wandb_run import FAKE_KEY, history, offline_files, superseded_files, the
from tests.tracking.wandb_server import ServedRun, WandbServer, serving
from train import sync
from train.experiment.config import load
from train.experiment.folder import lock_folder
from train.tracking import wandb_names as mirrored
from train.tracking.wandb_run import Mirror

RESULTS = ROOT / "reports" / "results" / "resnet20_digits"
COMPARISON = f"{load(RESULTS / 'fp16-s0' / 'config.yaml').digest()[:8]}-fp32-bf16-fp16-3"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """A server with nothing on it, to which this process and those it starts are logged in."""
    with serving() as served:
        monkeypatch.setenv("WANDB_MODE", "online")
        monkeypatch.setenv("WANDB_BASE_URL", served.url)
        monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
        yield served


@pytest.fixture
def record(fp16: Outcome, tmp_path: Path) -> Outcome:
    """A finished run's folder, to be changed."""
    folder = tmp_path / "runs" / "tiny" / "fp16-s0"
    shutil.copytree(fp16.folder, folder, ignore=shutil.ignore_patterns("checkpoints", ".lock"))
    return Outcome(0, "", "", folder)


@pytest.fixture
def upload(server: WandbServer, log: Path) -> Callable[..., tuple[int, str]]:
    """The command in a process of its own, as wandb reads its environment once: exit status and what it printed."""

    def run(*arguments: object, **environment: str) -> tuple[int, str]:
        log.unlink(missing_ok=True)
        environment = {"WANDB_MODE": "online", "WANDB_BASE_URL": server.url, "WANDB_API_KEY": FAKE_KEY, **environment}
        command = functools.partial(sync.main, [str(argument) for argument in arguments])
        return wait(start(command, log, **environment)), log.read_text()

    return run


def served(server: WandbServer, record: Outcome) -> ServedRun:
    return server.runs[record.environment["run_id"]]


def assert_whole(there: ServedRun, record: Outcome) -> None:
    """What the server has is metrics.jsonl, row by row, and summary.json."""
    rows = record.rows
    assert there.steps == list(range(len(rows)))
    for sent, row in zip(there.history, rows, strict=True):
        assert sent == pytest.approx(row, nan_ok=True)
    summary = {name: value for name, value in record.summary.items() if value is not None}
    metrics = {name for row in rows for name in row}
    own = {name: value for name, value in there.summary.items() if not name.startswith("_") and name not in metrics}
    assert without_none(own) == without_none(summary)


def without_none(value: Any) -> Any:
    """W&B leaves out what is null."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return value


def test_a_record_that_was_never_mirrored_arrives_whole(upload, server: WandbServer, record: Outcome) -> None:
    status, printed = upload(record.folder)
    assert status == 0, printed
    assert_whole(there := served(server, record), record)
    digest = record.summary["config_sha256"][:8]
    assert there.project == "amp-zoo"
    assert there.upserted["groupName"] == f"tiny-{digest}"
    assert there.upserted["jobType"] == "fp16"
    assert there.upserted["displayName"] == "tiny-fp16-s0"
    assert set(there.upserted["tags"]) == {"resnet", "tiny", "digits", "fp16"}
    config = {name: entry["value"] for name, entry in there.config.items() if name != "_wandb"}
    assert (config["precision"], config["seed"], config["optimizer"]["lr"]) == ("fp16", 0, 0.05)
    axes = there.config["_wandb"]["value"]["m"]
    assert [axis.get("1", axis.get("2")) for axis in axes] == ["train/step", "*"]
    assert axes[1]["5"] == 1, "the step axis of every metric is the first one"
    assert there.exit_code == 0
    assert f"W&B: {server.url}/tester/amp-zoo/runs/{record.environment['run_id']}" in printed
    assert there.events == [], "this machine's load is not the run's"
    assert "wandb-metadata.json" not in there.files


def test_given_twice_nothing_is_there_twice(upload, server: WandbServer, record: Outcome) -> None:
    for _ in range(2):
        status, printed = upload(record.folder, record.folder)
        assert status == 0, printed
        assert "WARNING" not in printed
        assert_whole(served(server, record), record)
    assert served(server, record).history_requests[0][0] == 0
    assert sum(count for _, count in served(server, record).history_requests) == len(record.rows)


@pytest.mark.parametrize("rows_there", [1, 5])
def test_what_a_broken_mirror_left_is_completed(rows_there: int, upload, server: WandbServer, record: Outcome) -> None:
    assert upload(record.folder)[0] == 0
    there = served(server, record)
    del there.lines[rows_there:]
    there.summary = {"status": "interrupted", "final": {"amp/other": 1.0}, "of_an_older_version": 3, "_step": 0}
    there.exit_code = None
    there.history_requests.clear()
    status, printed = upload(record.folder)
    assert status == 0, printed
    assert_whole(there, record)
    assert there.history_requests[0][0] == rows_there
    assert there.exit_code == 0


def test_what_the_server_refused_follows_when_it_takes_it(upload, server: WandbServer, record: Outcome) -> None:
    server.refuse_history_from = 5
    assert "Some run data will not be synced" in upload(record.folder)[1]
    assert served(server, record).lines == []
    server.refuse_history_from = None
    assert upload(record.folder)[0] == 0
    assert_whole(served(server, record), record)


def test_the_summary_is_the_records_when_no_row_was_missing(upload, server: WandbServer, record: Outcome) -> None:
    assert upload(record.folder)[0] == 0
    there = served(server, record)
    there.summary |= {"status": "interrupted", "reason": "SIGTERM", "final": {"eval/accuracy": -1.0, "gone": 1}}
    assert upload(record.folder)[0] == 0
    assert_whole(there, record)


def test_a_killed_run_with_a_torn_line_is_uploaded_up_to_it(upload, server: WandbServer, record: Outcome) -> None:
    rows = record.rows[:4]
    rows[2] |= {"train/loss": math.nan}
    (record.folder / "metrics.jsonl").write_text("".join(map(to_line, rows)) + '{"train/loss": 0.3, "tra')
    (record.folder / "summary.json").unlink()
    status, printed = upload(record.folder, "--project", "other")
    assert status == 0, printed
    assert "4 rows, failed; left out of metrics.jsonl as torn: 1" in printed
    there = served(server, record)
    assert there.project == "other"
    assert there.steps == [0, 1, 2, 3]
    assert math.isnan(there.history[2]["train/loss"])
    assert (there.summary["status"], there.exit_code) == ("failed", 1)
    assert there.summary["reason"] == "no summary.json: the run was killed"


def test_a_live_run_that_was_interrupted_is_one_run_without_gap_or_repetition(
    server: WandbServer, tmp_path: Path, log: Path
) -> None:
    environment = {"WANDB_MODE": "online", "WANDB_BASE_URL": server.url, "WANDB_API_KEY": FAKE_KEY}
    assert run_apart(tmp_path, log, forward=AtCall(8, _terminate), environment=environment) == 75
    folder = folder_of(tmp_path, TINY, "fp32")
    [there] = server.runs.values()
    assert there.exit_code == 75
    assert run_apart(tmp_path, log, environment=environment) == 0, log.read_text()
    assert list(server.runs.values()) == [there]
    assert_whole(there, Outcome(0, "", "", folder))
    assert there.exit_code == 0


def _terminate() -> None:
    import signal

    signal.raise_signal(signal.SIGTERM)


def _no_metrics(folder: Path) -> Path:
    (folder / "metrics.jsonl").write_text('{"train/loss": 0.')
    return folder


def _smoke(folder: Path) -> Path:
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "smoke": True}))
    return folder


def _killed_smoke(folder: Path) -> Path:
    (folder / "summary.json").unlink()
    environment = json.loads((folder / "environment.json").read_text())
    environment["attempts"][-1]["command"] = "python -m train.resnet tiny.yaml --precision fp16 --smoke"
    (folder / "environment.json").write_text(json.dumps(environment))
    return folder


def _no_run(folder: Path) -> Path:
    return folder.parent


def _file(folder: Path) -> Path:
    return folder / "metrics.jsonl"


def _misspelt(folder: Path) -> Path:
    return folder.with_name("fp16-s11")


def _copy(folder: Path) -> Path:
    shutil.copytree(folder, folder.with_name("copy"))
    return folder.with_name("copy")


def _damaged(folder: Path) -> Path:
    (folder / "config.yaml").write_text("name: tiny\nbatch_size: many\n")
    return folder


def _with(file: str, **changes: Any) -> Callable[[Path], Path]:
    """Changes keys of a JSON file of the run."""

    def spoil(folder: Path) -> Path:
        value = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**value, **changes}))
        return folder

    return spoil


def _killed_with_a_strange_command(folder: Path) -> Path:
    (folder / "summary.json").unlink()
    return _with("environment.json", attempts=[{"changed": {}}, {"command": 5}])(folder)


def _torn(folder: Path) -> Path:
    text = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(text[: len(text) // 2])
    return folder


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            _with("summary.json", status=["x"]),
            "fp16-s1/summary.json is not the summary of a run: status: input should be 'finished', 'failed'",
        ),
        (
            _with("summary.json", status=None),
            "status: input should be 'finished', 'failed', 'diverged' or 'interrupted', not null",
        ),
        (
            _with("summary.json", smoke="no"),
            'fp16-s1/summary.json is not the summary of a run: smoke: input should be a valid boolean, not "no"',
        ),
        (_torn, "fp16-s1/summary.json is not readable as JSON"),
        (
            _killed_with_a_strange_command,
            "fp16-s1/environment.json is not the environment of a run: attempts.1.command: input should be",
        ),
        (
            _with("environment.json", precision={"requested": None}),
            "precision.requested: input should be a valid string, not null",
        ),
        (
            _with("environment.json", precision={"requested": "fp61"}),
            'precision.requested: must be one of fp32, tf32, bf16, fp16, not "fp61"',
        ),
        (
            _with("environment.json", precision=None),
            "precision: input should be a valid object, not null",
        ),
        (_with("environment.json", seed="zero"), 'seed: input should be a valid integer, not "zero"'),
        (_with("environment.json", seed=True), "seed: input should be a valid integer, not true"),
        (_with("environment.json", run_id=None), "run_id: input should be a valid string, not null"),
        (_no_metrics, "fp16-s1 has no metrics: metrics.jsonl is missing or has no whole line"),
        (_smoke, "fp16-s1 is a smoke run"),
        (_killed_smoke, "fp16-s1 is a smoke run"),
        (_no_run, "tiny is not the folder of a run: it has no environment.json; runs in it: "),
        (_file, "metrics.jsonl is a file; a run is a folder, such as "),
        (_misspelt, "/tiny/fp16-s1'? allowed: "),
        (_copy, "are one run, "),
        (
            _with("environment.json", attempts=3),
            "environment.json is not the environment of a run: attempts: input should be a valid list, not 3",
        ),
        (_damaged, "config.yaml: not a configuration: model: field required"),
    ],
)
def test_what_is_no_record_is_named_before_anything_is_uploaded(
    spoil: Callable[[Path], Path],
    message: str,
    server: WandbServer,
    record: Outcome,
    capfd: pytest.CaptureFixture[str],
) -> None:
    other = record.folder.with_name("fp16-s1")
    shutil.copytree(record.folder, other)
    environment = json.loads((other / "environment.json").read_text())
    (other / "environment.json").write_text(json.dumps({**environment, "run_id": "ffff0000"}))
    wrong = spoil(other)
    assert sync.main([str(record.folder), str(other), str(wrong)]) == 2
    assert message in capfd.readouterr().err
    assert server.operations == []
    assert not list(record.folder.rglob("*.wandb"))


def test_a_run_that_goes_on_is_left_alone(server: WandbServer, record: Outcome, capfd) -> None:
    with lock_folder(record.folder):
        assert sync.main([str(record.folder)]) == 2
    assert f"{record.folder} is in use by another process" in capfd.readouterr().err
    assert server.operations == []


@pytest.mark.parametrize(
    ("environment", "arguments", "message"),
    [
        ({"WANDB_MODE": "disabled"}, [], "WANDB_MODE is 'disabled'"),
        ({}, ["--project", "a/b"], "Invalid project name 'a/b'"),
        ({}, ["--project", ""], "project: the name is empty"),
    ],
)
def test_a_wrong_mode_or_project_is_refused(
    environment: dict[str, str],
    arguments: list[str],
    message: str,
    server: WandbServer,
    record: Outcome,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert sync.main([str(record.folder), *arguments]) == 2
    assert message in capfd.readouterr().err
    assert server.operations == []


def test_without_a_key_it_is_written_offline_once_and_never_asks(
    record: Outcome, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setattr("sys.stdin", None)
    for earlier in (0, 1):
        assert sync.main([str(record.folder)]) == 0
        [path] = offline_files(record.folder)
        assert len(superseded_files(record.folder)) == earlier
        [line] = [line for line in capfd.readouterr().out.splitlines() if "W&B" in line]
        assert line == f"W&B offline: `wandb sync {path.parent}` uploads it"
        there = the("run", path)
        assert (there.run_id, there.project) == (record.environment["run_id"], "amp-zoo")
        assert (there.run_group, there.job_type) == (f"tiny-{record.summary['config_sha256'][:8]}", "fp16")
        assert history(path) == [pytest.approx(row, nan_ok=True) for row in record.rows]
        assert the("exit", path).exit_code == 0


def _impatient(folder: str) -> int:
    mirrored.Mirror = functools.partial(Mirror, init_seconds=2.0)  # type: ignore[misc,assignment]
    return sync.main([folder])


def test_a_server_that_does_not_answer_is_exit_status_1(record: Outcome, log: Path) -> None:
    environment = {"WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": FAKE_KEY}
    status = wait(start(functools.partial(_impatient, str(record.folder)), log, **environment))
    printed = log.read_text()
    assert status == 1
    assert f"{record.folder} was not uploaded whole; the same command goes on from there" in printed


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """A comparison of two runs, one of which left no record."""
    folder = tmp_path / "resnet20_digits"
    shutil.copytree(RESULTS, folder)
    comparison = compare(folder, ["fp32", "bf16", "fp16"], [0, 1, 2], "python -m train.compare", 0.005, 1)
    page.write(folder, comparison)
    comparison["runs"] = [run for run in comparison["runs"] if run["run"] in ("fp16-s0", "bf16-s0")]
    write_json(folder / "comparison.json", comparison)
    shutil.rmtree(folder / "bf16-s0")
    return folder


def test_a_comparison_has_its_report_its_charts_and_every_figure(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert sync.main([str(experiment)]) == 0
    printed = capfd.readouterr().out
    assert f"left out: {experiment / 'bf16-s0'} is not the folder of a run" in printed
    [of_run] = offline_files(experiment / "fp16-s0")
    assert len(history(of_run)) == len(read_lines(RESULTS / "fp16-s0" / "metrics.jsonl")[0])
    [path] = offline_files(experiment)
    there = the("run", path)
    assert (there.run_id, there.job_type) == (COMPARISON, "comparison")
    assert there.display_name == "resnet20_digits-comparison"
    report = (experiment / "report.html").read_text()
    names = ["loss", "metric", "pairs", "speed", "memory", "scale"]
    shown, media = _media_of(path)
    assert set(shown) == {"comparison", "report", *(f"charts/{name}" for name in names)}
    assert media["report"] == report
    for name in names:
        assert media[f"charts/{name}"].count("<svg ") == 1
        assert f'<figcaption id="{name}-caption">' in media[f"charts/{name}"]
        assert "--bf16: #0072b2" in media[f"charts/{name}"], "the colours are those of the page"
    table = json.loads(media["comparison"])
    assert [row[0] for row in table["data"]] == ["fp32", "bf16", "fp16"]
    comparison = json.loads((experiment / "comparison.json").read_text())
    summary = _summary_of(path)
    for row in comparison["rows"]:
        assert without_none(summary[row["precision"]]) == without_none(row)


def _first_row(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda comparison: comparison["rows"][0].update({key: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda comparison: comparison.update(rows=[]),
            "rows: list should have at least 1 item after validation, not 0",
        ),
        (
            lambda comparison: comparison.update(runs=[3]),
            "runs.0: input should be a valid object, not 3",
        ),
        (lambda comparison: comparison.update(seeds=3), "seeds: input should be a valid list, not 3"),
        (lambda comparison: comparison.pop("precisions"), "precisions: field required"),
        (lambda comparison: comparison.update(metric=1), "metric: input should be a valid string, not 1"),
        (lambda comparison: comparison["runs"][0].pop("run"), "runs.0.run: field required"),
        (_first_row("precision", ["x"]), "rows.0.precision: input should be a valid string"),
        (lambda comparison: comparison["rows"][1].pop("speedup"), "rows.1.speedup is missing"),
        (_first_row("mean", "high"), "rows.0 has a value of the wrong kind: "),
    ],
)
def test_a_comparison_that_is_none_is_refused_by_file_and_key(
    change: Callable[[dict[str, Any]], None],
    message: str,
    server: WandbServer,
    experiment: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    comparison = json.loads((experiment / "comparison.json").read_text())
    change(comparison)
    write_json(experiment / "comparison.json", comparison)
    assert sync.main([str(experiment)]) == 2
    error = capfd.readouterr().err
    assert error.startswith(f"error: {experiment / 'comparison.json'}")
    assert message in error
    assert server.operations == []


def test_an_experiment_with_a_damaged_run_is_refused_whole(
    server: WandbServer, experiment: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _torn(experiment / "fp16-s0")
    assert sync.main([str(experiment)]) == 2
    assert f"error: {experiment / 'fp16-s0' / 'summary.json'} is not readable" in capfd.readouterr().err
    assert server.operations == []


def _media_of(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What an offline file's one row shows, by name, and the contents of the files that it points to."""
    shown = _nested(the("history", path).item)
    # W&B adds the step axis to a row that has none.
    shown = {name: value for name, value in shown.items() if not name.startswith("_") and name != "train/step"}
    return shown, {name: (path.parent / "files" / value["path"]).read_text() for name, value in shown.items()}


def _summary_of(path: Path) -> dict[str, Any]:
    updates = [record.summary.update for record in offline_records(path) if record.HasField("summary")]
    return _nested(item for update in updates for item in update)


def _nested(items: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        *outer, last = list(item.nested_key) or [item.key]
        functools.reduce(lambda place, key: place.setdefault(key, {}), outer, found)[last] = json.loads(item.value_json)
    return found


def test_a_comparison_given_twice_is_one_row_until_its_report_changes(
    upload, server: WandbServer, experiment: Path
) -> None:
    rows = []
    for change in ("", "", "<!-- other figures -->"):
        report = experiment / "report.html"
        report.write_text(report.read_text() + change)
        status, printed = upload(experiment)
        assert status == 0, printed
        there = server.runs[COMPARISON]
        rows.append(len(there.lines))
        [_, _, fp16] = json.loads((experiment / "comparison.json").read_text())["rows"]
        assert fp16["verdict"] is not None
        assert there.summary["fp16"]["verdict"] == fp16["verdict"]
        assert there.summary["report"]["_type"] == "html-file"
        assert there.summary["charts/loss"]["_type"] == "html-file"
    assert rows == [1, 1, 2]
    assert there.files[there.summary["report"]["path"]] == report.read_bytes()
