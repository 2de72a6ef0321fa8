"""Weights & Biases as a mirror of the record: it may fail or hang without touching the run."""

import contextlib
import netrc
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

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


class Mirror:
    """One W&B run in `folder`/wandb with a stable `run_id`.

    Offline, W&B ignores a resume and starts a new file, so each attempt writes the whole history again:
    the newest folder alone is the run. Online, the run is resumed and steps that it already has are not
    sent twice (a resumed run repeats them bit for bit).
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        init_seconds: float = INIT_SECONDS,
        finish_seconds: float = FINISH_SECONDS,
        **arguments: Any,
    ) -> None:
        self.folder, self.run_id, self.arguments = folder, run_id, arguments
        self.init_seconds, self.finish_seconds = init_seconds, finish_seconds
        self.run: Any = None
        self.failures = 0
        self.sent = self.count = 0

    def open(self, history: Sequence[dict[str, Any]] = (), sent: int = 0) -> None:
        """Start the W&B run and bring it up to date with `history`."""
        self._bounded("start", self._start, self.init_seconds)
        if mode() == "online":
            self.sent, self.count = sent, len(history)
        else:
            for row in history:
                self.log(row)

    def log(self, metrics: dict[str, Any]) -> None:
        """Send one line, unless the W&B run has it from an earlier attempt."""
        self.count += 1
        if self.count > self.sent:
            self.call("log", lambda run: run.log(metrics))

    def call(self, what: str, action: Callable[[Any], Any]) -> None:
        """Do something with the W&B run; a failure is counted and said once."""
        if self.run is not None:
            with self._guarded(what):
                action(self.run)

    def close(self, summary: dict[str, Any], exit_status: int) -> None:
        """Send the summary and finish, within `finish_seconds`."""
        if self.run is None:
            return
        self.call("summary", lambda run: run.summary.update(summary))

        run = self.run
        self._bounded("finish", lambda: run.finish(exit_code=exit_status), self.finish_seconds)
        if self.failures:
            print(
                f"warning: {self.failures} calls to Weights & Biases failed; {self.folder} has everything", flush=True
            )

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

        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=self.folder,
            id=self.run_id,
            resume="allow" if mode() == "online" else None,
            mode=mode(),  # type: ignore[arg-type]
            settings=wandb.Settings(
                silent=True, console="off", init_timeout=self.init_seconds, x_graphql_retry_max=RETRIES
            ),
            **self.arguments,
        )
        run.define_metric("train/step")
        run.define_metric("*", step_metric="train/step")
        self.run = run

    def _bounded(self, what: str, action: Callable[[], object], seconds: float) -> None:
        """Run `action` aside, and go on without it when it takes longer than `seconds`."""

        def guarded() -> None:
            with self._guarded(what):
                action()

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            print(f"warning: Weights & Biases did not {what} within {seconds:g} s", flush=True)

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
