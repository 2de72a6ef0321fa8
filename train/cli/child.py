"""Commands of this project that a comparison runs in processes of their own, one after the other."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import FrameType

from train.cli.signals import INTERRUPTED, REASON_FILE
from train.engine.errors import Interrupted

_PR_SET_PDEATHSIG = 1  # sys/prctl.h


class Child:
    """At most one process at a time; a signal that this process gets is handed on to it, once."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped_by: signal.Signals | None = None
        self.reason = ""  # why the last command ended, if not with 0

    def call(self, arguments: Sequence[str]) -> int:
        """Exit status of `python -m arguments`. Raises `Interrupted` before or after it when a stop was asked for."""
        self._stop_if_asked()
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as reason:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                start_new_session=True,  # a terminal's Ctrl-C reaches it through us alone
                preexec_fn=_end_with_parent,
                env={**os.environ, REASON_FILE: reason.name},
            )
            if self.stopped_by:  # while the process was being started, when there was none to tell
                self.process.send_signal(signal.SIGTERM)
            status = self.process.wait()
            self.reason = reason.read()
        self._stop_if_asked(self.reason if status == INTERRUPTED else "")
        return status

    def stop(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals that ask for an end."""
        self.stopped_by = signal.Signals(number)
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)  # while Python starts, SIGINT is a traceback

    def _stop_if_asked(self, reason: str = "") -> None:
        if self.stopped_by:
            raise Interrupted(f"{self.stopped_by.name}: {reason or 'the comparison was stopped'}")


def _end_with_parent() -> None:
    """Ask Linux to stop this process when the comparison is killed, so that it does not train on unseen."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
