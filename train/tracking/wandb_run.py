"""One run at Weights & Biases, which may fail or hang without touching the training."""

import contextlib
import os
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.records.metric import Metric
from reports.records.metrics import STEP, Figure
from reports.records.summary import Summary
from train.engine.errors import Refused

if TYPE_CHECKING:
    import wandb

PROJECT = "amp-zoo"
START_SECONDS = 30.0
FINISH_SECONDS = 60.0
UPLOAD_SECONDS = 600.0  # to finish when no training waits behind it
# Requests that fail at once, as they do without a network, are repeated after about 2 and 5 s more; by default W&B
# repeats them for all of START_SECONDS. A server that is slow to answer still has that long.
RETRIES = 2
# What metrics.jsonl has in its lines and no chart can use: one value for the whole run, a text, and a rare count that
# summary.json adds up.
NO_SERIES = frozenset({"memory/saved_for_backward_mib", "throughput/reason", "train/nonfinite_loss_steps"})


def chosen_mode() -> str:
    """WANDB_MODE, online where it is not set. Online without a key is offline: W&B would ask for one."""
    mode = os.environ.get("WANDB_MODE") or "online"
    mode = {"run": "online", "dryrun": "offline"}.get(mode, mode)  # W&B's earlier names
    return "offline" if mode == "online" and not _has_key() else mode


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    with contextlib.suppress(Exception):  # a key of the wrong form, no wandb
        from wandb.sdk.lib.wbauth import read_netrc_auth
        from wandb.sdk.wandb_setup import singleton

        settings = singleton().settings  # with those of `wandb login --host`
        return bool(settings.api_key or read_netrc_auth(host=os.environ.get("WANDB_BASE_URL") or settings.base_url))
    return False


def require_project(name: str | None) -> None:
    """Raise `Refused` when W&B has no projects of this name; None stands for the default."""
    import wandb

    if name is not None and not name.strip():
        raise Refused("project: the name is empty")
    try:
        wandb.Settings(project=name or os.environ.get("WANDB_PROJECT"))
    except wandb.errors.UsageError as error:
        raise Refused(f"project: {error}") from None


