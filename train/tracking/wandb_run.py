"""Weights & Biases as a mirror of the record: it may fail or hang without touching the run."""

import contextlib
import functools
import netrc
import os
import shlex
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from train.engine.errors import Refused

PROJECT = "amp-zoo"
PUBLIC_ADDRESS = "https://api.wandb.ai"
INIT_SECONDS = 30.0
# Requests that fail at once, as they do without a network, are repeated after about 2 and 5 s more; by default W&B
# repeats them for all of INIT_SECONDS. A server that is slow to answer still has that long.
RETRIES = 2
FINISH_SECONDS = 60.0


def mode() -> str:
    """WANDB_MODE when it is set; otherwise online with a key and offline without one. Never a prompt."""
    if chosen := os.environ.get("WANDB_MODE"):
        return chosen
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return "online"
    with contextlib.suppress(Exception):  # no such file, no such host, no wandb
        import wandb

        known = netrc.netrc(os.environ.get("NETRC"))
        addresses = [wandb.Settings().base_url] + ([] if os.environ.get("WANDB_BASE_URL") else [PUBLIC_ADDRESS])
        hosts = {urlparse(address).hostname or "" for address in addresses}
        if any(known.authenticators(host) for host in hosts):
            return "online"
    return "offline"


def require_project(name: str | None) -> None:
    """Raise `Refused` when W&B has no projects of this name; None stands for the default."""
    import wandb

    try:
        wandb.Settings(project=name or os.environ.get("WANDB_PROJECT"))
    except wandb.errors.UsageError as error:
        raise Refused(f"project: {error}") from None
    if name is not None and not name.strip():
        raise Refused("project: the name is empty")


class Mirror:
    """One W&B run in `folder`/wandb with a stable `run_id`.

    Row n of the record is step n of the W&B run, and rows are sent in order, so that what W&B has is always a
    beginning of the record, without a gap. Online the run is resumed and W&B says how many rows it has (a resumed run
    repeats rows bit for bit). Offline there is nobody to ask, so each attempt writes the whole history again, and the
    files of earlier ones are moved to wandb/superseded: `wandb sync` appends what it reads to what W&B has.

    `project` is that of WANDB_PROJECT, or amp-zoo, when it is None. `live` says that this process is the run: then
    W&B also records this machine and how busy it is.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        project: str | None = None,
        live: bool = True,
        init_seconds: float = INIT_SECONDS,
        finish_seconds: float = FINISH_SECONDS,
        **arguments: Any,
    ) -> None:
        self.folder, self.run_id, self.arguments = folder, run_id, arguments
        self.project = project or os.environ.get("WANDB_PROJECT", PROJECT)
        self.live = live
        self.init_seconds, self.finish_seconds = init_seconds, finish_seconds
        self.run: Any = None
        self.rows: list[dict[str, Any]] = []
        self.sent = 0
        self.failures = 0
        self.finished = False

    def open(self, history: Sequence[dict[str, Any]] = ()) -> None:
        """Start the W&B run and bring it up to date with `history`."""
        self.rows = list(history)
        self._bounded("start", self._start, self.init_seconds)
        self._send()

    def log(self, row: dict[str, Any]) -> None:
        """Send one row, after those that could not be sent before it."""
        self.rows.append(row)
        self._send()

    def call(self, what: str, action: Callable[[Any], Any]) -> bool:
        """Do something with the W&B run, and say whether it was done; a failure is counted and said once."""
        if self.run is None:
            return False
        with self._guarded(what):
            action(self.run)
            return True
        return False

    def close(self, summary: Mapping[str, Any], exit_status: int, logged: Iterable[str] = ()) -> None:
        """Make `summary` the run's and finish, within `finish_seconds`.

        W&B itself adds the newest value of every metric; `logged` names those that are not in the rows sent here.
        """
        if self.run is None:
            return
        kept = {*summary, *logged, *(name for row in self.rows for name in row)}
        self.call("summary", functools.partial(_replace_summary, summary, kept))
        run = self.run
        self.finished = self._bounded("finish", lambda: run.finish(exit_code=exit_status), self.finish_seconds)
        if self.failures:
            print(
                f"warning: {self.failures} calls to Weights & Biases failed; {self.folder} has everything", flush=True
            )

    @property
    def complete(self) -> bool:
        """Whether all of it was handed over: every row, the summary and the end."""
        return self.finished and self.failures == 0 and self.sent >= len(self.rows)

    def location(self) -> str | None:
        """One line on where to look: the run's address, or how to upload or view it."""
        if self.run is None or mode() == "disabled":
            return None
        if mode() == "online":
            return f"W&B: {self.run.url}"
        folder = Path(self.run.dir).parent
        return f"W&B offline: `wandb sync {shlex.quote(str(folder))}` uploads it"

    def _start(self) -> None:
        import wandb

        if mode() == "offline":
            self._set_earlier_files_aside()
        run = wandb.init(
            project=self.project,
            dir=self.folder,
            id=self.run_id,
            resume="allow" if mode() == "online" else None,
            mode=mode(),  # type: ignore[arg-type]
            settings=wandb.Settings(
                silent=True,
                console="off",
                init_timeout=self.init_seconds,
                x_graphql_retry_max=RETRIES,
                x_disable_machine_info=not self.live,
            ),
            **self.arguments,
        )
        run.define_metric("train/step")
        run.define_metric("*", step_metric="train/step")
        self.sent = run.starting_step
        self.run = run

    def _set_earlier_files_aside(self) -> None:
        aside = self.folder / "wandb" / "superseded"
        for earlier in sorted(aside.parent.glob("offline-run-*")):
            aside.mkdir(exist_ok=True)
            earlier.rename(aside / f"{len(list(aside.iterdir()))}-{earlier.name}")

    def _send(self) -> None:
        while self.run is not None and self.sent < len(self.rows):
            if not self.call("log", functools.partial(_log, self.rows[self.sent], self.sent)):
                return  # the next call begins with this row
            self.sent += 1

    def _bounded(self, what: str, action: Callable[[], object], seconds: float) -> bool:
        """Run `action` aside, and go on without it when it takes longer than `seconds`; whether it did not."""

        def guarded() -> None:
            with self._guarded(what):
                action()

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        thread.join(seconds)
        if late := thread.is_alive():
            print(f"warning: Weights & Biases did not {what} within {seconds:g} s", flush=True)
        return not late

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # whatever a logger raises, SystemExit included, training goes on
            if isinstance(error, KeyboardInterrupt):
                raise
            self.failures += 1
            if self.failures == 1:
                print(f"warning: Weights & Biases {what} failed ({type(error).__name__}: {error})", flush=True)


def _log(row: Mapping[str, Any], step: int, run: Any) -> None:
    run.log(row, step=step, commit=True)


def _replace_summary(summary: Mapping[str, Any], kept: Collection[str], run: Any) -> None:
    for name in list(run.summary.keys()):
        if name not in kept and not name.startswith("_"):
            del run.summary[name]  # an earlier attempt's
    run.summary.update(summary)
