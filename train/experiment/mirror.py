"""Weights & Biases as a mirror of the record: it may fail or hang without touching the run."""

import contextlib
import netrc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

PROJECT = "amp-zoo"
FINISH_SECONDS = 60.0


def mode() -> str:
    """WANDB_MODE when it is set; otherwise online with a key and offline without one. Never a prompt."""
    if chosen := os.environ.get("WANDB_MODE"):
        return chosen
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return "online"
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        if netrc.netrc(os.environ.get("NETRC")).authenticators(host):
            return "online"
    return "offline"


class Mirror:
    """One W&B run in `folder`/wandb with a stable `run_id`.

    Offline, W&B ignores a resume and starts a new file, so each attempt writes the whole history again:
    the newest folder alone is the run. Online, the run is resumed and steps that it already has are not
    sent twice (a resumed run repeats them bit for bit).
    """

    def __init__(self, folder: Path, run_id: str, finish_seconds: float = FINISH_SECONDS, **arguments: Any) -> None:
        self.folder, self.run_id, self.finish_seconds, self.arguments = folder, run_id, finish_seconds, arguments
        self.run: Any = None
        self.failures = 0
        self.sent = self.count = 0

    def open(self, history: Sequence[dict[str, Any]] = (), sent: int = 0) -> None:
        """Start the W&B run and bring it up to date with `history`."""
        with self._guarded("init"):
            import wandb

            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                dir=self.folder,
                id=self.run_id,
                resume="allow" if mode() == "online" else None,
                mode=mode(),  # type: ignore[arg-type]
                settings=wandb.Settings(silent=True, console="off"),
                **self.arguments,
            )
            self.run.define_metric("train/step")
            self.run.define_metric("*", step_metric="train/step")
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

        def finish() -> None:
            self.call("finish", lambda run: run.finish(exit_code=exit_status))

        thread = threading.Thread(target=finish, daemon=True)
        thread.start()
        thread.join(self.finish_seconds)
        if thread.is_alive():
            print(f"warning: Weights & Biases did not finish within {self.finish_seconds:g} s", flush=True)
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
        return f"W&B offline: `wandb sync {folder}` uploads it"

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever a logger raises, training goes on
            self.failures += 1
            if self.failures == 1:
                print(f"warning: Weights & Biases {what} failed ({type(error).__name__}: {error})", flush=True)