@dataclass
class WandbRun:
    """One W&B run in `folder`/wandb with a stable `run_id`.

    Row n of metrics.jsonl is step n of the W&B run, and rows are sent in order, so that W&B always has a beginning of
    the record, without a gap. Online the run is resumed, and W&B says how many rows it has (a resumed run repeats rows
    bit for bit). Offline there is nobody to ask, so each attempt writes the whole history again, and the files of
    earlier ones are moved to wandb/superseded: `wandb sync` appends what it reads to what W&B has.

    `arguments` are those of `wandb.init`; `project` None is WANDB_PROJECT, or amp-zoo. The summary has the best and
    the last value of `metric`, and of other figures the last. `live` says that this process is the run: then W&B also
    records what it prints, this machine and its load, and has less time to finish. Disabled, nothing happens.
    """

    folder: Path
    run_id: str
    arguments: dict[str, Any]
    project: str | None = None
    live: bool = True
    metric: Metric | None = None
    mode: str = field(default_factory=chosen_mode)
    address: str | None = field(default=None, init=False)
    run: "wandb.Run | None" = field(default=None, init=False)
    rows: list[Mapping[str, Figure]] = field(default_factory=list, init=False)
    series: set[str] = field(default_factory=set, init=False)
    sent: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    finished: bool = field(default=False, init=False)

    def open(self, rows: Iterable[Mapping[str, Figure]] = ()) -> None:
        """Start the W&B run and send the `rows` that it does not have."""
        if self.mode != "disabled":
            self.rows = list(rows)
            self.series = {name for row in self.rows for name in row} - NO_SERIES
            self._bounded("start", START_SECONDS, self._start)
            self._send()

    def log(self, row: Mapping[str, Figure]) -> None:
        """Send one row, after those that could not be sent before it."""
        if self.mode != "disabled":
            self.rows.append(row)
            self.series |= row.keys() - NO_SERIES
            self._send()

    def call(self, what: str, action: "Callable[[wandb.Run], object]") -> bool:
        """Do something with the W&B run, and return whether it was done; the first failure is printed."""
        run = self.run
        return run is not None and self._guarded(what, lambda: action(run))

    def close(self, summary: Summary, exit_status: int) -> None:
        """Make `summary` the W&B run's and finish. W&B itself adds the newest value of every series."""
        others = {name: summary.final[name] for name in NO_SERIES & summary.final.keys()}
        self.end({**summary.model_dump(exclude_none=True), **others}, self.series, exit_status)

    def end(self, values: Mapping[str, object], logged: Iterable[str], exit_status: int) -> None:
        """Finish, with `values` and the newest of what was `logged` as the summary."""
        names, seconds = {*values, *logged}, FINISH_SECONDS if self.live else UPLOAD_SECONDS
        self.call("summary", lambda run: _replace_summary(run, values, names))
        if run := self.run:
            self.finished = self._bounded("finish", seconds, lambda: run.finish(exit_code=exit_status))
        if self.failures:
            print(
                f"warning: {self.failures} calls to Weights & Biases failed; {self.folder} has everything", flush=True
            )

    @property
    def complete(self) -> bool:
        """Whether all of it was handed over: every row, the summary and the end."""
        return self.finished and self.failures == 0 and self.sent >= len(self.rows)

    def location(self) -> str | None:
        """One line on where to look: the run's address, or how to upload it."""
        return self.address

    def _start(self) -> None:
        import wandb

        if self.mode == "offline":
            aside = self.folder / "wandb" / "superseded"
            for earlier in sorted(aside.parent.glob("offline-run-*")):
                aside.mkdir(exist_ok=True)
                earlier.rename(aside / f"{len(list(aside.iterdir()))}-{earlier.name}")
        settings = wandb.Settings(silent=True, init_timeout=START_SECONDS, x_graphql_retry_max=RETRIES)
        settings.x_disable_machine_info = not self.live
        if not self.live:
            settings.console = "off"
        run = wandb.init(
            project=self.project or os.environ.get("WANDB_PROJECT", PROJECT),
            dir=self.folder,
            id=self.run_id,
            resume=None if self.mode == "offline" else "allow",
            mode=self.mode,  # type: ignore[arg-type]
            settings=settings,
            **self.arguments,
        )
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP)
        if self.metric is not None:
            best = "max" if self.metric.higher_is_better else "min"
            run.define_metric(self.metric.key, step_metric=STEP, summary=f"{best},last")
        sync, path = ("python -m train.sync", self.folder) if self.live else ("wandb sync", Path(run.dir).parent)
        offline = f"W&B offline: `{sync} {shlex.quote(str(path))}` uploads it"
        self.address = offline if self.mode == "offline" else f"W&B: {run.url}"
        self.sent = run.starting_step
        self.run = run

    def _send(self) -> None:
        def send_next(run: "wandb.Run") -> None:
            series = {name: value for name, value in self.rows[self.sent].items() if name not in NO_SERIES}
            run.log(series, step=self.sent, commit=True)
            self.rows[self.sent] = {}  # memory must not grow with the length of a run
            self.sent += 1

        while self.sent < len(self.rows) and self.call("log", send_next):
            pass  # after a failure, the next call begins with the row that failed

    def _bounded(self, what: str, seconds: float, action: Callable[[], object]) -> bool:
        """Run `action` in a thread, and return whether it ended within `seconds`."""
        thread = threading.Thread(target=self._guarded, args=(what, action), daemon=True)
        thread.start()
        thread.join(seconds)
        if late := thread.is_alive():
            print(f"warning: Weights & Biases did not {what} within {seconds:g} s", flush=True)
        return not late

    def _guarded(self, what: str, action: Callable[[], object]) -> bool:
        try:
            action()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a logger raises, SystemExit included, training continues
            self.failures += 1
            if self.failures == 1:
                print(f"warning: Weights & Biases {what} failed ({type(error).__name__}: {error})", flush=True)
            return False
        return True


def _replace_summary(run: "wandb.Run", values: Mapping[str, object], names: Iterable[str]) -> None:
    for name in set(run.summary.keys()) - set(names):
        if not name.startswith("_"):
            del run.summary[name]  # an earlier attempt's
    run.summary.update(dict(values))
