"""How a command is asked to stop: at once while it has nothing to save, after its step once it trains."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

INTERRUPTED = 75  # sysexits.h: EX_TEMPFAIL, "try again later"
# Names a file into which a run that a comparison started writes why it ended.
REASON_FILE = "AMP_ZOO_REASON_FILE"
PARENT = os.getppid()


def on_stop(handler: Callable[[int, FrameType | None], Any]) -> None:
    """Give `handler` the signals that ask for an end: SIGTERM, SIGINT, and SIGHUP unless nohup had it ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def leave_at_once() -> None:
    """From now on a signal ends the process with exit status 75 and one line, until a command has work to save."""
    on_stop(_leave)


def spoken_for() -> bool:
    """Whether a comparison that still lives started this process: it is the one to say that it was interrupted."""
    return REASON_FILE in os.environ and os.getppid() == PARENT


def _leave(number: int, frame: FrameType | None) -> None:
    # No exception: in the middle of an import or of a callback a library may swallow or wrap it.
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    name = signal.Signals(number).name
    if not spoken_for():
        os.write(2, f"interrupted: {name}, with nothing to save yet; the same command starts it again\n".encode())
    os._exit(INTERRUPTED)


class Signals:
    """The signals ask the run to stop after the step it is in; a second one ends the process at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        on_stop(self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.received = signal.Signals(number)
